// Package cronlock lets cron schedulers (robfig/cron) of several programs share their
// jobs: each run of a job holds a lock, and a scheduler that finds the lock taken skips
// the run.
//
//	scheduler := cron.New()
//	once := cron.NewChain(cronlock.SkipIfHeld(locker, "report", 10*time.Second, cron.DefaultLogger))
//	_, err := scheduler.AddJob("@hourly", once.Then(cron.FuncJob(report)))
//
// A run counts for a minimum time, the 10 s above, even if the job is done earlier, so
// that machines whose clocks differ run it once. Half of it must be longer than that
// difference, and all of it shorter than the time between two runs and than
// Options.MaxLease (see [quorum.WithMinHold]). A scheduler waits for the other half
// before it skips.
//
// A job whose lease is lost runs on, and the logger gets an error when it is done. A job
// that has to stop then calls [quorum.Locker.Do] itself.
package cronlock

import (
	"context"
	"errors"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/redquorum/redquorum/quorum"
)

// SkipIfHeld returns a JobWrapper that runs a job while it holds name, and skips the run
// if another run holds it, in this program or elsewhere. A run counts for at least
// atLeast. The logger gets each skipped run, and each error of a lock; at once, if the
// name or an option is refused. The options apply to each lock.
func SkipIfHeld(l *quorum.Locker, name string, atLeast time.Duration, logger cron.Logger,
	opts ...quorum.Option) cron.JobWrapper {
	opts = append([]quorum.Option{quorum.WithWait(atLeast / 2), quorum.WithMinHold(atLeast)}, opts...)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.Lock(ended, name, opts...); !errors.Is(err, context.Canceled) {
		logger.Error(err, "job will not run", "lock", name)
	}
	return func(job cron.Job) cron.Job {
		return cron.FuncJob(func() {
			ctx := context.Background()
			lease, err := l.Lock(ctx, name, opts...)
			switch {
			case errors.Is(err, quorum.ErrHeld):
				logger.Info("skip", "lock", name, "reason", err)
				return
			case err != nil:
				logger.Error(err, "job did not run", "lock", name)
				return
			}
			defer func() { // also if the job panics
				switch err := lease.Unlock(ctx); {
				case errors.Is(err, quorum.ErrNotHeld):
					logger.Error(err, "lock was lost; the job may have run twice", "lock", name)
				case err != nil:
					logger.Error(err, "lock is not confirmed as released", "lock", name)
				}
			}()
			job.Run()
		})
	}
}
