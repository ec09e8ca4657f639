package sim

import (
	"context"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
)

// A Lock may finish its attempt when its context has ended, and no more.
func TestLockHeedsItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for took, sound := range map[time.Duration]bool{50 * time.Millisecond: true, 3 * time.Second: false} {
		for _, ended := range []int64{0, int64(time.Second)} { // with the faults, and before
			w := &world{p: faults.New(3, 1), now: int64(time.Second + took), calmed: int64(time.Second)}
			c := &Client{w: w, name: "c1"}
			c.endsWithContext(ctx, &request{Wait: true, Ended: &ended}, start{at: 1}, 50*time.Millisecond)
			if (len(w.found) == 0) != sound {
				t.Errorf("%v after its context: %v", took, w.found)
			}
		}
	}
}
