package core

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
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
		go e.serve()
		defer e.shut()
		for others, stays := range map[int]bool{maxSweeps - 1: false, maxSweeps: true} {
			name := fmt.Sprint(others)
			s := &Want{Claim: Claim{Claim: node.Claim{Name: name}}, Wait: -1, Lease: 30 * time.Second}
			h := assert.Got(e.acquire(context.Background(), s, nil))(t)
			nd.Hang(true)
			e.read(func() { e.releases.open += others })
			_ = h.BeginUnlock(node.Exclusive).Wait(context.Background())
			synctest.Wait()
			e.read(func() { e.releases.open -= others })
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
		f.leaseEnds(&Claim{Claim: node.Claim{Owner: owner}})
		if n := len(f.revoked); n != want || len(f.byOwner) != want || f.revoked[n-1].Owner != owner {
			t.Fatalf("%d are remembered, %d by owner, want %d", n, len(f.byOwner), want)
		}
	}
}

// Each row is what a limiter, full or not, does with a waiter.
func TestLimiter(t *testing.T) {
	const full = firstAttempts
	for _, row := range []struct {
		says          string
		underWay      int
		wait          time.Duration // of the caller
		closed, leave bool          // what happens while it waits
		passed        time.Duration
		want          phase
		left          int // attempts under way afterwards
	}{
		{says: "an attempt may begin below the bound", underWay: full - 1, wait: -1, want: phaseAsking, left: full},
		{says: "one above the bound waits", underWay: full, wait: -1, want: phaseOutside, left: full},
		{says: "until another ends, and takes its room", underWay: full, wait: -1, leave: true, want: phaseAsking,
			left: full},
		{says: "it waits for no longer than its caller", underWay: full, wait: time.Second, passed: time.Second,
			want: phaseOver, left: full},
		{says: "it waits no longer than the Locker is open", underWay: full, wait: -1, closed: true, want: phaseOver,
			left: full},
		{says: "TryLock waits", underWay: full, passed: 400 * time.Millisecond, want: phaseOutside, left: full},
		{says: "but leaves an attempt its time", underWay: full, passed: 430 * time.Millisecond, want: phaseOver,
			left: full},
		{says: "the end of an attempt above the bound makes no room", underWay: full + 1, wait: time.Second,
			leave: true, want: phaseOutside, left: full},
	} {
		e := bare(t)
		e.attempts.underWay, e.attempts.quickest = row.underWay, 10*time.Millisecond
		w := e.waiter(t.Context(), &Want{Claim: Claim{Claim: node.Claim{Name: "x"}}, Wait: row.wait,
			Lease: 2 * time.Second})
		w.run()
		if row.leave {
			e.attempts.leave(e.now)
		}
		e.now = e.now.Add(row.passed)
		e.closed = row.closed
		w.run()
		assert.That(t, w.phase == row.want && e.attempts.underWay == row.left &&
			(e.attempts.outside.first != nil) == (row.want == phaseOutside),
			"%s: phase %d, with %d attempts, and a waiter left: %v", row.says, w.phase, e.attempts.underWay,
			e.attempts.outside.first != nil)
	}
}

// A trial is a limiter with the time, and an attempt that it admits.
type trial struct {
	*engine
	t *testing.T
}

func (l trial) waiter() *waiter {
	return l.engine.waiter(l.t.Context(), &Want{Claim: Claim{Claim: node.Claim{Name: "x"}}, Wait: -1,
		Lease: time.Second})
}

// attempts makes n attempts that begin now and take the same time.
func (l trial) attempts(n int, took time.Duration, answered bool) {
	start := l.now
	l.attempt(n)
	l.now = l.now.Add(took)
	for range n {
		l.engine.attempts.ends(start, l.now, answered)
	}
}

func (l trial) attempt(n int) {
	for range n {
		l.engine.attempts.enter(&l.waiter().entry, l.now)
	}
}

// rounds makes as many attempts at a time as there may be, n times.
func (l trial) rounds(n int, took time.Duration) {
	for range n {
		l.attempts(l.engine.attempts.most(), took, true)
	}
}

// Each row is the bound after some attempts.
func TestLimiterLearns(t *testing.T) {
	const quick, queue = 10 * time.Millisecond, 50 * time.Millisecond
	for _, row := range []struct {
		says string
		do   func(l trial)
		want int
	}{
		{"it begins with few", func(trial) {}, firstAttempts},
		// until so many are left
		{"and with more in each round without a queue", func(l trial) { l.rounds(1, quick) }, 11},
		{"up to a bound", func(l trial) { l.rounds(40, quick) }, maxAttempts},
		{"but not unused", func(l trial) {
			for range 1000 {
				l.attempts(2, quick, true)
			}
		}, firstAttempts},
		{"it rises slowly while there is a short queue", func(l trial) { l.rounds(1, quick); l.rounds(4, quick+standing/3) }, 12},
		{"and not while it is longer", func(l trial) { l.rounds(1, quick); l.rounds(20, quick+standing*2/3) }, 11},
		{"one slow attempt says nothing", func(l trial) { l.rounds(6, quick); l.rounds(1, time.Second) }, 53},
		{"nor does a pause of all nodes", func(l trial) {
			l.rounds(12, quick)
			l.rounds(1, 420*time.Millisecond)
			l.rounds(20, quick)
		}, maxAttempts},
		{"all that are slow for a while do", func(l trial) { l.rounds(12, quick); l.rounds(4, queue) }, 151},
		{"if they began after the bound was lowered", func(l trial) {
			l.rounds(12, quick)
			l.rounds(4, queue)
			for range 1000 {
				l.now = l.now.Add(time.Millisecond)
				l.engine.attempts.learn(0, l.now, true)
			}
		}, 151},
		{"but not if one of them was quick", func(l trial) {
			l.rounds(12, quick)
			l.rounds(2, queue)
			l.attempts(1, quick, true)
			l.rounds(1, queue)
		}, 303},
		{"nor if the nodes are far away", func(l trial) { l.rounds(40, 10*queue) }, maxAttempts},
		{"a queue leaves some", func(l trial) { l.rounds(12, quick); l.rounds(40, queue) }, firstAttempts},
		{"a long one fewer", func(l trial) { l.rounds(12, quick); l.rounds(40, 4*queue) }, leastAttempts},
		{"until it is short", func(l trial) {
			l.rounds(12, quick)
			l.rounds(40, 4*queue)
			l.rounds(20, quick+standing*2/3)
		}, firstAttempts},
		{"where the nodes are further than they were it is the least for a moment", func(l trial) {
			l.rounds(12, quick)
			for i := 0; l.engine.attempts.probing == 0 && i < 300; i++ {
				l.rounds(1, queue)
			}
		}, leastAttempts},
		{"and rises then", func(l trial) { l.rounds(12, quick); l.rounds(250, queue) }, maxAttempts},
		{"nodes that are down say nothing", func(l trial) {
			for range 10 {
				l.attempts(8, 0, false)
			}
			l.rounds(40, queue)
		}, maxAttempts},
		{"nodes that do not answer do", func(l trial) {
			l.rounds(12, quick)
			for range 2 {
				l.attempts(500, time.Second, false)
			}
		}, 151},
		{"what was long ago does not", func(l trial) { l.rounds(20, quick); l.now = l.now.Add(knownFor); l.attempt(1) }, firstAttempts},
	} {
		l := trial{bare(t), t}
		row.do(l)
		assert.Equal(t, l.engine.attempts.most(), row.want, row.says)
	}
}

// Outside it is first come, first served. When one has given up the last is next, and
// each eighth time the first.
func TestOrderOutside(t *testing.T) {
	for gaveUp, want := range map[bool]string{false: "0 1 2 3 4 5 6 7 8 9", true: "11 10 9 8 7 6 5 0 4 3"} {
		l := trial{bare(t), t}
		l.attempt(firstAttempts)
		numbers := make(map[*waiter]int)
		for i := range 12 {
			w := l.waiter()
			numbers[w] = i
			l.engine.attempts.enter(&w.entry, l.now)
		}
		if gaveUp {
			w := l.waiter()
			l.engine.attempts.enter(&w.entry, l.now)
			l.engine.attempts.forget(&w.entry, l.now)
		}
		var order []string
		for range 10 {
			l.engine.attempts.leave(l.now)
		}
		for _, w := range l.ready {
			order = append(order, fmt.Sprint(numbers[w.(*waiter)]))
		}
		assert.Equal(t, strings.Join(order, " "), want, "the order if one gave up: ", gaveUp)
		first := l.engine.attempts.outside.first.w.looks
		l.ready = nil
		l.engine.attempts.leave(l.now.Add(knownFor))
		assert.That(t, l.ready[0] == first, "later the first is not the next")
	}
}

// An attempt begins only if its caller has the time that it needs.
func TestAttemptsBeginInTime(t *testing.T) {
	const quick, queue = 10 * time.Millisecond, 20 * time.Millisecond
	const needs, long = quick + 2*queue, time.Hour
	for _, row := range []struct {
		says          string
		underWay      int
		first, second time.Duration // that the callers of two have left
		enters        bool          // the first, if there is room
		next          string        // who begins if there is none, and another ends
	}{
		{"the first begins", 4, needs, long, true, "first"},
		{"if it has the time; otherwise the last does", 4, needs - 1, needs, false, "second"},
		{"none may have it", 4, needs - 1, needs - 1, false, ""},
		{"but some are to be under way", leastAttempts, needs - 1, long, false, "first"},
		{"however little time they have", leastAttempts - 1, 1, 1, true, "first"},
	} {
		l := trial{bare(t), t}
		m := &l.engine.attempts
		m.quickest, m.usual = quick, quick+queue
		caller := func(left time.Duration) *waiter {
			w := l.waiter()
			w.leaves = l.now.Add(left)
			return w
		}
		m.underWay = row.underWay
		assert.Equal(t, m.enter(&caller(row.first).entry, l.now), row.enters, row.says)
		m.outside, m.bound, m.underWay = line[*entry]{}, leastAttempts, max(row.underWay, leastAttempts)
		both := map[string]*waiter{"first": caller(row.first), "second": caller(row.second)}
		m.enter(&both["first"].entry, l.now)
		m.enter(&both["second"].entry, l.now)
		m.bound = float64(m.underWay)
		m.leave(l.now)
		next := ""
		for name, w := range both {
			if w.let {
				next = name
			}
		}
		assert.Equal(t, next, row.next, row.says)
	}
}

// bare is an engine whose effects nobody carries out.
func bare(t *testing.T) *engine {
	t.Helper()
	var nodes []node.Node
	for i := range 3 {
		nodes = append(nodes, model.New(clock.Runtime(), fmt.Sprint("n", i+1)))
	}
	e := newEngine(&Config{Nodes: nodes, Need: 2, Opts: usual(), Clock: clock.Runtime(), UUID: "u"}, &nobody{})
	e.enter()
	return e
}

func usual() Rules {
	return Rules{MaxLease: 30 * time.Second, Drift: 0.01, Timeout: 500 * time.Millisecond, RetryEvery: time.Second,
		FenceRetention: 24 * time.Hour, Random: rand.Uint64}
}

// nobody is above an engine, and only wants to hear of events.
type nobody struct{ heard func(Event) }

func (*nobody) Explain(f Failure) error {
	if f.Cause != nil {
		return fmt.Errorf("%w: %w", f.Err, f.Cause)
	}
	return f.Err
}
func (*nobody) Stopped(ctx context.Context) error                       { return ctx.Err() }
func (n *nobody) Observes() bool                                        { return n.heard != nil }
func (n *nobody) Observe(x Event)                                       { n.heard(x) }
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
		w.began = e.now - clock.Instant(waited)
		assert.That(t, w.mayReserve(), "they are not reserved after %v", waited)
		assert.That(t, w.reserved.Sub(e.now).Round(time.Millisecond) == 2*e.Opts.RetryEvery, "they are for %v",
			w.reserved.Sub(e.now))
	}
}

// Each row is what becomes of a hand-over's message. Strangers may have sent it.
func TestTake(t *testing.T) {
	e := bare(t)
	w := &standby{wakeable: &wakeable{machine: &e.machine}}
	f := e.handovers
	f.since[1] = 3
	e.voters.servers.Lives[2] = &node.Life{ID: "server"}
	stands := func(owner, secret string, to *standby) *offer {
		c := Claim{Claim: node.Claim{Name: "x", Owner: owner}, wait: node.Wait{Secret: secret}}
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
	e.queues.listeners["x"] = listeners{released: e.now, need: 10 * time.Second}
	w := e.waiter(t.Context(), &Want{Claim: Claim{Claim: node.Claim{Name: "x"}}, Wait: time.Second, Lease: time.Second})
	w.run()
	if w.phase != phaseYielding || w.spot.at != e.now.Add(time.Second) {
		t.Errorf("phase %d for %v", w.phase, w.spot.at.Sub(e.now))
	}
}

// The number of contended names that a Locker remembers is bounded.
func TestContentionIsForgotten(t *testing.T) {
	q := bare(t).queues
	for i := range 10 * maxContended {
		q.noteContention(&Claim{Claim: node.Claim{Name: fmt.Sprint(i)}}, true)
		assert.Must(t, len(q.contended) <= maxContended, "%d names", len(q.contended))
	}
}

// An abandoned attempt is under way until the nodes have decided it, as they execute it
// all the same. That teaches as much as any other.
func TestAbandonedAttemptsAreUnderWay(t *testing.T) {
	l := trial{bare(t), t}
	w := l.waiter()
	w.run()
	r, m := w.round, &l.engine.attempts
	l.now = l.now.Add(time.Millisecond)
	w.stopped = context.Canceled
	w.run()
	assert.That(t, w.phase == phaseOver && m.underWay == 1, "when its caller gives up: phase %d, %d attempts", w.phase,
		m.underWay)
	l.now = l.now.Add(time.Second)
	for i := range 2 {
		r.receive(i, node.Reply{Status: node.Granted})
	}
	assert.That(t, m.underWay == 0 && m.quickest > time.Second, "when it is decided: %d attempts, and one takes %v",
		m.underWay, m.quickest)
}
