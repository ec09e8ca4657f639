package quorum

import (
	"testing"

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

// The engine hears names without the prefix: by a name it releases what was handed over to
// nobody, and counts for which of several names it is first.
func TestPrefixedTurn(t *testing.T) {
	for on, want := range map[string]string{"shop/x": "x", "": ""} {
		prefixed{mute{says: node.Turn{Name: on}}, "shop/"}.Listen("me", func(got node.Turn) {
			if got.Name != want {
				t.Errorf("a turn for %q is heard as one for %q", on, got.Name)
			}
		})
	}
}
