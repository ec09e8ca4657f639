package quorum_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
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
	var acquired, losses, failed int
	for seed := range seeds {
		synctestWorld(t, uint64(seed), &acquired, &losses, &failed)
	}
	t.Logf("%d acquisitions, %d losses, %d failed attempts", acquired, losses, failed)
	if acquired == 0 || losses == 0 || failed == 0 {
		t.Error("the faults did not reach every outcome")
	}
}

func synctestWorld(t *testing.T, seed uint64, acquired, losses, failed *int) {
	inWorld(t, 5, func(w *world) {
		const maxLease = 2 * time.Second
		rnd := rand.New(rand.NewPCG(seed, 0))
		r := &ring{t: t, seed: seed, holders: make(map[string][]*quorum.Lease), last: make(map[string]node.Token)}
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
				t.Errorf("seed %d: locker %d: %v after %v", seed, i, err, time.Since(start))
				continue
			}
			_ = lease.Unlock(background)
		}
		time.Sleep(3 * time.Second)
		if n := w.locked("a") + w.locked("b"); n != 0 {
			t.Errorf("seed %d: %d keys are left", seed, n)
		}
		for _, l := range lockers {
			_ = l.Close()
		}
		*acquired += r.acquired
		*losses += r.losses
		*failed += r.failed
	})
}

// A ring checks who is inside.
type ring struct {
	t    *testing.T
	seed uint64

	mu                       sync.Mutex
	holders                  map[string][]*quorum.Lease
	last                     map[string]node.Token
	acquired, losses, failed int
}

func (r *ring) work(ctx context.Context, l *quorum.Locker, rnd *rand.Rand) {
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
			r.mu.Lock()
			r.failed++
			r.mu.Unlock()
			continue
		}
		r.enter(lease)
		hold := time.NewTimer(time.Duration(rnd.Int64N(int64(3 * time.Second))))
		select {
		case <-hold.C:
		case <-lease.Context().Done():
			r.mu.Lock()
			r.losses++
			r.mu.Unlock()
		}
		r.leave(lease)
		_ = lease.Unlock(background)
	}
}

func (r *ring) enter(lease *quorum.Lease) {
	r.mu.Lock()
	name := lease.Names()[0]
	open := overlapping(r.t, r.holders[name], lease)
	if lease.Token() <= r.last[name] {
		r.t.Errorf("seed %d: token %d of %q follows %d", r.seed, lease.Token(), name, r.last[name])
	}
	r.last[name] = lease.Token()
	r.holders[name] = append(r.holders[name], lease)
	r.acquired++
	r.mu.Unlock()
	endNow(r.t, open)
}

func (r *ring) leave(lease *quorum.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := lease.Names()[0]
	r.holders[name] = slices.DeleteFunc(r.holders[name], func(o *quorum.Lease) bool { return o == lease })
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
