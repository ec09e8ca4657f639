package quorum

import (
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
)

// A mute node says one thing to every listener.
type mute struct {
	node.Node
	says node.Turn
}

func (m mute) Listen(_ string, hear func(node.Turn)) (stop func()) {
	hear(m.says)
	return func() {}
}

func (m mute) Watch(name string, _ node.Mode, wake func()) (stop func()) {
	if name == m.says.Name {
		wake()
	}
	return func() {}
}

// A waiter listens on the channel of the name as the nodes know it.
func TestPrefixedWatch(t *testing.T) {
	woken := false
	prefixed{mute{says: node.Turn{Name: "shop/x"}}, "shop/"}.Watch("x", node.Exclusive, func() { woken = true })
	assert.That(t, woken, "a waiter for x does not hear of shop/x")
}

// The engine hears names without the prefix: by a name it releases what was handed over to
// nobody, and counts for which of several names it is first.
func TestPrefixedTurn(t *testing.T) {
	for on, want := range map[string]string{"shop/x": "x", "": ""} {
		prefixed{mute{says: node.Turn{Name: on}}, "shop/"}.Listen("me", func(got node.Turn) {
			assert.That(t, got.Name == want, "a turn for %q is heard as one for %q", on, got.Name)
		})
	}
}
