package quorum_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// A waiter of another make is in no queue: it listens, and is slower than a Locker to ask. It
// has its turns, and so have Lockers that always want the name; when it has gone nobody waits
// for it.
func TestListenersHaveTheirTurns(t *testing.T) {
	const hold, slow = 10 * time.Millisecond, 2 * time.Millisecond
	for _, lockers := range []int{1, 3} {
		t.Run(fmt.Sprint(lockers, " Lockers"), func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				w.delay(200*time.Microsecond, 0)
				theirs := &listener{w: w, name: "x", woken: make(chan struct{}, 1)}
				stop := w.nodes[0].Watch("x", node.Exclusive, func() {
					select {
					case theirs.woken <- struct{}{}:
					default:
					}
				})
				ctx, cancel := context.WithTimeout(background, 4*time.Second)
				defer cancel()
				turns := make([]atomic.Int64, lockers)
				taken := func() (all, least int64) {
					least = 1 << 30
					for i := range turns {
						n := turns[i].Load()
						all, least = all+n, min(least, n)
					}
					return all, least
				}
				var tasks sync.WaitGroup
				for i := range lockers {
					l := w.locker(quorum.Options{})
					for range 2 {
						tasks.Go(func() {
							for {
								lease, err := l.Lock(ctx, "x")
								if err != nil {
									return
								}
								turns[i].Add(1)
								time.Sleep(hold)
								unlock(t, lease)
							}
						})
					}
				}
				for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
					theirs.turn(slow, hold)
				}
				ours, _ := taken()
				if all := ours + theirs.turns; theirs.turns < all/4 || ours < all/4 {
					t.Errorf("the listener has %d turns, and the Lockers %d", theirs.turns, ours)
				}
				stop()
				<-ctx.Done()
				tasks.Wait()
				all, least := taken()
				atLeast(t, least, 20, "turns of a Locker")
				if most := int64(2 * time.Second / hold); all-ours < most*9/10 {
					t.Errorf("%d turns when the listener had gone, of %d", all-ours, most)
				}
			})
		})
	}
}

// A listener waits for notices, then asks once.
type listener struct {
	w     *world
	name  string
	woken chan struct{}
	token node.Token
	turns int64
}

func (o *listener) turn(slow, hold time.Duration) {
	<-o.woken
	time.Sleep(slow)
	o.token = max(o.token+1, node.Token(time.Now().UnixMicro()))
	claims := []node.Claim{{Name: o.name, Owner: "11111111-1111-4111-8111-111111111111:1", Token: o.token}}
	status := make(chan node.Status, 1)
	o.w.nodes[0].Submit(node.Command{Kind: node.Acquire, Claims: claims, TTL: time.Minute, Retention: time.Hour,
		Deadline: o.w.clock.Now().Add(time.Second)}, func(r node.Reply) { status <- r.Status })
	if <-status != node.Granted {
		return
	}
	o.turns++
	time.Sleep(hold)
	o.w.nodes[0].Do(func(s *model.Server, _ model.Time) { s.Del(o.name) })
	o.w.nodes[0].Publish(node.Channel(o.name)) // to nobody in a queue
	time.Sleep(slow)
	select {
	case <-o.woken: // by itself
	default:
	}
}
