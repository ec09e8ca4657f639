package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node/redisserver"
)

type onslaught struct {
	name    string
	callers int           // of each process, while there are many
	within  time.Duration // how long a call may last
}

var onslaughts = []onslaught{
	{"8 x 128 callers, 5s", 128, 5 * time.Second},
	{"8 x 1000 callers, 5s", 1000, 5 * time.Second},
	{"8 x 1000 callers, 300ms", 1000, 300 * time.Millisecond},
}

func onslaughtNames(*Config, int) (all []string) {
	for _, o := range onslaughts {
		all = append(all, o.name)
	}
	return all
}

const (
	pressing = 8 // processes
	fewPress = 8 // callers of each, in the calm

	// heldEach leases of heldLease are held by each process.
	heldEach  = 25
	heldLease = 3 * time.Second

	// freeNames is how many names there are to choose from: few calls meet.
	freeNames = 100_000

	// overdueAfter is how late a busy machine may notice the end of a call.
	overdueAfter = 100 * time.Millisecond

	// overloadTime is a quarter of calm, a half of overload, and a quarter of calm.
	overloadTime = 16 * time.Second
)

func (s *setting) overload(ctx context.Context) (Metrics, error) {
	stop, err := s.field.slow(s.nodes)
	if err != nil {
		return nil, err
	}
	defer stop()
	processes, err := s.processes(ctx, pressing)
	defer processes.close()
	if err != nil {
		return nil, err
	}
	addrs := s.addrs(false)
	if _, err := processes.open(ctx, func(int) []string { return addrs }); err != nil {
		return nil, err
	}
	o := onslaughts[slices.IndexFunc(onslaughts, func(o onslaught) bool { return o.name == s.which })]
	p := pressure{Prefix: s.prefix, Lease: s.lease, Held: heldEach, Kept: heldLease, Few: fewPress, Many: o.callers, Within: o.within,
		Calm: (s.window / 4).Truncate(time.Second), Load: (s.window / 2).Truncate(time.Second)}
	all, err := processes.press(ctx, p)
	if err != nil {
		return nil, err
	}
	for _, n := range all.Locks {
		s.locks += n
	}
	return all.metrics(p), nil
}

// press lets all processes do it at the same time.
func (c *crowd) press(ctx context.Context, p pressure) (sum pressed, err error) {
	each := func(do string) ([]answer, error) {
		all, _, err := c.ask(ctx, func(i int) request {
			mine := p
			mine.Process = i
			return request{Do: do, Pressure: mine}
		})
		return all, err
	}
	if _, err = each("hold"); err != nil {
		return sum, err
	}
	p.From = clock.System().Now().Add(100 * time.Millisecond)
	all, err := each("press")
	if err != nil {
		return sum, err
	}
	sum.Locks = make([]int, p.seconds())
	for _, a := range all {
		for i, n := range a.Pressed.Locks {
			sum.Locks[i] += n
		}
		sum.Lost += a.Pressed.Lost
		sum.Overdue += a.Pressed.Overdue
		sum.Latest = max(sum.Latest, a.Pressed.Latest)
	}
	_, err = each("end")
	return sum, err
}

// A pressure is what a process does: it holds some leases, and has few callers, then
// many, then few.
type pressure struct {
	Process   int           `json:"process"`
	Prefix    string        `json:"prefix"` // of names
	Held      int           `json:"held"`   // leases
	Kept      time.Duration `json:"kept"`   // how long these are
	Few, Many int           // callers
	Within    time.Duration `json:"within"` // how long a call may last
	Lease     time.Duration `json:"lease"`  // that callers ask for
	From      clock.Instant `json:"from"`
	Calm      time.Duration `json:"calm"` // before the load, and after it
	Load      time.Duration `json:"load"`
}

func (p *pressure) seconds() int { return int((2*p.Calm + p.Load) / time.Second) }

type pressed struct {
	Locks   []int         `json:"locks,omitempty"`   // in each second
	Lost    int           `json:"lost,omitempty"`    // of the held leases
	Overdue int           `json:"overdue,omitempty"` // calls that returned so late
	Latest  time.Duration `json:"latest,omitempty"`  // how long after its time the last returned
}

func (p *pressure) hold(ctx context.Context, client Client) ([]Held, error) {
	held := make([]Held, p.Held)
	return held, atOnce(ctx, p.Held, func(_ context.Context, i int) (err error) {
		held[i], err = client.Keep(ctx, p.heldName(i), p.Kept)
		return err
	})
}

func (p *pressure) heldName(i int) string { return fmt.Sprintf("%sheld-%d-%d", p.Prefix, p.Process, i) }

// press has the callers, and releases what was held.
func (p *pressure) press(ctx context.Context, client Client, held []Held) pressed {
	all := pressed{Locks: make([]int, p.seconds())}
	now := clock.System().Now
	var mu sync.Mutex
	var callers sync.WaitGroup
	call := func(n int, from, to time.Duration) {
		for range n {
			callers.Go(func() {
				time.Sleep(p.From.Add(from).Sub(now()))
				for p.From.Add(to).Sub(now()) > 0 {
					err := p.lock(ctx, client, func(got bool, late time.Duration) {
						mu.Lock()
						defer mu.Unlock()
						all.note(got, now().Sub(p.From), late)
					})
					if err != nil {
						time.Sleep(5 * time.Millisecond)
					}
				}
			})
		}
	}
	call(p.Few, 0, p.Calm)
	call(p.Many, p.Calm, p.Calm+p.Load)
	call(p.Few, p.Calm+p.Load, 2*p.Calm+p.Load)
	callers.Wait()
	_ = atOnce(ctx, len(held), func(_ context.Context, i int) error {
		if held[i].Unlock(ctx) != nil {
			mu.Lock()
			all.Lost++
			mu.Unlock()
		}
		return nil
	})
	return all
}

// lock locks a free name and unlocks it. It notes whether the name was locked, and how
// long after its time that returned.
func (p *pressure) lock(ctx context.Context, client Client, note func(got bool, late time.Duration)) error {
	within, cancel := context.WithTimeout(ctx, p.Within)
	defer cancel() // later than Unlock, as a lock may end with its context
	begin := time.Now()
	held, err := client.Lock(within, fmt.Sprintf("%s%d", p.Prefix, rand.IntN(freeNames)), p.Lease)
	note(err == nil, time.Since(begin)-p.Within)
	if err == nil {
		_ = held.Unlock(ctx)
	}
	return err
}

func (r *pressed) note(got bool, at, late time.Duration) {
	if s := int(at / time.Second); got && s < len(r.Locks) {
		r.Locks[s]++
	}
	if r.Latest = max(r.Latest, late); late > overdueAfter {
		r.Overdue++
	}
}

// metrics compares the seconds of the calm, of the load, and after it.
func (r *pressed) metrics(p pressure) Metrics {
	calm, over := int(p.Calm/time.Second), int((p.Calm+p.Load)/time.Second)
	before := r.Locks[min(1, calm-1):calm] // the first has connections to fill
	sum := 0
	for _, n := range before {
		sum += n
	}
	return Metrics{
		"locks-before/s": float64(sum) / float64(len(before)),
		"locks-least/s":  float64(slices.Min(r.Locks[calm:over])),
		"locks-after/s":  float64(r.Locks[min(over+1, len(r.Locks)-1)]),
		"lost":           float64(r.Lost),
		"overdue":        float64(r.Overdue),
		"overdue-max-ns": float64(r.Latest),
	}
}

// Of each slice of time slow servers run for a part.
const (
	slowSlice = 20 * time.Millisecond
	slowRuns  = 3 * time.Millisecond
)

func (f *field) slow(n int) (stop func(), err error) {
	if len(f.spawned) < n {
		return nil, fmt.Errorf("slow servers, except with --spawn: %w", errors.ErrUnsupported)
	}
	each := func(do func(*redisserver.Server) error) (err error) {
		for _, s := range f.spawned[:n] {
			err = errors.Join(err, do(s))
		}
		return err
	}
	if err := each((*redisserver.Server).Cont); err != nil {
		return nil, err
	}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			_ = each((*redisserver.Server).Stop)
			time.Sleep(slowSlice - slowRuns)
			_ = each((*redisserver.Server).Cont)
			select {
			case <-over:
				return
			case <-time.After(slowRuns):
			}
		}
	}()
	return func() { close(over); <-done }, nil
}
