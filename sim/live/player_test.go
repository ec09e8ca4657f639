package live_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/live"
)

// play carries out a plan with a Library for each client, without faults of network and
// servers.
func play(t *testing.T, plan string, library func(p *faults.Plan, c clock.Clock) live.Library) (r *sim.Result, lacks []string) {
	t.Helper()
	p, err := faults.Parse("redquorum plan 1\nnodes 3\nclients 2\nlength 3s\nnetwork delay=1ms\n" + plan)
	assert.Succeed(t, err)
	synctest.Test(t, func(*testing.T) {
		var mu sync.Mutex
		var entries []sim.Entry
		report := func(e sim.Entry) {
			mu.Lock()
			defer mu.Unlock()
			entries = append(entries, e)
		}
		c := clock.Runtime()
		begun := c.Now()
		var clients sync.WaitGroup
		players := make([]*live.Player, p.Clients)
		lives := make([]context.CancelFunc, p.Clients)
		start := func(i, n int) {
			life, kill := context.WithCancel(context.Background())
			lives[i] = kill
			players[i] = &live.Player{Plan: p, Client: i, Start: n, Library: library(p, c), Clock: c, Begun: begun, Report: report}
			clients.Go(func() { players[i].Play(life) })
		}
		live.Strike(context.Background(), c, begun, p, report, func(e *faults.Event, end bool) {
			for i := range p.Clients {
				switch {
				case !e.Procs.Clients.Has(i):
				case e.Verb == faults.Kill && !end:
					lives[i]()
				case e.Verb == faults.Kill:
					start(i, 1)
				}
			}
		}, func() {
			for i := range p.Clients {
				start(i, 0)
			}
		})
		report(sim.Entry{At: c.Now().Sub(begun), Kind: sim.KindCalm, Client: -1, Node: -1})
		clients.Wait()
		time.Sleep(live.Expiry(p))
		for _, pl := range players {
			lacks = append(lacks, pl.Lacks()...)
		}
		r = live.Judge{Lock: "it", Slack: time.Millisecond}.Result(p, entries)
	})
	return r, lacks
}

func engine() func(p *faults.Plan, c clock.Clock) live.Library {
	var servers []*model.Node
	return func(p *faults.Plan, c clock.Clock) live.Library {
		var nodes []node.Node
		for i := range p.Nodes {
			if len(servers) < p.Nodes {
				servers = append(servers, model.New(c, string(rune('1'+i))))
			}
			nodes = append(nodes, servers[i])
		}
		options := live.Options(p, c)
		options.SharedNodes = true
		l, err := quorum.New(nodes, options)
		if err != nil {
			panic(err)
		}
		return live.Redquorum(l, nil, c)
	}
}

func TestSteps(t *testing.T) {
	for _, tt := range []struct {
		name, plan string
		want       []string // in this order, of the entries before the faults are over
	}{
		{"lock and unlock", "at 0s lock c1 x\nat 10ms unlock c1\nat 20ms try c2 x\nat 30ms unlock c2\n", []string{"c1 step: lock c1 x", "c1 belief: holds x", "c1 belief end", "c1 result: unlock x: done", "c2 belief: holds x"}},
		{"a lease ends", "lock renew=off\nat 0s lock c1 x\n", []string{"988.000 c1 belief end: no longer has x: lease \"x\" is lost"}},
		{"a lease is renewed", "at 0s lock c1 x\nat 2s unlock c1\n", []string{"c1 belief: holds x", "c1 belief: holds x", "c1 belief: holds x", "2000.000 c1 belief end"}},
		{"extended by hand", "lock renew=off\nat 0s lock c1 x\nat 500ms extend c1 1s\n", []string{"c1 belief: holds x", "500.000 c1 belief: holds x", "148"}},
		{"a try fails", "at 0s lock c1 x\nat 10ms try c2 x\nat 50ms unlock c1\n", []string{"c2 result: try x: "}},
		{"a check and a late write", "lock renew=off\nat 0s lock c1 x\nat 10ms check c1\nat 1.5s write c1 100ms\n", []string{"1600.000 c1 access: writes"}},
		{"no write after the end", "lock renew=off\nat 0s lock c1 x\nat 1.5s write c1\nat 2s lock c2 y\n", []string{"write c1", "!c1 access", "c2 belief"}},
		{"canceled", "at 0s lock c1 x\nat 10ms lock c2 x\nat 100ms cancel c2\nat 2s unlock c1\n", []string{"100.000 c2 result: lock x: acquire \"x\": lock is held by another owner after a wait of 90ms (context canceled)"}},
		{"several names", "at 0s lock c1 x,y\nat 10ms try c2 y\nat 20ms unlock c1\nat 30ms try c2 y\nat 40ms unlock c2\n", []string{"c1 belief: holds x,y", "c2 result: try y: ", "c2 belief: holds y"}},
		{"readers, and a downgrade", "at 0s lock c1 x write\nat 10ms try c2 x read\nat 20ms downgrade c1\nat 30ms try c2 x read\nat 40ms unlock c1,c2\n",
			[]string{"c1 belief: writes x", "c2 result: try to read x: ", "c1 belief: reads x", "c2 belief: reads x"}},
		{"killed", "lock renew=off\nat 0s lock c1 x\nat 10ms lock c2 x\nat 100ms kill c1 for 1s\nat 1.2s try c1 y\nat 1.3s unlock c1\nat 2.5s unlock c2\n",
			[]string{"c1 belief: holds x", "fault: kill", "!c1 belief end", "c2 belief: holds x", "fault end", "c1 belief: holds y"}},
		{"closed", "at 0s lock c1 x\nat 10ms close c1\nat 20ms lock c2 x\nat 30ms unlock c2\n", []string{"c1 belief: holds x", "c1 result: close", "c2 belief: holds x"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, lacks := play(t, tt.plan, engine())
			assert.That(t, r.Verdict == sim.Sound && len(lacks) == 0, "%s %v, and the library lacks %v", r.Verdict, r.Violations, lacks)
			var lines []string
			for _, e := range r.Trace.Entries {
				lines = append(lines, e.String())
			}
			left := lines
			for _, want := range tt.want {
				not := false
				if want, not = strings.CutPrefix(want, "!"); not {
					if slices.ContainsFunc(left[:min(2, len(left))], func(l string) bool { return strings.Contains(l, want) }) {
						t.Errorf("there is a line %q:\n%s", want, strings.Join(lines, "\n"))
					}
					continue
				}
				i := slices.IndexFunc(left, func(l string) bool { return strings.Contains(l, want) })
				assert.Must(t, i >= 0, "no line %q:\n%s", want, strings.Join(lines, "\n"))
				left = left[i+1:]
			}
		})
	}
}

func TestWork(t *testing.T) {
	var all []sim.Entry
	for _, seed := range []string{"1", "2", "3", "4", "5"} {
		r, lacks := play(t, "seed "+seed+"\nwork names=3 tasks=2 try=20% fixed=20% long=20% extend=30% cancel=20% late=20% read=30% write=30% fair=80% down=50% several=20% chain=30%\nlock maxlease=2s\n", engine())
		assert.That(t, r.Verdict == sim.Sound && len(lacks) == 0, "seed %s: %s %v, and the library lacks %v", seed, r.Verdict, r.Violations, lacks)
		all = append(all, r.Trace.Entries...)
	}
	for _, want := range []string{"holds x1,x2,x3", "reads x2", "writes x2", "extend ", "downgrade ", "fair"} {
		if !slices.ContainsFunc(all, func(e sim.Entry) bool { return strings.Contains(e.Text, want) }) {
			t.Errorf("nothing of %q happened", want)
		}
	}
}

// A careless lock grants to everybody, and can do nothing else.
type careless struct{ clock.Clock }

func (c careless) Acquire(_ context.Context, w live.Wanted) (*live.Held, error) {
	if w.Mode != node.Exclusive {
		return nil, errors.ErrUnsupported
	}
	until := c.Now().Add(w.Lease)
	return &live.Held{Until: func() clock.Instant { return until }, Unlock: func(context.Context) error { return nil }}, nil
}
func (careless) Close() error { return nil }

func TestCarelessLock(t *testing.T) {
	r, lacks := play(t, "at 0s lock c1 x\nat 10ms lock c2 x\nat 20ms extend c1 1s\nat 30ms lock c1 y read\n", func(_ *faults.Plan, c clock.Clock) live.Library { return careless{c} })
	if v := r.Worst(); r.Verdict != sim.Unsafe || v.Invariant != "I1" || v.At != 10*time.Millisecond+2 {
		t.Errorf("%s %v", r.Verdict, r.Violations)
	}
	want := []string{"extend", "lock to read"}
	assert.That(t, slices.Equal(lacks, want), "it lacks %v, want %v", lacks, want)
}

func grants(r *sim.Result) map[int][]string {
	all, known := make(map[int][]string), make(map[string]bool)
	for _, e := range r.Trace.Entries {
		if e.Kind == sim.KindBelief && e.At < r.Plan.Length && !known[e.Owner] {
			known[e.Owner] = true
			names := strings.Split(e.Name, ",")
			slices.Sort(names)
			all[e.Client] = append(all[e.Client], e.Mode+" "+strings.Join(names, ","))
		}
	}
	return all
}

// Where nothing depends on how long a call takes, the clients acquire the same locks in
// the same order as in the simulator.
func TestDrawnWorkIsThatOfTheSimulator(t *testing.T) {
	const plan = "seed 5\nlock poll=10ms\nwork names=4 hold=1ms..5ms think=1ms..20ms expiring=0% read=30% write=20% several=30% long=20% late=0%\n"
	here, _ := play(t, plan, engine())
	there := sim.Run(here.Plan, nil, sim.WithTrace())
	for c := range here.Plan.Clients {
		a, b := grants(here)[c], grants(there)[c]
		n := min(len(a), len(b))
		assert.That(t, n >= 30 && slices.Equal(a[:n], b[:n]), "c%d acquires %v; in the simulator %v", c+1, a, b)
	}
}
