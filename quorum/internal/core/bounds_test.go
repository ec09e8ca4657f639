package core

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum/internal/limit"
	"github.com/redquorum/redquorum/quorum/internal/machine"
	"github.com/redquorum/redquorum/quorum/internal/queue"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// Unconfirmed releases are repeated. Beyond what an engine remembers, keys are left to
// expire.
func TestSweepsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nd := model.New(clock.Runtime(), "n1")
		opts := usual()
		opts.NoRestartGuard = true
		e := newEngine(&Config{Nodes: []node.Node{nd}, Need: 1, Opts: opts, Clock: clock.Runtime(), UUID: "u"},
			&nobody{})
		go e.Serve()
		defer e.shut()
		for others, stays := range map[int]bool{maxSweeps - 1: false, maxSweeps: true} {
			name := fmt.Sprint(others)
			s := &claim.Want{Lock: claim.Lock{Name: name}, Wait: -1, Lease: 30 * time.Second}
			h := assert.Got(e.acquire(context.Background(), s, nil))(t)
			nd.Hang(true)
			e.Read(func() { e.releases.open += others })
			_ = h.BeginUnlock(node.Exclusive).Wait(context.Background())
			synctest.Wait()
			e.Read(func() { e.releases.open -= others })
			nd.Hang(false)
			time.Sleep(5 * time.Second)
			nd.Do(func(s *model.Server, now model.Time) {
				_, kept := s.Holds(now, name, h.Claim.Owner)
				assert.That(t, kept == stays, "with %d other releases: kept is %v", others, kept)
			})
		}
	})
}

// A Locker remembers the newest revoked offers.
func TestRevokedOffersAreBounded(t *testing.T) {
	f := &handovers{byOwner: make(map[string]*offer)}
	for i := range 2 * maxRevoked {
		owner, want := node.Offer(fmt.Sprint(i)), min(i+1, maxRevoked)
		f.leaseEnds(&claim.Claim{Owner: owner})
		if n := len(f.revoked); n != want || len(f.byOwner) != want || f.revoked[n-1].Owner != owner {
			t.Fatalf("%d are remembered, %d by owner, want %d", n, len(f.byOwner), want)
		}
	}
}

// Each row is what a limiter, full or not, does with a waiter.
func TestLimiter(t *testing.T) {
	const full = 8 // attempts of a Locker that knows nothing
	for _, row := range []struct {
		says          string
		underWay      int
		wait          time.Duration // of the caller
		closed, leave bool          // what happens while it waits
		passed        time.Duration
		want          phase
	}{
		{says: "an attempt may begin below the bound", underWay: full - 1, wait: -1, want: phaseAsking},
		{says: "one above the bound waits", underWay: full, wait: -1, want: phaseOutside},
		{says: "until another ends, and takes its room", underWay: full, wait: -1, leave: true, want: phaseAsking},
		{says: "it waits for no longer than its caller", underWay: full, wait: time.Second, passed: time.Second,
			want: phaseOver},
		{says: "it waits no longer than the Locker is open", underWay: full, wait: -1, closed: true, want: phaseOver},
		{says: "TryLock waits", underWay: full, passed: 400 * time.Millisecond, want: phaseOutside},
		{says: "but leaves an attempt its time", underWay: full, passed: 430 * time.Millisecond, want: phaseOver},
	} {
		e := bare(t)
		known := e.attempts.Enter(&limit.Entry{Leaves: clock.Never}, e.Now)
		e.attempts.End(e.Now.Add(-10*time.Millisecond), e.Now, known)
		begin(e, row.underWay)
		w := e.waiter(t.Context(), &claim.Want{Lock: claim.Lock{Name: "x"}, Wait: row.wait,
			Lease: 2 * time.Second})
		w.run()
		if row.leave {
			e.attempts.Leave(e.Now)
		}
		e.Now = e.Now.Add(row.passed)
		e.Closed = row.closed
		w.run()
		assert.Equal(t, w.phase, row.want, row.says)
	}
}

// begin begins attempts of others.
func begin(e *engine, n int) {
	for range n {
		e.attempts.Enter(&limit.Entry{Leaves: clock.Never}, e.Now)
	}
}

// room is how many more may begin.
func room(e *engine) (n int) {
	last := &limit.Entry{Leaves: clock.Never}
	for e.attempts.Enter(last, e.Now) {
		n++
	}
	e.attempts.Forget(last, e.Now)
	for range n {
		e.attempts.Leave(e.Now)
	}
	return n
}

// bare is an engine whose effects nobody carries out.
func bare(t *testing.T) *engine {
	t.Helper()
	var nodes []node.Node
	for i := range 3 {
		nodes = append(nodes, model.New(clock.Runtime(), fmt.Sprint("n", i+1)))
	}
	e := newEngine(&Config{Nodes: nodes, Need: 2, Opts: usual(), Clock: clock.Runtime(), UUID: "u"}, &nobody{})
	e.Enter()
	return e
}

func usual() Rules {
	return Rules{MaxLease: 30 * time.Second, Drift: 0.01, Timeout: 500 * time.Millisecond, RetryEvery: time.Second,
		FenceRetention: 24 * time.Hour, Random: rand.Uint64}
}

// nobody is above an engine, and only wants to hear of events.
type nobody struct{ heard func(machine.Event) }

func (*nobody) Explain(f Failure) error {
	if f.Cause != nil {
		return fmt.Errorf("%w: %w", f.Err, f.Cause)
	}
	return f.Err
}
func (*nobody) Stopped(ctx context.Context) error { return ctx.Err() }
func (n *nobody) Observes() bool                  { return n.heard != nil }

func (n *nobody) Observe(x machine.Event) { n.heard(x) }

func (*nobody) Active(Step)                                             {}
func (*nobody) Admitted(Step, *Hold, string) Follower                   { return nil }
func (*nobody) Broken(Step, *Hold)                                      {}
func (*nobody) Line(time.Time, slog.Level, string, ...any) (add func()) { return nil }

// A waiter for the most names reserves them, however long it has waited.
func TestReservationOfTheLongestWait(t *testing.T) {
	e := bare(t)
	w := &waiter{e: e, standby: standby{calledFirstFor: make([]vote.NodeSet, 5000)}}
	for waited := time.Second; waited < 10*365*24*time.Hour; waited += waited / 2 {
		for i := range w.calledFirstFor {
			w.calledFirstFor[i] = vote.AllNodes(len(e.Nodes))
		}
		w.began = e.Now - clock.Instant(waited)
		assert.That(t, w.mayReserve(), "they are not reserved after %v", waited)
		assert.That(t, w.reserved.Sub(e.Now).Round(time.Millisecond) == 2*e.Opts.RetryEvery, "they are for %v",
			w.reserved.Sub(e.Now))
	}
}

// Each row is what becomes of a hand-over's message. Strangers may have sent it.
func TestTake(t *testing.T) {
	e := bare(t)
	news := e.Wakeable(nil)
	w := &standby{Wakeable: &news}
	f := e.handovers
	f.since[1] = 3
	e.voters.servers.Lives[2] = &node.Life{ID: "server"}
	stands := func(owner, secret string, to *standby) *offer {
		c := claim.Claim{Lock: claim.Lock{Name: "x"}, Owner: owner, Wait: node.Wait{Secret: secret}}
		o := &offer{Claim: c, start: 2, to: to}
		f.byOwner[owner] = o
		return o
	}
	stands("valid", "secret", w)
	stands("resumed", "", nil)
	revoked := stands("revoked", "secret", nil)
	life := e.voters.servers.Lives[2]
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

// A waiter leaves a name to listeners while its caller waits.
func TestYieldingEndsWithTheWait(t *testing.T) {
	e := bare(t)
	c := &claim.Claim{Lock: claim.Lock{Name: "x"}}
	before := &queue.Tenant{Claim: c}
	e.queues.Register(before)
	e.queues.Hear(c, node.Line{Others: true}, time.Hour)
	e.queues.Vacate(before, e.Now)
	w := e.waiter(t.Context(), &claim.Want{Lock: c.Lock, Wait: 100 * time.Millisecond, Lease: time.Second})
	w.run()
	if w.phase != phaseYielding || w.until != e.Now.Add(100*time.Millisecond) {
		t.Errorf("phase %d for %v", w.phase, w.until.Sub(e.Now))
	}
}

// An abandoned attempt is under way until the nodes have decided it, as they execute it
// all the same. That teaches as much as any other.
func TestAbandonedAttemptsAreUnderWay(t *testing.T) {
	e := bare(t)
	w := e.waiter(t.Context(), &claim.Want{Lock: claim.Lock{Name: "x"}, Wait: -1, Lease: time.Second})
	all := room(e)
	w.run()
	r := w.round
	e.Now = e.Now.Add(time.Millisecond)
	w.stopped = context.Canceled
	w.run()
	assert.That(t, w.phase == phaseOver && room(e) == all-1, "when its caller gives up: phase %d, room for %d", w.phase,
		room(e))
	e.Now = e.Now.Add(time.Second)
	for i := range 2 {
		r.receive(i, node.Reply{Status: node.Granted})
	}
	assert.Equal(t, room(e), all, "when it is decided: room")
	assert.That(t, e.attempts.Patience(time.Minute) < 59*time.Second, "it teaches nothing")
}
