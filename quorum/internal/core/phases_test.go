package core

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/machine"
)

var phaseNames = [...]string{"queueing", "yielding", "outside", "asking", "confirming", "lingering", "pausing", "over"}

func (p phase) String() string { return phaseNames[p] }

// A drive takes one waiter through its phases. The nodes do what it says.
type drive struct {
	*engine
	w      *waiter
	holder *Hold
}

func newDrive(t *testing.T) *drive {
	d := &drive{engine: bare(t)}
	d.Above.(*nobody).heard = func(machine.Event) {}
	d.holder = held(d.engine)
	d.w = d.waiter(t.Context(), &claim.Want{Lock: claim.Lock{Name: "x"}, Wait: 10 * time.Second,
		Lease: 30 * time.Second})
	d.w.run()
	return d
}

func (d *drive) answer(status node.Status, nodes ...int) {
	for _, i := range nodes {
		if r := d.w.round; r != nil {
			r.receive(i, node.Reply{Status: status, TTL: time.Second, Life: &node.Life{ID: string(rune('a' + i)),
				Born: d.Now.Add(-time.Hour)}})
		}
	}
	d.Settle()
}

// held is a lease of x.
func held(e *engine) *Hold {
	g := Grant{Claim: claim.Claim{Lock: claim.Lock{Name: "x"}, Owner: "other"}, start: e.Now, lease: 25 * time.Second}
	return e.admit(context.Background(), g, &claim.Want{Lease: 30 * time.Second})
}

func (d *drive) to(p phase) {
	if p == phaseYielding {
		d.queues.Hear(&d.holder.Claim, node.Line{Others: true}, time.Hour)
	}
	if p == phaseOutside {
		begin(d.engine, room(d.engine))
	}
	if p == phaseQueueing {
		return
	}
	d.holder.end(stateOver, ErrNotHeld)
	d.holder.vacate()
	d.Settle()
	switch p {
	case phaseConfirming:
		d.answer(node.Granted, 0, 1)
	case phaseLingering:
		d.answer(node.Refused, 0, 1)
	case phasePausing:
		d.answer(node.Refused, 0, 1, 2)
	case phaseOver:
		d.answer(node.Granted, 0, 1, 2)
	}
}

// A hand-over that is given back revokes earlier offers, too: a late node may hand the
// lock over to one of these.
func TestEarlierOffersAreRevoked(t *testing.T) {
	d := newDrive(t)
	for _, owner := range []string{"first", "second"} {
		d.handovers.offer(&d.w.standby, claim.Claim{Lock: claim.Lock{Name: "x"}, Owner: owner}, d.Now)
	}
	d.w.handed = []handover{{0, node.Turn{Name: "x", Owner: node.Offer("second"), Token: 7}}}
	d.w.returnHandovers(true, "")
	assert.Equal(t, len(d.w.offers), 0, "offers are left")
	assert.That(t, d.handovers.byOwner[node.Offer("first")].to == nil, "the earlier one is accepted")
}

// phases.md says what becomes of a waiter in every phase with every input, and with which
// effects.
func TestPhases(t *testing.T) {
	inputs := []struct {
		says string
		do   func(*drive)
	}{
		{"its holder here leaves", func(d *drive) { d.holder.end(stateOver, ErrNotHeld); d.holder.vacate() }},
		{"the third node grants", func(d *drive) { d.answer(node.Granted, 2) }},
		{"all nodes grant", func(d *drive) { d.answer(node.Granted, 0, 1, 2) }},
		{"all nodes call it first", func(d *drive) {
			d.handovers.waiters["w"] = &d.w.standby
			for i := range 3 {
				d.handovers.hear(i, node.Turn{Name: "x", Waiter: "w"})
			}
		}},
		{"all nodes hand over to it", func(d *drive) {
			d.handovers.offer(&d.w.standby, claim.Claim{Lock: claim.Lock{Name: "x"}, Owner: "o",
				Wait: node.Wait{Secret: "s"}}, d.Now)
			for i := range 3 {
				server := string(rune('a' + i))
				d.handovers.hear(i, node.Turn{Name: "x", Owner: node.Offer("o"), Token: 7, Server: server,
					Proof: node.ProofOf("s", 7, server), Life: &node.Life{ID: server, Born: d.Now.Add(-time.Hour)}})
			}
		}},
		{"its own time passes", func(d *drive) {
			if d.w.until != clock.Never {
				d.Now = d.w.until
				d.w.run()
			}
		}},
		{"the caller's time passes", func(d *drive) { d.Now = d.w.deadline; d.w.run() }},
		{"the caller's context ends", func(d *drive) { d.w.stopped = context.Canceled; d.w.run() }},
		{"the Locker is closed", func(d *drive) { d.Closed = true; d.w.Stir() }},
	}
	rows := []phase{phaseQueueing, phaseYielding, phaseOutside, phaseAsking, phaseConfirming, phaseLingering,
		phasePausing}
	var table [][]string
	for _, from := range rows {
		row := []string{from.String()}
		for _, in := range inputs {
			d := newDrive(t)
			if d.to(from); d.w.phase != from {
				t.Fatalf("%v was not reached, but %v", from, d.w.phase)
			}
			before := len(d.Effects(0))
			in.do(d)
			d.Settle()
			row = append(row, becomes(from, d.w.phase, d.engine, before))
		}
		table = append(table, row)
	}
	var says []string
	for _, in := range inputs {
		says = append(says, in.says)
	}
	compareTable(t, "A waiter", says, table)
}

// becomes says where something is now, and the effects.
func becomes(from, to fmt.Stringer, e *engine, before int) string {
	text := to.String()
	if from == to {
		text = "-"
	}
	var did []string
	for _, what := range e.Effects(before) {
		switch {
		case what == "set the alarm":
			continue
		case strings.HasPrefix(what, "send"):
			_, command, _ := strings.Cut(what, ": ")
			kind, _, _ := strings.Cut(command, " ")
			what = "send " + kind
		case what == "wake a caller":
			what = "wake the caller"
		}
		if !slices.Contains(did, what) {
			did = append(did, what)
		}
	}
	if did != nil {
		text += ": " + strings.Join(did, ", ")
	}
	return text
}

func compareTable(t *testing.T, heading string, says []string, table [][]string) {
	t.Helper()
	want := fmt.Sprintf("## %s\n\n| |", heading)
	for i := range table {
		want += " " + table[i][0] + " |"
	}
	want += "\n|---|" + strings.Repeat("---|", len(table)) + "\n"
	for k, input := range says {
		want += "| " + input + " |"
		for i := range table {
			want += " " + table[i][1+k] + " |"
		}
		want += "\n"
	}
	page := string(assert.Got(os.ReadFile("phases.md"))(t))
	assert.That(t, strings.Contains(page, want), "phases.md lacks this table:\n%s", want)
}

func (s state) String() string { return [...]string{"held", "lost", "kept", "over"}[s] }

// phases.md says what becomes of a hold in every state with every input, and with which
// effects.
func TestStates(t *testing.T) {
	inputs := []struct {
		says string
		do   func(*Hold)
	}{
		{"an inner lease is unlocked", func(h *Hold) { h.leases++; h.unlock(node.Exclusive) }},
		{"the last lease is unlocked", func(h *Hold) { h.unlock(node.Exclusive) }},
		{"it is unlocked after its minimum hold", func(h *Hold) { h.e.Now = h.keptUntil(); h.unlock(node.Exclusive) }},
		{"its minimum hold is over", func(h *Hold) { h.e.Now = h.keptUntil(); h.fire() }},
		{"its time is over", func(h *Hold) { h.e.Now = h.until; h.isOver(); h.fire() }},
		{"a quorum extends it", func(h *Hold) { _ = h.confirm(h.e.Now, time.Second) }},
		{"a majority has lost it", func(h *Hold) { h.lose(ErrLost) }},
		{"it is detached", func(h *Hold) {
			if !h.isOver() {
				h.part()
			}
		}},
		{"the Locker is closed", func(h *Hold) {
			if h.end(stateOver, ErrClosed) {
				h.letGo()
			}
		}},
	}
	var table [][]string
	for _, from := range []state{stateHeld, stateLost, stateKept, stateOver} {
		row := []string{from.String()}
		for _, in := range inputs {
			e := bare(t)
			e.Above.(*nobody).heard = func(machine.Event) {}
			s := &claim.Want{Lock: claim.Lock{Name: "x"}, Lease: 30 * time.Second,
				Keep: 20 * time.Second}
			s.Fixed = true
			g := Grant{Claim: claim.Claim{Lock: s.Lock, Owner: "o", Token: 1}, start: e.Now, lease: 10 * time.Second}
			h := e.admit(t.Context(), g, s)
			h.bind(&machine.Dependent{Context: t.Context(), Cancel: func(error) { e.Then("end its contexts", func() {}) }})
			switch from {
			case stateLost:
				h.lose(ErrLost)
			case stateKept:
				h.unlock(node.Exclusive)
			case stateOver:
				h.end(stateOver, ErrClosed)
			}
			e.Settle()
			assert.Must(t, h.state == from, "%v was not reached, but %v", from, h.state)
			before := len(e.Effects(0))
			in.do(h)
			e.Settle()
			assert.That(t, (h.why == nil) == (h.state == stateHeld), "%v, and %s: %v (%v)", from, in.says, h.state,
				h.why)
			row = append(row, becomes(from, h.state, e, before))
		}
		table = append(table, row)
	}
	var says []string
	for _, in := range inputs {
		says = append(says, in.says)
	}
	compareTable(t, "A hold", says, table)
}
