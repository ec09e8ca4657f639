package quorum

import (
	"slices"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
)

// How many waiters are queued on a node that does not answer is unknown.
func TestThoseBeforeAreCountedOnAMajority(t *testing.T) {
	for _, test := range []struct {
		ballots []ballot
		want    int
	}{
		{[]ballot{{ahead: 3}, {ahead: 1}, {ahead: 2}}, 2},
		{[]ballot{{ahead: 3}, {}, {}}, 0},
		{[]ballot{{ahead: 3}, {vote: voteUnknown}, {}}, 3},
		{[]ballot{{ahead: 3}, {vote: voteAbstaining}, {ahead: 1}}, 3},
	} {
		f := findings{ballots: test.ballots}
		assert.Equal(t, f.before(2), test.want, test.ballots)
	}
}

// A waiter for several names reserves them when it was first for each of them: for as long as it
// has waited for each name after the first, but never for long; and not again before it was
// first for each of them once more.
func TestReservationsAreBounded(t *testing.T) {
	e := bare(t)

	w := &waiter{e: e, began: e.now, reserved: e.now, calledFirstFor: make([]nodeSet, 3)}
	check := func(what string, told []nodeSet, want time.Duration) {
		t.Helper()
		copy(w.calledFirstFor, told)
		if may := w.mayReserve(); may != (want > 0) || may && w.reserved.Sub(e.now) != want {
			t.Errorf("%s: %v, until %v from now, want %v", what, may, w.reserved.Sub(e.now), want)
		}
		e.now = e.now.Add(want)
	}
	all, short := []nodeSet{0b011, 0b110, 0b111}, []nodeSet{0b011, 0b110, 0b001}
	e.now = e.now.Add(100 * time.Millisecond)
	check("not told", nil, 0)
	check("told by too few", short, 0)
	check("told", all, 200*time.Millisecond)
	check("not told again", nil, 0)
	e.now = e.now.Add(time.Hour)
	check("told late", all, 2*e.opts.RetryEvery)
	check("not told any more", slices.Repeat([]nodeSet{0}, 3), 0)
}

// The next token is above all fences, but for those that are far ahead; above these only
// where too few nodes are left that vote and are not.
func TestTokensFollowFences(t *testing.T) {
	opts, err := Options{}.fill()
	assert.Succeed(t, err)
	e := newEngine(&config{clock: opts.Clock, opts: opts, need: 2})
	e.enter()
	tokens := e.tokens
	const before, near, far = 100, 200, node.MaxToken - 100
	for what, test := range map[string]struct {
		ballots [3]ballot
		token   node.Token
		spent   bool
	}{
		"none":                        {[3]ballot{{vote: voteRefused}, {vote: voteRefused}, {vote: voteRefused}}, before, false},
		"the highest":                 {[3]ballot{{fence: near - 1}, {fence: near}, {fence: 1}}, near, false},
		"one far ahead":               {[3]ballot{{fence: far}, {fence: near}, {fence: near}}, near, false},
		"two far ahead":               {[3]ballot{{fence: far}, {fence: far - 1}, {fence: near}}, far, false},
		"one, and one does not say":   {[3]ballot{{fence: far}, {vote: voteUnknown}, {fence: near}}, far, false},
		"one, and one is ignored":     {[3]ballot{{fence: far}, {vote: voteAbstaining}, {fence: near}}, far, false},
		"two that do not count":       {[3]ballot{{vote: voteUnknown}, {vote: voteAbstaining}, {fence: near}}, near, false},
		"one has the highest token":   {[3]ballot{{fence: node.MaxToken}, {fence: near}, {fence: near}}, near, false},
		"one has it, and one is far":  {[3]ballot{{fence: node.MaxToken}, {fence: far}, {fence: near}}, far, false},
		"two have the highest token":  {[3]ballot{{fence: node.MaxToken}, {fence: node.MaxToken}, {fence: near}}, near, true},
		"one has it, and one is mute": {[3]ballot{{fence: node.MaxToken}, {vote: voteUnknown}, {fence: near}}, near, false},
	} {
		f := findings{token: before, ballots: test.ballots[:]}
		if f.followFences(tokens); f.token != test.token || f.spent != test.spent {
			t.Errorf("%s: token %d, spent %v; want %d, %v", what, f.token, f.spent, test.token, test.spent)
		}
	}
}
