package quorum_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node/redisserver"
	"github.com/redquorum/redquorum/quorum"
)

// BenchmarkBadNodes measures one lock and unlock, with percentiles of the latency, while
// some of five servers are hung, killed or healthy.
func BenchmarkBadNodes(b *testing.B) {
	for _, bad := range []string{"healthy", "one hung", "two hung", "one killed", "two killed"} {
		b.Run(bad, func(b *testing.B) {
			all := servers(b, 5)
			l := connect(b, all, quorum.Options{})
			var count, kind string
			fmt.Sscan(bad, &count, &kind)
			broken := map[string]int{"one": 1, "two": 2}[count]
			for _, s := range all[:broken] {
				if kind == "killed" {
					s.Kill()
				} else {
					succeed(b, s.Stop())
				}
			}
			pair := func() { succeed(b, lock(b, l, "bench").Unlock(background)) }
			for range 100 {
				pair()
			}
			var took []time.Duration
			b.ReportAllocs()
			for b.Loop() {
				start := time.Now()
				pair()
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
		})
	}
}

// BenchmarkReaders measures readers of one name that unlock at once, and the next writer.
func BenchmarkReaders(b *testing.B) {
	for _, readers := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(readers), func(b *testing.B) {
			all := servers(b, 3)
			l := connect(b, all, quorum.Options{})
			var failed int64
			var writer time.Duration
			var busy float64
			for b.Loop() {
				b.StopTimer()
				leases := crowd(b, l, readers)
				before := spent(b, all)
				b.StartTimer()
				failed += leave(leases)
				b.StopTimer()
				busy += spent(b, all) - before
				start := time.Now()
				lease := assert.Got(l.Lock(background, "bench", quorum.WithWrite()))(b)
				writer += time.Since(start)
				_ = lease.Unlock(background)
				b.StartTimer()
			}
			b.ReportMetric(float64(failed)/float64(b.N), "failed/op")
			b.ReportMetric(float64(writer.Microseconds())/1000/float64(b.N), "writer-ms/op")
			b.ReportMetric(1e6*busy/float64(b.N*readers*len(all)), "server-us/reader")
		})
	}
}

func crowd(t testing.TB, l *quorum.Locker, readers int) []*quorum.Lease {
	t.Helper()
	leases := make([]*quorum.Lease, readers)
	var next atomic.Int64
	var done sync.WaitGroup
	for range 64 {
		done.Go(func() {
			for i := next.Add(1) - 1; i < int64(readers); i = next.Add(1) - 1 {
				var err error
				leases[i], err = l.Lock(background, "bench", quorum.WithRead())
				assert.NoError(t, err)
			}
		})
	}
	done.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return leases
}

// leave unlocks all leases at once, and counts failures.
func leave(leases []*quorum.Lease) (failed int64) {
	var errs atomic.Int64
	var done sync.WaitGroup
	for _, lease := range leases {
		done.Go(func() {
			if err := lease.Unlock(background); err != nil {
				errs.Add(1)
			}
		})
	}
	done.Wait()
	return errs.Load()
}

// spent is the servers' processor time in seconds.
func spent(t testing.TB, all []*redisserver.Server) (seconds float64) {
	t.Helper()
	for _, s := range all {
		seconds += info(t, s, "cpu", "used_cpu_user:") + info(t, s, "cpu", "used_cpu_sys:")
	}
	return seconds
}
