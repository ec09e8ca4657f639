package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A resource is what the locks protect: one register for each name. If the plan
// has it fenced it remembers the highest token that it has seen, and refuses
// lower ones.
type resource struct {
	w         *world
	registers []register // by the number of the name
	history   []*access  // in the order in which they were taken

	passes map[node.Token][]pass // of the caller's program, which shows any that it has
}

// A pass is what a token was granted for.
type pass struct {
	c      *Client
	name   string
	grant  int
	shares bool
}

type register struct {
	value int
	token node.Token
	grant int // the latest holder that has written
}

// An access is one request to the resource, and its answer.
type access struct {
	c      *Client
	write  bool
	name   int
	token  node.Token
	grant  int
	value  int
	shares bool // it is one of several readers
	sent   int64
	back   int64 // when the answer reaches the client

	ok     bool
	signal *signal
}

// Read reads the register of name under the token of a lease, or under none, which is
// 0. It is false if the resource refused the token.
//
// A register has the name of the lock that protects it, so that a lock of several names
// protects as many. Where it has not, the token alone says who comes later: then no two
// locks may protect it.
func (c *Client) Read(name string, token node.Token) (value int, ok bool) {
	p := c.pass(name, token)
	a := c.access(name, token, p.grant, 0, false, p.shares, 0)
	return a.value, a.ok
}

// Write writes the register of name under a token: see [Client.Read].
func (c *Client) Write(name string, token node.Token, value int) (ok bool) {
	return c.access(name, token, c.pass(name, token).grant, value, true, false, 0).ok
}

// pass returns what the program was granted whose token it shows for name: of its own
// client, unless another has handed the lease on. Without a token it is the client's
// latest grant of name.
func (c *Client) pass(name string, token node.Token) (best pass) {
	if token == 0 {
		return pass{grant: c.grantOf(name)}
	}
	fits := -1
	for _, p := range c.w.store.passes[token] {
		n := 0
		if p.name == name {
			n += 2
		}
		if p.c == c {
			n++
		}
		if n > fits {
			best, fits = p, n
		}
	}
	return best
}

// access sends a request about a grant, which takes so much longer than others,
// and waits for the answer.
func (c *Client) access(name string, token node.Token, grant, value int, write, shares bool, longer time.Duration) *access {
	w := c.w
	a := &access{c: c, write: write, name: w.number(name), token: token, value: value, shares: shares, sent: w.now,
		grant: grant, signal: &signal{owner: c}}
	w.plan(w.now+int64(longer+c.links[0].random.within(w.p.Network.Delay)), evWrite, a, 0)
	a.signal.Wait(context.Background(), clock.Never)
	return a
}

// grantOf returns the client's latest grant of name.
func (c *Client) grantOf(name string) int {
	if h := c.grants[name]; h != nil {
		return h.grant
	}
	return 0
}

func (r *resource) take(a *access) {
	w := r.w
	for len(r.registers) <= a.name {
		r.registers = append(r.registers, register{})
	}
	reg := &r.registers[a.name]
	w.stir(evWrite, uint64(a.c.number), uint64(a.token))
	a.ok = !w.p.Lock.Fence || a.token == 0 || a.token >= reg.token
	if a.ok {
		if !a.shares { // of readers' tokens none says anything about another
			reg.token = max(reg.token, a.token)
		}
		if a.write {
			if a.grant < reg.grant {
				w.stale(a)
			}
			reg.grant = max(reg.grant, a.grant)
			reg.value = a.value
		} else {
			a.value = reg.value
		}
	} else {
		w.sometimes(WriteRefused)
		if a.shares {
			w.check.turnedAway(a)
		}
	}
	w.logAccess(a)
	at := w.now + int64(a.c.links[0].random.within(w.p.Network.Delay))
	if len(r.history) < maxHistory {
		a.back = at
		r.history = append(r.history, a)
	}
	w.plan(at, evAnswer, a, 0)
}

// stale notes that a write was accepted after one of a later holder.
func (w *world) stale(a *access) {
	if !w.p.Lock.Fence || a.token == 0 {
		w.breaks(brokenBy(w.p))
	}
	w.fail("I5", fmt.Sprintf("%s writes to %q after a later holder has", a.c.name, w.names[a.name]))
}

// maxHistory bounds what is checked for linearizability.
const maxHistory = 400

// registers is the resource as porcupine's model: a register with a fence for
// each name.
var registerModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		var parts [][]porcupine.Operation
		for _, op := range history {
			n := op.Input.(*access).name
			for len(parts) <= n {
				parts = append(parts, nil)
			}
			parts[n] = append(parts[n], op)
		}
		return parts
	},
	Init: func() any { return register{} },
	Step: func(state, input, output any) (bool, any) {
		reg := state.(register)
		ok := reg.step(input.(*access))
		return ok, reg
	},
}

// step carries an access out as a fenced register should, and reports whether
// its answer is the right one.
func (reg *register) step(a *access) bool {
	if a.ok != (a.token == 0 || a.token >= reg.token) {
		return false
	}
	if !a.ok {
		return true
	}
	if !a.shares {
		reg.token = max(reg.token, a.token)
	}
	if a.write {
		reg.value = a.value
		return true
	}
	return a.value == reg.value
}

// linearizable checks the history of a fenced resource. As a rule the order in
// which the accesses were taken explains all answers; then there is no need to
// look for another.
func (r *resource) linearizable() {
	if !r.w.p.Lock.Fence || r.inOrder() {
		return
	}
	operations := make([]porcupine.Operation, len(r.history))
	for i, a := range r.history {
		operations[i] = porcupine.Operation{ClientId: a.c.number, Input: a, Call: a.sent, Output: a, Return: a.back}
	}
	if porcupine.CheckOperationsTimeout(registerModel, operations, time.Second) == porcupine.Illegal {
		r.w.fail("I5", "the resource's history is not linearizable")
	}
}

// inOrder reports whether the answers are right for the order of the history.
func (r *resource) inOrder() bool {
	registers := make([]register, len(r.registers))
	for _, a := range r.history {
		if !registers[a.name].step(a) {
			return false
		}
	}
	return true
}
