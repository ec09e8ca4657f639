package main

import (
	"context"
	"time"

	goredislib "github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/sim/live"
)

// A place is where a client's process is: in a bubble, or on real servers.
type place struct{ *live.Seat }

// patient are options of go-redis for locks that leave timeouts to their client: those of the plan.
func (p *place) patient(to *live.Place) *goredislib.Options {
	o, timeout := to.Options(), p.Plan.Lock.Timeout
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled = timeout, timeout, timeout, true
	return o
}

// until is an instant of the client's clock.
func (p *place) until(t time.Time) clock.Instant { return p.Clock.Now().Add(time.Until(t)) }

// sleep returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
