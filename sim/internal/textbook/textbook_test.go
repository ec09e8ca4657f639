package textbook_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/sim/internal/textbook"
)

// A generous node grants everything, from its own goroutine.
type generous struct{}

func (generous) Ask(_ textbook.Op, _ node.Command, answer func(node.Reply)) {
	go answer(node.Reply{Status: node.Granted})
}

func (generous) Watch(string, node.Mode, func()) (stop func()) { return func() {} }

// All answers count, also if the last comes before the first is looked at.
func TestRoundCountsAllAnswers(t *testing.T) {
	p := faults.New(5, 1)
	p.Lock.Timeout = time.Hour
	b := &textbook.Client{Plan: p, Clock: clock.System(), Draw: rand.Uint64, Below: rand.IntN, Nodes: make([]textbook.Node, 5)}
	for i := range b.Nodes {
		b.Nodes[i] = generous{}
	}
	for range 2000 {
		_, err := b.Lock(t.Context(), "x", time.Minute, false)
		assert.Succeed(t, err)
	}
}
