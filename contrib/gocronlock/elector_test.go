package gocronlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/redquorum/redquorum/contrib/internal/lockers"
	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/quorum"
)

// An Election is gocron's Elector: only the scheduler of the leader runs jobs.
func TestTheLeaderRunsTheJobs(t *testing.T) {
	a, b := lockers.Two(t)
	ran := make(chan string)
	over := make(chan bool)
	defer close(over)
	// campaign makes a scheduler, whose program leads until it resigns.
	campaign := func(l *quorum.Locker, name string) (leads chan bool, resign func()) {
		e := election.New(l, "scheduler", election.Options{})
		scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(e))
		assert.Succeed(t, err)
		t.Cleanup(func() { _ = scheduler.Shutdown() })
		job := gocron.NewTask(func() {
			select {
			case ran <- name:
			case <-over:
			}
		})
		if _, err := scheduler.NewJob(gocron.DurationJob(5*time.Millisecond), job, gocron.WithSingletonMode(gocron.LimitModeReschedule)); err != nil {
			t.Fatal(err)
		}
		scheduler.Start()
		ctx, cancel := context.WithCancel(t.Context())
		leads, ended := make(chan bool), make(chan error)
		go func() {
			ended <- e.Run(ctx, func(ctx context.Context, _ *quorum.Lease) error {
				close(leads)
				<-ctx.Done()
				return nil
			})
		}()
		return leads, func() {
			cancel()
			assert.NoError(t, <-ended)
		}
	}
	leads, resign := campaign(a, "a")
	<-leads
	next, end := campaign(b, "b")
	for range 10 {
		if name := <-ran; name != "a" {
			t.Fatal("the job ran without leading")
		}
	}
	resign()
	<-next
	for late := 0; <-ran != "b"; late++ {
		if late > 1 { // one may have begun before the resignation
			t.Fatal("the job runs where nobody leads any more")
		}
	}
	end()
}
