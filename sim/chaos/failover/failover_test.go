package failover_test

import (
	"context"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/sim/chaos/failover"
)

// A primary with replicas is deposed again and again, and nobody gets a lock that another
// one has.
func TestNoOverlaps(t *testing.T) {
	tests.NeedLong(t)
	tests.NeedServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	r, err := failover.Run(ctx, failover.Config{Server: "redis-server", Groups: 1, Failovers: len(failover.Kinds), Lease: 3 * time.Second, Seed: 1,
		Tell: func(f failover.Failover) { t.Logf("%+v", f) }})
	assert.Succeed(t, err)
	assert.That(t, r.Overlaps <= 0 && r.Falling <= 0 && r.Grants != 0, "%d overlaps, %d falling tokens, %d grants", r.Overlaps, r.Falling, r.Grants)
}
