// Package cronlock lets cron schedulers (robfig/cron) of several programs share their jobs: each
// run of a job holds a lock, and a scheduler that finds the lock taken skips the run.
//
//	scheduler := cron.New()
//	once := cron.NewChain(cronlock.SkipIfHeld(locker, "report", cron.DefaultLogger))
//	_, err := scheduler.AddJob("@hourly", once.Then(cron.FuncJob(report)))
//
// The lock is free again when the job is done. If a job is shorter than the difference between
// two machines' clocks, each of them may run it, one after the other.
//
// A cron.Job cannot be stopped: if its lease is lost, it runs on, and the logger gets an error
// when it is done. A job that has to stop then calls [quorum.Locker.Do] itself.
package cronlock

import (
	"context"
	"errors"

	"github.com/robfig/cron/v3"

	"github.com/redquorum/redquorum/quorum"
)

// SkipIfHeld returns a JobWrapper that runs a job while it holds name, and skips the run if
// another run holds it, in this program or elsewhere. The logger gets each run that is skipped,
// and each error of a lock as an error. The options apply to each lock.
func SkipIfHeld(l *quorum.Locker, name string, logger cron.Logger, opts ...quorum.Option) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		return cron.FuncJob(func() {
			ctx := context.Background()
			lease, err := l.TryLock(ctx, name, opts...)
			switch {
			case errors.Is(err, quorum.ErrHeld):
				logger.Info("skip", "lock", name, "reason", err)
				return
			case err != nil:
				logger.Error(err, "job did not run", "lock", name)
				return
			}
			defer func() { // also if the job panics
				if err := lease.Unlock(ctx); err != nil {
					logger.Error(err, "lock was lost; the job may have run twice", "lock", name)
				}
			}()
			job.Run()
		})
	}
}
