package chaos

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/faults"
)

// All answers count, also if the last of them has come before the first is looked at.
func TestRoundCountsAllAnswers(t *testing.T) {
	b := &textbook{p: &faults.Plan{Lock: faults.Lock{Timeout: time.Hour}}, nodes: make([]*redis.Client, 5)}
	for range 5000 {
		ctx, cancel := context.WithCancel(t.Context())
		if yes := b.round(ctx, func(context.Context, *redis.Client) bool { return true }); yes != b.need() {
			t.Fatalf("%d of 5 nodes said yes, want %d", yes, b.need())
		}
		cancel()
	}
}
