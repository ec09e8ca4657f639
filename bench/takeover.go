package bench

import (
	"context"
	"errors"
	"time"
)

// takeover has a process hold many leases, kills it while another one waits for each of
// their names, and measures when that has each.
func (s *setting) takeover(ctx context.Context) (_ Metrics, err error) {
	n, addrs, m := s.number(), s.addrs(false), Metrics{"lost": 0}
	owner, err := s.processes(ctx, 1)
	defer owner.close()
	if err != nil {
		return nil, err
	}
	if _, err := owner.open(ctx, func(int) []string { return addrs }); err != nil {
		return nil, err
	}
	p := pressure{Prefix: s.prefix, Held: n, Kept: s.lease}
	tell := func(do string) (cpu time.Duration, err error) {
		_, cpu, err = owner.ask(ctx, func(int) request { return request{Do: do, Pressure: p} })
		return cpu, err
	}
	if _, err := tell("hold"); err != nil {
		return nil, err
	}
	if err := s.idle(ctx, m, "keep", func() (time.Duration, error) { return tell("cpu") }); err != nil {
		return nil, err
	}

	client, err := s.open(ctx, addrs, n)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	s.locks += n
	held, got := make([]Held, n), make([]time.Time, n)
	waited := make(chan error, 1)
	go func() {
		waited <- atOnce(ctx, n, func(ctx context.Context, i int) (err error) {
			held[i], err = client.Keep(ctx, p.heldName(i), s.lease)
			got[i] = time.Now()
			return err
		})
	}()
	err = s.idle(ctx, m, "wait", func() (time.Duration, error) { return processCPU(), nil })
	killed := time.Now()
	if err := errors.Join(err, owner.processes[0].cmd.Process.Kill(), <-waited); err != nil {
		return nil, err
	}
	var next samples
	for _, at := range got {
		if at.Before(killed) {
			m["lost"]++
		} else {
			next = append(next, at.Sub(killed))
		}
	}
	m.quantiles("next", next)
	if ours, ok := client.(*redquorum); ok {
		m["lost"] += float64(ours.lost.Swap(0)) // that is a figure here
	}
	return m, atOnce(ctx, n, func(_ context.Context, i int) error {
		_ = held[i].Unlock(ctx) // it may be lost
		return nil
	})
}

// idle lets the window pass, and enters the CPU of each second that a client and one node
// have used.
func (s *setting) idle(ctx context.Context, m Metrics, what string, client func() (time.Duration, error)) error {
	before, err := client()
	if err != nil {
		return err
	}
	server, begin := s.field.cpu(ctx, s.nodes), time.Now()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(s.window):
	}
	after, err := client()
	seconds := time.Since(begin).Seconds()
	m[what+"-client-cpu-ns/s"] = float64(after-before) / seconds
	m[what+"-server-cpu-ns/s"] = float64(s.field.cpu(ctx, s.nodes)-server) / seconds / float64(s.nodes)
	return err
}
