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

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/chaos"
	"github.com/redquorum/redquorum/sim/live"
)

// beChild is the process of a client on real servers.
func (c *contestant) beChild(in io.Reader, out io.Writer) error {
	return chaos.Client(context.Background(), in, out, func(s *chaos.Seat) (live.Library, error) { return c.open(placeOn(s)) })
}

// placeOn is where a client of a seat is.
func placeOn(s *chaos.Seat) *place {
	var grants atomic.Int64
	p := &place{plan: s.Plan, clock: s.Clock, life: context.Background(), random: newDrawer(s.Plan, s.Client, s.Start), all: s.Plan.Nodes,
		holder: func(string) string { // the lock does not tell
			return fmt.Sprintf("c%d, lock %d.%d", s.Client+1, s.Start, grants.Add(1))
		}}
	for _, at := range s.Nodes {
		p.nodes = append(p.nodes, reach{addr: at.Addr, db: at.Database})
	}
	return p
}

// A real is how plans are carried out on real servers.
type real struct {
	server  string
	stretch int
}

// run carries out a plan on real servers, with processes of this program as clients.
func (how *real) run(c *contestant, p *faults.Plan) (*chaos.Outcome, error) {
	for i := range p.Events {
		switch e := &p.Events[i]; e.Verb {
		case faults.Skew, faults.Step, faults.Rate, faults.Strobe, faults.Clone:
			if c.name != ours && e.Procs.Clients != 0 {
				return nil, fmt.Errorf("%s of clients cannot be had: the lock reads the machine's clock, and draws from its kernel", e.Verb)
			}
		}
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
		seen := slices.DeleteFunc(c.judged(), func(invariant string) bool { return invariant == "I9" }) // keys are only sampled
		config.Lock = &chaos.Lock{Title: c.title(), Promised: seen, Key: c.key}
	}
	return chaos.Run(context.Background(), p, config)
}

// tries is how often a claim is tried on real servers, whose times are not exact.
const tries = 3

// check repeats on real servers what broke a lock in virtual time, and keeps what came of it.
func (how *real) check(c *contestant, in bubble, out io.Writer) error {
	type claim struct {
		id, invariant string
		plan          *faults.Plan
	}
	var claims []claim
	for _, s := range sim.Scenarios() {
		if o := c.scenario(in, &s); o.wrong() {
			claims = append(claims, claim{s.ID, o.result.Worst().Invariant, o.plan})
		}
	}
	for _, k := range keptPlans() {
		if _, invariant, ok := strings.Cut(k.came, ": "); ok && k.lock == c {
			claims = append(claims, claim{path.Base(k.path), invariant, k.plan})
		}
	}
	lines := []string{c.title()}
	for _, claim := range claims {
		text, err := how.claim(c, claim.plan, claim.invariant)
		if err != nil {
			return fmt.Errorf("%s: %w", claim.id, err)
		}
		lines = append(lines, claim.id+" "+text)
		fmt.Fprintln(out, lines[len(lines)-1])
	}
	return os.WriteFile(filepath.Join("testdata", "real", file(c)+".txt"), []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

// claim says whether a plan breaks an invariant on real servers, too.
func (how *real) claim(c *contestant, p *faults.Plan, invariant string) (text string, err error) {
	instead := ""
	for range tries {
		r, err := how.run(c, p)
		if err != nil {
			return "", err
		}
		if wrong(r.Result) && r.Worst().Invariant == invariant {
			return "happens on " + r.Server, nil
		}
		if wrong(r.Result) {
			instead = "; " + r.Worst().Invariant + " is broken instead"
		}
		text = "does not happen on " + r.Server
	}
	return fmt.Sprintf("%s, in %d runs%s", text, tries, instead), nil
}
