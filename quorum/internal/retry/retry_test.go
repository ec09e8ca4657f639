package retry

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

func TestFreeInIsTheSoonestMajority(t *testing.T) {
	ms := time.Millisecond
	assert.Equal(t, onMost([]time.Duration{900 * ms, 0, 30 * ms, 400 * ms, 20 * ms}, 3), 30*ms)
}

// The doubled pauses after long attempts do not overflow.
func TestPauseOfLongAttempts(t *testing.T) {
	const long = 10 * 365 * 24 * time.Hour
	for first := FirstPause; first < long; first += first / 2 {
		got := Sleep(0, 16, first, long, 0)
		assert.That(t, got >= first/2, "after attempts of %v a waiter sleeps for %v", first, got)
	}
}

func TestPauseIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		poll := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(10*time.Second)).Draw(t, "poll"))
		free := time.Duration(rapid.Int64Range(-1, int64(time.Hour)).Draw(t, "free"))
		tries := rapid.IntRange(0, 100).Draw(t, "tries")
		first := time.Duration(rapid.Int64Range(int64(FirstPause), int64(time.Second)).Draw(t, "first"))
		random := rapid.Float64Range(0, 0.9999).Draw(t, "random")
		got := Sleep(free, tries, first, poll, random)
		if most := max(poll, 8*first); got <= 0 || got > most+most/20+2*expiryMargin {
			t.Fatalf("Sleep(%v, %d, %v, %v, %v) = %v", free, tries, first, poll, random, got)
		}
		assert.Must(t, free <= 0 || free >= poll || got >= free, "Sleep(%v, %d, %v, %v, %v) = %v: too early", free,
			tries, first, poll, random, got)
	})
}

// Each row is a rule of what a waiter does between two attempts, on five nodes; it needs
// three. The pause began at 0, and ends at 1 s unless the row says otherwise.
func TestNextStep(t *testing.T) {
	const (
		ms    = clock.Instant(time.Millisecond)
		one   = vote.NodeSet(0b00001)
		two   = vote.NodeSet(0b00011)
		three = vote.NodeSet(0b00111)
		slack = clock.Instant(NoticeSlack)
	)
	second := 1000 * ms
	for _, row := range []struct {
		says  string
		state Pause
		news  News
		want  Choice
		until clock.Instant // the end of the pause afterwards; 0: it does not matter
	}{
		{says: "the end of the caller's context ends the wait, even if the lock was handed over",
			news: News{Ended: true, Handed: three}, want: StopWaiting},
		{says: "the end of the wait's own bound ends it, even if a notice comes at that instant",
			news: News{Now: 5 * second, Released: three}, want: StopWaiting},
		{says: "a waiter whose time is up asks again",
			news: News{Now: second, Passed: true}, want: AskAgain},
		{says: "a waiter whose time is up passes waiters that keep it from a free lock, for they may be dead",
			state: Pause{passable: true}, news: News{Now: second, Passed: true}, want: AskPastOthers},
		{says: "a waiter whose bound is reached as its time is up does not ask again",
			state: Pause{passable: true}, news: News{Now: 5 * second, Passed: true}, want: StopWaiting},

		{says: "enough hand-overs make a grant",
			news: News{Now: ms, Handed: three}, want: AskAgain},
		{says: "an incomplete hand-over is waited for, for as long as an attempt takes",
			state: Pause{took: 3 * time.Millisecond}, news: News{Now: ms, Handed: two}, want: KeepPausing,
			until: 4 * ms},
		{says: "it is not waited for any longer if another node hands over",
			state: Pause{took: 3 * time.Millisecond, until: 4 * ms, expects: true},
			news:  News{Now: 3 * ms, Handed: two}, want: KeepPausing, until: 4 * ms},
		{says: "it is not given up because the pause would be over just then",
			state: Pause{took: 3 * time.Millisecond, until: ms}, news: News{Now: ms, Handed: two}, want: KeepPausing,
			until: 4 * ms},
		{says: "a hand-over of nodes that were free already is none of the waiter's own doing",
			state: Pause{free: two, own: two}, news: News{Now: ms, Handed: two}, want: KeepPausing, until: 2 * ms},

		{says: "when the holder in this process has released, the nodes are asked soon if they stay silent",
			news: News{Now: ms, Left: true}, want: KeepPausing, until: ms + slack},
		{says: "a notice from a node that was free already is an echo of the waiter's own release",
			state: Pause{free: one, own: one}, news: News{Now: ms, Released: one}, want: KeepPausing, until: second},
		{says: "a notice of too few nodes shortens the pause, for the others may be late",
			news: News{Now: ms, Released: two}, want: KeepPausing, until: ms + slack},
		{says: "a node that does not vote is not counted, whatever it announces",
			state: Pause{silent: one, own: one}, news: News{Now: ms, Released: three}, want: KeepPausing,
			until: ms + slack},

		{says: "a queued waiter that is first asks when enough nodes may be free",
			news: News{Now: ms, Released: three}, want: AskAgain},
		{says: "a queued waiter leaves time to each of those before it",
			state: Pause{before: 2}, news: News{Now: ms, Released: three}, want: KeepPausing, until: ms + 2*slack},
		{says: "a queued waiter that enough nodes call first takes the lock, though others were before it",
			state: Pause{before: 2}, news: News{Now: ms, First: three}, want: AskPastOthers},
		{says: "nodes that were free at the last attempt count together with those that call it first",
			state: Pause{free: two, own: two, before: 2}, news: News{Now: ms, First: three}, want: AskPastOthers},

		{says: "a waiter that enough nodes call first lets listeners that are in no queue come before it",
			state: Pause{StandBack: 5 * time.Millisecond}, news: News{Now: ms, First: three},
			want: KeepPausing, until: 6 * ms},
		{says: "it does so until then, however many nodes call it",
			state: Pause{StandBack: 5 * time.Millisecond, until: 6 * ms}, news: News{Now: 5 * ms, First: three},
			want: KeepPausing, until: 6 * ms},

		{says: "after two split votes a waiter comes at a moment of its own",
			state: Pause{splits: 2, Luck: 0.5, unit: 10 * time.Millisecond}, news: News{Now: ms, First: three},
			want: KeepPausing, until: 21 * ms},
		{says: "after one split vote it does not",
			state: Pause{splits: 1, Luck: 0.5, unit: 10 * time.Millisecond}, news: News{Now: ms, Released: three},
			want: AskAgain},
	} {
		p := row.state
		p.need, p.deadline = 3, 5*second
		if p.until == 0 {
			p.until = second
		}
		assert.Equal(t, p.NextStep(row.news), row.want, row.says)
		assert.That(t, row.until == 0 || p.until == row.until,
			"%s: the pause ends at %v, not at %v", row.says, time.Duration(p.until), time.Duration(row.until))
	}
}

// How many waiters are queued on a silent node is unknown.
func TestThoseBeforeAreCountedOnAMajority(t *testing.T) {
	for _, test := range []struct {
		ballots []vote.Ballot
		want    int
	}{
		{[]vote.Ballot{{Ahead: 3}, {Ahead: 1}, {Ahead: 2}}, 2},
		{[]vote.Ballot{{Ahead: 3}, {}, {}}, 0},
		{[]vote.Ballot{{Ahead: 3}, {Vote: vote.Unknown}, {}}, 3},
		{[]vote.Ballot{{Ahead: 3}, {Vote: vote.Abstaining}, {Ahead: 1}}, 3},
	} {
		f := Findings{Ballots: test.ballots}
		assert.Equal(t, f.before(2), test.want, test.ballots)
	}
}

// The next token is above all fences except for those far ahead, and above these only if
// too few other nodes are left that vote.
func TestTokensFollowFences(t *testing.T) {
	tokens, at := &vote.Tokens{Retention: 24 * time.Hour}, vote.BothClocks{Wall: time.Now()}
	const before, near, far = 100, 200, node.MaxToken - 100
	for what, test := range map[string]struct {
		ballots [3]vote.Ballot
		token   node.Token
		spent   bool
	}{
		"none": {[3]vote.Ballot{{Vote: vote.Refused}, {Vote: vote.Refused},
			{Vote: vote.Refused}}, before, false},
		"the highest":               {[3]vote.Ballot{{Fence: near - 1}, {Fence: near}, {Fence: 1}}, near, false},
		"one far ahead":             {[3]vote.Ballot{{Fence: far}, {Fence: near}, {Fence: near}}, near, false},
		"two far ahead":             {[3]vote.Ballot{{Fence: far}, {Fence: far - 1}, {Fence: near}}, far, false},
		"one, and one does not say": {[3]vote.Ballot{{Fence: far}, {Vote: vote.Unknown}, {Fence: near}}, far, false},
		"one, and one is ignored": {[3]vote.Ballot{{Fence: far}, {Vote: vote.Abstaining}, {Fence: near}}, far,
			false},
		"two that do not count": {[3]vote.Ballot{{Vote: vote.Unknown}, {Vote: vote.Abstaining}, {Fence: near}},
			near, false},
		"one has the highest token": {[3]vote.Ballot{{Fence: node.MaxToken}, {Fence: near}, {Fence: near}}, near,
			false},
		"one has it, and one is far": {[3]vote.Ballot{{Fence: node.MaxToken}, {Fence: far}, {Fence: near}}, far,
			false},
		"two have the highest token": {[3]vote.Ballot{{Fence: node.MaxToken}, {Fence: node.MaxToken}, {Fence: near}},
			near, true},
		"one has it, and one is mute": {[3]vote.Ballot{{Fence: node.MaxToken}, {Vote: vote.Unknown}, {Fence: near}},
			near, false},
	} {
		f := Findings{Token: before, Ballots: test.ballots[:]}
		if f.followFences(tokens, at, 2); f.Token != test.token || f.Spent != test.spent {
			t.Errorf("%s: token %d, spent %v; want %d, %v", what, f.Token, f.Spent, test.token, test.spent)
		}
	}
}
