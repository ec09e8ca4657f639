package quorum

import (
	"testing"

	"github.com/redquorum/redquorum/node"
)

// The next token is above all fences, but for those that are far ahead; above these only
// where too few nodes are left that vote and are not.
func TestTokensFollowFences(t *testing.T) {
	opts, err := Options{}.fill()
	if err != nil {
		t.Fatal(err)
	}
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
