package quorum_test

import (
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
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

// fence makes the fence of a name on some nodes what somebody wrote there.
func (w *world) fence(name string, token string, nodes ...*model.Node) {
	for _, n := range nodes {
		n.Do(func(s *model.Server, _ model.Time) { s.Set(node.FenceKey(name), token) })
	}
}

// A fence on one node, however high, keeps nobody from the name, and does not affect
// other names.
func TestOneNodesFenceLeadsNobody(t *testing.T) {
	for _, fence := range []string{"5000000000000000", "9007199254740990", "9007199254740991"} {
		inWorld(t, 5, func(w *world) {
			w.delay(time.Millisecond, 0)
			w.fence("x", fence, w.nodes[0])
			held := lock(t, w.locker(quorum.Options{}), "x")
			time.AfterFunc(500*time.Millisecond, func() { unlock(t, held) })
			other := w.locker(quorum.Options{})
			start := time.Now()
			lease := lock(t, other, "x")
			if d := time.Since(start); d > 600*time.Millisecond {
				t.Errorf("fence %s: served after %v", fence, d)
			}
			year := node.Token(time.Now().AddDate(1, 0, 0).UnixMicro())
			if token := lease.Token(); token <= held.Token() || token > year {
				t.Errorf("fence %s: token %d after %d", fence, token, held.Token())
			}
			if token := lock(t, other, "y").Token(); token > year {
				t.Errorf("fence %s: token %d of another name", fence, token)
			}
		})
	}
}

// Nor is it a reason to ask a second time at once: without that node there is no majority,
// and somebody has the name on the others.
func TestOneNodesFenceIsNoReasonToTryAgain(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.foreign("x", time.Minute, 0, 1)
		w.fence("x", strconv.FormatInt(time.Now().Add(time.Minute).UnixMicro(), 10), w.nodes[2])
		o := newObserver()
		taken(t, w.locker(quorum.Options{Trace: o.observe}), "x")
		equal(t, o.count(quorum.EventAttemptFailed), 1, "attempts")
	})
}

// On a majority it does, and a token below the highest is found for this name alone.
func TestFencesOfAMajorityLeadTheirName(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		w.fence("x", "9007199254740000", w.nodes[:3]...)
		l := w.locker(quorum.Options{})
		for want := node.Token(9007199254740001); want < 9007199254740004; want++ {
			lease := lock(t, l, "x")
			equal(t, lease.Token(), want)
			unlock(t, lease)
		}
		atMost(t, lock(t, l, "y").Token(), node.Token(time.Now().AddDate(1, 0, 0).UnixMicro()), "token of another name")
		w.fence("x", "9007199254740991", w.nodes[:3]...)
		start := time.Now()
		_, err := l.Lock(background, "x")
		if d := time.Since(start); !errors.Is(err, quorum.ErrNoQuorum) || !strings.Contains(err.Error(), "no fencing token is left") || !permanent(err) || d > time.Second {
			t.Errorf("after %v: %v", d, err)
		}
	})
}
