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

// Unconfirmed releases are sent again. If there are more than a Locker remembers, the
// rest is left to the expiry of the keys.
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
			l.releases.open.Add(others)
			_ = lease.Unlock(context.Background())
			synctest.Wait()
			l.releases.open.Add(-others)
			nd.Hang(false)
			time.Sleep(5 * time.Second)
			nd.Do(func(s *model.Server, now model.Time) {
				if _, kept := s.Holds(now, name, lease.Owner()); kept != want {
					t.Errorf("with %d other releases: kept is %v", others, kept)
				}
			})
		}
	})
}

// A Locker remembers many revoked offers whose places may still be there, but not any number;
// and of those whose places have expired it remembers the last.
func TestRevokedOffersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts, err := Options{Clock: clock.Runtime()}.fill()
		if err != nil {
			t.Fatal(err)
		}
		f := &handoffs{config: &config{clock: opts.Clock, opts: opts}, byOwner: make(map[string]*offer)}
		revoke := func(owner string, want int) {
			t.Helper()
			f.leaseEnds(&claim{Claim: node.Claim{Owner: node.Standby(owner)}})
			if n := len(f.revoked); n != want || len(f.byOwner) != want || f.revoked[n-1].Owner != node.Standby(owner) {
				t.Fatalf("%d are remembered, %d by owner, want %d", n, len(f.byOwner), want)
			}
		}
		for i := range 2 * maxRevoked {
			revoke(fmt.Sprint(i), min(i+1, maxRevoked))
		}
		time.Sleep(time.Minute)
		revoke("late", keptRevoked)
	})
}
