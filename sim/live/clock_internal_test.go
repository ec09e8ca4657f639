package live

import (
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
)

type system struct {
	clock.Clock
	now *clock.Instant
}

func (s system) Now() clock.Instant { return *s.now }
func (s system) Wall() time.Time    { return time.Unix(0, int64(*s.now)) }

func TestPlannedClock(t *testing.T) {
	p, err := faults.Parse("redquorum plan 1\nnodes 1\nclients 1\nlength 100s\nat 10s rate c1 25%\nat 20s skew c1 -1m\n")
	assert.Succeed(t, err)
	now := clock.Instant(1000 * time.Second)
	begun := now
	c := NewClock(p, 0, begun, system{clock.System(), &now})
	for _, at := range []struct{ true, shown, day time.Duration }{{0, 0, 0}, {8, 8, 8}, {10, 10, 10}, {14, 15, 15}, {22, 25, 25 - 60}} {
		now = begun.Add(at.true * time.Second)
		assert.Equal(t, c.Now().Sub(begun), at.shown*time.Second, at.true)
		assert.Equal(t, c.Wall().Sub(time.Unix(0, int64(begun))), at.day*time.Second, at.true)
		later := c.Now().Add(5 * time.Second)
		want := 5 * time.Second
		switch {
		case at.true >= 10:
			want = 4 * time.Second
		case at.true == 8: // it goes faster on the way
			want = 4400 * time.Millisecond
		}
		assert.Equal(t, c.trueTime(later).Sub(now), want, at.true)
	}
	assert.That(t, c.trueTime(clock.Never) == clock.Never, "never comes")
}
