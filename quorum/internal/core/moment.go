package core

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// A moment is when a step takes place.
type moment struct {
	now       clock.Instant
	zero      time.Time     // the time of day at instant 0, by the last reading
	readAgain clock.Instant // when it is read again: it may be set, and reading it costs a tenth of a step
}

// wall is the time of day. Only tokens and the log use it.
func (m *moment) wall() time.Time { return m.zero.Add(time.Duration(m.now)) }

func (m *moment) byBothClocks() vote.BothClocks { return vote.BothClocks{Now: m.now, Wall: m.wall()} }

// tokens are those of a Locker, made and judged at the moment of the step.
type tokens struct {
	*moment
	maker vote.Tokens
}

func (t *tokens) next(above node.Token) (node.Token, bool) {
	return t.maker.Next(t.byBothClocks(), above)
}
func (t *tokens) saw(fence node.Token)           { t.maker.Saw(t.byBothClocks(), fence) }
func (t *tokens) farAhead(token node.Token) bool { return t.maker.FarAhead(t.byBothClocks(), token) }
