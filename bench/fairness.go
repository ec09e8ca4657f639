package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
)

const (
	plain   = ""
	reading = "read"
	writing = "write"
)

type contest struct {
	name    string
	kinds   []string // of each process
	callers int      // in each process
	far     bool     // the last process is farther from the servers than the others
}

var contests = []contest{
	{name: "plain", kinds: []string{plain, plain, plain}, callers: 8},
	{name: "plain, one far", kinds: []string{plain, plain, plain}, callers: 8, far: true},
	{name: "writers", kinds: []string{writing, writing, writing}, callers: 8},
	{name: "writers, one far", kinds: []string{writing, writing, writing}, callers: 8, far: true},
	{name: "plain, 8 processes", kinds: slices.Repeat([]string{plain}, 8), callers: 1},
	{name: "writers, 8 processes", kinds: slices.Repeat([]string{writing}, 8), callers: 1},
	{name: "readers and writers", kinds: []string{reading, reading, writing, writing}, callers: 2},
	{name: "8 readers, 24 writers", kinds: []string{reading, writing, writing, writing}, callers: 8},
}

// farther is how much longer the far process's round trips are, and fairHold how long
// each caller holds the lock, before it asks again at once.
const (
	farther  = time.Millisecond
	fairHold = 5 * time.Millisecond
)

func contestNames(*Config, int) (all []string) {
	for _, c := range contests {
		all = append(all, c.name)
	}
	return all
}

// fairness lets processes compete that always want the lock.
func (s *setting) fairness(ctx context.Context) (Metrics, error) {
	c := contests[slices.IndexFunc(contests, func(c contest) bool { return c.name == s.which })]
	processes, err := s.processes(ctx, len(c.kinds))
	defer processes.close()
	if err != nil {
		return nil, err
	}
	if !c.far {
		return s.twice(func(m Metrics, addrs []string, window time.Duration) error {
			return processes.contest(ctx, m, c, window, func(int) []string { return addrs })
		})
	}
	if s.rtt > 0 {
		return nil, fmt.Errorf("a far process together with slow links: %w", errors.ErrUnsupported)
	}
	if err := s.links.all(farther); err != nil {
		return nil, err
	}
	m := make(Metrics)
	err = processes.contest(ctx, m, c, s.window, func(i int) []string { return s.addrs(i == len(c.kinds)-1) })
	delete(m, "commands/node/op") // they are those of one process
	return m, errors.Join(err, s.links.all(s.rtt))
}

// contest measures once. addrs returns where each process goes.
func (c *crowd) contest(ctx context.Context, m Metrics, what contest, window time.Duration, addrs func(i int) []string) error {
	begin := clock.System().Now().Add(time.Second) // when all have connected
	all, err := c.turns(ctx, m, func(i int) request {
		return request{Addrs: addrs(i), Callers: what.callers, Turns: turns{Name: c.s.prefix + "one",
			Kind: what.kinds[i], Lease: c.s.lease,
			Hold: fairHold, From: begin, Until: begin.Add(window)}}
	})
	if err == nil {
		fairness(m, all, window)
	}
	c.s.locks += held(all)
	return err
}
