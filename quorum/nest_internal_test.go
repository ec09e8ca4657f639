package quorum

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// A lease that ends while somebody is about to nest in it has none nested.
func TestNoLeaseNestsInOneThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Locker{config: &config{clock: clock.Runtime()}}
		s := &settings{reentry: true}
		h := &hold{l: l, leases: 1, until: l.clock.Now().Add(time.Second)}
		if lease, err := h.nest(s); lease == nil || err != nil {
			t.Errorf("with a second left: %v, %v", lease, err)
		}
		time.Sleep(time.Second)
		if lease, err := h.nest(s); lease != nil || err != nil {
			t.Errorf("at its end: %v, %v", lease, err)
		}
	})
}
