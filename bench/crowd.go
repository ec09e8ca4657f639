package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// How the callers of a crowd are done with waiting, all at the same time.
const (
	waitEnds    = "waits end"    // WithWait
	contextEnds = "context ends" // they share one
	served      = "served"       // the holder unlocks
)

// kindsOfCallers are the options of callers, and of the other program that holds what
// they want.
var kindsOfCallers = []struct {
	kind         string
	wait, holder []quorum.Option
}{
	{kind: "plain"},
	{"fair", []quorum.Option{quorum.WithFair()}, nil},
	{"read", []quorum.Option{quorum.WithRead()}, []quorum.Option{quorum.WithWrite()}},
	{"write", []quorum.Option{quorum.WithWrite()}, []quorum.Option{quorum.WithWrite()}},
	{kind: "two names"}, // see crowd
}

// mostServed callers get an exclusive lock one after the other: more take minutes.
const mostServed = 10_000

func crowdCases(c *Config, _ int) (all []string) {
	for _, k := range kindsOfCallers {
		for _, end := range []string{waitEnds, contextEnds, served} {
			for _, n := range c.Waiters {
				if end != served || k.kind == "read" || n <= mostServed {
					all = append(all, fmt.Sprintf("%s, %s, waiters=%d", k.kind, end, n))
				}
			}
		}
	}
	return all
}

const (
	// neighbors is how many fixed leases end, step after step, and how many leases are
	// renewed.
	neighbors    = 10
	neighborStep = 20 * time.Millisecond
	renewedLease = 1500 * time.Millisecond
	servedWithin = 40 * time.Second
)

// crowd lets many callers of one process wait for one name, or for one pair of names,
// that another Locker holds. It measures other leases of this process while the callers
// are done with waiting.
func (s *setting) crowd(ctx context.Context) (_ Metrics, err error) {
	mine, other, err := s.lockers(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		mine.lost.Store(0) // that is a figure here
		err = errors.Join(err, mine.Close(), other.Close())
	}()
	n := s.number()
	s.locks += n
	name, wait, holder, end := s.callers()
	held, err := other.locker.Lock(ctx, name, holder...)
	if err != nil {
		return nil, err
	}
	m := make(Metrics)
	done := time.Now().Add(time.Second + time.Duration(n)*100*time.Microsecond) // when all wait
	near, err := s.meet(ctx, mine.locker, done)
	if err != nil {
		return nil, err
	}
	last := done
	if end == served {
		last = done.Add(servedWithin)
	}
	within, cancel := context.WithDeadline(ctx, last)
	defer cancel()
	background := context.WithoutCancel(ctx)
	cost := s.meter(ctx)
	var failed atomic.Int64
	ended := make(samples, n)
	var callers sync.WaitGroup
	for i := range n {
		callers.Go(func() {
			ctx, options := within, wait
			if end == waitEnds {
				ctx, options = background, append([]quorum.Option{quorum.WithWait(time.Until(done))}, wait...)
			}
			lease, err := mine.locker.Lock(ctx, name, options...)
			if err == nil {
				err = lease.Unlock(background)
			}
			if (err != nil) == (end == served) {
				failed.Add(1)
			}
			ended[i] = time.Since(done)
		})
	}
	time.Sleep(time.Until(done))
	stop := near.others(ctx, s, mine.locker)
	unlock := func() {
		if held.Unlock(ctx) != nil { // servers that a crowd keeps busy may not answer in time
			failed.Add(1)
		}
	}
	if end == served {
		unlock()
	}
	callers.Wait()
	stop()
	cost.stop(ctx, m, float64(n), "waiter")
	near.enter(m)
	m.quantiles("end", ended)
	if end != served {
		unlock()
	}
	m["unserved"] = float64(failed.Load())
	return m, nil
}

// callers returns what the callers of a case want, how they and the holder ask for it,
// and how their waits end.
func (s *setting) callers() (name string, wait, holder []quorum.Option, end string) {
	kind, rest, _ := strings.Cut(s.which, ", ")
	end, _, _ = strings.Cut(rest, ", ")
	for _, k := range kindsOfCallers {
		if k.kind == kind {
			wait, holder = k.wait, k.holder
		}
	}
	if kind == "two names" {
		wait = []quorum.Option{quorum.WithNames(s.prefix + "two")}
		holder = wait
	}
	return s.prefix + "one", wait, holder, end
}

// lockers opens two clients on the same servers, or, instead of embedded servers, on
// model nodes in this process: they are faster than the callers.
func (s *setting) lockers(ctx context.Context) (mine, other *redquorum, err error) {
	nodes := make([]node.Node, s.nodes)
	for i := range nodes {
		nodes[i] = model.New(clock.System(), "model "+strconv.Itoa(i+1))
	}
	var both [2]*redquorum
	for i := range both {
		if s.field.kind == Embedded {
			both[i] = &redquorum{lost: new(lost)}
			both[i].locker, err = quorum.New(nodes, quorum.Options{Observe: both[i].lost.observe, Label: quorum.NoLabel,
				SharedNodes: true})
		} else {
			var client Client
			if client, err = s.open(ctx, s.addrs(false), s.number()); err == nil {
				var ok bool
				if both[i], ok = client.(*redquorum); !ok {
					err = errors.Join(errors.ErrUnsupported, client.Close())
				}
			}
		}
		if err != nil {
			if i > 0 {
				_ = both[0].Close()
			}
			return nil, nil, err
		}
	}
	return both[0], both[1], nil
}

type near struct {
	renewed     []*quorum.Lease
	until       time.Time // when each of these has had to be renewed after the crowd was done
	ends        sync.WaitGroup
	late, timer [neighbors]time.Duration
	tries       samples // TryLock of a free name
}

// meet takes the leases. The fixed ones end one after the other from done on, each with a
// timer.
func (s *setting) meet(ctx context.Context, l *quorum.Locker, done time.Time) (*near, error) {
	near := &near{until: done.Add(renewedLease)}
	for i := range neighbors {
		kept, err := l.Lock(ctx, fmt.Sprintf("%srenewed-%d", s.prefix, i), quorum.WithLease(renewedLease))
		if err != nil {
			return nil, err
		}
		near.renewed = append(near.renewed, kept)
		fixed, err := l.Lock(ctx, fmt.Sprintf("%sfixed-%d", s.prefix, i),
			quorum.WithFixedLease(time.Until(done)+time.Duration(i)*neighborStep))
		if err != nil {
			return nil, err
		}
		end := time.Now().Add(fixed.Remaining())
		near.ends.Go(func() {
			<-fixed.Context().Done()
			near.late[i] = max(0, time.Since(end))
		})
		near.ends.Go(func() {
			<-time.After(time.Until(end))
			near.timer[i] = max(0, time.Since(end))
		})
	}
	s.locks += 2 * neighbors
	return near, nil
}

// others lets a caller lock a free name again and again, until stop is called.
func (near *near) others(ctx context.Context, s *setting, l *quorum.Locker) (stop func()) {
	within, cancel := context.WithCancel(ctx)
	var caller sync.WaitGroup
	caller.Go(func() {
		for ok := true; ok; ok = within.Err() == nil {
			begin := time.Now()
			lease, err := l.TryLock(ctx, s.prefix+"free")
			near.tries = append(near.tries, time.Since(begin))
			if err == nil {
				_ = lease.Unlock(ctx)
			}
			time.Sleep(time.Millisecond)
		}
	})
	return func() { cancel(); caller.Wait() }
}

// enter waits for the ends, and enters how late they were.
func (near *near) enter(m Metrics) {
	near.ends.Wait()
	time.Sleep(time.Until(near.until))
	m.quantiles("late", near.late[:])
	m.quantiles("timer", near.timer[:])
	m.quantiles("try", near.tries)
	m["lost"] = 0
	for _, kept := range near.renewed {
		if kept.Context().Err() != nil {
			m["lost"]++
		}
		_ = kept.Unlock(context.Background())
	}
}
