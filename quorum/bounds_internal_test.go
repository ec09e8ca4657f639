package quorum

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
)

// Unconfirmed releases are sent again. If there are more than a Locker remembers, the
// rest is left to the expiry of the keys.
func TestSweepsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nd := model.New(clock.Runtime(), "n1")
		l, err := New([]node.Node{nd}, Options{Clock: clock.Runtime()})
		assert.Succeed(t, err)
		defer l.Close()
		for others, want := range map[int]bool{maxSweeps - 1: false, maxSweeps: true} {
			name := fmt.Sprint(others)
			lease := assert.Got(l.Lock(context.Background(), name))(t)
			nd.Hang(true)
			l.mu.Lock()
			l.releases.open += others
			l.mu.Unlock()
			_ = lease.Unlock(context.Background())
			synctest.Wait()
			l.mu.Lock()
			l.releases.open -= others
			l.mu.Unlock()
			nd.Hang(false)
			time.Sleep(5 * time.Second)
			nd.Do(func(s *model.Server, now model.Time) {
				_, kept := s.Holds(now, name, lease.Owner())
				assert.That(t, kept == want, "with %d other releases: kept is %v", others, kept)
			})
		}
	})
}

// A Locker remembers the newest revoked offers.
func TestRevokedOffersAreBounded(t *testing.T) {
	f := &handovers{byOwner: make(map[string]*offer)}
	for i := range 2 * maxRevoked {
		owner, want := node.Offer(fmt.Sprint(i)), min(i+1, maxRevoked)
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
		underWay      int
		fewer         int           // than maxAttempts may be
		wait          time.Duration // of the caller
		closed, leave bool          // what happens while it waits
		passed        bool
		want          phase
		left          int // attempts under way afterwards
	}{
		{says: "an attempt may begin below the bound", underWay: maxAttempts - 1, wait: -1, want: phaseAsking, left: maxAttempts},
		{says: "one above the bound waits", underWay: maxAttempts, wait: -1, want: phaseOutside, left: maxAttempts},
		{says: "until another ends, and takes its room", underWay: maxAttempts, wait: -1, leave: true, want: phaseAsking, left: maxAttempts},
		{says: "it waits for no longer than its caller", underWay: maxAttempts, wait: time.Second, passed: true, want: phaseOver, left: maxAttempts},
		{says: "it waits no longer than the Locker is open", underWay: maxAttempts, wait: -1, closed: true, want: phaseOver, left: maxAttempts},
		{says: "TryLock comes in on top", underWay: maxAttempts, want: phaseAsking, left: maxAttempts + 1},
		{says: "but not where attempts are late", underWay: 16, fewer: maxAttempts - 16, want: phaseOutside, left: 16},
		{says: "and then waits for a quarter of Timeout", underWay: 16, fewer: maxAttempts - 16, passed: true, want: phaseOver, left: 16},
		{says: "the end of an attempt above the bound makes no room", underWay: maxAttempts + 1, wait: time.Second, leave: true, want: phaseOutside, left: maxAttempts},
	} {
		e := bare(t)
		e.attempts.underWay, e.attempts.fewer = row.underWay, row.fewer
		w := e.waiter(t.Context(), &settings{claim: claim{Claim: node.Claim{Name: "x"}}, wait: row.wait, lease: time.Second})
		w.run()
		if row.leave {
			e.attempts.leave()
		}
		if row.passed {
			e.now = e.now.Add(max(row.wait, e.opts.Timeout/4))
		}
		e.closed = row.closed
		w.run()
		assert.That(t, w.phase == row.want && e.attempts.underWay == row.left && (e.attempts.outside.first != nil) == (row.want == phaseOutside),
			"%s: phase %d, with %d attempts, and a waiter left: %v", row.says, w.phase, e.attempts.underWay, e.attempts.outside.first != nil)
	}
}

// One attempt that is late lowers the bound, others under way then do not, and those in time raise it.
func TestLimiterLearns(t *testing.T) {
	var m limiter
	after := func(start, took time.Duration, times, want int) {
		t.Helper()
		for range times {
			m.learn(clock.Instant(time.Hour+start), clock.Instant(time.Hour+start+took), 750*time.Millisecond)
		}
		assert.Equal(t, m.most(), want, "attempts at once, after ", start)
	}
	const inTime, late = 740 * time.Millisecond, 750 * time.Millisecond
	after(0, inTime, 5000, maxAttempts)
	after(0, late, 1, leastAttempts)
	after(0, inTime, leastAttempts, leastAttempts+2)
	after(749*time.Millisecond, late, 10, leastAttempts+2)
	after(late, late, 1, leastAttempts)
	after(2*time.Second, inTime, 20000, maxAttempts)
	after(3*time.Second, late, 1, leastAttempts)
	after(14*time.Second, inTime, 1, maxAttempts)
}

// bare is an engine whose effects nobody carries out.
func bare(t *testing.T) *engine {
	t.Helper()
	opts := assert.Got(Options{Clock: clock.Runtime(), Label: NoLabel}.fill())(t)
	var nodes []node.Node
	for i := range 3 {
		nodes = append(nodes, model.New(opts.Clock, fmt.Sprint("n", i+1)))
	}
	e := newEngine(&config{nodes: nodes, need: 2, opts: opts, clock: opts.Clock, uuid: "u"})
	e.enter()
	return e
}

// A waiter for as many names as there may be reserves them, however long it has waited.
func TestReservationOfTheLongestWait(t *testing.T) {
	e := bare(t)
	w := &waiter{e: e, calledFirstFor: make([]nodeSet, maxNames)}
	for waited := time.Second; waited < longest; waited += waited / 2 {
		for i := range w.calledFirstFor {
			w.calledFirstFor[i] = allNodes(len(e.nodes))
		}
		w.began = e.now - clock.Instant(waited)
		assert.That(t, w.mayReserve(), "they are not reserved after %v", waited)
		assert.That(t, w.reserved.Sub(e.now).Round(time.Millisecond) == 2*e.opts.RetryEvery, "they are for %v", w.reserved.Sub(e.now))
	}
}

// Each row is what becomes of a message that a lock was handed over. Others may have sent it.
func TestTake(t *testing.T) {
	e := bare(t)
	w := &waiter{e: e}
	f := e.handovers
	f.since[1] = 3
	e.voters.known[2].life = &node.Life{ID: "server"}
	stands := func(owner, secret string, to *waiter) *offer {
		c := claim{Claim: node.Claim{Name: "x", Owner: owner}, wait: node.Wait{Secret: secret}}
		o := &offer{claim: c, start: 2, to: to}
		f.byOwner[owner] = o
		return o
	}
	stands("valid", "secret", w)
	stands("resumed", "", nil)
	revoked := stands("revoked", "secret", nil)
	life := e.voters.known[2].life
	turn := func(owner string) node.Turn {
		proof := node.ProofOf("secret", 7, "server")
		return node.Turn{Name: "x", Owner: owner, Token: 7, Server: "server", Proof: proof, Life: life}
	}
	with := func(change func(*node.Turn)) node.Turn {
		t := turn("valid")
		change(&t)
		return t
	}
	for _, row := range []struct {
		says    string
		by      int
		turn    node.Turn
		again   bool
		want    *offer // to be released
		handed  int
		counted bool
	}{
		{says: "the waiter that stands by gets it", by: 2, turn: turn("valid"), handed: 1, counted: true},
		{says: "once, however often it is said", by: 2, turn: turn("valid"), again: true, handed: 1, counted: true},
		{says: "one that waits no longer does not, and it is released", turn: turn("revoked"), want: revoked},
		{says: "that of an owner unknown here is left alone: a copy of this process may have it", turn: turn("other")},
		{says: "it is for this name", turn: with(func(t *node.Turn) { t.Name = "y" })},
		{says: "it is with this token", turn: with(func(t *node.Turn) { t.Token++ })},
		{says: "it is by this server", turn: with(func(t *node.Turn) {
			t.Server, t.Life = "another", &node.Life{ID: "another"}
		})},
		{says: "this node has said it, and not another", by: 1, turn: with(func(t *node.Turn) { t.Life = nil })},
		{says: "it does not count if the node leads to this server no longer", by: 2,
			turn: with(func(t *node.Turn) { t.Life = nil }), handed: 1},
		{says: "it has a proof", turn: with(func(t *node.Turn) { t.Proof = "" })},
		{says: "the proof is by the secret", turn: with(func(t *node.Turn) {
			t.Proof = node.ProofOf("another", 7, "server")
		})},
		{says: "there is a secret", turn: with(func(t *node.Turn) {
			t.Owner, t.Proof = "resumed", node.ProofOf("", 7, "server")
		})},
		{says: "it does not count if the waiter may not have listened when it was said", by: 1,
			turn: turn("valid"), handed: 1},
	} {
		if !row.again {
			w.handed = nil
		}
		got := f.take(row.by, row.turn)
		counted := len(w.handed) > 0 && w.handed[0].Life != nil
		if got != row.want || len(w.handed) != row.handed || counted != row.counted {
			t.Errorf("%s: %v is to be released, and %+v is handed over", row.says, got, w.handed)
		}
	}
}

// A waiter leaves a name to listeners for no longer than its caller waits.
func TestYieldingEndsWithTheWait(t *testing.T) {
	e := bare(t)
	e.queues.listeners["x"] = listeners{released: e.now, need: 10 * time.Second}
	w := e.waiter(t.Context(), &settings{claim: claim{Claim: node.Claim{Name: "x"}}, wait: time.Second, lease: time.Second})
	w.run()
	if w.phase != phaseYielding || w.spot.at != e.now.Add(time.Second) {
		t.Errorf("phase %d for %v", w.phase, w.spot.at.Sub(e.now))
	}
}

// A Locker remembers a bounded number of contended names.
func TestContentionIsForgotten(t *testing.T) {
	q := bare(t).queues
	for i := range 10 * maxContended {
		q.noteContention(&claim{Claim: node.Claim{Name: fmt.Sprint(i)}}, true)
		assert.Must(t, len(q.contended) <= maxContended, "%d names", len(q.contended))
	}
}
