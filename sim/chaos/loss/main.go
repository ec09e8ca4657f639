// Loss measures what leases suffer when packets are lost, on real servers and the production stack:
//
//	go run ./sim/chaos/loss            # every trial, for five minutes each
//	go run ./sim/chaos/loss --for 20s  # a first impression
//
// Each trial has a network namespace of its own, in which a relay drops packets: at random, or all
// of some servers, without a FIN. It also makes packets overtake others. The loss is TCP's own, so it has
// the gaps, the backoff and the half-open connections that a proxy cannot make. It needs what package
// packets needs: Linux, /dev/net/tun, and a user that may make namespaces.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/sim/chaos/packets"
)

// insideFlag makes the program one trial, in its own namespace.
const insideFlag = "--inside"

// unsupported is the status of a trial that cannot be carried out on this machine.
const unsupported = 3

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if len(os.Args) == 3 && os.Args[1] == insideFlag {
		err = inside(ctx, os.Args[2], os.Stdout)
	} else {
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "loss:", err)
		if errors.Is(err, errors.ErrUnsupported) {
			os.Exit(unsupported)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("loss", flag.ContinueOnError)
	last := flags.Duration("for", 5*time.Minute, "how long each trial takes")
	jobs := flags.Int("jobs", 4, "how many trials run at the same time")
	lockers := flags.Int("lockers", 20, "how many Lockers hold leases, each with connections of its own; a fifth as many acquire others")
	leases := flags.Int("leases", 10, "how many leases each Locker holds")
	if err := flags.Parse(args); err != nil {
		return err
	}
	trials := standard(trial{For: *last, Lockers: *lockers, Leases: *leases})
	results := make([]*result, len(trials))
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	free := make(chan struct{}, *jobs)
	var all sync.WaitGroup
	for i, t := range trials {
		if free <- struct{}{}; ctx.Err() != nil {
			break
		}
		all.Go(func() {
			var err error
			if results[i], err = carryOut(ctx, t); err != nil {
				fail(err) // the others end early
			}
			<-free
		})
	}
	all.Wait()
	if !slices.ContainsFunc(results, func(r *result) bool { return r != nil }) {
		return context.Cause(ctx)
	}
	return errors.Join(table(out, trials, results), context.Cause(ctx))
}

// standard returns the trials: loss and reordering, and servers that vanish. All have the times and counts of t.
func standard(t trial) (all []trial) {
	for _, bad := range []trial{{}, {Loss: 1}, {Loss: 10}, {Loss: 30}, {Reorder: 20}, {Loss: 10, Reorder: 20}} {
		t.Loss, t.Reorder = bad.Loss, bad.Reorder
		for _, t.Lease = range []time.Duration{10 * time.Second, 30 * time.Second} {
			all = append(all, t)
		}
	}
	t.Loss, t.Reorder = 0, 0
	for _, t.Lease = range []time.Duration{10 * time.Second, 30 * time.Second} {
		t.Gone, t.Away = 1, t.Lease/2
		all = append(all, t)
		t.Gone = 3
		all = append(all, t)
		t.Away = t.Lease * 3 / 2
		all = append(all, t)
	}
	return all
}

// carryOut carries a trial out in a process with its own namespace. The end of ctx ends it early, with
// what was measured so far.
func carryOut(ctx context.Context, t trial) (*result, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(os.Args[0], insideFlag, string(text))
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	p, err := packets.Start(cmd)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = p.Signal(os.Interrupt) })()
	<-p.Exited()
	switch said := bytes.TrimSpace(stderr.Bytes()); p.ExitCode() {
	case 0:
	case unsupported:
		return nil, packets.Lack(strings.TrimPrefix(string(said), "loss: "))
	default:
		return nil, fmt.Errorf("trial %s failed: %v: %s", text, cmd.ProcessState, said)
	}
	r := new(result)
	return r, json.Unmarshal(stdout.Bytes(), r)
}

// table prints two tables, of loss and of servers that vanish.
func table(out io.Writer, trials []trial, results []*result) error {
	var text bytes.Buffer
	text.WriteString("| packets lost | overtaken | lease | hours held | leases lost | per hour held | renewals without a quorum | free lock acquired in | lost lease held again after |\n|-|-|-|-|-|-|-|-|-|\n")
	for i, t := range trials {
		if r := results[i]; r != nil && t.Gone == 0 {
			fmt.Fprintf(&text, "| %d %% | %d %% | %v | %.2f | %d | %.2f | %.2f %% | %s | %s |\n", t.Loss, t.Reorder, t.Lease, r.Held.Hours(), r.Lost, float64(r.Lost)/r.Held.Hours(),
				100*float64(r.Failed)/float64(r.Failed+r.Renewed), spread(r.Acquired), spread(r.Again))
		}
	}
	text.WriteString("\n| servers that vanish | lease | how often | leases held | leases lost | node is used again after | waiting lock granted after | lease renewed after |\n|-|-|-|-|-|-|-|-|\n")
	for i, t := range trials {
		if r := results[i]; r != nil && t.Gone > 0 {
			fmt.Fprintf(&text, "| %d of %d, for %v | %v | %d | %d | %d | %s | %s | %s |\n", t.Gone, nodes, t.Away, t.Lease, r.Times, t.Lockers*t.Leases, r.Lost,
				spread(r.Used), spread(r.Granted), spread(r.Resumed))
		}
	}
	_, err := text.WriteTo(out)
	return err
}

// spread returns the median of times, their 99th percentile and the longest; or - if there are none.
func spread(times []time.Duration) string {
	if len(times) == 0 {
		return "-"
	}
	sorted := slices.Sorted(slices.Values(times))
	at := func(percent int) string {
		return fmt.Sprintf("%.3g", sorted[(len(sorted)-1)*percent/100].Seconds())
	}
	return fmt.Sprintf("%s, %s, %s s", at(50), at(99), at(100))
}
