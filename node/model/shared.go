package model

import (
	"slices"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/node"
)

// shared are the keys that belong to one name of readers and writers, but for
// the readers' holds.
type shared struct {
	names
	readers, intent *key
}

// The modes of a hash of readers and writers.
const (
	reading = "read"
	writing = "write"
)

// lookUpShared returns the keys of a name, as they are at now.
func (s *Server) lookUpShared(now Time, name string) *shared {
	k := s.shared[name]
	if k == nil {
		if s.shared == nil {
			s.shared = make(map[string]*shared)
		}
		k = &shared{readers: s.key(node.ReadersKey(name)), intent: s.key(node.IntentKey(name))}
		k.lock, k.fence = s.lookUp(now, name)
		s.shared[name] = k
	}
	for _, one := range [...]*key{k.lock, k.fence, k.readers, k.intent} {
		s.expire(now, one)
	}
	return k
}

func (s *Server) acquireRead(now Time, cmd node.Command) node.Reply {
	c := cmd.Claims[0]
	k := s.lookUpShared(now, c.Name)
	if k.lock.kind != none && k.lock.kind != hash {
		return failure(node.ErrWrongType)
	}
	shares := k.lock.mode() == reading
	if shares && s.reads(now, k.lock, c) {
		return node.Reply{Status: node.Granted}
	}
	fence, err := k.fence.token()
	switch {
	case err != nil:
		return failure(err)
	case !shares && k.lock.kind != none:
		return node.Reply{Status: node.Refused, TTL: k.lock.left(now), Fence: fence}
	case k.intent.kind != none:
		return node.Reply{Status: node.Refused, TTL: k.intent.left(now), Fence: fence}
	case c.Token <= fence:
		return node.Reply{Status: node.Stale, Fence: fence}
	}
	if err := s.raise(k.readers, c.Token, now+life(cmd.Retention)); err != nil {
		return failure(err)
	}
	expires := now + life(cmd.TTL)
	s.put(s.key(node.HoldKey(c.Name, c.Owner)), "1", expires)
	s.change(k.lock)
	k.lock.kind, k.lock.expires = hash, max(k.lock.expires, expires)
	k.lock.set(node.ModeField, reading)
	k.lock.set(c.Owner, "1")
	return node.Reply{Status: node.Granted}
}

func (s *Server) acquireWrite(now Time, cmd node.Command) node.Reply {
	c := cmd.Claims[0]
	k := s.lookUpShared(now, c.Name)
	if k.lock.kind != none && k.lock.kind != hash {
		return failure(node.ErrWrongType)
	}
	writer := c.Owner + node.WriteSuffix
	if _, mine := k.lock.find(writer); mine {
		return node.Reply{Status: node.Granted}
	}
	fence, err := k.fence.token()
	if err != nil {
		return failure(err)
	}
	highest, err := k.readers.token()
	if err != nil {
		return failure(err)
	}
	highest = max(highest, fence)
	inTheWay := k.lock.kind == hash
	if k.lock.mode() == reading {
		if inTheWay = s.bury(now, k.lock, c.Name) > 0; inTheWay && cmd.Patience > 0 && c.Token > fence {
			s.put(k.intent, cmd.Waiter, now+life(cmd.Patience))
		}
	}
	switch {
	case inTheWay:
		return node.Reply{Status: node.Refused, TTL: k.lock.left(now), Fence: highest}
	case c.Token <= highest:
		return node.Reply{Status: node.Stale, Fence: highest}
	}
	s.setFence(k.fence, c.Token, now+life(cmd.Retention))
	s.change(k.lock)
	k.lock.clear()
	k.lock.kind, k.lock.expires = hash, now+life(cmd.TTL)
	k.lock.set(node.ModeField, writing)
	k.lock.set(writer, "1")
	s.forgetIntent(k, cmd.Waiter)
	return node.Reply{Status: node.Granted}
}

func (s *Server) releaseShared(now Time, cmd node.Command) (reply node.Reply, published []node.Claim) {
	c := cmd.Claims[0]
	k := s.lookUpShared(now, c.Name)
	if err := s.raise(k.fence, c.Token, now+life(cmd.Retention)); err != nil {
		return failure(err), nil
	}
	tell := cmd.Waiter != "" && cmd.Patience <= 0 && s.forgetIntent(k, cmd.Waiter)
	if k.lock.kind != none && k.lock.kind != hash {
		return failure(node.ErrWrongType), nil
	}
	shares := k.lock.mode() == reading
	wrote := s.remove(k.lock, c.Owner+node.WriteSuffix)
	read := s.remove(k.lock, c.Owner)
	s.drop(node.HoldKey(c.Name, c.Owner))
	if wrote {
		tell = true
		if cmd.Patience > 0 {
			s.put(k.intent, cmd.Waiter, now+life(cmd.Patience))
		}
	}
	if wrote || read && shares {
		until := s.bury(now, k.lock, c.Name)
		s.change(k.lock)
		if until == 0 {
			k.lock.clear()
			tell = true
		} else {
			k.lock.set(node.ModeField, reading)
			if until != Never {
				k.lock.expires = until
			}
		}
	}
	reply.Status = node.Absent
	if wrote || read {
		reply.Status = node.Released
	}
	if tell {
		published = cmd.Claims
	}
	return reply, published
}

// extendRead is extend for readers.
func (s *Server) extendRead(now Time, claims []node.Claim, expires Time) node.Reply {
	kept := make([]bool, len(claims))
	for i, c := range claims {
		lock, _ := s.lookUp(now, c.Name)
		if kept[i] = s.reads(now, lock, c); !kept[i] {
			continue
		}
		for _, k := range [...]*key{lock, s.key(node.HoldKey(c.Name, c.Owner))} {
			if k.expires < expires {
				s.change(k)
				k.expires = expires
			}
		}
	}
	return node.Reply{Status: node.Done, Kept: kept}
}

func (s *Server) downgrade(now Time, claims []node.Claim) (reply node.Reply, published []node.Claim) {
	c := claims[0]
	lock, _ := s.lookUp(now, c.Name)
	if lock.kind != none && lock.kind != hash {
		return failure(node.ErrWrongType), nil
	}
	writer, wrote := lock.find(c.Owner + node.WriteSuffix)
	if !wrote {
		return node.Reply{Status: node.Done, Kept: []bool{s.reads(now, lock, c)}}, nil
	}
	s.change(lock)
	lock.fields = slices.Delete(lock.fields, writer, writer+1)
	lock.set(node.ModeField, reading)
	lock.set(c.Owner, "1")
	s.put(s.key(node.HoldKey(c.Name, c.Owner)), "1", max(lock.expires, now+1))
	return node.Reply{Status: node.Done, Kept: []bool{true}}, claims
}

// reads reports whether c's owner is a living reader.
func (s *Server) reads(now Time, lock *key, c node.Claim) bool {
	if _, mine := lock.find(c.Owner); !mine {
		return false
	}
	hold := s.keys[node.HoldKey(c.Name, c.Owner)]
	return hold != nil && hold.alive(now)
}

// bury returns when the last living reader of lock dies, 0 if there is none, and
// if there is one takes the dead away.
func (s *Server) bury(now Time, lock *key, name string) Time {
	living, until := s.living(now, lock, name)
	s.change(lock)
	if until > 0 {
		lock.fields = living
	}
	return until
}

// living returns the fields of lock without dead readers, and when the last reader
// dies, 0 if there is none.
//
// Redisson counts a reader's holds in its field.
func (s *Server) living(now Time, lock *key, name string) (fields []node.Field, until Time) {
	prefix := string(node.AppendHoldPrefix(nil, name))
	dead := func(f node.Field) bool {
		if f.Name == node.ModeField {
			return false
		}
		holds, err := strconv.Atoi(f.Value)
		if err != nil {
			holds = 1
		}
		died := true
		for i := 1; i <= holds; i++ {
			hold := s.keys[prefix+":"+f.Name+":rwlock_timeout:"+strconv.Itoa(i)]
			if hold != nil && hold.alive(now) {
				died, until = false, max(until, hold.expires, now+1)
			}
		}
		return died
	}
	fields = slices.DeleteFunc(slices.Clone(lock.fields), dead)
	return fields, until
}

// forgetIntent reports whether the intent was waiter's.
func (s *Server) forgetIntent(k *shared, waiter string) bool {
	if k.intent.kind != text || k.intent.text != waiter {
		return false
	}
	s.change(k.intent)
	k.intent.clear()
	return true
}

func (s *Server) put(k *key, value string, expires Time) {
	s.change(k)
	k.clear()
	k.kind, k.text, k.expires = text, value, expires
}

// mode returns what a hash of readers and writers says of itself, "" if it says
// nothing.
func (c *content) mode() string {
	if i, found := c.find(node.ModeField); found {
		return c.fields[i].Value
	}
	return ""
}

// set sets a field of a hash.
func (c *content) set(field, value string) {
	i, found := c.find(field)
	if !found {
		c.fields = slices.Insert(c.fields, i, node.Field{Name: field})
	}
	c.fields[i].Value = value
}

func life(d time.Duration) Time { return Time(node.Milliseconds(d)) }
