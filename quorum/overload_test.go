package quorum_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// A busy server takes as long for each command, and executes those, too, that nobody waits for any more.
type busy struct {
	mu   sync.Mutex
	free time.Time
}

const perCommand = time.Millisecond

// turn returns when the next command will have been executed.
func (b *busy) turn() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); b.free.Before(now) {
		b.free = now
	}
	b.free = b.free.Add(perCommand)
	return time.Until(b.free)
}

// busy makes a Locker on servers that are shared.
func (w *world) busy(o quorum.Options, servers []*busy) *quorum.Locker {
	return w.through(o, func(i int, n node.Node, cmd node.Command, reply func(node.Reply)) {
		cmd = own(cmd)
		var once sync.Once
		late := time.AfterFunc(cmd.Deadline.Sub(w.clock.Now()), func() { once.Do(func() { reply(node.Reply{Err: node.ErrTimeout}) }) })
		cmd.Deadline = cmd.Deadline.Add(time.Hour)
		time.AfterFunc(servers[i].turn(), func() {
			n.Submit(cmd, func(r node.Reply) {
				late.Stop()
				once.Do(func() { reply(r) })
			})
		})
	})
}

// Where programs ask for much more than the nodes can do, these do what is still in time, and not only what is late already. When
// the load is over, so are its effects.
func TestOverload(t *testing.T) {
	const programs, callers = 3, 600 // an attempt of each takes the nodes more than Timeout
	for what, take := range map[string]func(l *quorum.Locker, name string) (*quorum.Lease, error){
		"Lock": func(l *quorum.Locker, name string) (*quorum.Lease, error) {
			return l.Lock(background, name, quorum.WithWait(2*time.Second))
		},
		"Lock with a context that ends before Timeout": func(l *quorum.Locker, name string) (*quorum.Lease, error) {
			ctx, cancel := context.WithTimeout(background, 300*time.Millisecond)
			defer cancel()
			return l.Lock(ctx, name)
		},
		"TryLock": func(l *quorum.Locker, name string) (*quorum.Lease, error) {
			return l.TryLock(background, name)
		},
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, 3, func(w *world) {
				servers := []*busy{{}, {}, {}}
				var locks atomic.Int64
				lease := lock(t, w.busy(quorum.Options{NoRestartGuard: true}, servers), "held", quorum.WithLease(20*time.Second))
				load := func(n int, d time.Duration) {
					var all sync.WaitGroup
					for p := range programs {
						l := w.busy(quorum.Options{NoRestartGuard: true}, servers)
						for i := range n {
							all.Go(func() {
								for end := time.Now().Add(d); time.Now().Before(end); {
									if lease, err := take(l, fmt.Sprint(p, "/", i)); err == nil {
										locks.Add(1)
										_ = lease.Unlock(background)
									}
								}
							})
						}
					}
					all.Wait()
				}
				const long = 30 * time.Second
				possible := int64(long / perCommand / 2)
				load(callers, long)
				ensure(t, locks.Load() >= possible/4, "under load: %d locks of %d that were possible", locks.Load(), possible)
				ensure(t, lease.Context().Err() == nil, "a lease was lost")
				locks.Store(0)
				load(1, time.Second)
				ensure(t, locks.Load() >= 50, "right after it: %d locks in a second", locks.Load())
			})
		})
	}
}
