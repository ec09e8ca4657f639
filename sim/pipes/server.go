package pipes

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/sim"
)

// A redis is miniredis with a clock of its own, one thread, a disk, and an end. Nothing
// in it waits; its callers do.
type redis struct {
	w      *world
	nodes  faults.Set
	number int // of the first of them

	mu    sync.Mutex
	data  *miniredis.Miniredis
	last  time.Time     // how far the time of data has come
	now   time.Duration // of the plan, then
	begun time.Time     // of its life
	id    string
	grown bool // it was a replica that has taken over
	faults.Server
	disk  []stored // what it had at the latest full second
	conns []*conn

	current *conn     // whose command is executed
	read    []string  // the keys that it has read
	free    time.Time // when its thread is
	lives   int
}

type stored struct {
	db      int
	key     string
	expires time.Duration            // by the server's clock
	put     func(*miniredis.RedisDB) // makes it
}

const forever = time.Duration(1 << 62)

func newRedis(w *world, number int) *redis {
	s := &redis{w: w, nodes: w.p.Server(number), number: number, Server: faults.Server{Mode: faults.Durable},
		data: miniredis.NewMiniRedis(), begun: w.begun.Add(-365 * 24 * time.Hour), last: w.begun}
	first, err := s.data.Dial() // starts it without a listener
	if err != nil {
		panic(err) // only listening can fail
	}
	first.Close()
	s.data.Server().Close() // ends the goroutines that served first, and nothing else
	s.data.Server().SetPreHook(s.hook)
	s.data.SetTime(s.last)
	s.name()
	return s
}

func (s *redis) name() {
	s.lives++
	s.id = fmt.Sprintf("%039d%d", s.number, s.lives)
}

// clock is called with s.mu held.
func (s *redis) clock() time.Time {
	d := s.w.p.DayOf(func(procs faults.Procs) bool { return procs.Nodes&s.nodes != 0 }, s.now)
	return s.w.begun.Add(s.now + d.Ahead + d.Gain(s.now))
}

// tick brings the keys to the present, with s.mu held.
func (s *redis) tick() {
	s.now = s.w.now()
	now := s.clock()
	if d := now.Sub(s.last); d != 0 {
		s.last = now
		s.data.SetTime(now)
		s.data.FastForward(d)
		s.invalidates(nil)
	}
}

func (s *redis) hook(peer *server.Peer, cmd string, args ...string) (done bool) {
	switch cmd {
	case "INFO":
		peer.WriteBulk(s.info(args))
		return true
	case "SET", "SETNX", "HSET", "ZADD":
		if s.Lacks(faults.Memory) {
			peer.WriteError("OOM command not allowed when used memory > 'maxmemory'.")
			return true
		}
		return s.refusesWrites(peer)
	case "DEL", "HDEL", "PEXPIRE", "PEXPIREAT", "ZREM":
		return s.refusesWrites(peer)
	case "GET":
		s.read = append(s.read, args[0])
	case "CLIENT":
		if len(args) > 1 && strings.EqualFold(args[0], "list") {
			peer.WriteBulk("")
			return true
		}
		if s.tracks(args) {
			peer.WriteOK()
			return true
		}
	}
	return false
}

func (s *redis) refusesWrites(peer *server.Peer) bool {
	switch {
	case s.Demoted:
		peer.WriteError("READONLY You can't write against a read only replica.")
	case s.Lacks(faults.Disk):
		peer.WriteError("MISCONF Errors writing to the AOF file: No space left on device")
	default:
		return false
	}
	return true
}

// info has what redisnode asks for.
func (s *redis) info(args []string) string {
	if len(args) > 0 && strings.EqualFold(args[0], "replication") {
		role, before := "master", strings.Repeat("0", 40)
		if s.Demoted {
			role = "slave"
		}
		if s.grown {
			before = strings.Repeat("1", 40)
		}
		return fmt.Sprintf("# Replication\r\nrole:%s\r\nmaster_replid:%s\r\nmaster_replid2:%s\r\n", role, s.id, before)
	}
	return fmt.Sprintf("# Server\r\nredis_version:7.2.4\r\nredis_mode:standalone\r\nrun_id:%s\r\nuptime_in_seconds:%d\r\n", s.id,
		int(time.Since(s.begun).Seconds()))
}

// slot is when a command that arrives now ends.
func (s *redis) slot(random func(faults.Range) time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.free.Before(now) {
		s.free = now
	}
	if s.Slow.Max > 0 {
		s.free = s.free.Add(random(s.Slow))
	}
	if e := s.Starved; e != nil {
		in := s.free.Sub(s.w.begun.Add(e.At)) % faults.Slice
		if in >= time.Duration(int64(faults.Slice)/1e6*int64(e.Ratio)) {
			s.free = s.free.Add(faults.Slice - in)
		}
	}
	if s.free.After(now) {
		s.free = s.free.Add(1) // one after the other
	}
	return s.free
}

// execute drops a command from another life or a closed connection.
func (s *redis) execute(c *conn, words []string, kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Down || c.left || c.life != s.lives {
		return
	}
	s.tick()
	s.current = c
	s.data.Server().Dispatch(c.peer, words)
	s.current = nil
	c.peer.Flush()
	s.invalidates(c)
	s.remember(c)
	if kind != "" {
		s.w.report(sim.Entry{Kind: sim.KindExecute, Client: c.l.client, Node: c.l.node, Text: kind})
		s.tell()
	}
}

// again executes a copy, whose answer nobody reads.
func (s *redis) again(words []string, db int, l *link, kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Down {
		return
	}
	s.tick()
	peer := server.NewPeer(bufio.NewWriter(new(bytes.Buffer)))
	s.data.Server().Dispatch(peer, []string{"SELECT", strconv.Itoa(db)})
	s.data.Server().Dispatch(peer, words)
	s.w.report(sim.Entry{Kind: sim.KindExecute, Client: l.client, Node: l.node, Text: "a copy of " + kind})
	s.tell()
}

// tell reports what the server's nodes have, with s.mu held.
func (s *redis) tell() {
	for n, at := range s.w.nodes {
		if at.redis != s {
			continue
		}
		for _, name := range s.w.p.Names() {
			e := sim.Entry{Kind: sim.KindKey, Client: -1, Node: n, Name: name}
			if !s.Down {
				s.holds(&e, at.db)
			}
			s.w.report(e)
		}
	}
}

func (s *redis) holds(e *sim.Entry, db int) {
	key, data := s.w.lock.Key(e.Name), s.data.DB(db)
	switch data.Type(key) {
	case "hash":
		names, _ := data.HKeys(key)
		var fields []node.Field
		for _, name := range names {
			fields = append(fields, node.Field{Name: name, Value: data.HGet(key, name)})
		}
		e.Owners(fields)
	case "string":
		e.Owner, _ = data.Get(key)
	default:
		return
	}
	if e.Until = forever; data.TTL(key) != 0 {
		e.Until = s.w.now() + data.TTL(key)
	}
}

// connect returns false if the server is down.
func (s *redis) connect(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Down {
		return false
	}
	c.life, c.born = s.lives, s.begun.Sub(s.w.begun)
	c.peer = server.NewPeer(bufio.NewWriterSize(c, 1<<16))
	s.conns = append(s.conns, c)
	return true
}

func (s *redis) disconnect(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave(c)
	s.conns = slices.DeleteFunc(s.conns, func(o *conn) bool { return o == c })
}

// breakLink breaks the connections over a link. If they are half open, neither end knows
// until the fault ends.
func (s *redis) breakLink(l *link, halfOpen, end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = slices.DeleteFunc(s.conns, func(c *conn) bool {
		switch {
		case c.l != l || end && !c.dead.Load():
			return false
		case halfOpen && !end:
			c.dead.Store(true)
			return false
		}
		c.dead.Store(false)
		s.leave(c)
		c.reset()
		return true
	})
}

func (s *redis) leave(c *conn) {
	if !c.left {
		c.left = true
		s.data.Server().Dispatch(c.peer, []string{"UNSUBSCRIBE"})
	}
}

func (s *redis) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		s.leave(c) // whose end was lost on the way
	}
	s.data.Close()
}

func (s *redis) strike(e *faults.Event, end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick()
	for _, verb := range s.Strike(e, end) {
		s.do(verb, e, end)
	}
	s.tick()
	s.invalidates(nil)
	s.tell()
}

// do is called with s.mu held.
func (s *redis) do(verb faults.Verb, e *faults.Event, end bool) {
	switch verb {
	case faults.Crash:
		s.crash()
	case faults.Restart:
		s.restart()
	case faults.Demote:
		s.demote(e)
	case faults.Block, faults.Pause, faults.Suspend:
		if until := time.Now().Add(e.For); !end && s.free.Before(until) {
			s.free = until
		}
	case faults.Evict:
		s.evict(e.Procs.Nodes)
	case faults.Flush:
		s.load(nil)
	case faults.ScriptFlush:
		s.forgetScripts()
	}
}

// evict removes the locks of the nodes on this server, with s.mu held.
func (s *redis) evict(nodes faults.Set) {
	for n, at := range s.w.nodes {
		if at.redis != s || !nodes.Has(n) {
			continue
		}
		for _, name := range s.w.p.Names() {
			s.data.DB(at.db).Del(s.w.lock.Key(name))
		}
	}
}

func (s *redis) forgetScripts() {
	s.data.Server().Dispatch(server.NewPeer(bufio.NewWriter(new(bytes.Buffer))), []string{"SCRIPT", "FLUSH"})
}

// crash is called with s.mu held.
func (s *redis) crash() {
	s.free = time.Time{}
	for _, c := range s.conns {
		s.leave(c)
		c.reset()
	}
	s.conns = nil
}

// restart begins a life with what there was, or less.
func (s *redis) restart() {
	s.begun, s.grown = s.w.begun.Add(s.now), false
	s.name()
	s.forgetScripts()
	switch s.Mode {
	case faults.Replica:
		s.begun, s.grown = s.w.begun.Add(-365*24*time.Hour), true
		s.load(s.disk)
	case faults.Second:
		s.load(s.disk)
	case faults.Empty:
		s.load(nil)
	}
}

func (s *redis) demote(e *faults.Event) {
	switch {
	case e.Source != 0:
		for n, at := range s.w.nodes {
			if e.Source.Has(n) {
				at.redis.mu.Lock() // a source is no replica of itself, and plans strike one node at a time
				keys := at.redis.dump()
				at.redis.mu.Unlock()
				s.load(keys)
			}
		}
	case e.Mode == faults.Second:
		s.load(s.disk)
	case e.Mode == faults.Empty:
		s.load(nil)
	}
}

func (s *redis) sync() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.Down {
		s.tick()
		s.disk = s.dump()
	}
}

// dump is called with s.mu held.
func (s *redis) dump() (all []stored) {
	now := s.last.Sub(s.w.begun)
	for db := range len(s.w.nodes) + 1 {
		data := s.data.DB(db)
		for _, key := range data.Keys() {
			k := stored{db: db, key: key, expires: forever}
			if ttl := data.TTL(key); ttl > 0 {
				k.expires = now + ttl
			}
			switch data.Type(key) {
			case "hash":
				var pairs []string
				fields, _ := data.HKeys(key)
				for _, f := range fields {
					pairs = append(pairs, f, data.HGet(key, f))
				}
				k.put = func(to *miniredis.RedisDB) { to.HSet(key, pairs...) }
			case "zset":
				scores, _ := data.SortedSet(key)
				scores = maps.Clone(scores)
				k.put = func(to *miniredis.RedisDB) {
					for member, score := range scores {
						_, _ = to.ZAdd(key, score, member)
					}
				}
			default:
				value, _ := data.Get(key)
				k.put = func(to *miniredis.RedisDB) { _ = to.Set(key, value) }
			}
			all = append(all, k)
		}
	}
	return all
}

// load is called with s.mu held.
func (s *redis) load(keys []stored) {
	s.data.FlushAll()
	now := s.last.Sub(s.w.begun)
	for _, k := range keys {
		if k.expires <= now {
			continue
		}
		k.put(s.data.DB(k.db))
		if k.expires != forever {
			s.data.DB(k.db).SetTTL(k.key, k.expires-now)
		}
	}
}

func (s *redis) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick()
	s.free = time.Time{}
	for _, verb := range s.Heal() {
		s.do(verb, nil, true)
	}
	s.tell()
}
