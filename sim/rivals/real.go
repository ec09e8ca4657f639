package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/chaos"
	"github.com/redquorum/redquorum/sim/live"
)

func (c *contestant) beChild(in io.Reader, out io.Writer) error {
	return chaos.Client(context.Background(), in, out, func(s *live.Seat) (live.Library, error) {
		var grants atomic.Int64
		s.Holder = func(string) string { // the lock does not tell
			return fmt.Sprintf("c%d, lock %d.%d", s.Client+1, s.Start, grants.Add(1))
		}
		if s.Random == nil {
			s.Random = live.Draw(s.Plan, s.Client, s.Start)
		}
		return c.open(s)
	})
}

type real struct {
	server  string
	stretch int
	long    bool // go on for a lease after the last event
}

// attempts are how a claim is tried on real servers, whose times are not exact, until it
// shows.
var attempts = []real{{stretch: 5}, {stretch: 5}, {stretch: 1}, {stretch: 5, long: true}, {stretch: 20},
	{stretch: 20, long: true}}

func (how real) String() string {
	text := fmt.Sprintf("--stretch %d", how.stretch)
	if how.long {
		text += " --long"
	}
	return text
}

func longer(p *faults.Plan) *faults.Plan {
	q := *p
	for i := range p.Events {
		e := &p.Events[i]
		q.Length = max(q.Length, e.At+e.For+p.Lock.MaxLease)
	}
	return &q
}

// sameNetwork does not stretch the network: other locks have timeouts that no plan sets,
// such as TryNextAfter of rueidislock.
func sameNetwork(p *faults.Plan, stretch int) *faults.Plan {
	q := *p
	q.Network.Delay.Min /= time.Duration(stretch)
	q.Network.Delay.Max /= time.Duration(stretch)
	return &q
}

// run has processes of this program as clients.
func (how *real) run(c *contestant, p *faults.Plan) (*chaos.Outcome, error) {
	how.stretch = max(1, how.stretch)
	for i := range p.Events {
		switch e := &p.Events[i]; e.Verb {
		case faults.Skew, faults.Step, faults.Rate, faults.Strobe, faults.Clone:
			if c.name != ours && e.Procs.Clients != 0 {
				return nil, fmt.Errorf("%s of clients cannot be had: the lock reads the machine's clock, and draws from its kernel", e.Verb)
			}
		}
	}
	if how.long {
		p = longer(p)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "redquorum-rivals-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	config := chaos.Config{Server: how.server, Self: []string{self, "client", c.name}, Stretch: how.stretch, Dir: dir}
	if c.name != ours {
		p = sameNetwork(p, how.stretch)
		config.Lock = c.lock(p)
		// keys are only sampled
		config.Lock.Promised = slices.DeleteFunc(c.judged(), func(invariant string) bool { return invariant == "I9" })
	}
	return chaos.Run(context.Background(), p, config)
}

type claim struct {
	id, invariant string
	plan          *faults.Plan
}

func (c *contestant) claims(in bubble) (all []claim) {
	for _, s := range sim.Scenarios() {
		if o := c.scenario(in, &s); o.wrong() {
			all = append(all, claim{s.ID, o.result.Worst().Invariant, o.plan})
		}
	}
	for _, k := range keptPlans() {
		if _, invariant, ok := strings.Cut(k.came, ": "); ok && k.lock == c {
			all = append(all, claim{path.Base(k.path), invariant, k.plan})
		}
	}
	return all
}

// check repeats on real servers what broke a lock in virtual time, and keeps the results.
// With some IDs it leaves the others as they were.
func (how *real) check(c *contestant, in bubble, some []string, out io.Writer) error {
	lines, before := []string{c.title()}, c.byHand("real")
	for _, claim := range c.claims(in) {
		text := before[claim.id]
		if len(some) == 0 || slices.Contains(some, claim.id) {
			var err error
			if text, err = how.claim(c, claim.plan, claim.invariant); err != nil {
				return fmt.Errorf("%s: %w", claim.id, err)
			}
			fmt.Fprintln(out, claim.id, text)
		}
		if text != "" {
			lines = append(lines, claim.id+" "+text)
		}
	}
	return os.WriteFile(filepath.Join("testdata", "real", file(c)+".txt"), []byte(strings.Join(lines, "\n")+"\n"),
		0o644)
}

// longest is the longest plan that is tried, stretched.
const longest = 2 * time.Minute

func (how *real) claim(c *contestant, p *faults.Plan, invariant string) (text string, err error) {
	runs, server, instead := 0, "", ""
	for _, way := range attempts {
		way.server = how.server
		if time.Duration(way.stretch)*p.Length > longest {
			continue
		}
		r, err := way.run(c, p)
		if err != nil {
			return "", err
		}
		runs, server = runs+1, r.Server
		switch worst := r.Worst(); {
		case !wrong(r.Result):
		case worst.Invariant == invariant:
			return fmt.Sprintf("happens on %s (`%s`)", server, way), nil
		default:
			instead = "; " + worst.Invariant + " is broken instead"
		}
	}
	return fmt.Sprintf("does not happen on %s, in %d runs%s", server, runs, instead), nil
}
