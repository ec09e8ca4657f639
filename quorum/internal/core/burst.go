package core

import (
	"sync"

	"github.com/redquorum/redquorum/node"
)

// A burster is a node that has several answers at once: begin is called before them, and
// end when all are given.
type burster interface {
	Bursts(begin, end func()) (stop func())
}

// bursts are the answers of nodes that have several at once. They are taken in one step,
// which is cheaper than one for each, and what follows from them goes out together.
type bursts struct {
	mu    sync.Mutex
	under []int    // by node: how many are under way
	came  []answer // in these
	spare []answer
	stops []func()
}

// An answer is the reply of a node to a round.
type answer struct {
	to   *Round
	node int
	with node.Reply
}

// maxBurst bounds the answers of one step: a lease may be about to end.
const maxBurst = 100

// join has the nodes tell of bursts. Options.Steps is to have a line for each answer.
func (e *rounds) join() {
	b := &e.bursts
	b.under = make([]int, len(e.Nodes))
	for i, n := range e.Nodes {
		if n, ok := n.(burster); ok && e.Opts.Steps == nil {
			b.stops = append(b.stops, n.Bursts(func() { b.begin(i) }, func() { e.take(b.end(i)) }))
		}
	}
}

// leave ends what join began.
func (b *bursts) leave() {
	for _, stop := range b.stops {
		stop()
	}
}

func (b *bursts) begin(i int) {
	b.mu.Lock()
	b.under[i]++
	b.mu.Unlock()
}

// keep keeps an answer that is part of a burst. Otherwise it reports false.
func (b *bursts) keep(a answer) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.under[a.node] == 0 {
		return false
	}
	b.came = append(b.came, a)
	return true
}

// end returns what has come, also in other bursts.
func (b *bursts) end(i int) (came []answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.under[i]--
	came, b.came, b.spare = b.came, b.spare, nil
	return came
}

// take takes answers, in one step if they are not too many.
func (e *rounds) take(came []answer) {
	if len(came) == 0 {
		return
	}
	e.Enter()
	for i, a := range came {
		if i > 0 && i%maxBurst == 0 {
			e.Leave()
			e.Enter()
		}
		a.to.receive(a.node, a.with)
	}
	e.Leave()
	clear(came)
	e.bursts.mu.Lock()
	e.bursts.spare = came[:0]
	e.bursts.mu.Unlock()
}
