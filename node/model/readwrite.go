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

// noReader is when the last reader dies if there is none: a clock may show any other time.
const noReader Time = math.MinInt64

// lookUpShared returns the keys of a name in modes Read and Write, as they are at now.
func (s *Server) lookUpShared(now Time, name string) *names {
	k := s.of(name)
	if k.readers == nil {
		k.readers, k.intent = s.key(node.ReadersKey(name)), s.key(node.IntentKey(name))
	}
	s.expire(now, k.lock)
	s.expire(now, k.fence)
	s.expire(now, k.readers)
	s.expire(now, k.intent)
	return k
}

func (s *Server) acquireRead(now Time, cmd *node.Command) node.Reply {
	c, wait := &cmd.Claims[0], cmd.Waiting()
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
		if wait.Stays() && k.lock.mode() == writing {
			s.put(k.intent, node.ReadersNext, min(now+life(wait.PlaceTTL), max(k.lock.expires, now+1)))
		}
		return node.Reply{Status: node.Refused, TTL: k.lock.left(now), Fence: fence}
	case k.intent.kind != none && !k.intent.isReaders() && !k.intent.isOthers():
		return node.Reply{Status: node.Refused, TTL: k.intent.left(now), Fence: fence}
	case c.Token <= fence:
		return node.Reply{Status: node.Stale, Fence: fence}
	}
	if err := s.raise(k.readers, c.Token, now+life(cmd.Retention)); err != nil {
		return failure(err)
	}
	expires := now + life(cmd.TTL)
	s.put(s.found(s.hold(c.Name, c.Owner)), "1", expires)
	s.change(k.lock)
	if k.lock.kind == none || k.lock.expires < expires {
		k.lock.kind, k.lock.expires = hash, expires
	}
	k.lock.set(node.ModeField, reading)
	k.lock.set(c.Owner, "1")
	return node.Reply{Status: node.Granted}
}

func (s *Server) acquireWrite(now Time, cmd *node.Command) node.Reply {
	c, wait := &cmd.Claims[0], cmd.Waiting()
	k := s.lookUpShared(now, c.Name)
	if k.lock.kind != none && k.lock.kind != hash {
		return failure(node.ErrWrongType)
	}
	writer := c.Owner + node.WriteSuffix
	if _, mine := k.lock.find(writer); mine {
		return node.Reply{Status: node.Granted}
	}
	fence, highest, err := k.writerFences()
	if err != nil {
		return failure(err)
	}
	waits := wait.Stays() && c.Token != fence
	if s.occupied(now, k) {
		if waits && k.admitsIntent() {
			s.put(k.intent, wait.Waiter, now+life(wait.PlaceTTL))
		}
		return node.Reply{Status: node.Refused, TTL: k.lock.left(now), Fence: highest}
	}
	waiter, others := strings.CutPrefix(k.intent.text, node.OthersNext)
	switch {
	case k.intent.kind != none && k.intent.kind != text:
		return failure(node.ErrWrongType)
	case k.intent.isReaders() || others && node.Process(waiter) == node.Process(c.Owner):
		left := k.intent.left(now)
		if others && waits {
			s.waitForOthers(now, k, wait.Waiter)
		}
		return node.Reply{Status: node.Refused, TTL: left, Fence: highest}
	case c.Token <= highest:
		if waits && !others {
			s.put(k.intent, wait.Waiter, now+life(wait.PlaceTTL))
		}
		return node.Reply{Status: node.Stale, Fence: highest}
	}
	s.setFence(k.fence, c.Token, now+life(cmd.Retention))
	s.erase(k.lock)
	k.lock.kind, k.lock.expires = hash, now+life(cmd.TTL)
	k.lock.set(node.ModeField, writing)
	k.lock.set(writer, "1")
	s.takeTurn(now, k, wait)
	return node.Reply{Status: node.Granted}
}

// occupied reports whether a lock is there, other than with dead readers alone.
func (s *Server) occupied(now Time, k *names) bool {
	return k.lock.kind == hash && (k.lock.mode() != reading || s.bury(now, k.lock, k.name) != noReader)
}

// admitsIntent reports whether a writer that finds a name locked may leave its intent.
func (n *names) admitsIntent() bool {
	mode := n.lock.mode()
	return mode == reading || mode == writing && !n.intent.isReaders()
}

// writerFences returns the fence of a name, and the higher of that and of ReadersKey.
func (n *names) writerFences() (fence, highest node.Token, err error) {
	if fence, err = n.fence.token(); err != nil {
		return 0, 0, err
	}
	if highest, err = n.readers.token(); err != nil {
		return 0, 0, err
	}
	highest = max(highest, fence)
	return fence, highest, nil
}

// waitForOthers notes that a waiter comes after the turn of writers of other processes.
func (s *Server) waitForOthers(now Time, k *names, waiter string) {
	if left := k.intent.left(now); left > 0 {
		s.put(k.intent, node.OthersNext+waiter, now+life(left))
	}
}

// takeTurn sets whose turn is next when a writer has been granted.
func (s *Server) takeTurn(now Time, k *names, wait node.Wait) {
	waiter, others := strings.CutPrefix(k.intent.text, node.OthersNext)
	switch {
	case others && node.Process(waiter) != waiter && wait.Stays():
		s.put(k.intent, waiter, now+life(wait.PlaceTTL))
	case others:
		s.erase(k.intent)
	default:
		s.forgetIntent(k, wait.Waiter)
	}
}

func (s *Server) releaseShared(now Time, cmd *node.Command) (reply node.Reply, published []Notice) {
	c, wait := &cmd.Claims[0], cmd.Waiting()
	k := s.lookUpShared(now, c.Name)
	if err := s.raise(k.fence, c.Token, now+life(cmd.Retention)); err != nil {
		return failure(err), nil
	}
	gaveUp := wait.Waiter != "" && !wait.Stays()
	tell := gaveUp && s.forgetIntent(k, wait.Waiter)
	if gaveUp && k.intent.isOthers() && k.intent.text == node.OthersNext+wait.Waiter && k.intent.expires > now {
		s.put(k.intent, node.OthersNext+node.Process(wait.Waiter), k.intent.expires)
	}
	if k.lock.kind != none && k.lock.kind != hash {
		return failure(node.ErrWrongType), nil
	}
	shares := k.lock.mode() == reading
	wrote := s.remove(k.lock, c.Owner+node.WriteSuffix)
	read := s.remove(k.lock, c.Owner)
	s.drop(s.hold(c.Name, c.Owner))
	if wrote {
		tell = true
		s.endTurn(now, k, cmd)
	}
	if wrote || read && shares {
		tell = s.leaveReaders(now, k, wrote) || tell
	}
	if (wrote || wait.Waiter != "") && !wait.Stays() && cmd.YieldTTL > 0 {
		s.yield(now, k, cmd)
	}
	reply.Status = node.Absent
	if wrote || read {
		reply.Status = node.Released
	}
	if tell {
		published = s.tell(Notice{Name: c.Name})
	}
	return reply, published
}

// endTurn sets whose turn it is when a writer has gone: its own again if it gives a partial
// grant back, or for a while that of waiting readers.
func (s *Server) endTurn(now Time, k *names, cmd *node.Command) {
	switch wait := cmd.Waiting(); {
	case wait.Stays():
		s.put(k.intent, wait.Waiter, now+life(wait.PlaceTTL))
	case k.intent.isReaders() && cmd.YieldTTL <= 0:
		s.erase(k.intent)
	case k.intent.isReaders():
		s.change(k.intent)
		k.intent.expires = now + life(cmd.YieldTTL)
	}
}

// leaveReaders leaves a lock, after an owner has gone, to the other readers. It reports whether
// there are none, and the key is removed.
func (s *Server) leaveReaders(now Time, k *names, wrote bool) (gone bool) {
	until := s.bury(now, k.lock, k.name)
	s.change(k.lock)
	if until == noReader {
		k.lock.clear()
		if !wrote && k.intent.isReaders() {
			s.erase(k.intent)
		}
		return true
	}
	k.lock.set(node.ModeField, reading)
	if until != Never {
		k.lock.expires = until
	}
	return false
}

// yield lets a waiting writer of another process come before those of the owner's process.
func (s *Server) yield(now Time, k *names, cmd *node.Command) {
	process := node.Process(cmd.Claims[0].Owner)
	if k.lock.kind == none && k.intent.kind == text && !k.intent.isReaders() && !k.intent.isOthers() &&
		node.Process(k.intent.text) != process {
		s.put(k.intent, node.OthersNext+process, now+life(cmd.YieldTTL))
	}
}

// extendRead is extend for readers.
func (s *Server) extendRead(now Time, claims []node.Claim, expires Time) node.Reply {
	kept := make([]bool, len(claims))
	for i := range claims {
		c := &claims[i]
		lock := s.lookUp(now, c.Name).lock
		if kept[i] = s.reads(now, lock, c); !kept[i] {
			continue
		}
		for _, k := range [...]*key{lock, s.hold(c.Name, c.Owner)} {
			if k.expires < expires {
				s.change(k)
				k.expires = expires
			}
		}
	}
	return node.Reply{Status: node.Done, Kept: kept}
}

func (s *Server) downgrade(now Time, claims []node.Claim) (reply node.Reply, published []Notice) {
	c := &claims[0]
	lock := s.lookUp(now, c.Name).lock
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
	s.put(s.found(s.hold(c.Name, c.Owner)), "1", max(lock.expires, now+1))
	return node.Reply{Status: node.Done, Kept: []bool{true}}, s.tell(Notice{Name: c.Name})
}

// reads reports whether c's owner is a living reader.
func (s *Server) reads(now Time, lock *key, c *node.Claim) bool {
	if _, mine := lock.find(c.Owner); !mine {
		return false
	}
	hold := s.hold(c.Name, c.Owner)
	return hold != nil && hold.alive(now)
}

// bury returns when the last living reader of lock dies, or noReader, and removes dead readers
// if one lives. If there are many readers the dead ones stay, as some do in Redis, and the
// longest is not known.
func (s *Server) bury(now Time, lock *key, name string) Time {
	living, until := s.living(s.fields[:0], now, lock, name)
	switch {
	case until == noReader:
	case len(lock.fields) > node.ManyFields:
		until = Never
	case len(living) < len(lock.fields):
		s.change(lock)
		s.fields, lock.fields = lock.fields, living
	default:
		s.fields = living
	}
	return until
}

// living appends the fields of lock to fields, without those of dead readers. It also returns
// when the last reader dies, or noReader.
func (s *Server) living(fields []node.Field, now Time, lock *key, name string) (all []node.Field, until Time) {
	until = noReader
	for _, f := range lock.fields {
		if f.Name == node.ModeField {
			fields = append(fields, f)
			continue
		}
		if dies := s.dies(now, name, f); dies != noReader {
			fields, until = append(fields, f), max(until, dies)
		}
	}
	return fields, until
}

// dies returns when a reader dies, or noReader if it is dead. Redisson counts a reader's holds
// in its field.
func (s *Server) dies(now Time, name string, reader node.Field) (at Time) {
	at = noReader
	holds, err := strconv.Atoi(reader.Value)
	if err != nil {
		holds = 1
	}
	for i := 1; i <= min(holds, node.MaxHolds); i++ {
		hold := s.hold(name, reader.Name)
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

// forgetIntent removes the intent if it is waiter's, and reports whether it was.
func (s *Server) forgetIntent(k *names, waiter string) bool {
	if k.intent.kind != text || k.intent.text != waiter {
		return false
	}
	s.erase(k.intent)
	return true
}

// isReaders reports whether it is the readers' turn (ReadersNext).
func (c *content) isReaders() bool { return c.kind == text && c.text == node.ReadersNext }

// isOthers reports whether it is the turn of writers of other processes (OthersNext).
func (c *content) isOthers() bool {
	return c.kind == text && strings.HasPrefix(c.text, node.OthersNext)
}

func (s *Server) put(k *key, value string, expires Time) {
	s.erase(k)
	k.kind, k.text, k.expires = text, value, expires
}

// mode returns the mode of a hash of readers and writers, "" if it has none.
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
		i, _ = slices.BinarySearchFunc(c.fields, field, func(f node.Field, name string) int { return strings.Compare(f.Name, name) })
		c.fields = slices.Insert(c.fields, i, node.Field{Name: field})
	}
	c.fields[i].Value = value
}

func life(d time.Duration) Time { return Time(node.Milliseconds(d)) }
