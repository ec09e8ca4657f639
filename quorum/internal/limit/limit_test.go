package limit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/quorum/internal/line"
)

// A trial is a Limiter with the time, and the callers that it has let in from outside.
type trial struct {
	Limiter
	now clock.Instant
	let []*caller
}

func newTrial() *trial { return &trial{Limiter: New(), now: clock.Instant(time.Millisecond)} }

// A caller makes an attempt.
type caller struct {
	Entry
	trial *trial
}

func (c *caller) Stir() { c.trial.let = append(c.trial.let, c) }

func (l *trial) caller(leaves clock.Instant) *caller {
	c := &caller{trial: l}
	c.Waiter, c.Leaves = c, leaves
	return c
}

// attempts makes n attempts that begin now and take the same time.
func (l *trial) attempts(n int, took time.Duration, answered bool) {
	start := l.now
	l.attempt(n)
	l.now = l.now.Add(took)
	for range n {
		l.End(start, l.now, answered)
	}
}

func (l *trial) attempt(n int) {
	for range n {
		l.Enter(&l.caller(clock.Never).Entry, l.now)
	}
}

// rounds makes as many attempts at a time as there may be, n times.
func (l *trial) rounds(n int, took time.Duration) {
	for range n {
		l.attempts(l.most(), took, true)
	}
}

// Each row is the bound after some attempts.
func TestLimiterLearns(t *testing.T) {
	const quick, queue = 10 * time.Millisecond, 50 * time.Millisecond
	for _, row := range []struct {
		says string
		do   func(l *trial)
		want int
	}{
		{"it begins with few", func(*trial) {}, firstAttempts},
		// until so many are left
		{"and with more in each round without a queue", func(l *trial) { l.rounds(1, quick) }, 11},
		{"up to a bound", func(l *trial) { l.rounds(40, quick) }, maxAttempts},
		{"but not unused", func(l *trial) {
			for range 1000 {
				l.attempts(2, quick, true)
			}
		}, firstAttempts},
		{"it rises slowly while there is a short queue", func(l *trial) { l.rounds(1, quick); l.rounds(4, quick+standing/3) }, 12},
		{"and not while it is longer", func(l *trial) { l.rounds(1, quick); l.rounds(20, quick+standing*2/3) }, 11},
		{"one slow attempt says nothing", func(l *trial) { l.rounds(6, quick); l.rounds(1, time.Second) }, 53},
		{"nor does a pause of all nodes", func(l *trial) {
			l.rounds(12, quick)
			l.rounds(1, 420*time.Millisecond)
			l.rounds(20, quick)
		}, maxAttempts},
		{"all that are slow for a while do", func(l *trial) { l.rounds(12, quick); l.rounds(4, queue) }, 151},
		{"if they began after the bound was lowered", func(l *trial) {
			l.rounds(12, quick)
			l.rounds(4, queue)
			for range 1000 {
				l.now = l.now.Add(time.Millisecond)
				l.learn(0, l.now, true)
			}
		}, 151},
		{"but not if one of them was quick", func(l *trial) {
			l.rounds(12, quick)
			l.rounds(2, queue)
			l.attempts(1, quick, true)
			l.rounds(1, queue)
		}, 303},
		{"nor if the nodes are far away", func(l *trial) { l.rounds(40, 10*queue) }, maxAttempts},
		{"a queue leaves some", func(l *trial) { l.rounds(12, quick); l.rounds(40, queue) }, firstAttempts},
		{"a long one fewer", func(l *trial) { l.rounds(12, quick); l.rounds(40, 4*queue) }, leastAttempts},
		{"until it is short", func(l *trial) {
			l.rounds(12, quick)
			l.rounds(40, 4*queue)
			l.rounds(20, quick+standing*2/3)
		}, firstAttempts},
		{"where the nodes are further than they were it is the least for a moment", func(l *trial) {
			l.rounds(12, quick)
			for i := 0; l.probing == 0 && i < 300; i++ {
				l.rounds(1, queue)
			}
		}, leastAttempts},
		{"and rises then", func(l *trial) { l.rounds(12, quick); l.rounds(250, queue) }, maxAttempts},
		{"nodes that are down say nothing", func(l *trial) {
			for range 10 {
				l.attempts(8, 0, false)
			}
			l.rounds(40, queue)
		}, maxAttempts},
		{"nodes that do not answer do", func(l *trial) {
			l.rounds(12, quick)
			for range 2 {
				l.attempts(500, time.Second, false)
			}
		}, 151},
		{"what was long ago does not", func(l *trial) { l.rounds(20, quick); l.now = l.now.Add(knownFor); l.attempt(1) }, firstAttempts},
	} {
		l := newTrial()
		row.do(l)
		assert.Equal(t, l.most(), row.want, row.says)
	}
}

// Outside it is first come, first served. When one has given up the last is next, and
// each eighth time the first.
func TestOrderOutside(t *testing.T) {
	for gaveUp, want := range map[bool]string{false: "0 1 2 3 4 5 6 7 8 9", true: "11 10 9 8 7 6 5 0 4 3"} {
		l := newTrial()
		l.attempt(firstAttempts)
		numbers := make(map[*caller]int)
		for i := range 12 {
			w := l.caller(clock.Never)
			numbers[w] = i
			l.Enter(&w.Entry, l.now)
		}
		if gaveUp {
			w := l.caller(clock.Never)
			l.Enter(&w.Entry, l.now)
			l.Forget(&w.Entry, l.now)
		}
		var order []string
		for range 10 {
			l.Leave(l.now)
		}
		for _, w := range l.let {
			order = append(order, fmt.Sprint(numbers[w]))
		}
		assert.Equal(t, strings.Join(order, " "), want, "the order if one gave up: ", gaveUp)
		first := l.outside.First.Of
		l.Leave(l.now.Add(knownFor))
		assert.That(t, first.Let, "later the first is not the next")
	}
}

// An attempt begins only if its caller has the time that it needs.
func TestAttemptsBeginInTime(t *testing.T) {
	const quick, queue = 10 * time.Millisecond, 20 * time.Millisecond
	const needs, long = quick + 2*queue, time.Hour
	for _, row := range []struct {
		says          string
		underWay      int
		first, second time.Duration // that the callers of two have left
		enters        bool          // the first, if there is room
		next          string        // who begins if there is none, and another ends
	}{
		{"the first begins", 4, needs, long, true, "first"},
		{"if it has the time; otherwise the last does", 4, needs - 1, needs, false, "second"},
		{"none may have it", 4, needs - 1, needs - 1, false, ""},
		{"but some are to be under way", leastAttempts, needs - 1, long, false, "first"},
		{"however little time they have", leastAttempts - 1, 1, 1, true, "first"},
	} {
		l := newTrial()
		l.quickest, l.usual = quick, quick+queue
		with := func(left time.Duration) *caller { return l.caller(l.now.Add(left)) }
		l.underWay = row.underWay
		assert.Equal(t, l.Enter(&with(row.first).Entry, l.now), row.enters, row.says)
		l.outside, l.bound, l.underWay = line.Line[*Entry]{}, leastAttempts, max(row.underWay, leastAttempts)
		both := map[string]*caller{"first": with(row.first), "second": with(row.second)}
		l.Enter(&both["first"].Entry, l.now)
		l.Enter(&both["second"].Entry, l.now)
		l.bound = float64(l.underWay)
		l.Leave(l.now)
		next := ""
		for name, w := range both {
			if w.Let {
				next = name
			}
		}
		assert.Equal(t, next, row.next, row.says)
	}
}

// The end of an attempt above the bound makes no room.
func TestNoRoomAboveTheBound(t *testing.T) {
	l := newTrial()
	l.attempt(firstAttempts)
	l.underWay++
	w := l.caller(clock.Never)
	l.Enter(&w.Entry, l.now)
	l.Leave(l.now)
	assert.That(t, !w.Let, "it made room")
	l.Leave(l.now)
	assert.That(t, w.Let, "the next made none")
}
