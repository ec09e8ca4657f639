package core

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

func TestFreeInIsTheSoonestMajority(t *testing.T) {
	ms := time.Millisecond
	assert.Equal(t, freeIn([]time.Duration{900 * ms, 0, 30 * ms, 400 * ms, 20 * ms}, 3), 30*ms)
}

// The doubled pauses after long attempts do not overflow.
func TestPauseOfLongAttempts(t *testing.T) {
	const long = 10 * 365 * 24 * time.Hour
	for first := FirstPause; first < long; first += first / 2 {
		got := Pause(0, 16, first, long, 0)
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
		got := Pause(free, tries, first, poll, random)
		if most := max(poll, 8*first); got <= 0 || got > most+most/20+2*expiryMargin {
			t.Fatalf("pause(%v, %d, %v, %v, %v) = %v", free, tries, first, poll, random, got)
		}
		assert.Must(t, free <= 0 || free >= poll || got >= free, "pause(%v, %d, %v, %v, %v) = %v: too early", free,
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
		slack = clock.Instant(noticeSlack)
	)
	second := 1000 * ms
	for _, row := range []struct {
		says  string
		state pausing
		news  news
		want  choice
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
			state: pausing{took: 3 * time.Millisecond}, news: news{now: ms, handed: two}, want: keepPausing,
			until: 4 * ms},
		{says: "it is not waited for any longer if another node hands over",
			state: pausing{took: 3 * time.Millisecond, until: 4 * ms, expects: true},
			news:  news{now: 3 * ms, handed: two}, want: keepPausing, until: 4 * ms},
		{says: "it is not given up because the pause would be over just then",
			state: pausing{took: 3 * time.Millisecond, until: ms}, news: news{now: ms, handed: two}, want: keepPausing,
			until: 4 * ms},
		{says: "a hand-over of nodes that were free already is none of the waiter's own doing",
			state: pausing{free: two, own: two}, news: news{now: ms, handed: two}, want: keepPausing, until: 2 * ms},

		{says: "when the holder in this process has released, the nodes are asked soon if they stay silent",
			news: news{now: ms, left: true}, want: keepPausing, until: ms + slack},
		{says: "a notice from a node that was free already is an echo of the waiter's own release",
			state: pausing{free: one, own: one}, news: news{now: ms, released: one}, want: keepPausing, until: second},
		{says: "a notice of too few nodes shortens the pause, for the others may be late",
			news: news{now: ms, released: two}, want: keepPausing, until: ms + slack},
		{says: "a node that does not vote is not counted, whatever it announces",
			state: pausing{silent: one, own: one}, news: news{now: ms, released: three}, want: keepPausing,
			until: ms + slack},

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
			state: pausing{splits: 2, luck: 0.5, unit: 10 * time.Millisecond}, news: news{now: ms, first: three},
			want: keepPausing, until: 21 * ms},
		{says: "after one split vote it does not",
			state: pausing{splits: 1, luck: 0.5, unit: 10 * time.Millisecond}, news: news{now: ms, released: three},
			want: askAgain},
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
		f := findings{ballots: test.ballots}
		assert.Equal(t, f.before(2), test.want, test.ballots)
	}
}

// A waiter for several names reserves them when it was first for each: for as long as it
// has waited for each name after the first, within a bound, and not again before it was
// first for each once more.
func TestReservationsAreBounded(t *testing.T) {
	e := bare(t)

	w := &waiter{e: e, began: e.now, reserved: e.now, standby: standby{calledFirstFor: make([]vote.NodeSet, 3)}}
	check := func(what string, told []vote.NodeSet, want time.Duration) {
		t.Helper()
		copy(w.calledFirstFor, told)
		if may := w.mayReserve(); may != (want > 0) || may && w.reserved.Sub(e.now) != want {
			t.Errorf("%s: %v, until %v from now, want %v", what, may, w.reserved.Sub(e.now), want)
		}
		e.now = e.now.Add(want)
	}
	all, short := []vote.NodeSet{0b011, 0b110, 0b111}, []vote.NodeSet{0b011, 0b110, 0b001}
	e.now = e.now.Add(100 * time.Millisecond)
	check("not told", nil, 0)
	check("told by too few", short, 0)
	check("told", all, 200*time.Millisecond)
	check("not told again", nil, 0)
	e.now = e.now.Add(time.Hour)
	check("told late", all, 2*e.Opts.RetryEvery)
	check("not told any more", slices.Repeat([]vote.NodeSet{0}, 3), 0)
}

// A hand-over counts if its holder has drawn the token at most a Timeout before the
// attempt, by the waiter's clock.
func TestOutdatedHandOver(t *testing.T) {
	c := &Config{Opts: Rules{Timeout: time.Second}}
	for older, want := range map[node.Token]bool{0: false, 1_000_000: false, 1_000_001: true, 1 << 40: true} {
		const attempt = 1 << 50
		assert.That(t, c.outdated(attempt-older, attempt) == want, "%d us older: want %v", older, want)
		assert.That(t, !c.outdated(attempt+older, attempt), "%d us newer", older)
	}
	assert.That(t, !c.outdated(node.MaxToken, node.MaxToken), "the last token")
}

// The next token is above all fences except for those far ahead, and above these only if
// too few other nodes are left that vote.
func TestTokensFollowFences(t *testing.T) {
	e := newEngine(&Config{Clock: clock.System(), Opts: usual(), Need: 2}, nil)
	e.enter()
	tokens := e.tokens
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
		f := findings{token: before, ballots: test.ballots[:]}
		if f.followFences(tokens, 2); f.token != test.token || f.spent != test.spent {
			t.Errorf("%s: token %d, spent %v; want %d, %v", what, f.token, f.spent, test.token, test.spent)
		}
	}
}

// A life whose age is known with varying precision is reported as too young once.
func TestAYoungLifeIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.Runtime()
		time.Sleep(time.Hour)
		told := 0
		hear := func(x Event) {
			if x.Kind == EventNodeAbstains {
				told++
			}
		}
		e := newEngine(&Config{Clock: c, Opts: usual(), Nodes: []node.Node{model.New(c, "n1")}}, &nobody{hear})
		now := c.Now()
		meet := func(id string, age time.Duration) {
			e.enter()
			e.voters.judge(0, node.Acquire, now, node.Reply{Status: node.Granted,
				Life: &node.Life{ID: id, Born: now.Add(-age)}})
			e.leave()
		}
		for range 10 {
			meet("a", time.Second)
			meet("a", time.Minute)
		}
		assert.That(t, told == 1, "%d reports of one life", told)
		meet("a", 0)             // it was promoted again
		meet("b", 2*time.Second) // another server
		assert.That(t, told == 3, "%d reports of three", told)
	})
}

// A primary is no other server when one of its own replicas comes back and is the first
// to confirm a lock.
func TestAReplicaThatComesBackIsNoRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.Runtime()
		time.Sleep(time.Hour)
		told := 0
		hear := func(Event) { told++ }
		e := newEngine(&Config{Clock: c, Opts: usual(), Nodes: []node.Node{withReplicas{model.New(c, "n1")}}},
			&nobody{hear})
		now := c.Now()
		for _, life := range []node.Life{{ID: "a", Born: now.Add(-time.Minute)}, {ID: "a", Born: now.Add(-time.Second)},
			{ID: "b", Born: now}} {
			e.enter()
			e.voters.judge(0, node.Acquire, now, node.Reply{Status: node.Granted, Life: &life})
			e.leave()
		}
		assert.That(t, told == 1, "%d events; only the failover is one", told)
	})
}

type withReplicas struct{ *model.Node }

func (withReplicas) Replicas() int { return 2 }

// Each row is a reply's meaning as a vote.
func TestJudge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.Runtime()
		time.Sleep(time.Hour)
		start := c.Now()
		old, young := &node.Life{ID: "a"}, &node.Life{ID: "b", Born: start.Add(-time.Second)}
		refused := errors.New("refused")
		for _, row := range []struct {
			says       string
			kind       node.Kind
			reply      node.Reply
			vote       vote.Vote
			may, stale bool
		}{
			{says: "a grant is a yes, and the claim is there",
				reply: node.Reply{Status: node.Granted, Life: old}, vote: vote.Granted, may: true},
			{says: "a server that started a moment ago abstains, and the claim is there",
				reply: node.Reply{Status: node.Granted, Life: young}, vote: vote.Abstaining, may: true},
			{says: "a server that does not say when it started is ignored",
				reply: node.Reply{Status: node.Granted}, vote: vote.Unknown, may: true},
			{says: "a refusal is a no, and nothing is there",
				reply: node.Reply{Status: node.Refused, Life: old}, vote: vote.Refused},
			{says: "the refusal of a young server counts as well",
				reply: node.Reply{Status: node.Refused, Life: young}, vote: vote.Refused},
			{says: "a token that is too low is a no of its own sort",
				reply: node.Reply{Status: node.Stale, Life: old}, vote: vote.Refused, stale: true},
			{says: "a command without an answer may still be executed",
				reply: node.Reply{Err: node.ErrTimeout}, vote: vote.Unknown, may: true},
			{says: "a command that was not sent is not",
				reply: node.Reply{Err: node.ErrUnreachable, Unsent: true}, vote: vote.Unknown},
			{says: "an extension that was not sent leaves what was there",
				kind: node.Extend, reply: node.Reply{Err: refused, Unsent: true}, vote: vote.Unknown, may: true},
			{says: "a key of another type is no answer to an acquire, but nothing is there",
				reply: node.Reply{Err: node.ErrWrongType}, vote: vote.Unknown},
			{says: "a release that meets a key of another type finds no lease",
				kind: node.Release, reply: node.Reply{Err: node.ErrWrongType}, vote: vote.Refused, may: true},
			{says: "nor does a downgrade",
				kind: node.Downgrade, reply: node.Reply{Err: node.ErrWrongType}, vote: vote.Refused, may: true},
			{says: "a release of what is absent is confirmed",
				kind: node.Release, reply: node.Reply{Status: node.Absent, Life: old}, vote: vote.Granted},
			{says: "an extension of all names is a yes",
				kind: node.Extend, reply: node.Reply{Status: node.Done, Kept: []bool{true, true}, Life: old},
				vote: vote.Granted, may: true},
			{says: "a server that started within a third of MaxLease abstains from an extension, and has the lease",
				kind: node.Extend, reply: node.Reply{Status: node.Done, Kept: []bool{true}, Life: young},
				vote: vote.Abstaining, may: true},
			{says: "so does one that started just a third of MaxLease ago, for clocks may differ",
				kind: node.Extend, reply: node.Reply{Status: node.Done, Kept: []bool{true},
					Life: &node.Life{ID: "c", Born: start.Add(-10 * time.Second)}}, vote: vote.Abstaining, may: true},
			{says: "one that started earlier counts for an extension",
				kind: node.Extend, reply: node.Reply{Status: node.Done, Kept: []bool{true},
					Life: &node.Life{ID: "d", Born: start.Add(-10200 * time.Millisecond)}}, vote: vote.Granted,
				may: true},
			{says: "and not for an acquire",
				reply: node.Reply{Status: node.Granted, Life: &node.Life{ID: "d",
					Born: start.Add(-10200 * time.Millisecond)}}, vote: vote.Abstaining, may: true},
			{says: "an extension that lacks a name is a no",
				kind: node.Extend, reply: node.Reply{Status: node.Done, Kept: []bool{true, false}, Life: old},
				vote: vote.Refused},
		} {
			kind := row.kind
			if kind == 0 {
				kind = node.Acquire
			}
			e := newEngine(&Config{Clock: c, Opts: usual(), Nodes: []node.Node{model.New(c, "n1")}}, &nobody{})
			e.enter()
			v := e.voters
			if b := v.judge(0, kind, start, row.reply); b.Vote != row.vote || b.May != row.may || b.Stale != row.stale {
				t.Errorf("%s: %v, may %v, stale %v", row.says, b.Vote, b.May, b.Stale)
			}
		}
	})
}
