package sim

import (
	"context"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
)

func TestLinearizable(t *testing.T) {
	c := new(Client)
	write := func(value int, sent, back int64) *access {
		return &access{c: c, write: true, token: 1, value: value, sent: sent, back: back, ok: true}
	}
	read := func(value int, sent, back int64) *access {
		return &access{c: c, token: 1, value: value, sent: sent, back: back, ok: true}
	}
	update := func(from, to int, sent, back int64) *access {
		a := write(to, sent, back)
		a.updates, a.read = true, from
		return a
	}
	for _, test := range []struct {
		name    string
		history []*access
		sound   bool
	}{
		{"one after the other", []*access{write(1, 0, 1), read(1, 2, 3)}, true},
		{"what was written before is not read", []*access{write(1, 0, 1), read(0, 2, 3)}, false},
		{"in the order in which they are there", []*access{write(1, 0, 2), read(1, 1, 3)}, true},
		{"in another order", []*access{read(1, 0, 3), write(1, 1, 2)}, true},
		{"in no order, as the read was over", []*access{read(1, 0, 1), write(1, 2, 3), read(1, 2, 3)}, false},
		{"a long one during two short ones", []*access{write(1, 0, 9), read(0, 1, 2), read(1, 3, 4)}, true},
		{"a long one that is forgotten", []*access{write(1, 0, 9), read(1, 1, 2), read(0, 3, 4)}, false},
		{"a refusal without a higher token", []*access{{c: c, token: 1, back: 1}}, false},
		{"both update", []*access{update(0, 1, 0, 3), update(1, 2, 1, 2)}, true},
		{"an update is lost", []*access{update(0, 1, 0, 3), update(0, 1, 1, 2)}, false},
	} {
		assert.Equal(t, (fence{}).explains(test.history), test.sound, test.name)
	}
}

// A long history is checked in parts; each begins where the one before has ended.
func TestLinearizableInParts(t *testing.T) {
	for value, sound := range map[int]bool{7: true, 0: false} {
		w := &world{p: faults.New(1, 1), names: []string{"x"}}
		r := &resource{w: w, registers: []register{{value: 7, token: 1}}}
		r.history = []*access{{c: new(Client), write: true, token: 1, value: 7, ok: true}}
		r.linearizable()
		r.history = append(r.history, &access{c: new(Client), token: 1, value: value, sent: 1, back: 2, ok: true})
		r.linearizable()
		assert.That(t, (len(w.found) == 0) == sound, "%d is read: %v", value, w.found)
	}
}

// A Lock may finish its attempt when its context has ended, but begins no other.
func TestLockHeedsItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for took, sound := range map[time.Duration]bool{50 * time.Millisecond: true, 3 * time.Second: false} {
		for _, ended := range []int64{0, int64(time.Second)} { // with the faults, and before
			w := &world{p: faults.New(3, 1), now: int64(time.Second + took), calmed: int64(time.Second)}
			c := &Client{w: w, name: "c1"}
			c.endsWithContext(ctx, &request{Wait: true, Ended: &ended}, start{at: 1}, 50*time.Millisecond)
			assert.That(t, (len(w.found) == 0) == sound, "%v after its context: %v", took, w.found)
		}
	}
}
