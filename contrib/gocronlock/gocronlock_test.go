package gocronlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/redquorum/redquorum/contrib/gocronlock"
	"github.com/redquorum/redquorum/contrib/internal/lockers"
	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/quorum"
)

func shares(t *testing.T, l *quorum.Locker, atLeast time.Duration, opts ...quorum.Option) gocron.Locker {
	t.Helper()
	shared := assert.Got(gocronlock.New(l, atLeast, opts...))(t)
	return shared
}

func TestRefusedOptions(t *testing.T) {
	l, _ := lockers.Two(t)
	for _, test := range []struct {
		atLeast time.Duration
		opts    []quorum.Option
		want    string
	}{
		{time.Hour, nil, "MaxLease"},
		{-time.Second, nil, "quorum: "},
		{time.Second, []quorum.Option{quorum.WithLease(time.Hour)}, "MaxLease"},
		{time.Second, []quorum.Option{quorum.WithRead()}, "WithMinHold"},
	} {
		assert.Says(t, assert.ErrorOf(gocronlock.New(l, test.atLeast, test.opts...)), test.want, test.atLeast)
	}
	shares(t, l, time.Millisecond)
	l.Close()
	assert.Is(t, assert.ErrorOf(gocronlock.New(l, time.Second)), quorum.ErrClosed)
}

func start(t *testing.T, l *quorum.Locker, definition gocron.JobDefinition, job func(), options ...gocron.JobOption) {
	t.Helper()
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(shares(t, l, 100*time.Millisecond)))
	assert.Succeed(t, err)
	t.Cleanup(func() { _ = scheduler.Shutdown() })
	assert.Succeed(t, assert.ErrorOf(scheduler.NewJob(definition, gocron.NewTask(job), append(options, gocron.WithName("report"))...)))
	scheduler.Start()
}

func TestOneSchedulerRunsTheJob(t *testing.T) {
	a, b := lockers.Two(t)
	began, finish := make(chan bool), make(chan bool)
	start(t, a, gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), func() {
		close(began)
		<-finish
	})
	<-began

	ran, refused := make(chan bool, 1), make(chan error, 1)
	start(t, b, gocron.DurationJob(10*time.Millisecond), func() {
		select {
		case ran <- true:
		default:
		}
	}, gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
		select {
		case refused <- err:
		default:
		}
	})))
	for range 3 {
		select {
		case err := <-refused:
			assert.That(t, errors.Is(err, quorum.ErrHeld), "the job was skipped with %v, not with ErrHeld", err)
		case <-ran:
			t.Error("both schedulers ran the job at the same time")
		}
	}
	close(finish)
	<-ran
}

func TestAShortJobRunsOnce(t *testing.T) {
	a, b := lockers.Two(t)
	ran := make(chan string, 2)
	skipped := make(chan error, 2)
	once := func(l *quorum.Locker, name string) {
		scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(shares(t, l, 20*time.Second, quorum.WithWait(100*time.Millisecond))))
		assert.Succeed(t, err)
		t.Cleanup(func() { _ = scheduler.Shutdown() })
		_, err = scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(func() { ran <- name }),
			gocron.WithName("report"), gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { skipped <- err })))
		assert.Succeed(t, err)
		scheduler.Start()
	}
	once(a, "a")
	first := <-ran
	once(b, "b")
	select {
	case second := <-ran:
		t.Errorf("%s and %s ran the job", first, second)
	case err := <-skipped:
		assert.That(t, errors.Is(err, quorum.ErrHeld), "the job was skipped with %v, not with ErrHeld", err)
	}
}

func Example() {
	set, err := embedded.Start(3)
	if err != nil {
		log.Fatal(err)
	}
	defer set.Close()
	locker, err := quorum.New(set.Nodes(), quorum.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	once, err := gocronlock.New(locker, 100*time.Millisecond)
	if err != nil {
		log.Fatal(err)
	}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(once))
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Shutdown()
	done := make(chan bool)
	_, err = scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()),
		gocron.NewTask(func() { fmt.Println("report"); close(done) }), gocron.WithName("report"))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-done
	// Output: report
}

// Only the leader's scheduler runs jobs.
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
		name := <-ran
		assert.Must(t, name == "a", "the job ran without leading")
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
