package quorum

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
)

// What is not confirmed is asked for again, but for what is more than a Locker keeps in
// mind: that is left to the expiry of its keys.
func TestSweepsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nd := model.New(clock.Runtime(), "n1")
		l, err := New([]node.Node{nd}, Options{Clock: clock.Runtime()})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for others, want := range map[int64]bool{maxSweeps - 1: false, maxSweeps: true} {
			name := fmt.Sprint(others)
			lease, err := l.Lock(context.Background(), name)
			if err != nil {
				t.Fatal(err)
			}
			nd.Hang(true)
			l.releases.Add(others)
			_ = lease.Unlock(context.Background())
			synctest.Wait()
			l.releases.Add(-others)
			nd.Hang(false)
			time.Sleep(5 * time.Second)
			nd.Do(func(s *model.Server, now model.Time) {
				if _, kept := s.Holds(now, name, lease.Handle().Owner); kept != want {
					t.Errorf("beside %d other releases: kept is %v", others, kept)
				}
			})
		}
	})
}

// A Locker keeps many heirs in mind whose places may still be there, but not any number;
// and of those whose places are gone it keeps the last.
func TestUnwantedHeirsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts, err := Options{Clock: clock.Runtime()}.fill()
		if err != nil {
			t.Fatal(err)
		}
		l := &Locker{clock: opts.Clock, opts: opts}
		forgo := func(owner string, want int) {
			t.Helper()
			l.forgo(owner)
			if n := len(l.unwanted); n != want || l.unwanted[n-1].owner != owner {
				t.Fatalf("%d are kept in mind, want %d", n, want)
			}
		}
		for i := range 2 * maxUnwanted {
			forgo(fmt.Sprint(i), min(i+1, maxUnwanted))
		}
		time.Sleep(time.Minute)
		forgo("late", someUnwanted)
	})
}
