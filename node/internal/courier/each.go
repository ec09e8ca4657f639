package courier

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

const (
	// eachLeast is the least size of a group: from then on one script for all costs a server
	// less than one for each.
	eachLeast = 3

	// eachMost bounds what a server does without a pause, to about a quarter of a
	// millisecond.
	eachMost = 64

	// eachName is the length of the longest name in a group: with names of megabytes it could
	// exceed the gigabyte that a server accepts for one command.
	eachName = 1 << 10

	// apartFor is for how long there are no groups after a server has refused one for lack of
	// a right, or because it belongs to a cluster.
	apartFor = time.Second
)

// groups reports whether c can be in a group. Names like those of fences or queues are excluded:
// they may be keys of another lock of the group.
func (c *call) groups() bool {
	return (c.kind == node.Acquire || c.kind == node.Release) && c.mode == node.Exclusive && !c.wait.Queued() &&
		len(c.claims) == 1 && !c.apart && len(c.claims[0].Name) <= eachName && !strings.HasPrefix(c.claims[0].Name, "redquorum_")
}

// alike reports whether one script can execute both calls, which can each be in a group.
func (c *call) alike(other *call) bool {
	return c.kind == other.kind && c.ttl == other.ttl && c.retention == other.retention
}

// gather puts calls that can be a group next to each other, and sets the size of the group in
// the first of them. Only calls of different names change places, as these are independent.
func (s *server) gather(batch []*call) {
	for len(batch) > 0 {
		n := s.distinct(batch)
		for rest := batch[:n]; len(rest) > 0; {
			n := 1
			for i, c := range rest {
				if i > 0 && c.alike(rest[0]) {
					rest[n], rest[i] = c, rest[n]
					n++
				}
			}
			if n >= s.least && rest[0].groups() {
				rest[0].together = n
			}
			rest = rest[n:]
		}
		batch = batch[n:]
	}
}

// distinct is how many calls at the head of batch have different names and can each be in a
// group; it is 1 if the first cannot.
func (s *server) distinct(batch []*call) int {
	clear(s.names)
	for i, c := range batch[:min(len(batch), eachMost)] {
		if !c.groups() {
			return max(i, 1)
		}
		if s.names[c.claims[0].Name] = struct{}{}; len(s.names) == i {
			return i
		}
	}
	return min(len(batch), eachMost)
}

// refusedTogether reports whether err, the answer to a group, may concern one call only: then
// each is sent by itself. s.mu is held.
func (s *server) refusedTogether(err error, now clock.Instant) bool {
	if err == nil || lacksScript(err) {
		return false
	}
	switch err := serverError(err); {
	case errors.Is(err, node.ErrReadOnly): // a replica must be noticed at once
		return false
	case errors.Is(err, node.ErrAuth), errors.Is(err, node.ErrUnsupported):
		s.apart = now.Add(apartFor)
	}
	return true
}

// part is the result of the i-th of n calls in a group.
func (r result) part(i, n int) result {
	if r.err != nil {
		return r
	}
	list, _ := r.val.([]any)
	if len(list) != n {
		return result{}
	}
	if err, ok := list[i].(error); ok {
		return result{err: err}
	}
	return result{val: list[i]}
}

// appendEach appends the Redis command of a group to out, as append does for one call.
func (t *stream) appendEach(calls []*call, life string) {
	w, n, one := &t.out, len(calls), calls[0]
	script, keys, args := acquireEachScript, 2*n, 2+2*n
	if one.kind == node.Release {
		script, keys, args = releaseEachScript, 3*n, 2+4*n
	}
	w.run(script, t.lacks(script) || slices.ContainsFunc(calls, func(c *call) bool { return c.asText }), keys, args)
	for _, c := range calls {
		w.text(c.claims[0].Name)
	}
	for _, c := range calls {
		c.write(w, fenceKey, &c.claims[0])
	}
	if one.kind == node.Acquire {
		w.number(one.ttl)
		w.number(one.retention)
		for _, c := range calls {
			w.text(c.claims[0].Owner)
			w.number(int64(c.claims[0].Token))
		}
		return
	}
	for _, c := range calls {
		c.write(w, queueKey, &c.claims[0])
	}
	w.number(one.retention)
	w.text(life)
	for _, c := range calls {
		next := c.handover
		if !c.handsOver(life) {
			next = 0
		}
		w.text(c.claims[0].Owner)
		w.number(int64(c.claims[0].Token))
		c.write(w, channelArg, &c.claims[0])
		w.number(int64(next))
	}
}

// Together has n send commands together from so few on; 0: none ever are. It is for tests.
func Together(n node.Node, least int) {
	s := n.(*server)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.least = least
}
