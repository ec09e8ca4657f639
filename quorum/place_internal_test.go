package quorum

import (
	"slices"
	"testing"
	"time"
)

// How many waiters are queued on a node that does not answer is unknown.
func TestThoseBeforeAreCountedOnAMajority(t *testing.T) {
	for _, test := range []struct {
		ballots []ballot
		want    int
	}{
		{[]ballot{{ahead: 3}, {ahead: 1}, {ahead: 2}}, 2},
		{[]ballot{{ahead: 3}, {}, {}}, 0},
		{[]ballot{{ahead: 3}, {vote: voteUnknown}, {}}, 3},
		{[]ballot{{ahead: 3}, {vote: voteAbstaining}, {ahead: 1}}, 3},
	} {
		f := findings{ballots: test.ballots}
		if got := f.before(2); got != test.want {
			t.Errorf("of %+v: %d, want %d", test.ballots, got, test.want)
		}
	}
}

// A waiter for several names reserves them when it was first for each of them: for as long as it
// has waited for each name after the first, but never for long; and not again before it was
// first for each of them once more.
func TestReservationsAreBounded(t *testing.T) {
	e := bare(t)

	w := &waiter{e: e, began: e.now, reserved: e.now, calledFirstFor: make([]nodeSet, 3)}
	check := func(what string, told []nodeSet, want time.Duration) {
		t.Helper()
		copy(w.calledFirstFor, told)
		if may := w.mayReserve(); may != (want > 0) || may && w.reserved.Sub(e.now) != want {
			t.Errorf("%s: %v, until %v from now, want %v", what, may, w.reserved.Sub(e.now), want)
		}
		e.now = e.now.Add(want)
	}
	all, short := []nodeSet{0b011, 0b110, 0b111}, []nodeSet{0b011, 0b110, 0b001}
	e.now = e.now.Add(100 * time.Millisecond)
	check("not told", nil, 0)
	check("told by too few", short, 0)
	check("told", all, 200*time.Millisecond)
	check("not told again", nil, 0)
	e.now = e.now.Add(time.Hour)
	check("told late", all, 2*e.opts.RetryEvery)
	check("not told any more", slices.Repeat([]nodeSet{0}, 3), 0)
}
