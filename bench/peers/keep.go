package main

import (
	"context"
	"errors"
	"time"

	"github.com/redquorum/redquorum/bench"
)

// A kept is a lock that a goroutine renews: what the user of a library writes that does
// not renew by itself.
type kept struct {
	bench.Held
	end  context.CancelFunc
	done chan error
}

// keep renews held at each third of its lease until it is unlocked. If no renewal
// succeeds for the lease, held is lost.
func keep(held bench.Held, lease time.Duration, extend func(context.Context) error) bench.Held {
	ctx, end := context.WithCancel(context.Background())
	k := &kept{held, end, make(chan error, 1)}
	go func() {
		ticker := time.NewTicker(lease / 3)
		defer ticker.Stop()
		for renewed := time.Now(); ; {
			select {
			case <-ctx.Done():
				k.done <- nil
				return
			case <-ticker.C:
			}
			begin := time.Now()
			switch err := extend(ctx); {
			case err == nil:
				renewed = begin
			case ctx.Err() == nil && time.Since(renewed) >= lease:
				k.done <- err
				return
			}
		}
	}()
	return k
}

// Unlock also tells of a renewal that failed.
func (k *kept) Unlock(ctx context.Context) error {
	k.end()
	return errors.Join(<-k.done, k.Held.Unlock(ctx))
}
