package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	goredislib "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
)

// A place is where a client's process is: in a bubble, or on real servers.
type place struct {
	plan   *faults.Plan
	clock  clock.Clock
	life   context.Context
	random *drawer                  // of what the lock draws, where it lets its user choose
	nodes  []reach                  // that the client was configured with
	all    int                      // how many nodes there are
	holder func(name string) string // whose key there is, by the latest command of this client
}

// A reach is how a client gets to a node.
type reach struct {
	addr string
	db   int
	dial func(ctx context.Context) (net.Conn, error) // nil: over TCP
}

// A drawer draws numbers for several goroutines.
type drawer struct {
	mu     sync.Mutex
	random faults.Random
}

func newDrawer(p *faults.Plan, client, start int) *drawer {
	return &drawer{random: p.Stream(faults.OfEngine, client+start*faults.MaxClients)}
}

func (d *drawer) Uint64() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.random.Next()
}

// redis is a client of go-redis for a node, as it is by default but for where it dials.
func (p *place) redis(to reach) *goredislib.Options {
	o := &goredislib.Options{Addr: to.addr, DB: to.db}
	if to.dial != nil {
		// Those hold a mutex while they wait for the network, for which virtual time waits.
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return to.dial(ctx) }
	}
	return o
}

// patient is redis for locks that leave timeouts to their client: those of the plan.
func (p *place) patient(to reach) *goredislib.Options {
	o, timeout := p.redis(to), p.plan.Lock.Timeout
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled = timeout, timeout, timeout, true
	return o
}

// until is an instant of the client's clock.
func (p *place) until(t time.Time) clock.Instant { return p.clock.Now().Add(time.Until(t)) }

// place is where a client of the world is.
func (w *world) place(client int, life context.Context, start int) *place {
	p := &place{plan: w.p, clock: w.clock, life: life, random: newDrawer(w.p, client, start), all: len(w.nodes),
		holder: func(name string) string { return w.holder(client, name) }}
	for _, n := range w.listed(client) {
		link := w.links[client][n]
		// An address of its own, since a name would be looked up.
		p.nodes = append(p.nodes, reach{fmt.Sprintf("127.0.0.%d:6379", n+1), w.nodes[n].db,
			func(ctx context.Context) (net.Conn, error) { return link.dial(ctx, life) }})
	}
	return p
}
