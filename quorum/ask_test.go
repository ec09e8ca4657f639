package quorum_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// asked reports whether a lease's holder was asked to finish.
func asked(le *quorum.Lease) bool {
	synctest.Wait()
	select {
	case <-le.Asked():
		return true
	default:
		return false
	}
}

// watched is how many nodes have a subscription to requests to an owner.
func (w *world) watched(owner string) (count int) {
	for _, n := range w.nodes {
		n.Do(func(s *model.Server, _ model.Time) {
			if s.Ears.Watched(node.AskName(owner), node.Exclusive) {
				count++
			}
		})
	}
	return count
}

// ask asks the holder of a name to finish.
func ask(t *testing.T, l *quorum.Locker, name string) {
	t.Helper()
	if err := l.Ask(background, name); err != nil {
		t.Errorf("ask %s: %v", name, err)
	}
}

// A holder is asked to finish, whichever kind of lease it has, and keeps the lock. Nothing else is.
func TestAsk(t *testing.T) {
	for what, tt := range map[string]struct {
		options quorum.Options
		opts    []quorum.Option
		ask     string
	}{
		"plain":         {ask: "x"},
		"prefix":        {options: quorum.Options{Prefix: "shop/"}, ask: "x"},
		"several names": {opts: []quorum.Option{quorum.WithNames("a", "z")}, ask: "z"},
		"writer":        {opts: []quorum.Option{quorum.WithWrite()}, ask: "x"},
		"brace":         {opts: []quorum.Option{quorum.WithNames("{y}")}, ask: "{y}"},
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, 3, func(w *world) {
				w.delay(time.Millisecond, time.Millisecond)
				l, other := w.locker(tt.options), w.locker(tt.options)
				lease, bystander := lock(t, l, "x", tt.opts...), lock(t, l, "bystander")
				if asked(lease) || asked(bystander) {
					t.Error("asked at first")
				}
				ask(t, other, tt.ask)
				time.Sleep(10 * time.Millisecond)
				if !asked(lease) || asked(bystander) || lease.Remaining() == 0 {
					t.Errorf("asked: %v, and the other %v; %v remain", asked(lease), asked(bystander), lease.Remaining())
				}
				ask(t, other, tt.ask) // again
				unlock(t, lease)
				next := lock(t, l, "x", tt.opts...)
				time.Sleep(time.Minute)
				if asked(next) {
					t.Error("the next holder is asked, too")
				}
			})
		})
	}
}

// All readers are asked; a lease that was handed over, and nested ones, as any other.
func TestAskReadersAndHeirs(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		a, b := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		first, second := lock(t, a, "r", read), lock(t, b, "r", read)
		first.Asked()
		ask(t, b, "r")
		if !asked(first) || !asked(second) {
			t.Errorf("asked: %v, %v", asked(first), asked(second))
		}
		held, next := lock(t, a, "x"), make(chan *quorum.Lease)
		go func() { next <- lock(t, b, "x") }()
		time.Sleep(time.Second)
		unlock(t, held)
		heir := <-next
		if !node.IsOffer(heir.Owner()) {
			t.Fatal("it was not handed over")
		}
		nested := lock(t, b, "n", quorum.WithNames("m"))
		inner := must[*quorum.Lease](t)(b.Lock(nested.Context(), "n", reentry))
		ask(t, a, "x")
		ask(t, a, "n")
		if !asked(heir) || !asked(inner) || !asked(nested) {
			t.Errorf("asked: %v, %v, %v", asked(heir), asked(inner), asked(nested))
		}
	})
}

// A request whose notices are lost is seen at the next renewal, and one before the first look at once.
func TestAskWithoutNotices(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.behind(quorum.Options{}, func(_ int, n node.Node) node.Node { return deaf{n} })
		other := w.locker(quorum.Options{})
		lease, late := lock(t, l, "x"), lock(t, other, "late")
		lease.Asked()
		ask(t, other, "x")
		if asked(lease) {
			t.Error("it hears")
		}
		time.Sleep(11 * time.Second)
		if !asked(lease) {
			t.Error("not seen at the renewal")
		}
		ask(t, l, "late")
		time.Sleep(time.Hour)
		late.Asked()
		if !asked(late) {
			t.Error("a request from before the first look was missed")
		}
	})
}

// A leaving node takes its time to end a subscription.
type leaving struct{ node.Node }

func (l leaving) Watch(name string, mode node.Mode, wake func()) (stop func()) {
	end := l.Node.Watch(name, mode, wake)
	return func() {
		time.Sleep(time.Second)
		end()
	}
}

// The subscription ends with the lease, however that ends, and with a request. A lease that goes on elsewhere is asked there.
func TestAskSubscriptionEnds(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.delay(time.Millisecond, 0)
		l, other := w.locker(quorum.Options{}), w.locker(quorum.Options{})
		for what, end := range map[string]func(*quorum.Lease){
			"unlock": func(le *quorum.Lease) { unlock(t, le) },
			"break":  func(le *quorum.Lease) { must[bool](t)(l.Break(background, le.Names()[0])) },
			"lost":   func(*quorum.Lease) { time.Sleep(time.Minute) },
			"unlock, of a lost lease": func(le *quorum.Lease) {
				time.Sleep(time.Minute)
				_ = le.Unlock(background)
			},
			"detach": func(le *quorum.Lease) {
				resumed := must[*quorum.Lease](t)(other.Resume(background, must[quorum.Handle](t)(le.Detach())))
				resumed.Asked()
				ask(t, l, "detach")
				time.Sleep(10 * time.Millisecond)
				if !asked(resumed) || asked(le) {
					t.Errorf("asked where the lease goes on: %v; where it was: %v", asked(resumed), asked(le))
				}
			},
			"asked": func(le *quorum.Lease) { ask(t, other, le.Names()[0]) },
		} {
			lease := lock(t, l, what, quorum.WithMaxHold(40*time.Second))
			lease.Asked()
			time.Sleep(10 * time.Millisecond)
			if n := w.watched(lease.Owner()); n != 3 {
				t.Errorf("%s: %d nodes watched", what, n)
			}
			end(lease)
			time.Sleep(10 * time.Millisecond)
			if n := w.watched(lease.Owner()); n != 0 {
				t.Errorf("%s: %d nodes are still watched", what, n)
			}
			if asked(lease) != (what == "asked") {
				t.Errorf("%s: asked: %v", what, asked(lease))
			}
		}
		leaves := w.behind(quorum.Options{}, func(_ int, n node.Node) node.Node { return leaving{n} })
		lease := lock(t, leaves, "close")
		lease.Asked()
		time.Sleep(10 * time.Millisecond)
		_ = leaves.Close()
		if n := w.watched(lease.Owner()); n != 0 {
			t.Errorf("close: %d nodes are still watched", n)
		}
		if asked(lease) || asked(must[*quorum.Lease](t)(other.Lock(background, "close"))) {
			t.Error("asked after Close")
		}
	})
}

// Ask says who cannot be asked, and leaves no lock behind.
func TestAskErrors(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		l := w.locker(quorum.Options{})
		if err := l.Ask(background, "free"); !errors.Is(err, quorum.ErrNotHeld) {
			t.Errorf("a free name: %v", err)
		}
		w.foreign("java", time.Minute, 0, 1, 2)
		if err := l.Ask(background, "java"); !errors.Is(err, quorum.ErrNotHeld) {
			t.Errorf("a lock of Redisson: %v", err)
		}
		w.foreign("part", time.Minute, 0)
		w.nodes[1].Down(true)
		if err := l.Ask(background, "part"); !errors.Is(err, quorum.ErrNoQuorum) {
			t.Errorf("a node has it, one does not, one is down: %v", err)
		}
		w.nodes[1].Down(false)
		lease := lock(t, l, "x")
		w.nodes[0].Down(true)
		ask(t, l, "x")
		if !asked(lease) {
			t.Error("not asked by way of two nodes")
		}
		time.Sleep(time.Second)
		if n := w.locked(node.AskName(lease.Owner())); n != 0 {
			t.Errorf("%d nodes keep the lock of the request", n)
		}
		w.nodes[1].Down(true)
		var e *quorum.Error
		if err := l.Ask(background, "x"); !errors.Is(err, quorum.ErrNoQuorum) || !errors.As(err, &e) || e.Name != "x" {
			t.Errorf("two nodes are down: %v", err)
		}
		ended, end := context.WithCancel(background)
		end()
		if err := l.Ask(ended, "x"); !errors.Is(err, context.Canceled) {
			t.Errorf("with an ended context: %v", err)
		}
		if err := l.Ask(background, ""); err == nil {
			t.Error("without a name")
		}
	})
}
