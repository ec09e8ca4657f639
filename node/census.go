package node

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// An Uptime is what a server says of its life: its run_id, and for how long it
// has run, in whole seconds of its time of day.
type Uptime struct {
	ID string
	Up time.Duration

	// Promoted is empty unless the server was a replica in this life, or is one. Each
	// promotion has a value of its own.
	Promoted string
	// Master is for how long, at least, a promoted server has been a master, in whole
	// seconds of its time of day. It is 0 if nobody knows.
	Master time.Duration
}

// A Census is what one client knows of the lives of the servers behind a node:
// of one, or of a cluster's masters. The zero Census knows nothing. Its methods
// must not be called at the same time.
type Census struct {
	life    *Life
	born    []origin      // those of the servers, as of the last handshake
	contact clock.Instant // when a reply of life came last
}

// An origin is what began the life of one server.
type origin struct {
	id, promoted string
	at           clock.Instant
}

// Life returns the present life, or nil.
func (c *Census) Life() *Life { return c.life }

// Heard notes that the present life has answered a command.
func (c *Census) Heard(now clock.Instant) { c.contact = now }

// Distrust notes that a server behind the node has answered as a replica does. If it is a
// master again it may have forgotten everything, with the same run_id: when it is met
// next its life counts from then on.
func (c *Census) Distrust() { c.born = nil }

// Take learns from a handshake what all servers said at now, and returns the
// life that they make together: as old as the youngest. If they said nothing it
// returns nil, and all that was known is forgotten.
func (c *Census) Take(servers []Uptime, now clock.Instant) *Life {
	if len(servers) == 0 {
		*c = Census{}
		return nil
	}
	born := make([]origin, 0, len(servers))
	ids := make([]string, 0, len(servers))
	latest := clock.Instant(math.MinInt64) // an instant of before our own start is negative
	for _, s := range servers {
		at := c.judge(s, now)
		born = append(born, origin{s.ID, s.Promoted, at})
		ids = append(ids, s.ID)
		latest = max(latest, at)
	}
	slices.Sort(ids)
	c.life = &Life{ID: strings.Join(ids, "+"), Born: latest}
	c.born = born
	c.contact = now
	return c.life
}

// judge returns the latest instant at which the life of s can have begun, given
// what it said at now.
//
// A server computes its uptime from whole seconds of the time of day, so the
// true one may be a second less.
//
// A promotion begins a life, too: what the server holds is a copy of another's locks.
//
// A life that began before the last word of the life that it follows is no
// restart: either another server has taken over, and what it holds is a copy
// that may lack the newest locks, or the server's clock was set. Both ways
// nothing older than this moment can be trusted.
func (c *Census) judge(s Uptime, now clock.Instant) clock.Instant {
	for _, before := range c.born {
		if before.id == s.ID && (s.Promoted == "" || s.Promoted == before.promoted) {
			return before.at
		}
	}
	age := s.Up
	if s.Promoted != "" {
		age = min(age, s.Master)
	}
	born := now.Add(-max(0, age-time.Second))
	if c.life != nil && born < c.contact {
		return now
	}
	return born
}
