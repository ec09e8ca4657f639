package clock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
)

// clocks runs a test on both clocks. System's waits are real, so they are short.
func clocks(t *testing.T, test func(t *testing.T, c clock.Clock)) {
	t.Run("System", func(t *testing.T) { test(t, clock.System()) })
	t.Run("Runtime", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, clock.Runtime()) })
	})
}

func TestNowRises(t *testing.T) {
	clocks(t, func(t *testing.T, c clock.Clock) {
		a := c.Now()
		time.Sleep(2 * time.Millisecond)
		d := c.Now().Sub(a)
		assert.That(t, d >= 2*time.Millisecond, "2 ms later the clock is %v later", d)
	})
}

func TestWaitEndsAtTheInstantAndNotBefore(t *testing.T) {
	clocks(t, func(t *testing.T, c clock.Clock) {
		until := c.Now().Add(5 * time.Millisecond)
		wake := c.NewSignal().Wait(context.Background(), until)
		assert.Must(t, wake == clock.WakePassed, "Wait returned %d", wake)
		assert.That(t, c.Now() >= until, "Wait returned early")
	})
}

func TestSetIsRememberedAndCountsOnce(t *testing.T) {
	clocks(t, func(t *testing.T, c clock.Clock) {
		s := c.NewSignal()
		s.Set()
		s.Set()
		wake := s.Wait(context.Background(), clock.Never)
		assert.Must(t, wake == clock.WakeSet, "first Wait returned %d", wake)
		wake = s.Wait(context.Background(), 0)
		assert.Must(t, wake == clock.WakePassed, "second Wait returned %d", wake)
	})
}

func TestSetWakesAWaitingTask(t *testing.T) {
	clocks(t, func(t *testing.T, c clock.Clock) {
		s, done := c.NewSignal(), c.NewSignal()
		c.Go(func() {
			if s.Wait(context.Background(), clock.Never) == clock.WakeSet {
				done.Set()
			}
		})
		s.Set()
		wake := done.Wait(context.Background(), c.Now().Add(10*time.Second))
		assert.Must(t, wake == clock.WakeSet, "the task was not woken")
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	clocks(t, func(t *testing.T, c clock.Clock) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		defer cancel()
		wake := c.NewSignal().Wait(ctx, clock.Never)
		assert.Must(t, wake == clock.WakeEnded, "Wait returned %d", wake)
	})
}

func TestOrderOfWakes(t *testing.T) {
	clocks(t, func(t *testing.T, c clock.Clock) {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		s := c.NewSignal()
		s.Set()
		for _, want := range []clock.Wake{clock.WakeSet, clock.WakeEnded} {
			assert.Equal(t, s.Wait(ended, c.Now()), want, "Wait returned")
		}
	})
}

// A long wait looks at the clock each second, so that it outlasts a suspension by no
// more.
func TestLongWaitRechecksTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.Runtime()
		start := c.Now()
		wake := c.NewSignal().Wait(context.Background(), start.Add(time.Hour))
		assert.Must(t, wake == clock.WakePassed, "Wait returned %d", wake)
		assert.Equal(t, c.Now().Sub(start), time.Hour, "an hour's wait lasted")
	})
}
