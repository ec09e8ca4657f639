// Package model is a lock server in plain Go: the behavior that package node describes,
// without a network, a process or a clock of its own.
//
// [Server] is the server's memory. It gets the time with every command, so that replies
// are reproducible. [Node] puts a Server behind the engine's interface, and can simulate
// simple failures.
//
// The suite in node/nodetest compares a Server with a real Redis server. This package is
// for tests and simulators: its API may change in any release.
package model

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/node"
)

// A Time is a reading of a server's own wall clock in milliseconds. Its origin means
// nothing, and it may be set back.
//
// A key that is given p milliseconds at t is there until t+p, and gone from t+p+1 on: a
// server that looks once a millisecond never takes a key away early.
type Time int64

// Never is when a key without an expiry expires.
const Never Time = math.MaxInt64

// A Server is one server's memory. The zero Server is empty and ready. It is not safe for
// concurrent use.
type Server struct {
	keys  map[string]*key   // by key; removed ones remain, for reuse
	names map[string]*names // by name, so that a command needs one look-up

	// The latest names, by their last bytes: the next command is often about the same
	// one.
	recent [8]*names

	sought []byte       // the key of the owner or waiter that was looked up last
	fields []node.Field // for reuse
	wants  []want       // for reuse

	spare    []*key // not in keys, for reuse
	epoch    uint   // counts Syncs
	unsynced []*key // changed since the last Sync

	refusal  error // the answer to writes, usually nil: see Refuse
	refuses  bool  // it executes a command so
	admitted bool  // the command has written without a need for memory: later writes are not refused

	// Ears tells who listens to the server; it may be nil.
	Ears Ears

	notices []Notice // of the last Apply
}

type Ears interface {
	// Watched reports whether somebody listens to the releases of a name in this mode.
	// Read and Write share a channel.
	Watched(name string, mode node.Mode) bool
	// Listens reports whether the process of a waiter listens.
	Listens(waiter string) bool
}

// A Notice is what a command has published about a name, on its channel, or on that of a
// waiter's process.
type Notice struct {
	Name string
	Mode node.Mode // of the name's channel: Exclusive, or Write for readers and writers
	To   string    // the waiter; "": it is on the name's channel
	Turn node.Turn // what the waiter hears, without a Life and a Proof: see From
	Vain bool      // nobody here heard of the hand-over, which was taken back, but replicas pass it on

	Secret string // of the offer that the lock was handed over to
}

func (n *Notice) From(server string) node.Turn {
	t := n.Turn
	if t.Owner != "" {
		t.Server, t.Proof = server, node.ProofOf(n.Secret, t.Token, server)
	}
	return t
}

type names struct {
	name        string
	lock, fence *key
	readers     *key   // nil until readers or writers have used the name
	queue       *key   // nil until it may have had waiters
	places      []byte // prefix of the keys of places in the queue
}

type key struct {
	content
	synced content // what a Sync saw, if epoch is the present one
	epoch  uint
}

type content struct {
	kind    kind
	fields  []node.Field // of a hash, sorted by name
	line    []place      // of a queue, in the order of the tickets
	text    string       // of a text
	number  node.Token   // of a number; else 0
	expires Time
}

type kind uint8

const (
	none   kind = iota
	hash        // a lock, as a rule
	text        // a string that is no token
	number      // a string that a fence is in
	queued      // a sorted set of waiters
)

var kindNames = [...]string{"none", "hash", "string", "string", "zset"}

func (k kind) String() string { return kindNames[k] }

// noWait is never written.
var noWait node.Wait

// Apply executes one command at the time now and returns the reply, without a Life.
// published is valid until the next Apply. Deadline is ignored.
//
// A fence that another program overwrote with anything but a number is an ErrWrongType.
func (s *Server) Apply(now Time, cmd node.Command) (reply node.Reply, published []Notice) {
	if s.refusal != nil && !s.refuses {
		return s.applyRefusing(now, cmd)
	}
	s.notices = s.notices[:0]
	if cmd.Wait == nil {
		cmd.Wait = &noWait
	}
	switch cmd.Kind {
	case node.Acquire:
		return s.acquire(now, &cmd)
	case node.Release:
		return s.release(now, &cmd)
	case node.Extend:
		return s.extend(now, &cmd), nil
	case node.Inspect:
		return s.inspect(now, &cmd.Claims[0]), nil
	case node.Break:
		return s.breakLock(now, &cmd)
	case node.Rename:
		return s.rename(now, &cmd), nil
	case node.Downgrade:
		return s.downgrade(now, &cmd.Claims[0])
	}
	panic(fmt.Sprintf("model: a command of kind %d", cmd.Kind))
}

// applyRefusing does what Apply does, up to the first write that is refused, which is the
// first of the command. A server grants only with a write, and it ends a lock without a
// check before.
func (s *Server) applyRefusing(now Time, cmd node.Command) (reply node.Reply, published []Notice) {
	scarce := s.refusal == node.ErrOutOfMemory
	switch {
	case scarce:
	case cmd.Kind == node.Release, cmd.Kind == node.Break, cmd.Kind == node.Downgrade,
		cmd.Kind == node.Acquire && cmd.Waiting().Queued() && cmd.Waiting().Stays():
		return failure(s.refusal), nil
	}
	s.refuses, s.admitted = true, false
	defer func() {
		s.refuses = false
		switch err := recover(); err {
		case nil:
		case s.refusal:
			reply, published = failure(s.refusal), nil
		default:
			panic(err)
		}
	}()
	reply, published = s.Apply(now, cmd)
	if !scarce && (reply.Status == node.Granted || slices.Contains(reply.Kept, true)) {
		reply = failure(s.refusal)
	}
	return reply, published
}

// remove removes an owner's field, and with the last one the key. It reports whether the
// field was there.
func (s *Server) remove(lock *key, owner string) bool {
	i, found := lock.find(owner)
	if !found {
		return false
	}
	s.change(lock)
	lock.fields = slices.Delete(lock.fields, i, i+1)
	if len(lock.fields) == 0 {
		lock.clear()
	}
	return true
}

func (s *Server) extend(now Time, cmd *node.Command) node.Reply {
	kept := make([]bool, len(cmd.Claims))
	for i := range cmd.Claims {
		c := &cmd.Claims[i]
		k := s.lookUp(now, c.Name)
		if cmd.Mode != node.Read {
			kept[i] = s.has(now, k, cmd.Mode, c.Owner)
		} else if kept[i] = s.reads(now, k.lock, c.Name, c.Owner); kept[i] {
			s.prolong(s.hold(c.Name, c.Owner), now+life(cmd.TTL))
		}
		if kept[i] {
			s.prolong(k.lock, now+life(cmd.TTL))
		}
	}
	return node.Reply{Status: node.Done, Kept: kept}
}

func (s *Server) rename(now Time, cmd *node.Command) node.Reply {
	wants, err := s.wanted(now, cmd)
	if err != nil {
		return failure(err)
	}
	if len(wants) == 0 {
		return node.Reply{Status: node.Granted}
	}
	r, there, err := s.surveyRename(now, cmd, wants)
	if err != nil {
		return failure(err)
	}
	switch {
	case !there:
		return r
	case cmd.Claims[0].Token <= r.Fence:
		return node.Reply{Status: node.Stale, Fence: r.Fence}
	}
	s.needsMemory()
	for _, one := range wants {
		if err := s.raiseFence(now, one.names, cmd.Mode, cmd.Claims[0].Token, now+life(cmd.Retention)); err != nil {
			return failure(err)
		}
		s.renameOne(one.names, cmd, now+life(cmd.TTL))
	}
	return node.Reply{Status: node.Granted, TTL: r.TTL}
}

// surveyRename returns, as a refusal, the highest fence and the longest life of the locks
// that a command wants, and whether its former owner has them all.
func (s *Server) surveyRename(now Time, cmd *node.Command, wants []want) (r node.Reply, there bool, err error) {
	r, there = node.Reply{Status: node.Refused}, true
	for _, one := range wants {
		if one.lock.kind != none && one.lock.kind != hash {
			return r, false, node.ErrWrongType
		}
		fence, err := s.fenceOf(now, one.names, cmd.Mode)
		if err == nil && cmd.Mode == node.Read {
			_, err = s.readersOf(now, one.names).token()
		}
		if err != nil {
			return r, false, err
		}
		r.Fence = max(r.Fence, fence)
		there = there && s.has(now, one.names, cmd.Mode, cmd.From)
	}
	for _, one := range wants {
		k := one.lock
		if there && cmd.Mode == node.Read {
			k = s.hold(one.name, cmd.From)
		}
		if k.kind != none {
			r.TTL = longer(r.TTL, k.left(now))
		}
	}
	return r, there, nil
}

// renameOne gives one lock the new owner. It lives until it expires or longer.
func (s *Server) renameOne(k *names, cmd *node.Command, expires Time) {
	owner, former := cmd.Claims[0].Owner, cmd.From
	switch cmd.Mode {
	case node.Read:
		lives := max(s.hold(k.name, former).expires, expires)
		s.put(s.found(s.hold(k.name, owner)), "1", lives)
		s.drop(s.hold(k.name, former))
	case node.Write:
		owner, former = owner+node.WriteSuffix, former+node.WriteSuffix
	}
	s.change(k.lock)
	k.lock.set(owner, "1")
	s.remove(k.lock, former)
	s.prolong(k.lock, expires)
}

func (s *Server) prolong(k *key, expires Time) {
	if k.expires < expires {
		s.change(k)
		k.expires = expires
	}
}

func (s *Server) inspect(now Time, c *node.Claim) node.Reply {
	state := new(node.State)
	if err := s.look(now, c, state); err != nil {
		return failure(err)
	}
	return node.Reply{Status: node.Done, State: state}
}

// State does an Inspect. It reuses the slices of state, which means nothing after an
// error.
func (s *Server) State(now Time, name string, state *node.State) error {
	return s.look(now, &node.Claim{Name: name}, state)
}

// look is State, for a claim.
func (s *Server) look(now Time, c *node.Claim, state *node.State) error {
	*state = node.State{Fields: state.Fields[:0], Queue: state.Queue[:0]}
	k := s.lookUp(now, c.Name)
	var err error
	if state.Fence, err = k.fence.token(); err != nil {
		return err
	}
	if state.Readers, err = s.readersOf(now, k).token(); err != nil {
		return err
	}
	if _, err = s.queue(now, k); err != nil {
		return err
	}
	state.Type, state.Queue = k.lock.kind.String(), s.places(state.Queue, now, k)
	state.Behind = max(0, len(k.queue.line)-node.ManyFields)
	if k.lock.kind != none {
		state.TTL = k.lock.left(now)
	}
	switch k.lock.kind {
	case hash:
		until := noReader
		if k.lock.mode() == reading {
			state.Fields, until = s.living(state.Fields, now, k.lock, c.Name)
		}
		if until == noReader {
			state.Fields = append(state.Fields[:0], k.lock.fields...)
		}
		if state.More = max(0, len(state.Fields)-node.ManyFields); state.More > 0 {
			state.Fields = some(state.Fields, c.Owner)
		}
		for i, f := range state.Fields {
			state.Fields[i] = node.Field{Name: clip(f.Name), Value: clip(f.Value)}
		}
	case text, number:
		state.Value = k.lock.entry(c.Name).Value
		state.Value = state.Value[:min(64, len(state.Value))]
	}
	return nil
}

func clip(text string) string { return text[:min(len(text), node.MaxText)] }

// some returns ManyFields of the fields, sorted, with the mode and those of an owner.
func some(fields []node.Field, owner string) []node.Field {
	first := func(f node.Field) int {
		if f.Name == node.ModeField || f.Name == owner || f.Name == owner+node.WriteSuffix {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(fields, func(a, b node.Field) int { return first(a) - first(b) })
	fields = fields[:node.ManyFields]
	slices.SortFunc(fields, func(a, b node.Field) int { return strings.Compare(a.Name, b.Name) })
	return fields
}

func (s *Server) breakLock(now Time, cmd *node.Command) (reply node.Reply, published []Notice) {
	c := &cmd.Claims[0]
	k := s.lookUp(now, c.Name)
	if k.lock.kind != none && k.lock.kind != hash {
		return failure(node.ErrWrongType), nil
	}
	latest, err := s.latest(now, k)
	if err != nil {
		return failure(err), nil
	}
	if k.lock.kind == hash && c.Token < latest {
		return node.Reply{Status: node.Stale, Fence: latest}, nil
	}
	if err := s.raise(k.fence, c.Token, now+life(cmd.Retention)); err != nil {
		return failure(err), nil
	}
	if k.lock.kind == none {
		return node.Reply{Status: node.Absent}, nil
	}
	mode := node.Exclusive
	if k.lock.mode() != "" {
		mode = node.Write
	}
	s.erase(k.lock)
	s.publish(k.name, mode)
	s.notifyNext(now, k, false, handover{})
	return node.Reply{Status: node.Released}, s.notices
}

// latest is the highest token of a lock that is there: readers have fences of their own.
func (s *Server) latest(now Time, k *names) (node.Token, error) {
	if k.lock.mode() == reading {
		return s.fenceOf(now, k, node.Write)
	}
	return k.fence.token()
}

// publish reports whether somebody listens on the name's channel.
func (s *Server) publish(name string, mode node.Mode) (watched bool) {
	if mode == node.Read {
		mode = node.Write // they have one channel
	}
	s.notices = append(s.notices, Notice{Name: name, Mode: mode})
	return s.Ears != nil && s.Ears.Watched(name, mode)
}

func (s *Server) listens(waiter string) bool { return s.Ears != nil && s.Ears.Listens(waiter) }

func failure(err error) node.Reply { return node.Reply{Err: err} }

// raise sets the fence to token if it is below, and keeps it until kept.
func (s *Server) raise(fence *key, token node.Token, kept Time) error {
	seen, err := fence.token()
	if err == nil && token > seen {
		s.setFence(fence, token, kept)
	}
	return err
}

func (s *Server) setFence(fence *key, token node.Token, kept Time) {
	s.erase(fence)
	fence.kind, fence.number, fence.expires = number, token, kept
}

// lookUp returns a name's keys, with the lock and its fence as of now.
func (s *Server) lookUp(now Time, name string) *names {
	n := s.of(name)
	s.expire(now, n.lock)
	s.expire(now, n.fence)
	return n
}

func (s *Server) of(name string) *names {
	end := 0
	if name != "" {
		end = int(name[len(name)-1]) % len(s.recent)
	}
	n := s.recent[end]
	if n == nil || n.name != name {
		n = s.search(name)
		s.recent[end] = n
	}
	return n
}

// search is of without a look at recent.
func (s *Server) search(name string) *names {
	n := s.names[name]
	if n == nil {
		if s.names == nil {
			s.names = make(map[string]*names)
		}
		n = &names{name: name, lock: s.key(name), fence: s.key(node.FenceKey(name)),
			places: node.AppendPlacePrefix(nil, name)}
		s.names[name] = n
	}
	return n
}

func (s *Server) at(now Time, name string) *key {
	k := s.key(name)
	s.expire(now, k)
	return k
}

func (s *Server) key(name string) *key {
	k := s.keys[name]
	if k == nil {
		if s.keys == nil {
			s.keys = make(map[string]*key)
		}
		k = s.blank()
		s.keys[name] = k
	}
	return k
}

// blank returns a key without content, in memory and on the disk.
func (s *Server) blank() *key {
	if last := len(s.spare) - 1; last >= 0 {
		k := s.spare[last]
		s.spare = s.spare[:last]
		s.keep(k)
		return k
	}
	k := &key{epoch: s.epoch}
	s.unsynced = append(s.unsynced, k)
	return k
}

// drop removes the key that was looked up last, k, or nil if it is not there. Its memory
// is not reused under this name, as owners do not come again.
func (s *Server) drop(k *key) {
	if k == nil {
		return
	}
	s.erase(k)
	if k.synced.kind == none {
		delete(s.keys, string(s.sought))
		s.spare = append(s.spare, k)
	}
}

func (s *Server) hold(name, owner string) *key {
	s.sought = node.AppendHoldKey(s.sought[:0], name, owner)
	return s.keys[string(s.sought)]
}

func (s *Server) place(n *names, waiter string) *key {
	s.sought = append(append(s.sought[:0], n.places...), waiter...)
	return s.keys[string(s.sought)]
}

// found returns the key that was looked up last, k, or a new one if k is nil.
func (s *Server) found(k *key) *key {
	if k == nil {
		k = s.key(string(s.sought))
	}
	return k
}

func (s *Server) expire(now Time, k *key) {
	if k.kind != none && now > k.expires {
		s.bygone(k)
	}
}

// bygone removes an expired key, which is no write. It is separate so that expire can be
// inlined.
//
//go:noinline
func (s *Server) bygone(k *key) {
	s.keep(k)
	k.clear()
}

func (s *Server) erase(k *key) {
	s.change(k)
	k.clear()
}

// change precedes every change of k by a command.
func (s *Server) change(k *key) {
	if s.refuses {
		s.writes()
	}
	s.keep(k)
}

// writes precedes a write of a server that refuses some.
func (s *Server) writes() {
	if s.refusal != node.ErrOutOfMemory {
		panic(s.refusal) // for applyRefusing
	}
	s.admitted = true
}

// needsMemory precedes what may be a command's first write, if it needs memory.
func (s *Server) needsMemory() {
	if s.refuses && !s.admitted {
		panic(s.refusal)
	}
}

// admitRelease admits a release that frees something, or needs no memory for its fences.
// Others must not fill the server.
func (s *Server) admitRelease(now Time, cmd *node.Command) {
	if !s.refuses {
		return
	}
	raises, frees := false, false
	for i := range cmd.Claims {
		c := &cmd.Claims[i]
		k := s.lookUp(now, c.Name)
		seen, err := k.fence.token()
		raises = raises || err == nil && c.Token > seen
		for _, field := range [...]string{c.Owner, c.Owner + node.WriteSuffix, node.Offer(c.Owner),
			node.Offer(c.Owner) + node.WriteSuffix} {
			_, mine := k.lock.find(field)
			frees = frees || mine
		}
		if cmd.Wait.Queued() {
			place := s.place(k, cmd.Wait.Waiter)
			frees = frees || place != nil && place.alive(now)
		}
	}
	if raises && !frees {
		panic(s.refusal)
	}
	s.admitted = true
}

// keep precedes every change of k: it keeps what the last Sync saw.
func (s *Server) keep(k *key) {
	if k.epoch == s.epoch {
		return
	}
	k.epoch = s.epoch
	k.synced.copy(&k.content)
	s.unsynced = append(s.unsynced, k)
}

// clear keeps the memory.
func (c *content) clear() { *c = content{fields: c.fields[:0], line: c.line[:0]} }

func (c *content) copy(from *content) {
	fields, line := append(c.fields[:0], from.fields...), append(c.line[:0], from.line...)
	*c = *from
	c.fields, c.line = fields, line
}

// find searches in order, as a lock usually has one field.
func (c *content) find(field string) (int, bool) {
	for i := range c.fields {
		if c.fields[i].Name == field {
			return i, true
		}
	}
	return 0, false
}

func (c *content) left(now Time) time.Duration {
	if c.expires == Never {
		return node.NoExpiry
	}
	return time.Duration(c.expires-now) * time.Millisecond
}

// longer treats NoExpiry as the longest.
func longer(a, b time.Duration) time.Duration {
	if a == node.NoExpiry || b == node.NoExpiry {
		return node.NoExpiry
	}
	return max(a, b)
}

var (
	errNoNumber  = fmt.Errorf("%w: the fence is not a number", node.ErrWrongType)
	errFenceType = fmt.Errorf("%w: the fence is not a string", node.ErrWrongType)
)

func (c *content) token() (node.Token, error) {
	switch c.kind {
	case none, number:
		return c.number, nil
	}
	return c.foreignToken()
}

func (c *content) foreignToken() (node.Token, error) {
	if c.kind != text {
		return 0, errFenceType
	}
	token, err := strconv.ParseInt(c.text, 10, 64)
	if err != nil {
		return 0, errNoNumber
	}
	return node.Token(token), nil
}
