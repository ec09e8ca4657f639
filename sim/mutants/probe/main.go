// Probe runs seeds until one breaks an invariant. Package sim/mutants builds it
// with an engine that has a bug, and reads what it prints: each seed before it
// runs, and at the end "killed <invariant> <what>" or "survived".
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
)

func main() {
	to := flag.Uint64("to", 999, "the last seed")
	patience := flag.Duration("patience", 20*time.Second, "how long one seed may run")
	play := flag.String("plan", "", "run this plan, and no seeds")
	by := flag.String("by", "", "the one invariant that runs are held to; a hang or a panic is none")
	shrunk := flag.String("shrink", "", "write the plan of the seed that kills to this file, as small as it can be had")
	flag.Parse()
	var options []sim.Option
	if *by != "" {
		options = append(options, sim.JudgedBy(*by))
	}
	if *play != "" {
		p, err := read(*play)
		if err != nil {
			fmt.Fprintln(os.Stderr, "probe:", err)
			os.Exit(2)
		}
		if invariant, what := try(p, *patience, options); invariant != "" {
			fmt.Println("killed", invariant, what)
			return
		}
		fmt.Println("survived")
		return
	}
	for seed := range *to + 1 {
		fmt.Println(seed)
		plan := faults.Generate(seed, faults.Profile{})
		if invariant, what := try(plan, *patience, options); invariant != "" {
			what, _, _ = strings.Cut(what, "\n")
			if *shrunk != "" {
				shrink(plan, *shrunk, what, options)
			}
			fmt.Println("killed", invariant, what)
			return
		}
	}
	fmt.Println("survived")
}

func read(name string) (*faults.Plan, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return faults.Parse(string(text))
}

// shrink writes a plan to a file, as small as a minute allows.
func shrink(p *faults.Plan, name, what string, options []sim.Option) {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	text := fmt.Sprintf("# %s\n%s", what, sim.Shrink(ctx, p, options...))
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(2)
	}
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
			var memory runtime.MemStats
			if runtime.ReadMemStats(&memory); memory.HeapAlloc > 1<<30 {
				return "hang", "no end within a gigabyte of memory"
			}
		}
	}
}
