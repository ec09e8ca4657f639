package bench_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redquorum/redquorum/bench"
)

// elsewhere is a lock in another process: it says what it took, and can keep
// nothing.
type elsewhere struct{ bench.Client }

func (elsewhere) Loop(_ context.Context, names []string, _, _ time.Duration) (lock, unlock []time.Duration, err error) {
	for range names {
		lock, unlock = append(lock, 7*time.Hour), append(unlock, time.Hour)
	}
	return lock, unlock, nil
}

func (elsewhere) Keep(context.Context, string, time.Duration) (bench.Held, error) {
	return nil, fmt.Errorf("no keeping: %w", errors.ErrUnsupported)
}

// The report takes a Looper's times from the Looper, and does not count the cost of
// this process as its own. It leaves out workloads that a contestant cannot do.
func TestRunHeedsALooper(t *testing.T) {
	plain := bench.Redquorum()
	c := config(t, bench.Contestant{Name: "elsewhere", Open: func(ctx context.Context, target bench.Target) (bench.Client, error) {
		client, err := plain.Open(ctx, target)
		return elsewhere{client}, err
	}})
	c.Workloads = []string{"latency", "throughput", "keep"}
	seen := 0
	for _, cell := range run(t, c).Cells {
		m := cell.Median
		_, ours := m["client-cpu-ns/op"]
		switch {
		case cell.Workload == "keep":
			t.Errorf("%s is in the report", cell)
		case ours || m["lock-p50-ns"] != float64(7*time.Hour):
			t.Errorf("%s: %v", cell, m)
		}
		seen++
	}
	if seen != 2 {
		t.Errorf("%d cells", seen)
	}
}
