// Package onminiredis lets simulated nodes execute the Lua scripts of
// production, in miniredis (github.com/alicebob/miniredis), in the process and
// without sockets. A run is the same as on the model, event for event, and takes
// some fifty times as long.
//
//	sim.Run(plan, nil, sim.WithMemory(onminiredis.New))
//
// In miniredis time passes when it is told to, so it is told before each
// command. One thing differs from Redis, and is made up for: a key of p
// milliseconds is gone when p have passed; in Redis, when more than p have. So
// each life that a command gives is made a nanosecond longer, once: with whole
// milliseconds passing, the key is then there in the p-th, its PTTL is exact, and
// it is gone in the next.
//
// One difference from the model is left: when a server's clock is set back, the
// model brings back what had expired and was not used since. Here it is gone as
// soon as any command is executed. Only plans that are outside of what a lock
// with a lease can stand set a server's clock back.
package onminiredis

import (
	"bufio"
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/sim"
)

type memory struct {
	data *miniredis.Miniredis
	peer *server.Peer // who sends it commands
	out  bytes.Buffer // and gets the answers
	now  model.Time   // how far its time has come
	disk []model.Entry

	replica bool

	released []string // the channels on which something was published
	told     bool     // one of them is that of a process that waits in line
}

// New returns an empty memory.
func New() sim.Memory {
	m := &memory{data: miniredis.NewMiniRedis()}
	m.peer = server.NewPeer(bufio.NewWriter(&m.out))
	conn, err := m.data.Dial() // starts it without a listener
	if err != nil {
		panic(err) // only listening can fail
	}
	conn.Close()
	m.data.Server().Close() // ends the goroutines that served conn, and nothing else
	m.data.Server().SetPreHook(m.hear)
	return m
}

// hear sees every command, also those of scripts. A replica refuses those that write.
func (m *memory) hear(peer *server.Peer, cmd string, args ...string) (done bool) {
	switch cmd {
	case "PUBLISH":
		m.released = append(m.released, args[0])
		m.told = m.told || strings.HasPrefix(args[0], node.WaiterChannel(""))
	case "SET", "DEL", "HSET", "HDEL", "PEXPIRE", "ZADD", "ZREM":
		if m.replica {
			peer.WriteError("READONLY You can't write against a read only replica.")
		}
		return m.replica
	}
	return false
}

func (m *memory) Apply(now model.Time, cmd node.Command) (reply node.Reply, published []model.Notice) {
	m.Expire(now)
	m.released, m.told = m.released[:0], false
	var had []bool
	for _, c := range cmd.Claims {
		had = append(had, m.data.HGet(c.Name, c.Owner) != "" ||
			cmd.Waiting().Ticket > 0 && cmd.Waiting().PlaceTTL <= 0 && m.data.HGet(c.Name, node.Heir(c.Owner)) != "")
	}
	reply = redisnode.Execute(cmd, m.do)
	for _, c := range cmd.Claims {
		m.prolong(c.Name)
		m.prolong(node.FenceKey(c.Name))
		m.prolong(node.ReadersKey(c.Name))
		m.prolong(node.IntentKey(c.Name))
		m.prolong(node.HoldKey(c.Name, c.Owner))
		m.prolong(node.QueueKey(c.Name))
		m.prolong(node.PlaceKey(c.Name, cmd.Waiting().Waiter))
	}
	for i, c := range cmd.Claims {
		if slices.Contains(m.released, node.Channel(c.Name)) || slices.Contains(m.released, node.ReadWriteChannel(c.Name)) {
			n := model.Notice{Name: c.Name}
			if cmd.Handoff > 0 && had[i] {
				n.Next, n.Kept = cmd.Handoff, now+model.Time(node.Milliseconds(cmd.Retention))
			}
			if m.told { // nobody listens, so the script has tried all
				n.Line, _ = m.data.ZMembers(node.QueueKey(c.Name))
				n.Line = slices.DeleteFunc(n.Line, func(waiter string) bool {
					place, _ := m.data.Get(node.PlaceKey(c.Name, waiter))
					return place == "" || place == node.PlaceTold
				})
			}
			published = append(published, n)
		}
	}
	return reply, published
}

// Tell does what notify_next.lua does when somebody listens, which in this server nobody can.
func (m *memory) Tell(now model.Time, n model.Notice, waiter string, others bool) (owner string, token node.Token) {
	queue, place, fence := node.QueueKey(n.Name), node.PlaceKey(n.Name, waiter), node.FenceKey(n.Name)
	says, _ := m.data.Get(place)
	seen, _ := m.data.Get(fence)
	last, _ := strconv.ParseInt(seen, 10, 64)
	first := ""
	line, _ := m.data.ZMembers(queue)
	for _, other := range line {
		if first == "" && m.data.Exists(node.PlaceKey(n.Name, other)) {
			first = other
		}
	}
	ttl := m.data.TTL(place)
	if !node.IsHeir(says) || others || ttl < time.Millisecond || n.Next <= node.Token(last) || first != waiter {
		_, _ = m.do([]string{"SET", place, node.PlaceTold, "XX", "KEEPTTL"})
		return "", 0
	}
	m.data.HSet(n.Name, says, "1")
	m.data.SetTTL(n.Name, ttl)
	_, _ = m.do([]string{"SET", fence, fmt.Sprint(n.Next), "PX", fmt.Sprint(int64(n.Kept - now))})
	m.prolong(fence)
	_, _ = m.do([]string{"ZREM", queue, waiter})
	m.data.Del(place)
	return says, n.Next
}

func (m *memory) State(now model.Time, name string, state *node.State) error {
	r, _ := m.Apply(now, node.Command{Kind: node.Inspect, Claims: []node.Claim{{Name: name}}})
	if r.State == nil {
		return r.Err
	}
	*state = *r.State
	return nil
}

// do has a command executed.
func (m *memory) do(words []string) (any, error) {
	m.data.Server().Dispatch(m.peer, words)
	m.peer.Flush()
	val, err := server.ParseReply(bufio.NewReader(&m.out))
	return asGoRedis(val), err
}

// asGoRedis makes an answer what go-redis makes of it.
func asGoRedis(val any) any {
	switch v := val.(type) {
	case int:
		return int64(v)
	case []any:
		for i := range v {
			v[i] = asGoRedis(v[i])
		}
	}
	return val
}

// prolong adds the nanosecond to a life that was just given.
func (m *memory) prolong(key string) {
	if ttl := m.data.TTL(key); ttl > 0 && ttl%time.Millisecond == 0 {
		m.data.SetTTL(key, ttl+1)
	}
}

// Keeps does what the model's does, with what is in miniredis.
func (m *memory) Keeps(now model.Time, name, owner string, mode node.Mode) (until model.Time, ok bool) {
	switch mode {
	case node.Exclusive:
		return m.holds(now, name, owner)
	case node.Read:
		if until, ok := m.reads(now, name, owner); ok {
			return until, true
		}
	}
	return m.holds(now, name, owner+node.WriteSuffix)
}

func (m *memory) holds(now model.Time, name, field string) (until model.Time, ok bool) {
	if m.data.HGet(name, field) == "" {
		return 0, false
	}
	if until = m.expires(name); now > until {
		return 0, false
	}
	return until, true
}

func (m *memory) reads(now model.Time, name, owner string) (until model.Time, ok bool) {
	lock, ok := m.holds(now, name, owner)
	key := node.HoldKey(name, owner)
	if !ok || m.data.HGet(name, node.ModeField) != node.Read.String() || !m.data.Exists(key) {
		return 0, false
	}
	until = min(lock, m.expires(key))
	return until, now <= until
}

func (m *memory) expires(key string) model.Time {
	ttl := m.data.TTL(key)
	if ttl == 0 {
		return model.Never
	}
	return m.now + model.Time(ttl/time.Millisecond)
}

func (m *memory) Dump(now model.Time) (entries []model.Entry) {
	for _, key := range m.data.Keys() {
		e := model.Entry{Key: key, Type: m.data.Type(key), Expires: m.expires(key)}
		if now > e.Expires {
			continue
		}
		switch e.Type {
		case "hash":
			fields, _ := m.data.HKeys(key)
			for _, field := range fields {
				e.Fields = append(e.Fields, node.Field{Name: field, Value: m.data.HGet(key, field)})
			}
		case "zset":
			members, _ := m.data.ZMembers(key) // in the order of their scores
			for _, member := range members {
				score, _ := m.data.ZScore(key, member)
				e.Fields = append(e.Fields, node.Field{Name: member, Value: strconv.FormatInt(int64(score), 10)})
			}
		default:
			e.Value, _ = m.data.Get(key)
		}
		entries = append(entries, e)
	}
	return entries
}

func (m *memory) HSet(now model.Time, key, field, value string) error {
	m.Expire(now)
	_, err := m.do([]string{"HSET", key, field, value})
	if err != nil {
		return fmt.Errorf("%w: %w", node.ErrWrongType, err)
	}
	return nil
}

func (m *memory) PExpire(now model.Time, key string, ttl time.Duration) {
	m.Expire(now)
	_, _ = m.do([]string{"PEXPIRE", key, strconv.FormatInt(node.Milliseconds(ttl), 10)}) // 0 or 1
	m.prolong(key)
}

func (m *memory) Del(key string) { m.data.Del(key) }

func (m *memory) FlushAll() { m.data.FlushAll() }

// Expire brings m's time to now, which may be earlier.
func (m *memory) Expire(now model.Time) {
	if now != m.now {
		m.data.FastForward(time.Duration(now-m.now) * time.Millisecond)
		m.now = now
	}
}

// miniredis has no disk, so Sync and Restart are one.

func (m *memory) Sync() { m.disk = m.Dump(m.now) }

func (m *memory) Restart(loss model.Loss) {
	switch loss {
	case model.LoseUnsynced:
		m.Load(m.disk)
	case model.LoseEverything:
		m.Load(nil)
	}
	m.Sync()
}

func (m *memory) Load(entries []model.Entry) {
	m.data.FlushAll()
	for _, e := range entries {
		m.restore(e)
	}
	m.Sync()
}

// ReadOnly is for what comes over the connection: the methods of miniredis write still.
func (m *memory) ReadOnly(replica bool) { m.replica = replica }

func (m *memory) restore(e model.Entry) {
	if m.now > e.Expires {
		return
	}
	// These fail for a key of another type, and here is none.
	switch e.Type {
	case "hash":
		for _, f := range e.Fields {
			m.data.HSet(e.Key, f.Name, f.Value)
		}
	case "zset":
		for _, f := range e.Fields {
			score, _ := strconv.ParseFloat(f.Value, 64)
			_, _ = m.data.ZAdd(e.Key, score, f.Name)
		}
	case "string":
		_ = m.data.Set(e.Key, e.Value)
	}
	if e.Expires != model.Never {
		m.data.SetTTL(e.Key, time.Duration(e.Expires-m.now)*time.Millisecond+1)
	}
}
