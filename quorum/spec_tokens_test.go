package quorum_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// The tests of this file follow the page "Distributed Locks with Redis", read in
// November 2026, and this package's rules on top of it, in what concerns
// fencing tokens.

// Fencing tokens rise, also when the next client's clock is far behind: its
// first try is stale, and repeated at once. If the clocks differ by less than
// the retention, it then knows to stay ahead.
func TestTokensRiseAlthoughClocksDiffer(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, 48 * time.Hour} {
		inWorld(t, 5, func(w *world) {
			a := w.locker(quorum.Options{Clock: wall{w.clock, ahead}})
			b := w.locker(quorum.Options{})
			var last node.Token
			for round := range 5 {
				for _, l := range []*quorum.Locker{a, b} {
					w.sent[0].Store(0)
					lease := must[*quorum.Lease](t)(l.TryLock(background, "x"))
					more(t, lease.Token(), last, "tokens rise")
					last = lease.Token()
					unlock(t, lease)
					if n := w.sent[0].Load(); ahead == time.Hour && round > 0 && n != 2 {
						t.Errorf("lock and unlock took %d commands to a node", n)
					}
					time.Sleep(time.Duration(round+1) * time.Microsecond)
				}
			}
		})
	}
}

type wall struct {
	clock.Clock
	ahead time.Duration
}

func (c wall) Wall() time.Time { return c.Clock.Wall().Add(c.ahead) }

// A wall clock that is set back and forth takes the tokens of nobody ahead of all
// clocks: what a client learns of another's clock is not added to its own steps.
func TestTokensKeepToTheClocks(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		const step = time.Second
		strobing := &strobingWall{Clock: w.clock}
		a := w.locker(quorum.Options{Clock: strobing})
		b := w.locker(quorum.Options{})
		for round := range 20 {
			strobing.ahead.Store(int64(step) * int64(1-round%2*2))
			for _, l := range []*quorum.Locker{a, b} {
				lease := must[*quorum.Lease](t)(l.TryLock(background, "x"))
				if ahead := time.Duration(int64(lease.Token())-w.clock.Wall().UnixMicro()) * time.Microsecond; ahead > step {
					t.Errorf("round %d: a token is %v ahead; no clock was by more than %v", round, ahead, step)
				}
				unlock(t, lease)
				time.Sleep(time.Millisecond)
			}
		}
	})
}

type strobingWall struct {
	clock.Clock
	ahead atomic.Int64
}

func (c *strobingWall) Wall() time.Time { return c.Clock.Wall().Add(time.Duration(c.ahead.Load())) }

// Nodes that all restarted empty have no fence; time itself makes the tokens rise.
func TestTokensRiseAcrossAmnesiaOfAllNodes(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		first := must[*quorum.Lease](t)(l.Lock(background, "x"))
		unlock(t, first)
		w.nodes.Restart(true)
		time.Sleep(31 * time.Second)
		other := w.locker(quorum.Options{})
		second := must[*quorum.Lease](t)(other.TryLock(background, "x"))
		more(t, second.Token(), first.Token(), "tokens rise")
	})
}
