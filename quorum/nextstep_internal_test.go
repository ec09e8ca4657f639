package quorum

import (
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
)

// Each row is a rule of what a waiter does between two attempts, on five nodes; it needs
// three. The pause began at 0, and ends at 1 s unless the row says otherwise.
func TestNextStep(t *testing.T) {
	const (
		ms    = clock.Instant(time.Millisecond)
		one   = nodeSet(0b00001)
		two   = nodeSet(0b00011)
		three = nodeSet(0b00111)
		slack = clock.Instant(noticeSlack)
	)
	second := 1000 * ms
	for _, row := range []struct {
		says  string
		state pausing
		news  news
		want  step
		until clock.Instant // the end of the pause afterwards; 0: it does not matter
	}{
		{says: "the end of the caller's context ends the wait, even if the lock was handed over",
			news: news{ended: true, handed: three}, want: stopWaiting},
		{says: "the end of the wait's own bound ends it, even if a notice comes at that instant",
			news: news{now: 5 * second, released: three}, want: stopWaiting},
		{says: "a waiter whose time is up asks again",
			news: news{now: second, passed: true}, want: askAgain},
		{says: "a waiter whose time is up passes waiters that keep it from a free lock, for they may be dead",
			state: pausing{passable: true}, news: news{now: second, passed: true}, want: askPastOthers},
		{says: "a waiter whose bound is reached as its time is up does not ask again",
			state: pausing{passable: true}, news: news{now: 5 * second, passed: true}, want: stopWaiting},

		{says: "enough hand-overs make a grant",
			news: news{now: ms, handed: three}, want: askAgain},
		{says: "an incomplete hand-over is waited for, for as long as an attempt takes",
			state: pausing{took: 3 * time.Millisecond}, news: news{now: ms, handed: two}, want: keepPausing, until: 4 * ms},
		{says: "it is not waited for any longer if another node hands over",
			state: pausing{took: 3 * time.Millisecond, until: 4 * ms, expects: true}, news: news{now: 3 * ms, handed: two}, want: keepPausing, until: 4 * ms},
		{says: "it is not given up because the pause would be over just then",
			state: pausing{took: 3 * time.Millisecond, until: ms}, news: news{now: ms, handed: two}, want: keepPausing, until: 4 * ms},
		{says: "a hand-over of nodes that were free already is none of the waiter's own doing",
			state: pausing{free: two, own: two}, news: news{now: ms, handed: two}, want: keepPausing, until: 2 * ms},

		{says: "when the holder in this process has released, the nodes are asked soon if they stay silent",
			news: news{now: ms, left: true}, want: keepPausing, until: ms + slack},
		{says: "a notice from a node that was free already is an echo of the waiter's own release",
			state: pausing{free: one, own: one}, news: news{now: ms, released: one}, want: keepPausing, until: second},
		{says: "a notice of too few nodes shortens the pause, for the others may be late",
			news: news{now: ms, released: two}, want: keepPausing, until: ms + slack},
		{says: "a node that does not vote is not counted, whatever it announces",
			state: pausing{silent: one, own: one}, news: news{now: ms, released: three}, want: keepPausing, until: ms + slack},

		{says: "a queued waiter that is first asks when enough nodes may be free",
			news: news{now: ms, released: three}, want: askAgain},
		{says: "a queued waiter leaves time to each of those before it",
			state: pausing{before: 2}, news: news{now: ms, released: three}, want: keepPausing, until: ms + 2*slack},
		{says: "a queued waiter that enough nodes call first takes the lock, though others were before it",
			state: pausing{before: 2}, news: news{now: ms, first: three}, want: askPastOthers},
		{says: "nodes that were free at the last attempt count together with those that call it first",
			state: pausing{free: two, own: two, before: 2}, news: news{now: ms, first: three}, want: askPastOthers},

		{says: "a waiter that enough nodes call first lets listeners that are in no queue come before it",
			state: pausing{standBack: 5 * time.Millisecond}, news: news{now: ms, first: three},
			want: keepPausing, until: 6 * ms},
		{says: "it does so until then, however many nodes call it",
			state: pausing{standBack: 5 * time.Millisecond, until: 6 * ms}, news: news{now: 5 * ms, first: three},
			want: keepPausing, until: 6 * ms},

		{says: "after two split votes a waiter comes at a moment of its own",
			state: pausing{splits: 2, luck: 0.5, unit: 10 * time.Millisecond}, news: news{now: ms, first: three}, want: keepPausing, until: 21 * ms},
		{says: "after one split vote it does not",
			state: pausing{splits: 1, luck: 0.5, unit: 10 * time.Millisecond}, news: news{now: ms, released: three}, want: askAgain},
	} {
		p := row.state
		p.need, p.deadline = 3, 5*second
		if p.until == 0 {
			p.until = second
		}
		assert.Equal(t, p.nextStep(row.news), row.want, row.says)
		assert.That(t, row.until == 0 || p.until == row.until,
			"%s: the pause ends at %v, not at %v", row.says, time.Duration(p.until), time.Duration(row.until))
	}
}
