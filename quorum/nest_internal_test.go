package quorum

import (
	"testing"
	"time"
)

// A lease that ends while somebody is about to nest in it has none nested.
func TestNoLeaseNestsInOneThatIsOver(t *testing.T) {
	e, s := bare(t), &settings{reentry: true}
	h := &hold{e: e, leases: 1, until: e.now.Add(time.Second)}
	if lease, err := h.nest(s); lease == nil || err != nil {
		t.Errorf("with a second left: %v, %v", lease, err)
	}
	e.now = e.now.Add(time.Second)
	if lease, err := h.nest(s); lease != nil || err != nil {
		t.Errorf("at its end: %v, %v", lease, err)
	}
}
