// Probe runs seeds until one breaks an invariant. Package sim/mutants builds it
// with an engine that has a bug, and reads what it prints: each seed before it
// runs, and at the end "killed <invariant> <what>" or "survived".
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime/metrics"
	"strings"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
)

func main() {
	from := flag.Uint64("from", 0, "the first seed")
	to := flag.Uint64("to", 999, "the last seed")
	patience := flag.Duration("patience", 20*time.Second, "how long one seed may run")
	by := flag.String("by", "", "the one invariant that runs are held to; a hang or a panic is none")
	flag.Parse()
	var options []sim.Option
	if *by != "" {
		options = append(options, sim.JudgedBy(*by))
	}
	for seed := *from; seed <= *to; seed++ {
		fmt.Println(seed)
		if invariant, what := try(faults.Generate(seed, faults.Profile{}), *patience, options); invariant != "" {
			what, _, _ = strings.Cut(what, "\n")
			fmt.Println("killed", invariant, what)
			return
		}
	}
	fmt.Println("survived")
}

// try runs a plan and returns which invariant it broke, or "". A run that does
// not end, or that eats up the memory, breaks one too. It cannot be stopped: the
// process is to end soon.
func try(p *faults.Plan, patience time.Duration, options []sim.Option) (invariant, what string) {
	type end struct{ invariant, what string }
	ended := make(chan end, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				ended <- end{"panic", fmt.Sprint(p)}
			}
		}()
		switch r := sim.Run(p, nil, options...); r.Verdict {
		case sim.Unsafe, sim.Stuck:
			ended <- end{r.Worst().Invariant, r.Worst().What}
		default:
			ended <- end{}
		}
	}()
	late := time.After(patience)
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case e := <-ended:
			return e.invariant, e.what
		case <-late:
			return "hang", fmt.Sprintf("no end within %v", patience)
		case <-look.C:
			if heap() > 1<<30 {
				return "hang", "no end within a gigabyte of memory"
			}
		}
	}
}

func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		fmt.Fprintln(os.Stderr, "probe: the size of the heap is unknown")
		os.Exit(2)
	}
	return sample[0].Value.Uint64()
}
