package chaos

import (
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/sim"
)

// Two holders at the same time: one writes over what the other has added, unless the store refuses
// its token.
func TestLostUpdates(t *testing.T) {
	s, err := newStore()
	assert.Succeed(t, err)
	defer s.close()
	one, two := newSetClient(s.addr(), 0, 0), newSetClient(s.addr(), 1, 0)
	access := func(c *setClient, token node.Token, what string) {
		c.sees(&sim.Entry{Kind: sim.KindAccess, Name: "x", Owner: "o", Token: token, Text: what})
	}
	for range 3 { // one after the other
		access(one, 1, "reads")
		access(one, 1, "writes")
	}
	access(one, 2, "reads")
	access(two, 3, "reads")
	access(two, 3, "writes")
	access(one, 2, "writes")
	access(one, 2, "writes") // it has not read again
	for _, set := range s.sets() {
		want := Set{Added: 5, Lost: 1}
		if set.Fenced {
			want = Set{Fenced: true, Added: 4, Refused: 1}
		}
		assert.That(t, set == want, "%+v, want %+v", set, want)
	}
}
