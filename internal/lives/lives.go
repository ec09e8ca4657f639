// Package lives learns from servers' words since when they live.
package lives

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// An Uptime is what a server says of its life: its run_id, and for how long it has run,
// in whole seconds of its wall clock.
type Uptime struct {
	ID string
	Up time.Duration

	// Promoted is empty unless the server was a replica in this life. Each promotion has
	// its own value.
	Promoted string
	// Master is how long a promoted server has been a master at least, in whole seconds
	// of its wall clock; 0 if unknown.
	Master time.Duration
}

// A Tracker knows the lives of the servers behind a node: one server, or all masters of a
// cluster. The zero Tracker is ready. It is not safe for concurrent use.
type Tracker struct {
	life    *node.Life
	born    []origin      // those of the servers, as of the last handshake
	contact clock.Instant // when a reply of life came last
}

type origin struct {
	id, promoted string
	at           clock.Instant
}

func (t *Tracker) Life() *node.Life { return t.life }

func (t *Tracker) Answered(now clock.Instant) { t.contact = now }

// Invalidate notes that a server behind the node is or was a replica. As a master again
// it may have lost everything, with the same run_id, so the next handshake begins a new
// life.
func (t *Tracker) Invalidate() { t.born = nil }

// Handshake takes what all servers said at now, and returns their common life, as old as
// the youngest. If they said nothing it forgets everything and returns nil.
func (t *Tracker) Handshake(servers []Uptime, now clock.Instant) *node.Life {
	if len(servers) == 0 {
		*t = Tracker{}
		return nil
	}
	born := make([]origin, 0, len(servers))
	ids := make([]string, 0, len(servers))
	latest := clock.Instant(math.MinInt64) // an instant before this process started is negative
	for _, s := range servers {
		at := t.judge(s, now)
		born = append(born, origin{s.ID, s.Promoted, at})
		ids = append(ids, s.ID)
		latest = max(latest, at)
	}
	slices.Sort(ids)
	t.life = &node.Life{ID: strings.Join(ids, node.LivesTogether), Born: latest}
	t.born = born
	t.contact = now
	return t.life
}

// judge returns the latest instant at which the life of s can have begun, given what it
// said at now. The uptime is in whole seconds of the wall clock, so the true one may be a
// second less.
//
// A promotion begins a life, too: the server then has a copy of another server's locks.
//
// If a life seems to begin before the last answer of the life before it, another server
// has taken over, with a copy that may lack the newest locks, or the server's clock was
// set. Then nothing older than now is trusted.
func (t *Tracker) judge(s Uptime, now clock.Instant) clock.Instant {
	for _, before := range t.born {
		if before.id == s.ID && (s.Promoted == "" || s.Promoted == before.promoted) {
			return before.at
		}
	}
	age := s.Up
	if s.Promoted != "" {
		age = min(age, s.Master)
	}
	born := now.Add(-max(0, age-time.Second))
	if t.life != nil && born < t.contact {
		return now
	}
	return born
}
