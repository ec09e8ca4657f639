package quorum_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

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
