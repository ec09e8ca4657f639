package quorum

import (
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// The answer to a renewal may end a lease when the Locker is just being closed.
func TestAgendaDropsWhatItHasForgotten(t *testing.T) {
	l := &Locker{config: &config{clock: clock.System()}}
	a := newAgenda(l)
	go a.serve()
	h, later := new(hold), l.clock.Now().Add(time.Hour)
	a.put(h, later, later)
	a.close()
	a.drop(h)
}
