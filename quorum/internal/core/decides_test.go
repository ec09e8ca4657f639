package core

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum/internal/machine"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// A waiter for several names reserves them when it was first for each: for as long as it
// has waited for each name after the first, within a bound, and not again before it was
// first for each once more.
func TestReservationsAreBounded(t *testing.T) {
	e := bare(t)

	w := &waiter{e: e, began: e.Now, reserved: e.Now, standby: standby{calledFirstFor: make([]vote.NodeSet, 3)}}
	check := func(what string, told []vote.NodeSet, want time.Duration) {
		t.Helper()
		copy(w.calledFirstFor, told)
		if may := w.mayReserve(); may != (want > 0) || may && w.reserved.Sub(e.Now) != want {
			t.Errorf("%s: %v, until %v from now, want %v", what, may, w.reserved.Sub(e.Now), want)
		}
		e.Now = e.Now.Add(want)
	}
	all, short := []vote.NodeSet{0b011, 0b110, 0b111}, []vote.NodeSet{0b011, 0b110, 0b001}
	e.Now = e.Now.Add(100 * time.Millisecond)
	check("not told", nil, 0)
	check("told by too few", short, 0)
	check("told", all, 200*time.Millisecond)
	check("not told again", nil, 0)
	e.Now = e.Now.Add(time.Hour)
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

// A life whose age is known with varying precision is reported as too young once.
func TestAYoungLifeIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.Runtime()
		time.Sleep(time.Hour)
		told := 0
		hear := func(x machine.Event) {
			if x.Kind == machine.EventNodeAbstains {
				told++
			}
		}
		e := newEngine(&Config{Clock: c, Opts: usual(), Nodes: []node.Node{model.New(c, "n1")}}, &nobody{hear})
		now := c.Now()
		meet := func(id string, age time.Duration) {
			e.Enter()
			e.voters.judge(0, node.Acquire, now, node.Reply{Status: node.Granted,
				Life: &node.Life{ID: id, Born: now.Add(-age)}})
			e.Leave()
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
		hear := func(machine.Event) { told++ }
		e := newEngine(&Config{Clock: c, Opts: usual(), Nodes: []node.Node{withReplicas{model.New(c, "n1")}}},
			&nobody{hear})
		now := c.Now()
		for _, life := range []node.Life{{ID: "a", Born: now.Add(-time.Minute)}, {ID: "a", Born: now.Add(-time.Second)},
			{ID: "b", Born: now}} {
			e.Enter()
			e.voters.judge(0, node.Acquire, now, node.Reply{Status: node.Granted, Life: &life})
			e.Leave()
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
			e.Enter()
			v := e.voters
			if b := v.judge(0, kind, start, row.reply); b.Vote != row.vote || b.May != row.may || b.Stale != row.stale {
				t.Errorf("%s: %v, may %v, stale %v", row.says, b.Vote, b.May, b.Stale)
			}
		}
	})
}
