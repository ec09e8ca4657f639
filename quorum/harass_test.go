package quorum_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/quorum"
)

var harassFor = flag.Duration("harass", 5*time.Second, "for how long servers are killed and stopped while locks of every kind are used")

// Locks of every kind, of three names and of one for readers and writers, in four Lockers
// of eight tasks each, while servers are killed, stopped and restarted empty, one or two at
// a time: no holder gets what another has whose context goes on, tokens rise, everybody has
// turns, and no key is left.
func TestRealKindsWhileServersFail(t *testing.T) {
	tests.NeedLong(t)
	all := servers(t, 5)
	c := newContest(t)
	stop := time.Now().Add(*harassFor)
	var mu sync.Mutex
	turns, longest := make(map[string]int), make(map[string]time.Duration)
	for i := range 4 {
		l := connect(t, all, quorum.Options{Lease: workerLease, MaxLease: workerLease})
		for kind, take := range kindsOf(l) {
			c.tasks.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(i), uint64(len(kind))))
				for time.Now().Before(stop) {
					names := []string{"a", "b", "c"}
					rnd.Shuffle(3, func(i, k int) { names[i], names[k] = names[k], names[i] })
					asked := time.Now()
					leases, err := take(names)
					waited := time.Since(asked)
					if kind == "try" && (errors.Is(err, quorum.ErrHeld) || errors.Is(err, quorum.ErrNoQuorum)) {
						time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
						continue
					} else if err != nil {
						t.Errorf("%s: %v", kind, err)
						return
					}
					for _, le := range leases {
						c.enter(le)
					}
					if kind == "fixed" {
						<-leases[0].Context().Done()
					} else {
						time.Sleep(time.Duration(rnd.IntN(5)) * time.Millisecond)
					}
					for _, le := range leases {
						c.leave(le)
					}
					for _, le := range leases {
						err := le.Unlock(background)
						ensure(t, err == nil || kind == "fixed", "%v", err)
					}
					mu.Lock()
					turns[kind]++
					longest[kind] = max(longest[kind], waited)
					mu.Unlock()
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { c.tasks.Wait(); close(done) }()
	faults := harass(t, all, done)
	for kind := range kindsOf(nil) {
		t.Logf("%s: %d turns, the longest wait %v", kind, turns[kind], longest[kind])
		ensure(t, turns[kind] != 0 || kind == "try", "%s has had no turn", kind)
	}
	t.Logf("%d faults", faults)
	assert.Eventually(t, "no key is left", func() bool { return keys(t, all, "[abcd]") == 0 })
}

// kindsOf are the ways to lock some of three names.
func kindsOf(l *quorum.Locker) map[string]func(names []string) ([]*quorum.Lease, error) {
	one := func(options ...quorum.Option) func([]string) ([]*quorum.Lease, error) {
		return func(names []string) ([]*quorum.Lease, error) {
			le, err := l.Lock(background, names[0], options...)
			return []*quorum.Lease{le}, err
		}
	}
	shared := func(option quorum.Option) func([]string) ([]*quorum.Lease, error) {
		return func([]string) ([]*quorum.Lease, error) {
			le, err := l.Lock(background, "d", option)
			return []*quorum.Lease{le}, err
		}
	}
	return map[string]func([]string) ([]*quorum.Lease, error){
		"plain": one(),
		"fair":  one(quorum.WithFair()),
		"fixed": one(quorum.WithFixedLease(100 * time.Millisecond)), // its holder stays until the context ends
		"read":  shared(quorum.WithRead()),
		"write": shared(quorum.WithWrite()),
		"try": func(names []string) ([]*quorum.Lease, error) {
			le, err := l.TryLock(background, names[0])
			return []*quorum.Lease{le}, err
		},
		"names": func(names []string) ([]*quorum.Lease, error) {
			le, err := l.Lock(background, names[0], quorum.WithNames(names[1]))
			return []*quorum.Lease{le}, err
		},
		"joint": func(names []string) ([]*quorum.Lease, error) {
			j, err := quorum.LockAll(background, []quorum.Member{{Locker: l, Name: names[0]}, {Locker: l, Name: names[1]}})
			if err != nil {
				return nil, err
			}
			return j.Leases(), nil
		},
		"nested": func(names []string) ([]*quorum.Lease, error) {
			outer, inner := min(names[0], names[1]), max(names[0], names[1])
			le, err := l.Lock(background, outer)
			if err != nil {
				return nil, err
			}
			next, err := l.Lock(background, inner)
			if err != nil {
				return nil, fmt.Errorf("inside %s: %w", outer, err)
			}
			return []*quorum.Lease{next, le}, nil
		},
	}
}
