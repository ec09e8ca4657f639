package vote

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

type BothClocks struct {
	Now  clock.Instant
	Wall time.Time // only tokens use it
}

type Tokens struct {
	Retention time.Duration // of fences: how far clocks may differ
	last      int64         // the highest token made
	lead      int64         // microseconds by which the highest fence seen is ahead of the monotonic clock here
}

// Next makes a token from the wall clock, above every token that this Locker has made and
// above the given one. So tokens rise even if all nodes have forgotten theirs. A given
// token that is far ahead does not raise later tokens of other names. Next fails only
// when the 53 bits are used up.
func (t *Tokens) Next(at BothClocks, above node.Token) (node.Token, bool) {
	if t.FarAhead(at, above) {
		return above + 1, above < node.MaxToken
	}
	token := max(at.Wall.UnixMicro(), at.micros()+t.lead, t.last+1, int64(above)+1)
	if token > int64(node.MaxToken) {
		return 0, false
	}
	t.last = token
	return node.Token(token), true
}

// Saw learns from a fence that another client's clock is ahead, so that the next tokens
// need not be refused first.
//
// The lead is relative to the monotonic clock. A wall clock that is set forward and back
// would count the lead again each time, and tokens would run away from all clocks.
func (t *Tokens) Saw(at BothClocks, fence node.Token) {
	if !t.FarAhead(at, fence) {
		t.lead = max(t.lead, int64(fence)-at.micros())
	}
}

// FarAhead reports whether a token is further ahead than clocks may differ. Somebody
// wrote it, or a clock was far off; it concerns its own name alone.
func (t *Tokens) FarAhead(at BothClocks, token node.Token) bool {
	return int64(token) > at.Wall.UnixMicro()+t.Retention.Microseconds()
}

// micros is the monotonic clock in the unit of tokens.
func (at BothClocks) micros() int64 { return int64(at.Now) / 1000 }
