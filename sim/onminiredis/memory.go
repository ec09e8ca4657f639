// Package onminiredis lets simulated nodes execute the Lua scripts of
// production, in miniredis (github.com/alicebob/miniredis), in the process and
// without sockets. A run is the same as on the model, event for event, and takes
// some fifty times as long.
//
//	sim.Run(plan, nil, sim.WithMemory(onminiredis.New))
//
// In miniredis time passes only by a call, which is made before each command. One thing
// differs from Redis, and is made up for: a key of p milliseconds is gone when p have
// passed; in Redis, when more than p have. So each life that a command gives is made a
// nanosecond longer, once: with whole milliseconds passing, the key is then there in
// the p-th, its PTTL is exact, and it is gone in the next.
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
	peer *server.Peer // sends it commands
	out  bytes.Buffer // and gets the answers
	now  model.Time   // how far its time has come
	disk []model.Entry

	refusal error // see Refuse
	written bool  // the present command has written

	ears      model.Ears
	claims    []node.Claim      // of the present command
	heirs     map[string]string // the waiters that have left standby claims, by their owners
	published []model.Notice    // by the present command
}

// New returns an empty memory.
func New(ears model.Ears) sim.Memory {
	m := &memory{data: miniredis.NewMiniRedis(), ears: ears}
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

// hear sees every command, also those of scripts. It refuses those that write as Redis does.
func (m *memory) hear(peer *server.Peer, cmd string, args ...string) (done bool) {
	switch cmd {
	case "PUBLISH":
		peer.WriteInt(m.publish(args[0], args[1]))
		return true
	case "SET", "DEL", "HSET", "HDEL", "PEXPIRE", "ZADD", "ZREM":
		needs := cmd == "SET" || cmd == "HSET" || cmd == "ZADD"
		if m.refusal == nil || m.refusal == node.ErrOutOfMemory && (m.written || !needs) {
			m.written = true
			return false
		}
		peer.WriteError(refusals[m.refusal])
		return true
	}
	return false
}

var refusals = map[error]string{
	node.ErrReadOnly:    "READONLY You can't write against a read only replica.",
	node.ErrMisconf:     "MISCONF Errors writing to the AOF file: No space left on device",
	node.ErrOutOfMemory: "OOM command not allowed when used memory > 'maxmemory'.",
}

// publish notes a message, and returns how many hear it.
func (m *memory) publish(channel, message string) int {
	process, toWaiter := strings.CutPrefix(channel, node.WaiterPrefix)
	if !toWaiter {
		n := model.Notice{Name: m.claims[0].Name}
		for _, c := range m.claims {
			switch channel {
			case node.Channel(c.Name):
				n.Name = c.Name
			case node.ReadWriteChannel(c.Name):
				n.Name, n.Mode = c.Name, node.Write
			}
		}
		m.published = append(m.published, n)
		return heard(m.ears != nil && m.ears.Watched(n.Name, n.Mode))
	}
	if m.ears == nil || !m.ears.Listens(process) {
		return 0
	}
	var n model.Notice
	switch what, rest, _ := strings.Cut(message, " "); what {
	case "turn":
		n.To, n.Name, _ = strings.Cut(rest, " ")
		n.Turn = node.Turn{Name: n.Name, Waiter: n.To}
	default:
		parts := strings.SplitN(rest, " ", 4)
		token, _ := strconv.ParseInt(parts[1], 10, 64)
		n.Name, n.To = parts[3], m.heirs[parts[0]]
		n.Turn = node.Turn{Name: n.Name, Owner: parts[0], Token: node.Token(token)}
	}
	m.published = append(m.published, n)
	return 1
}

func heard(is bool) int {
	if is {
		return 1
	}
	return 0
}

func (m *memory) Apply(now model.Time, cmd node.Command) (reply node.Reply, published []model.Notice) {
	m.Expire(now)
	m.claims, m.published, m.heirs, m.written = cmd.Claims, nil, make(map[string]string), false
	var places []string
	for _, c := range cmd.Claims {
		line, _ := m.data.ZMembers(node.QueueKey(c.Name))
		for _, waiter := range line {
			place := node.PlaceKey(c.Name, waiter)
			says, _ := m.data.Get(place)
			m.heirs[says] = waiter
			places = append(places, place)
		}
	}
	reply = redisnode.Execute(cmd, m.do)
	for _, c := range cmd.Claims {
		for _, key := range []string{c.Name, node.FenceKey(c.Name), node.ReadersKey(c.Name), node.NextKey(c.Name),
			node.HoldKey(c.Name, c.Owner), node.QueueKey(c.Name), node.PlaceKey(c.Name, cmd.Waiting().Waiter)} {
			m.prolong(key)
		}
		for owner := range m.heirs {
			m.prolong(node.HoldKey(c.Name, owner))
		}
	}
	for _, place := range places {
		m.prolong(place)
	}
	if reply.Status == node.Unknown {
		return reply, nil
	}
	return reply, m.published
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

// Refuse is for what comes over the connection: the methods of miniredis write still.
func (m *memory) Refuse(err error) { m.refusal = err }

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
