// Package gocronlock lets gocron schedulers of several programs share their jobs: each
// run of a job holds a lock of the job's name, and a scheduler that finds the lock taken
// skips the run.
//
//	once, err := gocronlock.New(locker, 10*time.Second)
//	...
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(once))
//	...
//	_, err = scheduler.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(report),
//		gocron.WithName("report"))
//
// Name each job. By default gocron takes the name of the Go function, which a refactoring
// may change; then old and new programs no longer exclude each other.
//
// A run counts for atLeast, the 10 s above, even if the job is done earlier, so that
// machines whose clocks differ run it once. Half of it must be longer than that
// difference, and all of it shorter than the time between two runs and than
// Options.MaxLease (see [quorum.WithMinHold]). A scheduler waits for the other half
// before it skips.
//
// gocron cannot stop a job whose lease is lost, and ignores the error of the release. A
// job that has to stop then calls [quorum.Locker.Do] itself.
//
// gocron's Elector is an Election of package github.com/redquorum/redquorum/election, as
// it is.
package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/redquorum/redquorum/quorum"
)

// New returns a Locker for gocron.WithDistributedLocker and WithDistributedJobLocker. The
// options apply to each lock. It asks no node, and returns an error if an option is
// refused, such as a minimum hold above Options.MaxLease: gocron would skip each run in
// silence.
func New(l *quorum.Locker, atLeast time.Duration, opts ...quorum.Option) (gocron.Locker, error) {
	opts = append([]quorum.Option{quorum.WithWait(atLeast / 2), quorum.WithMinHold(atLeast)}, opts...)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	// it has looked at the options alone
	if _, err := l.Lock(ended, "job", opts...); !errors.Is(err, context.Canceled) {
		return nil, fmt.Errorf("gocronlock: %w", err)
	}
	return locker{l, opts}, nil
}

type locker struct {
	l    *quorum.Locker
	opts []quorum.Option
}

func (l locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	lease, err := l.l.Lock(ctx, job, l.opts...)
	if err != nil {
		return nil, err // not a nil *Lease in a Lock
	}
	return lease, nil
}
