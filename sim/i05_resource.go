package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
)

const i5 = "resource: no write is accepted after one of a later holder; the history of a fenced resource is linearizable, where a holder's read and write are one operation"

// stale reports a write after one of a later holder. A resource without fencing breaks an
// assumption.
func (w *world) stale(a *access) {
	switch lock := &w.p.Lock; {
	case lock.Fence && a.token != 0:
	case lock.Client == faults.Plain:
		w.breaks("the resource checks fencing tokens, and textbook Redlock has none")
	default:
		w.breaks("the resource checks fencing tokens")
	}
	w.fail("I5", "%s writes to %q after a later holder has", a.c.name, w.names[a.name])
}

func (k *checker) turnedAway(a *access) {
	for _, h := range k.holders {
		if h.grant == a.grant && h.token == a.token && h.believed() {
			if k.w.broken == "" && !k.excused(h) {
				k.w.fail("I5", "%s reads %q, and the resource refuses its token", h.c.name, h.name)
			}
		}
	}
}

// maxHistory is how many accesses are checked at a time. A longer history is checked in
// parts, each from what the registers are by then.
const maxHistory = 400

type fence struct {
	value int
	token node.Token
}

// step carries an access out as a fenced register, and reports whether its answer is
// right. A holder updates the value that it has read: nobody else has written since.
func (f *fence) step(a *access) bool {
	if a.ok != (a.token == 0 || a.token >= f.token) {
		return false
	}
	if !a.ok {
		return true
	}
	if !a.shares {
		f.token = max(f.token, a.token)
	}
	if a.write {
		known := !a.updates || a.read == f.value
		f.value = a.value
		return known
	}
	return a.value == f.value
}

func (f fence) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return f },
		Step: func(state, input, _ any) (bool, any) {
			f := state.(fence)
			ok := f.step(input.(*access))
			return ok, f
		},
	}
}

// linearizable checks the history as clients see it: when they sent each request, and
// when they got which answer.
func (r *resource) linearizable() {
	byName := make([][]*access, len(r.registers))
	for _, a := range r.history {
		byName[a.name] = append(byName[a.name], a)
	}
	for i, history := range byName {
		var f fence
		if i < len(r.before) {
			f = fence{r.before[i].value, r.before[i].token}
		}
		if !f.explains(history) {
			r.w.fail("I5", "no order of what was read of %q and written to it explains all answers", r.w.names[i])
			return
		}
	}
	r.before, r.history = slices.Clone(r.registers), r.history[:0]
}

// maxSearch bounds the search for an order. At one instant there may be too many; then
// the history passes.
const maxSearch = 100 * time.Millisecond

func (f fence) explains(history []*access) bool {
	slices.SortStableFunc(history, func(a, b *access) int { return cmp.Compare(a.sent, b.sent) })
	together, last := false, int64(-1)
	for _, a := range history {
		together, last = together || a.sent <= last, max(last, a.back)
	}
	if !together { // then there is one order only
		return !slices.ContainsFunc(history, func(a *access) bool { return !f.step(a) })
	}
	operations := make([]porcupine.Operation, len(history))
	for i, a := range history {
		operations[i] = porcupine.Operation{ClientId: a.c.number, Input: a, Call: a.sent, Output: a, Return: a.back}
	}
	return porcupine.CheckOperationsTimeout(f.model(), operations, maxSearch) != porcupine.Illegal
}
