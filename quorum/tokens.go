package quorum

import (
	"sync/atomic"

	"github.com/redquorum/redquorum/node"
)

// tokens makes the fencing tokens of a Locker. Any task may use it at any time.
type tokens struct {
	*config
	last atomic.Int64 // the highest token made
	lead atomic.Int64 // microseconds by which the highest fence seen is ahead of the monotonic clock here
}

// next makes a token from the wall clock, above every token that this Locker has made
// and above the given one. So tokens rise even if all nodes have forgotten theirs. A
// given token that is far ahead does not raise later tokens of other names. next fails
// only when the 53 bits are used up.
func (t *tokens) next(above node.Token) (node.Token, bool) {
	if t.farAhead(above) {
		return above + 1, above < node.MaxToken
	}
	now := max(t.clock.Wall().UnixMicro(), t.micros()+t.lead.Load())
	for {
		last := t.last.Load()
		token := max(now, last+1, int64(above)+1)
		if token > int64(node.MaxToken) {
			return 0, false
		}
		if t.last.CompareAndSwap(last, token) {
			return node.Token(token), true
		}
	}
}

// saw learns from a fence that another client's clock is ahead, so that
// the next tokens need not be refused first.
//
// The lead is relative to the monotonic clock. A wall clock may be set forward and
// back; the lead would then be counted again each time, and tokens would run away from
// all clocks.
func (t *tokens) saw(fence node.Token) {
	if t.farAhead(fence) {
		return
	}
	d := int64(fence) - t.micros()
	for {
		lead := t.lead.Load()
		if d <= lead || t.lead.CompareAndSwap(lead, d) {
			return
		}
	}
}

// farAhead reports whether a token is further ahead than clocks may differ. Somebody
// wrote it, or a clock was far off; it concerns its own name alone.
func (t *tokens) farAhead(token node.Token) bool {
	return int64(token) > t.clock.Wall().UnixMicro()+t.opts.FenceRetention.Microseconds()
}

// micros reads the monotonic clock in the unit of tokens.
func (t *tokens) micros() int64 { return int64(t.clock.Now()) / 1000 }
