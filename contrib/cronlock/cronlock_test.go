package cronlock_test

import (
	"errors"
	"fmt"
	"log"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/redquorum/redquorum/contrib/cronlock"
	"github.com/redquorum/redquorum/contrib/internal/lockers"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/quorum"
)

// every is a Schedule without whole seconds.
type every time.Duration

func (e every) Next(t time.Time) time.Time { return t.Add(time.Duration(e)) }

type recorder struct{ skipped, failed chan error }

func newRecorder() recorder { return recorder{make(chan error, 1), make(chan error, 1)} }

func (r recorder) Info(_ string, values ...any) { first(r.skipped, values[len(values)-1].(error)) }

func (r recorder) Error(err error, text string, _ ...any) {
	first(r.failed, fmt.Errorf("%s: %w", text, err))
}

func first[T any](c chan T, v T) {
	select {
	case c <- v:
	default:
	}
}

func start(t *testing.T, l *quorum.Locker, logger cron.Logger, job func()) {
	t.Helper()
	scheduler := cron.New()
	once := cron.NewChain(cronlock.SkipIfHeld(l, "report", 100*time.Millisecond, logger))
	scheduler.Schedule(every(10*time.Millisecond), once.Then(cron.FuncJob(job)))
	scheduler.Start()
	t.Cleanup(func() { <-scheduler.Stop().Done() })
}

// block starts a scheduler with a job that has begun, and ends with finish.
func block(t *testing.T, l *quorum.Locker, logger cron.Logger) (finish func()) {
	t.Helper()
	began, end := make(chan bool, 1), make(chan bool)
	start(t, l, logger, func() {
		first(began, true)
		<-end
	})
	finish = sync.OnceFunc(func() { close(end) })
	t.Cleanup(finish) // before the scheduler waits for the job
	<-began
	return finish
}

func TestOneSchedulerRunsTheJob(t *testing.T) {
	a, b := lockers.Two(t)
	finish := block(t, a, newRecorder())
	ran, log := make(chan bool, 1), newRecorder()
	start(t, b, log, func() { first(ran, true) })
	for range 3 {
		select {
		case err := <-log.skipped:
			assert.That(t, errors.Is(err, quorum.ErrHeld), "the job was skipped because of %v, not of ErrHeld", err)
		case <-ran:
			t.Error("both schedulers ran the job at the same time")
		}
	}
	finish()
	<-ran
}

func TestLostLock(t *testing.T) {
	a, b := lockers.Two(t)
	log := newRecorder()
	finish := block(t, a, log)
	found, err := b.Break(t.Context(), "report")
	assert.Must(t, found && err == nil, "Break: %v, %v", found, err)
	finish()
	failed := <-log.failed
	assert.Is(t, failed, quorum.ErrNotHeld, "the logger got")
	tests.Says(t, failed.Error(), "lost", "twice")
}

// A release that is not confirmed is no loss.
func TestReleaseIsNotConfirmed(t *testing.T) {
	set := embedded.ForTest(t, 3)
	l := assert.Got(quorum.New(set.Nodes(), quorum.Options{}))(t)
	defer l.Close()
	log := newRecorder()
	cronlock.SkipIfHeld(l, "report", 10*time.Millisecond, log)(cron.FuncJob(func() {
		set.Server(0).Kill()
		set.Server(1).Kill()
	})).Run()
	failed := <-log.failed
	assert.Is(t, failed, quorum.ErrNoQuorum, "the logger got")
	tests.Says(t, failed.Error(), "not confirmed as released", "!lost", "!twice")
}

// The logger learns why there is no run.
func TestNoLock(t *testing.T) {
	a, _ := lockers.Two(t)
	a.Close()
	log := newRecorder()
	start(t, a, log, func() { t.Error("the job ran without a lock") })
	assert.Is(t, <-log.failed, quorum.ErrClosed, "the logger got")
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

	scheduler := cron.New()
	done := make(chan bool)
	report := cron.FuncJob(func() { fmt.Println("report"); close(done) })
	once := cron.NewChain(cronlock.SkipIfHeld(locker, "report", 100*time.Millisecond, cron.DefaultLogger))
	if _, err := scheduler.AddJob("@every 1s", once.Then(report)); err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-done
	<-scheduler.Stop().Done()
	// Output: report
}

func TestRefusedOptions(t *testing.T) {
	l, _ := lockers.Two(t)
	log := newRecorder()
	cronlock.SkipIfHeld(l, "report", time.Hour, log)
	select {
	case err := <-log.failed:
		assert.That(t, strings.Contains(err.Error(), "MaxLease"), "%v", err)
	default:
		t.Error("nothing was said")
	}
}
