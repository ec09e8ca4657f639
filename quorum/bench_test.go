package quorum_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/node/redisserver"
	"github.com/redquorum/redquorum/quorum"
)

// BenchmarkPair measures one lock and unlock on five real servers, and for comparison a
// plain fan-out over go-redis: a goroutine for each node, back at the majority. Run it
// with -count 10, which interleaves the two, and compare with benchstat.
func BenchmarkPair(b *testing.B) {
	b.Run("redquorum", func(b *testing.B) {
		l := connect(b, servers(b, 5), quorum.Options{})
		pairs(b, func() error {
			lease, err := l.Lock(background, "bench")
			if err != nil {
				return err
			}
			return lease.Unlock(background)
		})
	})
	b.Run("fan-out", func(b *testing.B) {
		f := newFanOut(servers(b, 5))
		defer f.close()
		pairs(b, f.pair)
	})
}

// pairs runs a pair b.N times and reports the percentiles of its latency.
func pairs(b *testing.B, pair func() error) {
	for range 100 {
		if err := pair(); err != nil {
			b.Fatal(err)
		}
	}
	var took []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		if err := pair(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	report(b, took)
}

func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
}

// BenchmarkBadNodes measures pairs while some of five servers are hung, killed
// or healthy.
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
				} else if err := s.Stop(); err != nil {
					b.Fatal(err)
				}
			}
			pairs(b, func() error {
				lease, err := l.Lock(background, "bench")
				if err != nil {
					return err
				}
				return lease.Unlock(background)
			})
		})
	}
}

// BenchmarkCallers measures throughput on distinct names.
func BenchmarkCallers(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			l := connect(b, servers(b, 5), quorum.Options{})
			var next atomic.Int64
			b.SetParallelism(max(1, callers/2))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				name := fmt.Sprint("bench", next.Add(1))
				for pb.Next() {
					lease, err := l.Lock(background, name)
					if err == nil {
						err = lease.Unlock(background)
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkReaders measures readers of one name that all unlock at once, and the writer
// that comes after them.
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
				lease, err := l.Lock(background, "bench", quorum.WithWrite())
				if err != nil {
					b.Fatal(err)
				}
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

// crowd makes that many readers of one name.
func crowd(t testing.TB, l *quorum.Locker, readers int) []*quorum.Lease {
	t.Helper()
	leases := make([]*quorum.Lease, readers)
	var next atomic.Int64
	var done sync.WaitGroup
	for range 64 {
		done.Go(func() {
			for i := next.Add(1) - 1; i < int64(readers); i = next.Add(1) - 1 {
				var err error
				if leases[i], err = l.Lock(background, "bench", quorum.WithRead()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return leases
}

// leave unlocks all leases at once, and counts those that cannot.
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

// spent is the processor time of the servers, in seconds.
func spent(t testing.TB, all []*redisserver.Server) (seconds float64) {
	t.Helper()
	for _, s := range all {
		seconds += info(t, s, "cpu", "used_cpu_user:") + info(t, s, "cpu", "used_cpu_sys:")
	}
	return seconds
}

// A fanOut is the plain way: no queue, no fence, no renewal, no clean-up.
type fanOut struct {
	clients []*redis.Client
}

func newFanOut(all []*redisserver.Server) *fanOut {
	f := new(fanOut)
	for _, s := range all {
		f.clients = append(f.clients, redis.NewClient(&redis.Options{Addr: s.Addr()}))
	}
	return f
}

func (f *fanOut) close() {
	for _, c := range f.clients {
		_ = c.Close()
	}
}

var (
	fanOutLock = redis.NewScript(`if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
		redis.call('HSET', KEYS[1], ARGV[1], 1) redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 1 end return 0`)
	fanOutUnlock = redis.NewScript(`if redis.call('HDEL', KEYS[1], ARGV[1]) == 1 then
		redis.call('PUBLISH', ARGV[2], '0') return 1 end return 0`)
)

func (f *fanOut) pair() error {
	if err := f.round(fanOutLock, "owner", 30000); err != nil {
		return err
	}
	return f.round(fanOutUnlock, "owner", "redisson_lock__channel:{bench}")
}

func (f *fanOut) round(script *redis.Script, args ...any) error {
	done := make(chan error, len(f.clients))
	for _, c := range f.clients {
		go func() {
			n, err := script.Run(context.Background(), c, []string{"bench"}, args...).Int()
			if err == nil && n == 0 {
				err = fmt.Errorf("refused")
			}
			done <- err
		}()
	}
	for ok := 0; ok < len(f.clients)/2+1; {
		// A release may overtake an acquire that is not needed any more, and
		// so be refused on that node.
		if err := <-done; err == nil {
			ok++
		}
	}
	return nil
}
