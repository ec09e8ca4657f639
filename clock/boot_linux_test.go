package clock

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
)

type machine struct {
	mono, wall, boot time.Duration
	reads            int // of boot
}

func (m *machine) pass(d time.Duration) { m.mono += d; m.wall += d; m.boot += d }

func (m *machine) clock() *bootClock {
	return &bootClock{
		cheap: func() (mono, wall time.Duration) { m.pass(50); return m.mono, m.wall },
		dear:  func() time.Duration { m.pass(400); m.reads++; return m.boot },
	}
}

func TestBootClockCountsSuspensions(t *testing.T) {
	m := &machine{mono: time.Second, wall: 1e18, boot: time.Hour}
	c := m.clock()
	last := c.now()
	for range 10000 {
		switch rand.IntN(10) {
		case 0: // suspended: the monotonic clock stands still
			d := rand.N(time.Hour)
			m.wall += d
			m.boot += d
		case 1: // somebody sets the time of day
			m.wall += rand.N(time.Hour) - 30*time.Minute
		default:
			m.pass(rand.N(time.Second))
		}
		now := c.now()
		assert.Must(t, now >= last, "it went back by %v", last.Sub(now))
		off := (time.Duration(now) - m.boot).Abs()
		assert.Must(t, off <= 2*jitter, "it is off by %v", off)
		last = now
	}
}

func TestBootClockSparesSystemCalls(t *testing.T) {
	m := &machine{wall: 1e18}
	c := m.clock()
	for range 1000 {
		m.pass(time.Second)
		c.now()
	}
	assert.That(t, m.reads == 1, "%d readings by system call, where nothing happened", m.reads)
}

func TestBootClockIsBootTime(t *testing.T) {
	for range 100 {
		before := boot.dear()
		now := time.Duration(bootInstant())
		after := boot.dear()
		assert.Must(t, now >= before-jitter && now <= after+jitter, "it says %v, CLOCK_BOOTTIME said %v before and %v after", now, before, after)
	}
}
