package model

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/node"
)

// The modes of a hash of readers and writers.
const (
	reading = "read"
	writing = "write"
)

// noReader is when the last reader dies if there is none.
const noReader Time = math.MinInt64

func (s *Server) has(now Time, k *names, mode node.Mode, owner string) bool {
	switch mode {
	case node.Read:
		return k.lock.mode() == reading && s.reads(now, k.lock, k.name, owner)
	case node.Write:
		owner += node.WriteSuffix
	}
	_, has := k.lock.find(owner)
	return has
}

func (s *Server) held(now Time, k *names, mode node.Mode) bool {
	if k.lock.kind == none || mode == node.Exclusive || k.lock.mode() != reading {
		return k.lock.kind != none
	}
	return mode == node.Write && s.removeDead(now, k.lock, k.name) != noReader
}

// fenceOf returns the token that an owner in this mode has to exceed.
func (s *Server) fenceOf(now Time, k *names, mode node.Mode) (node.Token, error) {
	seen, err := k.fence.token()
	if err != nil || mode != node.Write {
		return seen, err
	}
	highest, err := s.readersOf(now, k).token()
	return max(seen, highest), err
}

// raiseFence makes the token, above fenceOf, a new owner's fence.
func (s *Server) raiseFence(now Time, k *names, mode node.Mode, token node.Token, kept Time) error {
	if mode == node.Read {
		return s.raise(s.readersOf(now, k), token, kept)
	}
	s.setFence(k.fence, token, kept)
	return nil
}

func (s *Server) readersOf(now Time, k *names) *key {
	if k.readers == nil {
		k.readers = s.key(node.ReadersKey(k.name))
	}
	s.expire(now, k.readers)
	return k.readers
}

// create requires that nobody alive is in the way.
func (s *Server) create(k *names, mode node.Mode, owner string, expires Time) {
	if mode == node.Read {
		s.put(s.found(s.hold(k.name, owner)), "1", expires)
		s.change(k.lock)
		if k.lock.kind == none || k.lock.expires < expires {
			k.lock.kind, k.lock.expires = hash, expires
		}
		k.lock.set(node.ModeField, reading)
		k.lock.set(owner, "1")
		return
	}
	s.erase(k.lock)
	k.lock.kind, k.lock.expires = hash, expires
	if mode == node.Write {
		k.lock.set(node.ModeField, writing)
		owner += node.WriteSuffix
	}
	k.lock.set(owner, "1")
}

// end reports whether the owner had anything, and whether it was the writer. A reader or
// writer is removed as both, as a downgrade may have come or not.
func (s *Server) end(now Time, k *names, mode node.Mode, owner string) (released, wrote bool) {
	if k.lock.kind != none && k.lock.kind != hash {
		return false, false
	}
	if mode == node.Exclusive {
		return s.remove(k.lock, owner), false
	}
	shares := k.lock.mode() == reading
	read := s.remove(k.lock, owner)
	s.drop(s.hold(k.name, owner))
	if wrote = s.remove(k.lock, owner+node.WriteSuffix); !wrote && !(read && shares) {
		return read, false
	}
	until := s.removeDead(now, k.lock, k.name)
	s.change(k.lock)
	if until == noReader {
		k.lock.clear()
		return true, wrote
	}
	k.lock.set(node.ModeField, reading)
	if until != Never {
		k.lock.expires = until
	}
	return true, wrote
}

func (s *Server) downgrade(now Time, c *node.Claim) (reply node.Reply, published []Notice) {
	k := s.lookUp(now, c.Name)
	lock := k.lock
	if lock.kind != none && lock.kind != hash {
		return failure(node.ErrWrongType), nil
	}
	writer, wrote := lock.find(c.Owner + node.WriteSuffix)
	if !wrote {
		return node.Reply{Status: node.Done, Kept: []bool{s.reads(now, lock, c.Name, c.Owner)}}, nil
	}
	s.change(lock)
	lock.fields = slices.Delete(lock.fields, writer, writer+1)
	lock.set(node.ModeField, reading)
	lock.set(c.Owner, "1")
	s.put(s.found(s.hold(c.Name, c.Owner)), "1", max(lock.expires, now+1))
	s.publish(c.Name, node.Write)
	s.notifyNext(now, k, true, handover{})
	return node.Reply{Status: node.Done, Kept: []bool{true}}, s.notices
}

func (s *Server) reads(now Time, lock *key, name, owner string) bool {
	if _, mine := lock.find(owner); !mine {
		return false
	}
	hold := s.hold(name, owner)
	return hold != nil && hold.alive(now)
}

// removeDead returns when the last living reader dies, or noReader, and removes dead
// readers if one lives. Of many readers the longest is not known.
func (s *Server) removeDead(now Time, lock *key, name string) Time {
	living, until := s.living(s.fields[:0], now, lock, name)
	if until != noReader && len(lock.fields) > node.ManyFields {
		until = Never
	}
	if until != noReader && len(living) < len(lock.fields) {
		s.change(lock)
		s.fields, lock.fields = lock.fields, living
	} else {
		s.fields = living
	}
	return until
}

// living appends the fields of lock without dead readers, and returns when the last one
// dies, or noReader. It checks MaxHolds holds: readers beyond these count as living.
func (s *Server) living(fields []node.Field, now Time, lock *key, name string) (all []node.Field, until Time) {
	until = noReader
	unchecked := node.MaxHolds
	for _, f := range lock.fields {
		if f.Name == node.ModeField {
			fields = append(fields, f)
			continue
		}
		dies, holds := Never, holdsOf(f)
		if holds <= unchecked {
			unchecked -= holds
			dies = s.dies(now, name, f.Name, holds)
		}
		if dies != noReader {
			fields, until = append(fields, f), max(until, dies)
		}
	}
	return fields, until
}

// holdsOf is how many holds of a reader are checked. Redisson counts them in its field.
func holdsOf(reader node.Field) int {
	holds, err := strconv.Atoi(reader.Value)
	if err != nil {
		holds = 1
	}
	return min(max(1, holds), node.MaxHolds)
}

// dies returns noReader for a dead reader.
func (s *Server) dies(now Time, name, reader string, holds int) (at Time) {
	at = noReader
	for i := 1; i <= holds; i++ {
		hold := s.hold(name, reader)
		if i > 1 {
			s.sought = strconv.AppendInt(s.sought[:len(s.sought)-1], int64(i), 10)
			hold = s.keys[string(s.sought)]
		}
		if hold != nil && hold.alive(now) {
			at = max(at, hold.expires, now+1)
		}
	}
	return at
}

func (s *Server) put(k *key, value string, expires Time) {
	s.erase(k)
	k.kind, k.text, k.expires = text, value, expires
}

func (c *content) mode() string {
	if i, found := c.find(node.ModeField); found {
		return c.fields[i].Value
	}
	return ""
}

func (c *content) set(field, value string) {
	i, found := c.find(field)
	if !found {
		i, _ = slices.BinarySearchFunc(c.fields, field,
			func(f node.Field, name string) int { return strings.Compare(f.Name, name) })
		c.fields = slices.Insert(c.fields, i, node.Field{Name: field})
	}
	c.fields[i].Value = value
}

func life(d time.Duration) Time { return Time(node.Milliseconds(d)) }
