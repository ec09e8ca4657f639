package quorum

import (
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
)

// A life that is known now better, now worse is reported as too young once.
func TestAYoungLifeIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts, err := Options{Clock: clock.Runtime()}.fill()
		assert.Succeed(t, err)
		time.Sleep(time.Hour)
		told := 0
		opts.Trace = func(e Event) {
			if e.Kind == EventNodeAbstains {
				told++
			}
		}
		e := newEngine(&config{clock: opts.Clock, opts: opts, nodes: []node.Node{model.New(opts.Clock, "n1")}})
		now := opts.Clock.Now()
		meet := func(id string, age time.Duration) {
			e.enter()
			e.voters.judge(0, node.Acquire, now, node.Reply{Status: node.Granted, Life: &node.Life{ID: id, Born: now.Add(-age)}})
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

// Each row is what a reply means as a vote.
func TestJudge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts, err := Options{Clock: clock.Runtime(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}.fill()
		assert.Succeed(t, err)
		time.Sleep(time.Hour)
		start := opts.Clock.Now()
		old, young := &node.Life{ID: "a"}, &node.Life{ID: "b", Born: start.Add(-time.Second)}
		refused := errors.New("refused")
		for _, row := range []struct {
			says       string
			kind       node.Kind
			reply      node.Reply
			vote       vote
			may, stale bool
		}{
			{says: "a grant is a yes, and the claim is there",
				reply: node.Reply{Status: node.Granted, Life: old}, vote: voteGranted, may: true},
			{says: "a server that started a moment ago abstains, and the claim is there",
				reply: node.Reply{Status: node.Granted, Life: young}, vote: voteAbstaining, may: true},
			{says: "a server that does not say when it started is ignored",
				reply: node.Reply{Status: node.Granted}, vote: voteUnknown, may: true},
			{says: "a refusal is a no, and nothing is there",
				reply: node.Reply{Status: node.Refused, Life: old}, vote: voteRefused},
			{says: "the refusal of a young server counts as well",
				reply: node.Reply{Status: node.Refused, Life: young}, vote: voteRefused},
			{says: "a token that is too low is a no of its own sort",
				reply: node.Reply{Status: node.Stale, Life: old}, vote: voteRefused, stale: true},
			{says: "a command without an answer may still be executed",
				reply: node.Reply{Err: node.ErrTimeout}, vote: voteUnknown, may: true},
			{says: "a command that was not sent is not",
				reply: node.Reply{Err: node.ErrUnreachable, Unsent: true}, vote: voteUnknown},
			{says: "an extension that was not sent leaves what was there",
				kind: node.Extend, reply: node.Reply{Err: refused, Unsent: true}, vote: voteUnknown, may: true},
			{says: "a key of another type is no answer to an acquire, but nothing is there",
				reply: node.Reply{Err: node.ErrWrongType}, vote: voteUnknown},
			{says: "a release that meets a key of another type finds no lease",
				kind: node.Release, reply: node.Reply{Err: node.ErrWrongType}, vote: voteRefused, may: true},
			{says: "nor does a downgrade",
				kind: node.Downgrade, reply: node.Reply{Err: node.ErrWrongType}, vote: voteRefused, may: true},
			{says: "a release of what is absent is confirmed",
				kind: node.Release, reply: node.Reply{Status: node.Absent, Life: old}, vote: voteGranted},
			{says: "an extension of all names is a yes",
				kind: node.Extend, reply: node.Reply{Status: node.Done, Kept: []bool{true, true}, Life: old}, vote: voteGranted, may: true},
			{says: "a server that started within a third of MaxLease abstains from an extension, and has the lease",
				kind: node.Extend, reply: node.Reply{Status: node.Done, Kept: []bool{true}, Life: young}, vote: voteAbstaining, may: true},
			{says: "so does one that started just a third of MaxLease ago, for clocks may differ",
				kind: node.Extend, reply: node.Reply{Status: node.Done, Kept: []bool{true}, Life: &node.Life{ID: "c", Born: start.Add(-10 * time.Second)}}, vote: voteAbstaining, may: true},
			{says: "one that started earlier counts for an extension",
				kind: node.Extend, reply: node.Reply{Status: node.Done, Kept: []bool{true}, Life: &node.Life{ID: "d", Born: start.Add(-10200 * time.Millisecond)}}, vote: voteGranted, may: true},
			{says: "and not for an acquire",
				reply: node.Reply{Status: node.Granted, Life: &node.Life{ID: "d", Born: start.Add(-10200 * time.Millisecond)}}, vote: voteAbstaining, may: true},
			{says: "an extension that lacks a name is a no",
				kind: node.Extend, reply: node.Reply{Status: node.Done, Kept: []bool{true, false}, Life: old}, vote: voteRefused},
		} {
			kind := row.kind
			if kind == 0 {
				kind = node.Acquire
			}
			e := newEngine(&config{clock: opts.Clock, opts: opts, nodes: []node.Node{model.New(opts.Clock, "n1")}})
			e.enter()
			v := e.voters
			if b := v.judge(0, kind, start, row.reply); b.vote != row.vote || b.may != row.may || b.stale != row.stale {
				t.Errorf("%s: %v, may %v, stale %v", row.says, b.vote, b.may, b.stale)
			}
		}
	})
}
