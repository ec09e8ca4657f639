package quorum

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A moment is when a step takes place.
type moment struct {
	now       clock.Instant
	zero      time.Time     // the time of day at instant 0, by the last reading
	readAgain clock.Instant // when it is read again: it may be set, and reading it costs a tenth of a step
}

// wall is the time of day. Only tokens and the log use it.
func (m *moment) wall() time.Time { return m.zero.Add(time.Duration(m.now)) }

// tokens makes the fencing tokens of a Locker.
type tokens struct {
	*config
	*moment
	last int64 // the highest token made
	lead int64 // microseconds by which the highest fence seen is ahead of the monotonic clock here
}

// next makes a token from the wall clock, above every token that this Locker has made
// and above the given one. So tokens rise even if all nodes have forgotten theirs. A
// given token that is far ahead does not raise later tokens of other names. next fails
// only when the 53 bits are used up.
func (t *tokens) next(above node.Token) (node.Token, bool) {
	if t.farAhead(above) {
		return above + 1, above < node.MaxToken
	}
	token := max(t.wall().UnixMicro(), t.micros()+t.lead, t.last+1, int64(above)+1)
	if token > int64(node.MaxToken) {
		return 0, false
	}
	t.last = token
	return node.Token(token), true
}

// saw learns from a fence that another client's clock is ahead, so that
// the next tokens need not be refused first.
//
// The lead is relative to the monotonic clock. A wall clock may be set forward and
// back; the lead would then be counted again each time, and tokens would run away from
// all clocks.
func (t *tokens) saw(fence node.Token) {
	if !t.farAhead(fence) {
		t.lead = max(t.lead, int64(fence)-t.micros())
	}
}

// farAhead reports whether a token is further ahead than clocks may differ. Somebody
// wrote it, or a clock was far off; it concerns its own name alone.
func (t *tokens) farAhead(token node.Token) bool {
	return int64(token) > t.wall().UnixMicro()+t.opts.FenceRetention.Microseconds()
}

// micros is the monotonic clock in the unit of tokens.
func (t *tokens) micros() int64 { return int64(t.now) / 1000 }
