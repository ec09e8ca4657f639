package chaos

import (
	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/faults"
)

// A server with appendfsync always waits for its disk before it answers, and does nothing
// meanwhile. Its clients see a delay of all its answers, and that is how plans put it.

// slowDisk reports whether a fault has the answers of nodes to all clients come late.
func slowDisk(e *faults.Event) bool {
	return e.Verb == faults.Delay && e.Links.Clients == faults.All && e.Links.Way == faults.From
}

// slowDisks returns the nodes whose disks are slow. There are none if the plan heals
// links, perhaps one of those that are late, or fills disks: that ends a server with
// appendfsync always.
func slowDisks(p *faults.Plan) (nodes faults.Set) {
	for i := range p.Events {
		switch e := &p.Events[i]; {
		case slowDisk(e):
			nodes |= e.Links.Nodes
		case e.Verb == faults.Heal || e.Verb == faults.Full && e.Mode == faults.Disk:
			return 0
		}
	}
	return nodes
}

func (h *host) slowDisk() bool { return h.w.slowDisks&h.nodes != 0 }

// waitForDisk begins or ends a fault that makes the host's disk slow, or a block, during
// which it hangs. Then the server hangs as soon as it writes, so there is one write here.
// h.mu is held.
func (h *host) waitForDisk(e *faults.Event, end bool) {
	switch {
	case !end && e.Verb == faults.Block:
		h.fsync, h.fsyncBy = faults.Range{Min: e.For, Max: e.For}, e
		defer func() {
			go h.admin(func(c *redis.Client) error { return c.Set(h.w.ctx, ownKey, "hangs", 0).Err() })
		}()
	case !end:
		h.fsync, h.fsyncBy = e.Range, e
	case h.fsyncBy == e:
		h.fsync, h.fsyncBy = faults.Range{}, nil
	}
	_ = h.face.slowDisk(h.fsync)
}

// ownKey is of writes that no client has sent. No lock has this name.
const ownKey = "redquorum-chaos"
