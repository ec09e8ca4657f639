// Package gocronlock lets gocron schedulers of several programs share their jobs: each run of a
// job holds a lock of the job's name, and a scheduler that finds the lock taken skips the run.
//
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(gocronlock.New(locker)))
//	...
//	_, err = scheduler.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(report),
//		gocron.WithName("report"))
//
// Name each job. By default gocron takes the name of the Go function, which a refactoring may
// change; then old and new programs no longer exclude each other.
//
// The lock is free again when the job is done. If a job is shorter than the difference between
// two machines' clocks, each of them may run it, one after the other.
//
// gocron cannot stop a job whose lease is lost, and ignores the error of the release. A job that
// has to stop then calls [quorum.Locker.Do] itself.
//
// gocron's Elector is not here.
package gocronlock

import (
	"context"

	"github.com/go-co-op/gocron/v2"

	"github.com/redquorum/redquorum/quorum"
)

// New returns a Locker for gocron.WithDistributedLocker and WithDistributedJobLocker. It never
// waits for a lock. The options apply to each lock.
func New(l *quorum.Locker, opts ...quorum.Option) gocron.Locker { return locker{l, opts} }

type locker struct {
	l    *quorum.Locker
	opts []quorum.Option
}

func (l locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	lease, err := l.l.TryLock(ctx, job, l.opts...)
	if err != nil {
		return nil, err // not a nil *Lease in a Lock
	}
	return lease, nil
}
