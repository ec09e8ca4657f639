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

// A Locker remembers the newest revoked offers.
func TestRevokedOffersAreBounded(t *testing.T) {
	f := &handoffs{byOwner: make(map[string]*offer)}
	for i := range 2 * maxRevoked {
		owner, want := node.Standby(fmt.Sprint(i)), min(i+1, maxRevoked)
		f.leaseEnds(&claim{Claim: node.Claim{Owner: owner}})
		if n := len(f.revoked); n != want || len(f.byOwner) != want || f.revoked[n-1].Owner != owner {
			t.Fatalf("%d are remembered, %d by owner, want %d", n, len(f.byOwner), want)
		}
	}
}

// Each row is what a limiter that is full, or not, does with a waiter.
func TestLimiter(t *testing.T) {
	for _, row := range []struct {
		says          string
		attempts      int
		wait          time.Duration // of the caller
		closed, leave bool          // what happens while it waits
		want          bool
		left          int // attempts under way afterwards
	}{
		{says: "an attempt may begin below the bound", attempts: maxAttempts - 1, wait: -1, want: true, left: maxAttempts},
		{says: "one above the bound waits until another ends, and takes its room", attempts: maxAttempts, wait: -1, leave: true, want: true,
			left: maxAttempts},
		{says: "it waits for no longer than its caller", attempts: maxAttempts, wait: time.Second, left: maxAttempts},
		{says: "it waits no longer than the Locker is open", attempts: maxAttempts, wait: -1, closed: true, left: maxAttempts},
		{says: "TryLock comes in on top", attempts: maxAttempts, want: true, left: maxAttempts + 1},
		{says: "the end of an attempt above the bound makes no room", attempts: maxAttempts + 1, wait: time.Second, leave: true, left: maxAttempts},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := clock.Runtime()
			w := &waiter{l: new(Locker), request: &settings{wait: row.wait}, deadline: clock.Never}
			w.inbox.signal = c.NewSignal()
			if row.wait > 0 {
				w.deadline = c.Now().Add(row.wait)
			}
			m := &limiter{attempts: row.attempts}
			c.Go(func() {
				time.Sleep(time.Millisecond)
				if row.leave {
					m.leave()
				}
				if row.closed {
					w.l.life.close()
					w.inbox.signal.Set()
				}
			})
			got := m.comeIn(context.Background(), w)
			time.Sleep(time.Second)
			if got != row.want || m.attempts != row.left || m.outside.first != nil {
				t.Errorf("%s: %v, with %d attempts, and a waiter left: %v", row.says, got, m.attempts, m.outside.first != nil)
			}
		})
	}
}

// Each row is what becomes of a lock that a node has handed over.
func TestTake(t *testing.T) {
	w := &waiter{}
	valid, revoked := &offer{to: w}, &offer{}
	f := &handoffs{byOwner: map[string]*offer{"valid": valid, "revoked": revoked}}
	for _, row := range []struct {
		says, owner string
		want        *offer // to be released
		handed      int
	}{
		{says: "the waiter that stands by gets it", owner: "valid", handed: 1},
		{says: "one that waits no longer does not, and it is released", owner: "revoked", want: revoked},
		{says: "that of an owner unknown here is left alone: a copy of this process may have it", owner: "other"},
	} {
		w.inbox = inbox{signal: clock.Runtime().NewSignal()}
		if got := f.take(2, node.Turn{Owner: row.owner}); got != row.want || len(w.inbox.handed) != row.handed {
			t.Errorf("%s: %v is to be released, %d are handed over", row.says, got, len(w.inbox.handed))
		}
	}
}

// A waiter leaves a name to listeners for no longer than its caller waits.
func TestStandBackEndsWithTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.Runtime()
		l := &Locker{config: &config{clock: c, opts: Options{Timeout: time.Minute}}}
		l.queues = &queues{config: l.config, listeners: map[string]listeners{"x": {released: c.Now(), need: 10 * time.Second}}}
		w := &waiter{l: l, request: &settings{claim: claim{Claim: node.Claim{Name: "x"}}, wait: time.Second}, deadline: c.Now().Add(time.Second)}
		w.inbox.signal = c.NewSignal()
		began := time.Now()
		w.standBack(context.Background())
		if took := time.Since(began); took != time.Second {
			t.Errorf("it stood back for %v", took)
		}
	})
}

// A Locker remembers a bounded number of contended names.
func TestContentionIsForgotten(t *testing.T) {
	q := &queues{contended: make(map[string]struct{})}
	for i := range 10 * maxContended {
		q.noteContention(&claim{Claim: node.Claim{Name: fmt.Sprint(i)}}, true)
		if len(q.contended) > maxContended {
			t.Fatalf("%d names", len(q.contended))
		}
	}
}
