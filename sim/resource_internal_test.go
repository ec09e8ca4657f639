package sim

import (
	"testing"

	"github.com/redquorum/redquorum/faults"
)

// A history that its own order does not explain is not yet wrong: another order
// may explain it.
func TestLinearizable(t *testing.T) {
	c := new(Client)
	write := func(value int, sent, back int64) *access {
		return &access{c: c, write: true, token: 1, value: value, sent: sent, back: back, ok: true}
	}
	read := func(value int, sent, back int64) *access {
		return &access{c: c, token: 1, value: value, sent: sent, back: back, ok: true}
	}
	for _, test := range []struct {
		name    string
		history []*access
		inOrder bool
		sound   bool
	}{
		{"in order", []*access{write(1, 0, 2), read(1, 1, 3)}, true, true},
		{"in another order", []*access{read(1, 0, 3), write(1, 1, 2)}, false, true},
		{"in no order, as the read was over", []*access{read(1, 0, 1), write(1, 2, 3)}, false, false},
		{"a refusal without a higher token", []*access{{c: c, token: 1, back: 1}}, false, false},
	} {
		w := &world{p: faults.New(1, 1)}
		w.p.Lock.Fence = true
		r := &resource{w: w, registers: make([]register, 1), history: test.history}
		if got := r.inOrder(); got != test.inOrder {
			t.Errorf("%s: in order: %v", test.name, got)
		}
		r.linearizable()
		if sound := len(w.found) == 0; sound != test.sound {
			t.Errorf("%s: found %v", test.name, w.found)
		}
	}
}
