//go:build unix

package quorum_test

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/quorum"
)

// A waiter costs the same however many others wait for the same names, whether they give
// up together or are served. In steps over all waiters, ten times as many would cost a
// hundred times as much. Processor time does not depend on the rest of the machine.
func TestCostOfAWaiterIsFlat(t *testing.T) {
	tests.NeedLong(t)
	const few, many, most = 500, 5000, 4 // the ratio is about 1; it was 6 for readers, and 8 for two names
	for what, c := range map[string]struct {
		options []quorum.Option
		served  bool
	}{
		"plain":                 {},
		"fair":                  {options: []quorum.Option{quorum.WithFair()}},
		"read":                  {options: []quorum.Option{quorum.WithRead()}},
		"write":                 {options: []quorum.Option{quorum.WithWrite()}},
		"two names":             {options: []quorum.Option{quorum.WithNames("y")}},
		"read, are served":      {options: []quorum.Option{quorum.WithRead()}, served: true},
		"two names, are served": {options: []quorum.Option{quorum.WithNames("y")}, served: true},
	} {
		ratio := 0.0
		for range 3 { // the collector of garbage may run in one of two measurements
			each := crowdCost(t, few, c.served, c.options) / few
			ratio = float64(crowdCost(t, many, c.served, c.options)/many) / float64(each)
			if ratio < most {
				break
			}
		}
		t.Logf("%s: a waiter of %d costs %.1f times one of %d", what, many, ratio, few)
		ensure(t, ratio < most, "%s: a waiter of %d costs %.1f times one of %d", what, many, ratio, few)
	}
}

// crowdCost returns the processor time of n callers in one Locker.
func crowdCost(t *testing.T, n int, served bool, options []quorum.Option) (cost time.Duration) {
	inWorld(t, 3, func(w *world) {
		l, other := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		x, y := lock(t, other, "x", quorum.WithWrite()), lock(t, other, "y", quorum.WithWrite())
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		if served {
			ctx = background
		}
		before := processorTime(t)
		var callers sync.WaitGroup
		for range n {
			callers.Go(func() {
				lease, err := l.Lock(ctx, "x", options...)
				ensure(t, (err == nil) == served, "served: %v, want %v: %v", err == nil, served, err)
				if err == nil {
					unlock(t, lease)
				}
			})
		}
		time.Sleep(500 * time.Millisecond)
		if served {
			unlock(t, y)
			unlock(t, x)
		}
		callers.Wait()
		cost = processorTime(t) - before
	})
	return cost
}

func processorTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	succeed(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
