package sim

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A resource is one register for each name. If fenced, it remembers the highest token
// that it has seen, and refuses lower ones.
type resource struct {
	w         *world
	registers []register // by the number of the name
	history   []*access  // in the order in which they were taken, since before
	before    []register // what they were then

	passes map[node.Token][]pass // the program may show any token that it has
	// grants that became known after the next one: the lock was unlocked by force between
	late map[int]bool
}

type pass struct {
	c    *Client
	name string
	h    *holder // nil if the client was never granted the name
}

func (p pass) grant() int {
	if p.h == nil {
		return 0
	}
	return p.h.grant
}

type register struct {
	value int
	token node.Token
	grant int        // the latest holder that has written
	wrote node.Token // of the latest write

	reader int  // the latest reader that does not share the register
	read   int  // what it has read
	open   bool // somebody has written without a token
}

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

	updates bool // a write by a holder that has read before
	read    int  // what it has read
}

// Read reads the register of name with the token of a lease, or with 0 for none. ok is
// false if the resource refused the token.
//
// A register should have the name of the lock that protects it; a lock of several names
// protects several registers. A register with another name may have only one lock: the
// checker knows its holder by the token alone.
func (c *Client) Read(name string, token node.Token) (value int, ok bool) {
	p := c.pass(name, token)
	a := c.access(name, token, p.grant(), 0, false, p.h != nil && p.h.mode == node.Read, 0)
	return a.value, a.ok
}

// Write writes the register of name with a token: see [Client.Read].
//
// A program must hold the lock when it calls Write, unless the resource is fenced and the
// call has a token: only then is a late write refused. Otherwise the write violates I15,
// whatever the faults. A write that is in flight when the lease ends is no violation.
// That does not make it safe in production: see the package's documentation.
func (c *Client) Write(name string, token node.Token, value int) (ok bool) {
	p := c.pass(name, token)
	if token == 0 || !c.w.p.Lock.Fence {
		c.w.check.writes(c, name, token, p)
	}
	return c.access(name, token, p.grant(), value, true, false, 0).ok
}

// pass returns the grant of a token, preferably one of this client, or without a token
// the client's latest grant.
func (c *Client) pass(name string, token node.Token) (best pass) {
	if token == 0 {
		return pass{c: c, name: name, h: c.grants[name]}
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

func (c *Client) access(name string, token node.Token, grant, value int, write, shares bool,
	longer time.Duration) *access {
	w := c.w
	a := &access{c: c, write: write, name: w.number(name), token: token, value: value, shares: shares, sent: w.now,
		grant: grant, signal: &signal{owner: c}}
	w.plan(w.now+int64(longer+c.links[0].random.Within(w.p.Network.Delay)), evWrite, a, 0)
	a.signal.Wait(context.Background(), clock.Never)
	return a
}

func (c *Client) grantOf(name string) int { return pass{h: c.grants[name]}.grant() }

func (r *resource) take(a *access) {
	w := r.w
	for len(r.registers) <= a.name {
		r.registers = append(r.registers, register{})
	}
	reg := &r.registers[a.name]
	w.stir(evWrite, uint64(a.c.number)<<16^uint64(a.value), uint64(a.token))
	a.ok = !w.p.Lock.Fence || a.token == 0 || a.token >= reg.token
	if a.ok {
		if !a.shares { // of readers' tokens none says anything about another
			reg.token = max(reg.token, a.token)
		}
		switch {
		case a.write:
			if a.grant < reg.grant && !(r.late[reg.grant] && a.token > reg.wrote) {
				w.stale(a)
			}
			reg.open = reg.open || a.token == 0
			a.updates, a.read = a.grant > 0 && a.grant == reg.reader && !reg.open, reg.read
			if a.updates {
				reg.reader = 0
			}
			reg.grant, reg.wrote = max(reg.grant, a.grant), a.token
			reg.value = a.value
		default:
			a.value = reg.value
			if !a.shares {
				reg.reader, reg.read = a.grant, a.value
			}
		}
	} else {
		w.sometimes(WriteRefused)
		if a.shares {
			w.check.turnedAway(a)
		}
	}
	w.logAccess(a)
	a.back = w.now + int64(a.c.links[0].random.Within(w.p.Network.Delay))
	w.plan(a.back, evAnswer, a, 0)
	if !w.p.Lock.Fence {
		return
	}
	if r.history = append(r.history, a); len(r.history) == maxHistory {
		r.linearizable()
	}
}
