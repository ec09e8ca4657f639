package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
)

// Each row is a rule of who may ask the nodes, among those in one process that want a
// name.
func TestQueueAdmits(t *testing.T) {
	plain, fair, several := claim.Want{Wait: -1}, claim.Want{Wait: -1, Fair: true}, claim.Want{Wait: -1}
	several.Names = []string{"x", "y"}
	other := several
	other.Names = []string{"w", "x"}
	reader, writer, try, tryRead := claim.Want{Wait: -1}, claim.Want{Wait: -1}, claim.Want{}, claim.Want{}
	reader.Mode, writer.Mode, tryRead.Mode = node.Read, node.Write, node.Read
	for _, row := range []struct {
		says  string
		held  node.Mode // by a lease here, if taken
		taken bool
		queue []claim.Want // waiters before it
		asks  claim.Want
		want  bool
	}{
		{says: "the only waiter asks", asks: plain, want: true},
		{says: "a second waiter does not", queue: []claim.Want{plain}, asks: plain},
		{says: "a waiter behind a holder does not", taken: true, asks: plain},
		{says: "a fair waiter does, for it needs a place", taken: true, asks: fair, want: true},
		{says: "a waiter for several names does, too", taken: true, asks: several, want: true},
		{says: "a reader behind a reader asks", queue: []claim.Want{reader}, asks: reader, want: true},
		{says: "a reader behind a holder that reads asks", taken: true, held: node.Read, asks: reader, want: true},
		{says: "a writer behind a reader that waits does not", queue: []claim.Want{reader}, asks: writer},
		{says: "a writer behind a holder that reads does, to keep new readers out", taken: true, held: node.Read,
			asks: writer, want: true},
		{says: "a writer behind a holder that writes does not", taken: true, held: node.Write, asks: writer},
		{says: "a reader behind a writer that waits does not", queue: []claim.Want{writer}, asks: reader},
		{says: "a waiter for several names blocks nobody", queue: []claim.Want{several}, asks: plain, want: true},
		{says: "a waiter for several names is blocked by one for this name alone", queue: []claim.Want{reader},
			asks: several},
		{says: "it is blocked by an earlier one with the same first name", queue: []claim.Want{several}, asks: several},
		{says: "and not by one with another first name", queue: []claim.Want{other}, asks: several, want: true},
		{says: "of many readers the first ask", queue: slices.Repeat([]claim.Want{reader}, mostAsking-1), asks: reader,
			want: true},
		{says: "and no more", queue: slices.Repeat([]claim.Want{reader}, mostAsking), asks: reader},
		{says: "TryLock does not look at waiters", queue: []claim.Want{plain, fair}, asks: try, want: true},
		{says: "TryLock looks at holders", taken: true, asks: try},
		{says: "TryLock of a reader yields to a writer that waits", queue: []claim.Want{writer}, asks: tryRead},
	} {
		q := New(time.Second)
		if row.taken {
			q.at("x").enter(&Tenant{Claim: new(claim.Claim), Mode: row.held})
		}
		w := newcomer(row.asks)
		for _, s := range row.queue {
			q.Join(newcomer(s))
		}
		if row.asks.Wait != 0 {
			q.Join(w)
		}
		assert.Equal(t, q.at("x").admits(w), row.want, row.says)
	}
}

// A stirred waiter has news.
type stirred bool

func (s *stirred) Stir() { *s = true }

// newcomer is a waiter for x, or for the names of s.
func newcomer(s claim.Want) *Member {
	s.Name = "x"
	if s.Names != nil {
		s.Name = s.Names[0]
	}
	return &Member{Waiter: new(stirred), Request: &s}
}

// In any order of waiters and holders, each waiter that may ask has been admitted or was
// just woken, and nothing is left of unused names.
func TestQueuesForgetNobody(t *testing.T) {
	kinds := []claim.Want{{Wait: -1}, {Wait: -1, Fair: true}, {Wait: -1}, {Wait: -1}, {Wait: -1}, {Wait: -1}}
	kinds[2].Mode, kinds[3].Mode = node.Read, node.Write
	kinds[4].Names, kinds[5].Names = []string{"x", "y"}, []string{"w", "x", "y"}
	rapid.Check(t, func(rt *rapid.T) {
		q, t := New(time.Second), rt
		var waiting []*Member
		var holding []*Tenant
		mayAsk := func(w *Member) bool {
			for name := range w.Request.Each() {
				if !q.at(name).admits(w) {
					return false
				}
			}
			return true
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch what := rapid.IntRange(0, 3).Draw(t, "what"); {
			case what == 0 || len(waiting) == 0:
				w := newcomer(rapid.SampledFrom(kinds).Draw(t, "kind"))
				q.Join(w)
				waiting = append(waiting, w)
				w.Waiter.Stir() // it looks whether it may ask
			case what == 1 && len(holding) > 0:
				i := rapid.IntRange(0, len(holding)-1).Draw(t, "holder")
				q.Vacate(holding[i], 0)
				holding = slices.Delete(holding, i, i+1)
			default:
				i := rapid.IntRange(0, len(waiting)-1).Draw(t, "waiter")
				w := waiting[i]
				if mayAsk(w) && what == 2 && !slices.ContainsFunc(holding, func(h *Tenant) bool { // it is granted
					return h.Claim.Covers(&w.Request.Lock) && (h.Mode != node.Read || w.Request.Mode != node.Read)
				}) && (w.Request.Mode == node.Read || !slices.ContainsFunc(slices.Collect(w.Request.Each()), func(n string) bool { return q.at(n).isHeld() })) {
					h := &Tenant{Claim: &claim.Claim{Lock: w.Request.Lock}, Mode: w.Request.Mode}
					for name := range h.Claim.Each() {
						q.at(name).enter(h)
					}
					holding = append(holding, h)
				}
				q.Leave(w)
				waiting = slices.Delete(waiting, i, i+1)
			}
			assert.Must(t, len(holding) != 0 || len(waiting) == 0 || slices.ContainsFunc(waiting, mayAsk),
				"%d wait for nothing", len(waiting))
			for _, w := range waiting {
				if news := w.Waiter.(*stirred); *news { // then it looks
					*news, w.admitted = false, mayAsk(w)
				} else if mayAsk(w) && !w.admitted {
					t.Fatalf("a waiter for %s, %v, may ask and was not woken", w.Request.Title(), w.Request.Mode)
				}
			}
		}
		for _, w := range waiting {
			q.Leave(w)
		}
		for _, h := range holding {
			q.Vacate(h, 0)
		}
		for name, at := range q.byName {
			if !at.isHeld() && at.alone.First == nil && at.reading.First == nil && at.several.First == nil {
				q.advance(name, at) // mayAsk makes queues
			}
		}
		assert.Must(t, len(q.byName) == 0 && len(q.listeners) == 0, "%d queues are left", len(q.byName))
	})
}

// The number of contended names that a Locker remembers is bounded.
func TestContentionIsForgotten(t *testing.T) {
	q := New(time.Second)
	for i := range 10 * maxContended {
		q.NoteContention(&claim.Lock{Name: fmt.Sprint(i)}, true)
		assert.Must(t, len(q.contended) <= maxContended, "%d names", len(q.contended))
	}
}

// Of two holders in one process the one with the lower token is over, also when the other
// was known before it.
func TestALateGrantIsOver(t *testing.T) {
	tenant := func(token node.Token) *Tenant {
		return &Tenant{Claim: &claim.Claim{Lock: claim.Lock{Name: "x"}, Owner: fmt.Sprint(token), Token: token}}
	}
	for _, row := range []struct{ first, second, over node.Token }{{1, 2, 1}, {2, 1, 1}} {
		q := New(time.Second)
		assert.That(t, q.Register(tenant(row.first)) == nil, "the first is over")
		over := q.Register(tenant(row.second))
		assert.Must(t, len(over) == 1 && over[0].Claim.Token == row.over, "%+v: %v is over", row, over)
	}
}
