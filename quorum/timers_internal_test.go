package quorum

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
)

// The answer to a renewal may end a lease when the Locker is just being closed.
func TestTimersDropWhatIsGone(t *testing.T) {
	e := bare(t)
	h := &hold{e: e, until: e.now.Add(time.Hour)}
	e.at(h, h.until, h.until)
	h.end(stateOver, ErrClosed)
	e.timers.drop(h)
	assert.That(t, len(e.timers) == 0, "it is still there")
}

// Timers come out in the order of their instants, whatever was put, moved and dropped.
func TestTimersComeInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ts timers
		want := make(map[timer]clock.Instant)
		all := make([]*hold, 8)
		for i := range all {
			all[i] = new(hold)
		}
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			h, at := rapid.SampledFrom(all).Draw(t, "timer"), clock.Instant(rapid.IntRange(0, 20).Draw(t, "at"))
			if rapid.Bool().Draw(t, "drop") {
				ts.drop(h)
				delete(want, h)
			} else {
				ts.put(h, at, at)
				want[h] = at
			}
		}
		for last := clock.Instant(0); ; {
			next := ts.next()
			x := ts.due(20)
			if x == nil {
				break
			}
			at, there := want[x]
			assert.Must(t, there && at == next && at >= last, "one of %v comes after %v, wanted at %v: %v", next, last, at, there)
			delete(want, x)
			last = at
		}
		assert.Must(t, len(want) == 0, "%d are lost", len(want))
	})
}
