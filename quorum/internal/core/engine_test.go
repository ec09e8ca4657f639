package core

import (
	"errors"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/quorum/internal/machine"
)

// Contexts end before any waiter gets news of their end.
func TestEndsComeFirst(t *testing.T) {
	e := bare(t)
	h := held(e)
	var w *waiter
	ended := false
	h.bind(&machine.Dependent{Cancel: func(why error) {
		ended = errors.Is(why, ErrLost)
		assert.Equal(t, w.phase, phaseQueueing, "when it ends")
	}})
	w = e.waiter(t.Context(), &claim.Want{Lock: claim.Lock{Name: "x"}, Wait: -1, Lease: time.Second})
	w.run()
	h.lose(ErrLost)
	assert.That(t, !ended && w.phase == phaseQueueing, "within the step: %v, phase %d", ended, w.phase)
	e.Settle()
	assert.That(t, ended && w.phase == phaseAsking, "at last: %v, phase %d", ended, w.phase)
}

// A lease may end while somebody is about to nest in it.
func TestNoLeaseNestsInOneThatIsOver(t *testing.T) {
	e, s := bare(t), &claim.Want{Reentry: true}
	h := &Hold{e: e.holds, leases: 1, until: e.Now.Add(time.Second)}
	nested, err := h.nest(s)
	assert.That(t, nested && err == nil, "with a second left: %v, %v", nested, err)
	e.Now = e.Now.Add(time.Second)
	nested, err = h.nest(s)
	assert.That(t, !nested && err == nil, "at its end: %v, %v", nested, err)
}
