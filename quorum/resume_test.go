package quorum_test

import (
	"context"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// A handle that was not detached may be used after a crash: the former process may go on
// all the same.
func TestResumeWhileTheFormerProcessLives(t *testing.T) {
	defaults := quorum.Defaults()
	for _, mode := range []quorum.Option{nil, read, write, quorum.WithNames("y")} {
		rules{
			{"an Unlock of the former process ends nothing, and says so", 3, func(t *testing.T, w *world) {
				former := lock(t, w.locker(quorum.Options{}), "x", mode)
				resumed := resume(t, w.locker(quorum.Options{}), former.Handle())
				expect(t, former.Unlock(background), quorum.ErrNotHeld)
				time.Sleep(5 * time.Minute)
				goesOn(t, resumed)
				equal(t, w.holders("x", resumed.Owner())+w.holders("x", resumed.Owner()+":write"), 3, "nodes")
			}},
			{"nor does one that comes when its lease is over, and its network is back", 3, func(t *testing.T, w *world) {
				cutOff := w.cuttable(quorum.Options{})
				former := lock(t, cutOff, "x", mode)
				handle := former.Handle()
				w.cut[cutOff].Store(true)
				resumed := resume(t, w.locker(quorum.Options{}), handle)
				<-former.Context().Done()
				expect(t, former.Unlock(background), quorum.ErrNotHeld)
				time.Sleep(20 * time.Second)
				w.cut[cutOff].Store(false)
				time.Sleep(time.Minute)
				goesOn(t, resumed)
				equal(t, w.holders("x", resumed.Owner())+w.holders("x", resumed.Owner()+":write"), 3, "nodes")
			}},
			{"the former process learns of it with its next renewal", 3, func(t *testing.T, w *world) {
				former := lock(t, w.locker(quorum.Options{}), "x", mode)
				resumed := resume(t, w.locker(quorum.Options{}), former.Handle())
				atMost(t, lasted(former, time.Now()), defaults.Lease/3+time.Millisecond)
				matches(t, context.Cause(former.Context()), quorum.ErrLost, "resumed elsewhere")
				unlock(t, resumed)
			}},
			{"its own handle is resumed as well while the former process may hold the lease", 3, func(t *testing.T, w *world) {
				options := quorum.Options{Lease: defaults.MaxLease, Grace: time.Second}
				first := resume(t, w.locker(options), lock(t, w.locker(options), "x", mode).Handle())
				second := resume(t, w.locker(options), first.Handle())
				expect(t, first.Unlock(background), quorum.ErrNotHeld)
				unlock(t, second)
				equal(t, w.locked("x"), 3, "nodes keep the name")
			}},
		}.hold(t)
	}
	rules{
		{"nobody else gets the name as long as the former process may hold it", 3, func(t *testing.T, w *world) {
			cutOff := w.cuttable(quorum.Options{})
			former := lock(t, cutOff, "x")
			time.Sleep(9 * time.Second)
			handle, began := former.Handle(), time.Now()
			w.cut[cutOff].Store(true)
			unlock(t, resume(t, w.locker(quorum.Options{}), handle))
			next := lock(t, w.locker(quorum.Options{}), "x")
			ensure(t, former.Context().Err() != nil, "two hold: the former process for another %v", former.Remaining())
			atMost(t, time.Since(began), defaults.Lease-9*time.Second+defaults.Grace+100*time.Millisecond, "it waited")
			unlock(t, next)
		}},
		{"also if who has resumed it detaches it meanwhile, and for as long as nodes may have counted for the former process", 3, func(t *testing.T, w *world) {
			cutOff := w.cuttable(quorum.Options{})
			handle := lock(t, cutOff, "x").Handle()
			w.cut[cutOff].Store(true)
			time.Sleep(20 * time.Second)
			between, began := resume(t, w.locker(quorum.Options{}), handle), time.Now()
			unlock(t, resume(t, w.locker(quorum.Options{}), detach(t, between)))
			unlock(t, lock(t, w.locker(quorum.Options{}), "x"))
			atLeast(t, time.Since(began), defaults.Lease-10*time.Millisecond)
		}},
		{"nor does anybody but the last of several that resume one after the other", 3, func(t *testing.T, w *world) {
			handle := lock(t, w.locker(quorum.Options{}), "x").Handle()
			first := resume(t, w.locker(quorum.Options{}), handle)
			expect(t, errorOf(w.locker(quorum.Options{}).Resume(background, handle)), quorum.ErrNotHeld,
				"the same handle again")
			second := resume(t, w.locker(quorum.Options{}), first.Handle())
			expect(t, first.Unlock(background), quorum.ErrNotHeld)
			time.Sleep(time.Minute)
			goesOn(t, second)
		}},
		{"what a Resume that fails has taken over is given back, and the handle resumes the lease later", 5, func(t *testing.T, w *world) {
			former := lock(t, w.locker(quorum.Options{}), "x", quorum.WithNames("y"))
			handle := detach(t, former)
			for _, n := range w.nodes[2:] {
				n.Down(true)
			}
			expect(t, errorOf(w.locker(quorum.Options{}).Resume(background, handle)), quorum.ErrNoQuorum)
			for _, n := range w.nodes[:2] {
				n.DropReplies(true) // it is executed
			}
			w.nodes[0].Down(false)
			expect(t, errorOf(w.locker(quorum.Options{}).Resume(background, handle)), quorum.ErrNoQuorum)
			w.nodes.DropReplies(false)
			w.nodes.Down(false)
			time.Sleep(time.Second)
			equal(t, w.holders("x", former.Owner()), 5, "nodes have the former owner")
			unlock(t, resume(t, w.locker(quorum.Options{}), handle))
			equal(t, w.locked("x")+w.locked("y"), 0, "nodes keep one")
		}},
		{"a fence that is higher than the clock is no obstacle", 3, func(t *testing.T, w *world) {
			former := lock(t, w.locker(quorum.Options{}), "x")
			ahead := former.Token() + node.Token(time.Hour.Microseconds())
			for _, n := range w.nodes {
				n.Submit(node.Command{Kind: node.Release, Claims: []node.Claim{{Name: "x", Owner: "another",
					Token: ahead}},
					Retention: time.Hour, Deadline: clock.Never}, func(node.Reply) {})
			}
			more(t, resume(t, w.locker(quorum.Options{}), former.Handle()).Token(), ahead)
		}},
	}.hold(t)
}
