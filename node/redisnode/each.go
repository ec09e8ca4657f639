package redisnode

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

const (
	// eachLeast is from how many commands on one script for all of them costs a server
	// less than one for each.
	eachLeast = 3

	// eachMost bounds what a server does without a pause, to about a quarter of a
	// millisecond.
	eachMost = 64

	// eachName is the length of the longest name for it: of names of megabytes a group could
	// be more than the gigabyte that a server takes for one command.
	eachName = 1 << 10

	// apartFor is for how long no commands are put together when a server has refused to
	// take some as one for what they were: it is a cluster's, or lacks a right.
	apartFor = time.Second
)

// alike are the commands that one script can execute: of one kind, each of one name, with
// the same lives.
type alike struct {
	kind           node.Kind
	ttl, retention int64
}

// alike reports what c can be put together with, if with anything. What is named like a
// fence or a queue may be that of another of them.
func (c *call) alike() (like alike, ok bool) {
	ok = (c.kind == node.Acquire || c.kind == node.Release) && c.mode == node.Exclusive && !c.wait.Queued() &&
		len(c.claims) == 1 && !c.apart && len(c.claims[0].Name) <= eachName && !strings.HasPrefix(c.claims[0].Name, "redquorum_")
	return alike{c.kind, c.ttl, c.retention}, ok
}

// gather puts calls next to each other that can be sent together, and tells the first of
// them how many they are. Calls change places only where no two are of one name: what they
// do has nothing to do with each other then.
func (s *server) gather(batch []*call) {
	for len(batch) > 0 {
		n := s.strangers(batch)
		for rest := batch[:n]; len(rest) > 0; {
			like, ok := rest[0].alike()
			n := 1
			for i, c := range rest {
				if other, _ := c.alike(); i > 0 && other == like {
					rest[n], rest[i] = c, rest[n]
					n++
				}
			}
			if ok && n >= s.least {
				rest[0].together = n
			}
			rest = rest[n:]
		}
		batch = batch[n:]
	}
}

// strangers is how many calls at the head of batch are of different names and can each be
// put together with others; it is 1 if the first cannot.
func (s *server) strangers(batch []*call) int {
	clear(s.names)
	for i, c := range batch[:min(len(batch), eachMost)] {
		if _, ok := c.alike(); !ok {
			return max(i, 1)
		}
		if s.names[c.claims[0].Name] = struct{}{}; len(s.names) == i {
			return i
		}
	}
	return min(len(batch), eachMost)
}

// refusedTogether reports whether err, which a server has said of calls that were sent
// together, may be for one of them: then each is sent by itself. s.mu is held.
func (s *server) refusedTogether(err error, now clock.Instant) bool {
	if err == nil || lacksScript(err) {
		return false
	}
	switch err := serverError(err); {
	case errors.Is(err, node.ErrReadOnly): // whoever hears that must know it at once
		return false
	case errors.Is(err, node.ErrAuth), errors.Is(err, node.ErrUnsupported):
		s.apart = now.Add(apartFor)
	}
	return true
}

// part is what a result for a group of n calls says of the i-th of them.
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

// appendEach appends the one Redis command of calls that are sent together, as append does
// for one. given are the scripts that the server was given.
func appendEach(w *words, calls []*call, given scriptSet, life string) {
	n := len(calls)
	one := calls[0]
	script, keys, args := acquireEachScript, 2*n, 2+2*n
	if one.kind == node.Release {
		script, keys, args = releaseEachScript, 3*n, 2+4*n
	}
	w.run(script, given.add(script) || slices.ContainsFunc(calls, func(c *call) bool { return c.asText }), keys, args)
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
		next := c.handoff
		if !c.handsOn(life) {
			next = 0
		}
		w.text(c.claims[0].Owner)
		w.number(int64(c.claims[0].Token))
		c.write(w, channelArg, &c.claims[0])
		w.number(int64(next))
	}
}
