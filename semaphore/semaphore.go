// Package semaphore lets at most k callers at a time work, in all programs that share the
// servers.
//
//	printers, err := semaphore.New(locker, "printers", 3)
//	...
//	permit, err := printers.Acquire(ctx)
//	if err != nil {
//		return err
//	}
//	defer permit.Unlock(ctx)
//
// A semaphore of k permits is k slots, and each slot is a lock of package quorum:
// "printers/1" to "printers/3". A permit is a [quorum.Lease] of one slot, with all that a
// lease has: it is renewed, its context ends when it is lost, and a slot has one holder
// at a time under the same assumptions. A count on each node would not be safe: see
// docs/not-here.md.
//
// # Order
//
// A caller that finds no free slot waits for all of them at the same time, first come,
// first served for each, and keeps the first that it gets. So about the caller that came
// first gets the next permit, whichever slot that is. The order is as exact as that of
// [quorum.WithFair]. There is none between callers that come within the time of a few
// round trips.
//
// Twelve programs with a round trip of 2 ms shared three permits and held each for 2 s,
// without a pause. Half of the waits took up to 6.0 s, the longest 7.9 s, and a permit
// took 86 commands to three nodes. A wait for one slot, with a look at the others every
// second, took up to 41 s and 131 commands.
//
// Each caller that waits has a goroutine and a place in the queue of every slot. It may
// be granted two slots at once, and gives one back: for a round trip, TryAcquire then
// finds it taken.
//
// So use it for few permits: as soon as callers wait, a turn costs more the more permits
// there are. With half as many callers more than permits, and work of 0.1 s, three
// programs on a machine with two processors did 93 % of the possible turns with 3
// permits, 67 % with 10, and 28 % with 25.
//
// # What it is not
//
//   - k is not stored on the servers: all programs must use the same one. While they differ, such as
//     during an upgrade, the largest k holds.
//   - A permit is for one. A caller that takes several, one after the other, may wait forever for
//     others that do the same.
//   - Fencing tokens rise from each holder of a slot to the next. Tokens of different slots have no
//     order, so a resource has to remember the highest token of each slot ([quorum.Lease.Names]).
//   - Events and metrics count slots: one Acquire may have an event of each that is taken, and a
//     caller that waits is a waiter of each.
//   - It does not limit the rate. [quorum.WithMinHold] is not for permits: one that was given back
//     at once would stay taken.
package semaphore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// A Semaphore is k permits. It is safe for concurrent use.
type Semaphore struct {
	locker *quorum.Locker
	slots  []string
}

// maxPermits is far above what is useful: a waiter has a place in the queue of each slot.
const maxPermits = 1000

// New returns the semaphore of that name, which has k permits: at least 1, and at most 1000. It asks no
// node. An invalid name is refused by Acquire.
func New(locker *quorum.Locker, name string, k int) (*Semaphore, error) {
	if k < 1 {
		return nil, fmt.Errorf("semaphore: %q has %d permits; it must have at least 1", name, k)
	}
	if k > maxPermits {
		return nil, fmt.Errorf("semaphore: %q has %d permits; it may have at most %d", name, k, maxPermits)
	}
	s := &Semaphore{locker: locker}
	for i := range k {
		s.slots = append(s.slots, fmt.Sprintf("%s/%d", name, i+1))
	}
	return s, nil
}

// TryAcquire takes a permit if one is free and nobody waits for it. It asks for one slot
// after the other, in random order. If all are taken the error matches quorum.ErrHeld. If
// ctx belongs to all of them it matches quorum.ErrDeadlock; otherwise the permits that
// ctx belongs to count as taken. Other errors are those of [quorum.Locker.TryLock].
func (s *Semaphore) TryAcquire(ctx context.Context, opts ...quorum.Option) (*quorum.Lease, error) {
	if _, err := read(opts); err != nil {
		return nil, err
	}
	var held, own error
	for _, i := range rand.Perm(len(s.slots)) {
		lease, err := s.locker.TryLock(ctx, s.slots[i], fair(opts)...)
		switch {
		case errors.Is(err, quorum.ErrHeld):
			held = err
		case errors.Is(err, quorum.ErrDeadlock):
			own = err
		default:
			return lease, err
		}
	}
	if held != nil {
		return nil, held
	}
	return nil, own
}

// Acquire takes a permit, and waits for it until ctx ends, or for the time given by
// quorum.WithWait and the Locker's Timeout at most. It first does what TryAcquire does,
// for at most half of the time of WithWait, and then waits for all slots at the same
// time. Unlock gives the permit back. Options are for each slot: those for several names,
// for readers and writers and for re-entry are refused. Errors are those of
// [quorum.Locker.Lock], for one of the slots.
func (s *Semaphore) Acquire(ctx context.Context, opts ...quorum.Option) (*quorum.Lease, error) {
	wait, err := read(opts)
	if err != nil {
		return nil, err
	}
	begun, trying := time.Now(), ctx
	if wait >= 0 {
		half, end := context.WithTimeout(ctx, wait/2)
		defer end()
		trying = half
	}
	lease, err := s.TryAcquire(trying, opts...)
	taken := errors.Is(err, quorum.ErrHeld) || errors.Is(err, quorum.ErrNoQuorum) || trying.Err() != nil
	if err == nil || ctx.Err() != nil || !taken {
		return lease, err
	}
	if wait >= 0 {
		opts = append(slices.Clip(opts), quorum.WithWait(max(0, wait-time.Since(begun))))
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	results := make(chan result, len(s.slots))
	for _, slot := range s.slots {
		go func() {
			lease, err := s.locker.Lock(waiting, slot, fair(opts)...)
			results <- result{lease, err}
		}()
	}
	var failed error
	for left := len(s.slots) - 1; left >= 0; left-- {
		r := <-results
		if r.err == nil {
			go giveBack(context.WithoutCancel(ctx), results, left)
			return r.lease, nil
		}
		if failed == nil || errors.Is(failed, quorum.ErrDeadlock) { // the others were waited for
			failed = r.err
		}
	}
	return nil, failed
}

type result struct {
	lease *quorum.Lease
	err   error
}

// giveBack unlocks what came too late.
func giveBack(ctx context.Context, results <-chan result, left int) {
	for range left {
		if r := <-results; r.err == nil {
			_ = r.lease.Unlock(ctx) // if it is not confirmed, the Locker goes on releasing
		}
	}
}

// read returns the wait that options bound, or a negative one, and an error about one that
// is not for permits.
func read(opts []quorum.Option) (wait time.Duration, err error) {
	w := claim.Want{Wait: -1}
	claim.Change(&w, opts)
	option := ""
	switch {
	case len(w.Names) > 0:
		option = "WithNames"
	case w.Mode == node.Read:
		option = "WithRead"
	case w.Mode == node.Write:
		option = "WithWrite"
	case w.Reentry:
		option = "WithReentry"
	}
	if option != "" {
		err = fmt.Errorf("semaphore: %s is not for permits", option)
	}
	return w.Wait, err
}

func fair(opts []quorum.Option) []quorum.Option {
	return append(slices.Clip(opts), quorum.WithFair())
}
