package quorum_test

import (
	"math"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/semaphore"
)

const (
	forever = time.Duration(math.MaxInt64)
	decade  = 10 * 365 * 24 * time.Hour // the longest time in Options
)

// Wherever a time is given, "forever" is refused or lasts: no sum overflows.
func TestVeryLongTimes(t *testing.T) {
	ms := node.Milliseconds(forever)
	ensure(t, ms >= 0, "a TTL of %v is %d ms", forever, ms)
	equal(t, clock.Instant(1).Add(forever), clock.Never, "an instant at the end of time")
	for what, c := range map[string]struct {
		most time.Duration // what is longer is refused
		try  func(t *testing.T, w *world, d time.Duration) error
	}{
		"Options.Lease": {decade, longTime(func(o *quorum.Options, d time.Duration) []quorum.Option {
			o.Lease, o.MaxLease, o.FenceRetention = d, decade, decade
			return nil
		})},
		"Options.MaxLease": {decade, longTime(func(o *quorum.Options, d time.Duration) []quorum.Option {
			o.MaxLease, o.FenceRetention = d, max(d, decade)
			return nil
		})},
		"Options.MaxLease alone": {decade, longTime(func(o *quorum.Options, d time.Duration) []quorum.Option { o.MaxLease = d; return nil })},
		"Options.MaxHold":        {decade, longTime(func(o *quorum.Options, d time.Duration) []quorum.Option { o.MaxHold = d; return nil })},
		"Options.Grace":          {decade, longTime(func(o *quorum.Options, d time.Duration) []quorum.Option { o.Grace = d; return nil })},
		"Options.Timeout":        {decade, longTime(func(o *quorum.Options, d time.Duration) []quorum.Option { o.Timeout = d; return nil })},
		"Options.RetryEvery":     {decade, longTime(func(o *quorum.Options, d time.Duration) []quorum.Option { o.RetryEvery = d; return nil })},
		"Options.MaxDown":        {decade, longTime(func(o *quorum.Options, d time.Duration) []quorum.Option { o.MaxDown = d; return nil })},
		"Options.FenceRetention": {decade, longTime(func(o *quorum.Options, d time.Duration) []quorum.Option { o.FenceRetention = d; return nil })},
		"all of them": {decade, longTime(func(o *quorum.Options, d time.Duration) []quorum.Option {
			*o = quorum.Options{Lease: d, MaxLease: d, MaxHold: d, Grace: d, Timeout: d, RetryEvery: d, MaxDown: d, FenceRetention: d, Drift: 0.49}
			return nil
		})},
		"WithLease":      {decade, longTime(withLong(quorum.WithLease))},
		"WithFixedLease": {decade, longTime(withLong(quorum.WithFixedLease))},
		"WithMaxHold":    {forever, longTime(withLong(quorum.WithMaxHold))},
		"WithWait":       {forever, longTime(withLong(quorum.WithWait))},
		"WithMinHold": {decade * 9 / 10, func(t *testing.T, w *world, d time.Duration) error { // its drift counts
			l := w.locker(quorum.Options{MaxLease: decade, Lease: time.Minute, FenceRetention: decade, NoRestartGuard: true})
			lease, err := l.Lock(background, "x", quorum.WithMinHold(d))
			if err == nil {
				unlock(t, lease)
				time.Sleep(3 * time.Minute)
				taken(t, w.locker(quorum.Options{NoRestartGuard: true}), "x")
			}
			return err
		}},
		"Extend": {decade, func(t *testing.T, w *world, d time.Duration) error {
			l := w.locker(quorum.Options{MaxLease: decade, Lease: time.Minute, FenceRetention: decade, NoRestartGuard: true})
			lease := lock(t, l, "x")
			defer lease.Unlock(background)
			err := lease.Extend(background, d)
			if err == nil {
				atLeast(t, lease.Remaining(), d/100*98)
			}
			goesOn(t, lease)
			return err
		}},
		"Resume": {forever, func(t *testing.T, w *world, d time.Duration) error {
			l := w.locker(quorum.Options{})
			lease, err := l.Resume(background, detach(t, lock(t, l, "x", quorum.WithMaxHold(d))), quorum.WithMaxHold(d))
			if err != nil {
				return err
			}
			time.Sleep(2 * time.Minute)
			goesOn(t, lease)
			return lease.Unlock(background)
		}},
		"LockAll": {forever, func(t *testing.T, w *world, d time.Duration) error {
			l := w.locker(quorum.Options{})
			held := lock(t, l, "x")
			time.AfterFunc(time.Minute, func() { unlock(t, held) })
			all, err := quorum.LockAll(background, []quorum.Member{{Locker: l, Name: "x"}, {Locker: l, Name: "y"}}, quorum.WithWait(d))
			if err != nil {
				return err
			}
			return all.Unlock(background)
		}},
		"semaphore.Acquire": {forever, func(t *testing.T, w *world, d time.Duration) error {
			s := must[*semaphore.Semaphore](t)(semaphore.New(w.locker(quorum.Options{}), "x", 1))
			held := must[*quorum.Lease](t)(s.Acquire(background))
			time.AfterFunc(time.Minute, func() { unlock(t, held) })
			permit, err := s.Acquire(background, quorum.WithWait(d))
			if err != nil {
				return err
			}
			return permit.Unlock(background)
		}},
		"election.Options.Every": {forever, func(t *testing.T, w *world, d time.Duration) error {
			e := election.New(w.locker(quorum.Options{}), "x", election.Options{Every: d, Clock: w.clock})
			sent, seen := w.sent[0].Load(), 0
			time.AfterFunc(time.Minute, func() {
				atMost(t, w.sent[0].Load()-sent, 3, "commands of an observer in a minute")
				lease := assert.Got(e.Campaign(background))(t)
				_ = lease // it is released by Close
			})
			for range e.Observe(t.Context()) {
				if seen++; seen == 2 { // nobody, and the leader
					return nil
				}
			}
			t.Error("Observe ended")
			return nil
		}},
	} {
		t.Run(what, func(t *testing.T) {
			for _, d := range []time.Duration{forever, forever/101*100 + time.Hour, forever/2 + 1, decade + 1, c.most} {
				inWorld(t, 3, func(w *world) {
					switch err := c.try(w.t, w, d); {
					case d <= c.most:
						expect(w.t, err, nil, d.String())
					default:
						matches(w.t, err, begins("quorum: "))
					}
				})
			}
		})
	}
}

func withLong(option func(time.Duration) quorum.Option) func(*quorum.Options, time.Duration) []quorum.Option {
	return func(o *quorum.Options, d time.Duration) []quorum.Option {
		o.MaxLease, o.Lease, o.FenceRetention = decade, time.Minute, decade
		return []quorum.Option{option(d)}
	}
}

// longTime tries a lock with such options. The lease goes on until it is unlocked, and
// others wait for that.
func longTime(options func(*quorum.Options, time.Duration) []quorum.Option) func(*testing.T, *world, time.Duration) error {
	return func(t *testing.T, w *world, d time.Duration) error {
		var o quorum.Options
		opts := options(&o, d)
		o.NoRestartGuard, o.SharedNodes, o.Clock, o.Label = true, true, w.clock, quorum.NoLabel
		l, err := quorum.New(w.listed(), o)
		if err != nil {
			return err
		}
		defer l.Close()
		lease, err := l.Lock(background, "x", opts...)
		if err != nil {
			return err
		}
		other := w.locker(quorum.Options{NoRestartGuard: true})
		time.Sleep(3 * time.Minute)
		goesOn(t, lease)
		taken(t, other, "x")
		time.AfterFunc(time.Minute, func() { unlock(t, lease) })
		return errorOf(l.Lock(background, "x", append([]quorum.Option{quorum.WithWait(2 * time.Minute)}, opts...)...))
	}
}
