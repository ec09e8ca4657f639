package model

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/node"
)

// Set stores a string at key, without an expiry.
func (s *Server) Set(key, value string) { s.put(s.key(key), value, Never) }

// HSet sets a field of the hash at key, or of a new one without an expiry. A key that is
// not a hash is left alone: ErrWrongType.
func (s *Server) HSet(now Time, key, field, value string) error {
	k := s.at(now, key)
	if k.kind != none && k.kind != hash {
		return node.ErrWrongType
	}
	s.change(k)
	if k.kind == none {
		k.kind, k.expires = hash, Never
	}
	k.set(field, value)
	return nil
}

// Del removes key.
func (s *Server) Del(key string) { s.erase(s.key(key)) }

// Persist removes the expiry of key.
func (s *Server) Persist(now Time, key string) { s.expireAt(now, key, Never) }

// PExpire gives key, if it is there, ttl to live, in whole milliseconds, rounded up. At 0
// and below it is gone at once.
func (s *Server) PExpire(now Time, key string, ttl time.Duration) {
	if ttl <= 0 {
		s.Del(key)
		return
	}
	s.expireAt(now, key, now+Time(node.Milliseconds(ttl)))
}

func (s *Server) expireAt(now Time, key string, at Time) {
	if k := s.at(now, key); k.kind != none {
		s.change(k)
		k.expires = at
	}
}

// FlushAll removes all keys.
func (s *Server) FlushAll() {
	for _, k := range s.keys {
		s.erase(k)
	}
}

// Expire removes all keys that have expired by now. It matters only if the clock is then
// set back: without it, unused keys come to life again.
func (s *Server) Expire(now Time) {
	for _, k := range s.keys {
		s.expire(now, k)
	}
}

// Sync puts everything on the disk, for a restart with LoseUnsynced, at a constant cost.
func (s *Server) Sync() {
	s.epoch++
	s.unsynced = s.unsynced[:0]
}

type Loss uint8

const (
	// LoseNothing: every change was on the disk before it was answered
	// (appendfsync always).
	LoseNothing Loss = iota
	// LoseUnsynced: the changes since the last Sync are lost (appendfsync
	// everysec, or snapshots).
	LoseUnsynced
	// LoseEverything: there is no disk.
	LoseEverything
)

// Restart begins another life. Memory and disk are then the same.
func (s *Server) Restart(loss Loss) {
	switch loss {
	case LoseUnsynced:
		for _, k := range s.unsynced {
			k.content.copy(&k.synced)
			for i := range k.line {
				k.line[i].kept = nil // it may have been dropped since
			}
		}
	case LoseEverything:
		s.FlushAll()
	}
	s.Sync()
}

// Load replaces all keys, in memory and on the disk, as a replica does.
func (s *Server) Load(entries []Entry) {
	s.FlushAll()
	for i := range entries {
		e := &entries[i]
		k := s.key(e.Key)
		s.erase(k)
		switch e.Type {
		case "hash":
			k.kind, k.fields = hash, append(k.fields, e.Fields...)
		case "zset":
			k.kind = queued
			for _, f := range e.Fields {
				ticket, _ := strconv.ParseInt(f.Value, 10, 64)
				k.line = append(k.line, place{waiter: f.Name, ticket: node.Token(ticket)})
			}
		default:
			k.kind, k.text = text, e.Value
		}
		k.expires = e.Expires
	}
	s.Sync()
}

// Refuse lets a command that comes to a write fail, and change nothing: with
// [node.ErrReadOnly] as on a replica, [node.ErrMisconf] as with a full disk, or
// [node.ErrOutOfMemory]. Without memory only commands fail whose first write needs some,
// and releases that free nothing but raise a fence. nil ends it.
func (s *Server) Refuse(err error) { s.refusal = err }

// Holds reports whether the lock at name has a field, of an owner or a writer, and until
// when the lock is there.
func (s *Server) Holds(now Time, name, field string) (until Time, ok bool) {
	k := s.of(name).lock
	if _, ok = k.find(field); !ok || !k.alive(now) {
		return 0, false
	}
	return k.expires, true
}

// Keeps reports whether owner has the lock in this mode, and until when. A reader whose
// downgrade has not come here still has the writer's.
func (s *Server) Keeps(now Time, name, owner string, mode node.Mode) (until Time, ok bool) {
	if mode == node.Exclusive {
		return s.Holds(now, name, owner)
	}
	k := s.of(name).lock
	if !k.alive(now) {
		return 0, false
	}
	for _, f := range k.fields {
		if mode == node.Read && f.Name == owner && k.mode() == reading {
			if hold := s.hold(name, owner); hold != nil && hold.alive(now) {
				return min(k.expires, hold.expires), true
			}
		}
		if writer, ok := strings.CutSuffix(f.Name, node.WriteSuffix); ok && writer == owner {
			return k.expires, true
		}
	}
	return 0, false
}

// Len counts the keys that are there at now.
func (s *Server) Len(now Time) int {
	n := 0
	for _, k := range s.keys {
		if k.alive(now) {
			n++
		}
	}
	return n
}

type Entry struct {
	Key     string
	Type    string       // "hash", "string" or "zset"
	Fields  []node.Field // of a hash, sorted by name; of a sorted set its members and scores, in their order
	Value   string       // of a string
	Expires Time         // or Never
}

// Dump returns all keys that are there at now, sorted, and changes nothing.
func (s *Server) Dump(now Time) []Entry {
	var entries []Entry
	for name, k := range s.keys {
		if k.alive(now) {
			entries = append(entries, k.entry(name))
		}
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
	return entries
}

func (c *content) alive(now Time) bool { return c.kind != none && now <= c.expires }

func (c *content) entry(key string) Entry {
	e := Entry{Key: key, Type: c.kind.String(), Expires: c.expires, Value: c.text}
	switch c.kind {
	case hash:
		e.Fields = slices.Clone(c.fields)
	case queued:
		for _, p := range c.line {
			e.Fields = append(e.Fields, node.Field{Name: p.waiter, Value: strconv.FormatInt(int64(p.ticket), 10)})
		}
	case number:
		e.Value = strconv.FormatInt(int64(c.number), 10)
	}
	return e
}
