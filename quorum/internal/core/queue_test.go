package core

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
)

// Each row is a rule of who may ask the nodes, among those in one process that want a
// name.
func TestQueueAdmits(t *testing.T) {
	plain, fair, several := Want{Wait: -1}, Want{Wait: -1, Fair: true}, Want{Wait: -1}
	several.Names = []string{"x", "y"}
	other := several
	other.Names = []string{"w", "x"}
	reader, writer, try, tryRead := Want{Wait: -1}, Want{Wait: -1}, Want{}, Want{}
	reader.Mode, writer.Mode, tryRead.Mode = node.Read, node.Write, node.Read
	for _, row := range []struct {
		says  string
		held  node.Mode // by a lease here, if taken
		taken bool
		queue []Want // waiters before it
		asks  Want
		want  bool
	}{
		{says: "the only waiter asks", asks: plain, want: true},
		{says: "a second waiter does not", queue: []Want{plain}, asks: plain},
		{says: "a waiter behind a holder does not", taken: true, asks: plain},
		{says: "a fair waiter does, for it needs a place", taken: true, asks: fair, want: true},
		{says: "a waiter for several names does, too", taken: true, asks: several, want: true},
		{says: "a reader behind a reader asks", queue: []Want{reader}, asks: reader, want: true},
		{says: "a reader behind a holder that reads asks", taken: true, held: node.Read, asks: reader, want: true},
		{says: "a writer behind a reader that waits does not", queue: []Want{reader}, asks: writer},
		{says: "a writer behind a holder that reads does, to keep new readers out", taken: true, held: node.Read,
			asks: writer, want: true},
		{says: "a writer behind a holder that writes does not", taken: true, held: node.Write, asks: writer},
		{says: "a reader behind a writer that waits does not", queue: []Want{writer}, asks: reader},
		{says: "a waiter for several names blocks nobody", queue: []Want{several}, asks: plain, want: true},
		{says: "a waiter for several names is blocked by one for this name alone", queue: []Want{reader},
			asks: several},
		{says: "it is blocked by an earlier one with the same first name", queue: []Want{several}, asks: several},
		{says: "and not by one with another first name", queue: []Want{other}, asks: several, want: true},
		{says: "of many readers the first ask", queue: slices.Repeat([]Want{reader}, mostAsking-1), asks: reader,
			want: true},
		{says: "and no more", queue: slices.Repeat([]Want{reader}, mostAsking), asks: reader},
		{says: "TryLock does not look at waiters", queue: []Want{plain, fair}, asks: try, want: true},
		{says: "TryLock looks at holders", taken: true, asks: try},
		{says: "TryLock of a reader yields to a writer that waits", queue: []Want{writer}, asks: tryRead},
	} {
		q := bare(t).queues
		if row.taken {
			q.at("x").enter(&tenant{mode: row.held})
		}
		w := newcomer(q, row.asks)
		for _, s := range row.queue {
			q.join(newcomer(q, s))
		}
		if row.asks.Wait != 0 {
			q.join(w)
		}
		assert.Equal(t, q.at("x").admits(w), row.want, row.says)
	}
}

// newcomer is a waiter for x, or for the names of s.
func newcomer(q *queues, s Want) *member {
	s.Name = "x"
	if s.Names != nil {
		s.Name = s.Names[0]
	}
	return &member{wakeable: &wakeable{machine: &q.machine}, request: &s}
}

// In any order of waiters and holders, each waiter that may ask has been admitted or was
// just woken, and nothing is left of unused names.
func TestQueuesForgetNobody(t *testing.T) {
	kinds := []Want{{Wait: -1}, {Wait: -1, Fair: true}, {Wait: -1}, {Wait: -1}, {Wait: -1}, {Wait: -1}}
	kinds[2].Mode, kinds[3].Mode = node.Read, node.Write
	kinds[4].Names, kinds[5].Names = []string{"x", "y"}, []string{"w", "x", "y"}
	rapid.Check(t, func(rt *rapid.T) {
		q, t := bare(t).queues, rt
		var waiting []*member
		var holding []*tenant
		mayAsk := func(w *member) bool {
			for name := range w.request.Each() {
				if !q.at(name).admits(w) {
					return false
				}
			}
			return true
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch what := rapid.IntRange(0, 3).Draw(t, "what"); {
			case what == 0 || len(waiting) == 0:
				w := newcomer(q, rapid.SampledFrom(kinds).Draw(t, "kind"))
				q.join(w)
				waiting = append(waiting, w)
				w.stir() // it looks whether it may ask
			case what == 1 && len(holding) > 0:
				i := rapid.IntRange(0, len(holding)-1).Draw(t, "holder")
				q.vacate(holding[i])
				holding = slices.Delete(holding, i, i+1)
			default:
				i := rapid.IntRange(0, len(waiting)-1).Draw(t, "waiter")
				w := waiting[i]
				if mayAsk(w) && what == 2 && !slices.ContainsFunc(holding, func(h *tenant) bool { // it is granted
					return h.Claim.covers(&w.request.Claim) && (h.mode != node.Read || w.request.Mode != node.Read)
				}) && (w.request.Mode == node.Read || !slices.ContainsFunc(slices.Collect(w.request.Each()), func(n string) bool { return q.at(n).isHeld() })) {
					h := &tenant{Claim: w.request.Claim, mode: w.request.Mode}
					for name := range h.Claim.Each() {
						q.at(name).enter(h)
					}
					holding = append(holding, h)
				}
				q.leave(w)
				waiting = slices.Delete(waiting, i, i+1)
			}
			assert.Must(t, len(holding) != 0 || len(waiting) == 0 || slices.ContainsFunc(waiting, mayAsk),
				"%d wait for nothing", len(waiting))
			for _, w := range waiting {
				if w.ready { // then it looks
					w.ready, w.admitted = false, mayAsk(w)
				} else if mayAsk(w) && !w.admitted {
					t.Fatalf("a waiter for %s, %v, may ask and was not woken", w.request.Title(), w.request.Mode)
				}
			}
		}
		for _, w := range waiting {
			q.leave(w)
		}
		for _, h := range holding {
			q.vacate(h)
		}
		for name, at := range q.byName {
			if !at.isHeld() && at.alone.first == nil && at.reading.first == nil && at.several.first == nil {
				q.advance(name, at) // mayAsk makes queues
			}
		}
		assert.Must(t, len(q.byName) == 0 && len(q.listeners) == 0, "%d queues are left", len(q.byName))
	})
}
