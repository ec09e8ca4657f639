package quorum_test

import (
	"fmt"
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
				var all []*users
				for range lockers {
					all = append(all, keepUsing(t, w.locker(quorum.Options{}), 2, hold))
				}
				taken := func() (sum int64) {
					for _, u := range all {
						sum += u.turns.Load()
					}
					return sum
				}
				for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
					theirs.turn(slow, hold)
				}
				ours := taken()
				atLeast(t, theirs.turns, (ours+theirs.turns)/4, "turns of the listener")
				atLeast(t, ours, (ours+theirs.turns)/4, "turns of the Lockers")
				stop()
				time.Sleep(2 * time.Second)
				atLeast(t, taken()-ours, int64(2*time.Second/hold)*9/10, "turns when the listener had gone")
				for _, u := range all {
					atLeast(t, u.turns.Load(), 20, "turns of a Locker")
					u.stop()
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
