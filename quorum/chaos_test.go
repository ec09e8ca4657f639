package quorum_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/quorum"
)

// Random faults in virtual time: nodes hang, go down, slow down, lose replies
// and restart, while four Lockers want two names. At no instant two contexts of
// leases of a name go on, tokens rise, and when all is well again everybody
// makes progress and nothing is left over.
func TestRandomFaultsBreakNothing(t *testing.T) {
	tests.NeedLong(t)
	seeds := 15
	if testing.Short() {
		seeds = 5
	}
	r := new(trial)
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { r.disturbed(t, uint64(seed)) })
	}
	t.Logf("%d acquisitions, %d losses, %d failed attempts", r.acquired.Load(), r.losses.Load(), r.failed.Load())
	if r.acquired.Load() == 0 || r.losses.Load() == 0 || r.failed.Load() == 0 {
		t.Error("the faults did not reach every outcome")
	}
}

func (r *trial) disturbed(t *testing.T, seed uint64) {
	inWorld(t, 5, func(w *world) {
		const maxLease = 2 * time.Second
		rnd := rand.New(rand.NewPCG(seed, 0))
		r.contest = newContest(t)
		stop, cancel := context.WithTimeout(background, time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		var lockers []*quorum.Locker
		for i := range 4 {
			l := w.locker(quorum.Options{Lease: maxLease, MaxLease: maxLease, Timeout: 100 * time.Millisecond})
			lockers = append(lockers, l)
			mine := rand.New(rand.NewPCG(seed, uint64(i+1)))
			wg.Go(func() { r.work(stop, l, mine) })
		}
		wg.Go(func() { w.disturb(stop, rnd) })
		wg.Wait()

		// Liveness: all is well again, after the guard of what restarted last.
		for _, n := range w.nodes {
			n.Down(false)
			n.Hang(false)
			n.DropReplies(false)
			n.Delay(0)
		}
		time.Sleep(maxLease + time.Second)
		for i, l := range lockers {
			start := time.Now()
			lease, err := l.Lock(background, "a")
			if err != nil || time.Since(start) > 3*maxLease {
				t.Errorf("locker %d: %v after %v", i, err, time.Since(start))
				continue
			}
			_ = lease.Unlock(background)
		}
		time.Sleep(3 * time.Second)
		equal(t, w.locked("a")+w.locked("b"), 0, "keys are left")
	})
}

// A trial is a contest that counts what comes of attempts.
type trial struct {
	*contest
	acquired, losses, failed atomic.Int64
}

func (r *trial) work(ctx context.Context, l *quorum.Locker, rnd *rand.Rand) {
	for ctx.Err() == nil {
		name := []string{"a", "b"}[rnd.IntN(2)]
		attempt, cancel := context.WithTimeout(ctx, time.Duration(rnd.Int64N(int64(3*time.Second))))
		var options []quorum.Option
		if rnd.IntN(3) == 0 {
			options = append(options, quorum.WithFixedLease(500*time.Millisecond)) // it ends while nodes are well, too
		}
		lease, err := l.Lock(attempt, name, options...)
		cancel()
		if err != nil {
			r.failed.Add(1)
			continue
		}
		r.acquired.Add(1)
		r.enter(lease)
		hold := time.NewTimer(time.Duration(rnd.Int64N(int64(3 * time.Second))))
		select {
		case <-hold.C:
		case <-lease.Context().Done():
			r.losses.Add(1)
		}
		r.leave(lease)
		_ = lease.Unlock(background)
	}
}

// disturb throws the switches of the nodes.
func (w *world) disturb(ctx context.Context, rnd *rand.Rand) {
	for ctx.Err() == nil {
		n := w.nodes[rnd.IntN(len(w.nodes))]
		on := rnd.IntN(4) == 0
		switch rnd.IntN(6) {
		case 0:
			n.Hang(on)
		case 1:
			n.Down(on)
		case 2:
			n.DropReplies(on)
		case 3:
			n.Delay(time.Duration(rnd.Int64N(int64(150 * time.Millisecond))))
		case 4:
			if on {
				n.Restart(rnd.IntN(2) == 0)
			}
		}
		time.Sleep(time.Duration(rnd.Int64N(int64(400 * time.Millisecond))))
	}
}
