package sim_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/sim"
)

var update = flag.Bool("update", false, "write the golden files again")

// drawPlan draws a plan step by step, so that rapid can shrink it step by step.
func drawPlan(t *rapid.T) *faults.Plan {
	ms := func(label string, least, most int) time.Duration {
		return time.Duration(rapid.IntRange(least, most).Draw(t, label)) * time.Millisecond
	}
	p := faults.New(rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "nodes"), rapid.IntRange(1, 4).Draw(t, "clients"))
	p.Seed = rapid.Uint64Range(0, 1000).Draw(t, "seed")
	p.Length = ms("length", 100, 3000)
	p.Work.Fixed = faults.Percent(rapid.Int64Range(0, 100).Draw(t, "fixed"))
	p.Work.Cancel = faults.Percent(rapid.Int64Range(0, 50).Draw(t, "cancel"))
	p.Work.Extend = faults.Percent(rapid.Int64Range(0, 50).Draw(t, "extend"))
	p.Work.Long = faults.Percent(rapid.Int64Range(0, 50).Draw(t, "long"))
	p.Work.Close = faults.Percent(rapid.Int64Range(0, 20).Draw(t, "close"))
	p.Work.Drop = faults.Percent(rapid.Int64Range(0, 100).Draw(t, "drop"))
	p.Work.Tasks = rapid.IntRange(1, 3).Draw(t, "tasks")
	p.Lock.MaxLease = ms("maxlease", 1000, 2000)
	for range rapid.IntRange(0, 8).Draw(t, "events") {
		e := faults.Event{At: ms("at", 0, int(p.Length.Milliseconds())), For: ms("for", 1, 2000)}
		node := faults.Of(rapid.IntRange(0, p.Nodes-1).Draw(t, "node"))
		client := faults.Of(rapid.IntRange(0, p.Clients-1).Draw(t, "client"))
		e.Verb = rapid.SampledFrom([]faults.Verb{faults.Cut, faults.Loss, faults.Duplicate, faults.Delay, faults.Hold, faults.Deafen,
			faults.Crash, faults.Demote, faults.Pause, faults.Kill, faults.Block, faults.Full, faults.Starve, faults.HalfOpen, faults.Reset}).Draw(t, "verb")
		switch e.Verb {
		case faults.Crash:
			e.Procs.Nodes, e.Mode = node, rapid.SampledFrom([]faults.Mode{faults.Durable, faults.Second, faults.Empty, faults.Replica}).Draw(t, "mode")
		case faults.Demote:
			e.Procs.Nodes, e.Mode = node, rapid.SampledFrom([]faults.Mode{faults.Durable, faults.Second, faults.Empty, ""}).Draw(t, "mode")
			if other := rapid.IntRange(0, p.Nodes-1).Draw(t, "of"); e.Mode == "" && !node.Has(other) {
				e.Source = faults.Of(other)
			} else if e.Mode == "" {
				e.Mode = faults.Empty
			}
		case faults.Full:
			e.Procs.Nodes, e.Mode = node, rapid.SampledFrom([]faults.Mode{faults.Disk, faults.Memory}).Draw(t, "lack")
		case faults.Starve:
			e.Procs.Nodes, e.Ratio = node, faults.Percent(rapid.Int64Range(1, 99).Draw(t, "share"))
		case faults.HalfOpen:
			e.Links = faults.Links{Clients: client, Nodes: node, Way: faults.Both}
		case faults.Reset:
			e.Links, e.For = faults.Links{Clients: client, Nodes: node, Way: faults.Both}, 0
		case faults.Block:
			e.Procs.Nodes = node
		case faults.Pause:
			if rapid.Bool().Draw(t, "pause a node") {
				e.Procs.Nodes = node
			} else {
				e.Procs.Clients = client
			}
		case faults.Kill:
			e.Procs.Clients = client
		default:
			e.Links = faults.Links{Clients: client, Nodes: node, Way: rapid.SampledFrom([]faults.Way{faults.Both, faults.To, faults.From}).Draw(t, "way")}
			e.Ratio = faults.Percent(rapid.Int64Range(1, 100).Draw(t, "ratio"))
			e.Range.Max = ms("range", 1, 2000)
		}
		p.Events = append(p.Events, e)
	}
	p, err := faults.Parse(p.String()) // in the order of their times
	assert.Succeed(t, err)
	return p
}

// Each invariant fails from a line of its own, so that rapid, which shrinks as
// long as a failure comes from the same place, does not slip from one to another.
func TestPlansDrawnByRapid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		r := sim.Run(p, nil)
		v := r.Worst()
		if v == nil || v.Outside != "" { // such as a replica that takes over, for who has not met the server
			return
		}
		t.Log(p, v)
		switch v.Invariant {
		case "I1", "I2", "I9":
			t.Fatal("safety: ", v.Invariant)
		case "I3", "I8", "I12":
			t.Fatal("validity: ", v.Invariant)
		case "I4", "I5":
			t.Fatal("fence: ", v.Invariant)
		case "I6", "I10":
			t.Fatal("leaks: ", v.Invariant)
		case "I7":
			t.Fatal("liveness")
		case "I11":
			t.Fatal("truth")
		default:
			t.Fatal(v.Invariant)
		}
	})
}

// A seed gives the same run on every machine, whatever the number of processors,
// under the race detector, and with the garbage collector off: the golden file
// was written without any of these.
func TestRunsAreTheSameEverywhere(t *testing.T) {
	tests.NeedSeconds(t)
	const golden = "testdata/hashes.txt"
	hashes := func() string {
		var b strings.Builder
		for seed := range uint64(30) {
			r := sim.Run(faults.Generate(seed, faults.Profile{Outside: true}), nil)
			fmt.Fprintf(&b, "%d %d %016x\n", seed, r.Events, r.Hash)
		}
		return b.String()
	}
	if *update {
		assert.Succeed(t, os.WriteFile(golden, []byte(hashes()), 0o666))
	}
	want, err := os.ReadFile(golden)
	assert.Succeed(t, err)
	check := func(how string) {
		t.Helper()
		assert.Equal(t, hashes(), string(want), how, golden)
	}
	check("as it is")
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	check("with one processor")
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	check("without garbage collection")
}
