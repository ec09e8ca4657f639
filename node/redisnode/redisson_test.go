package redisnode_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/node"
)

// The tests of this file share locks of readers and writers with Redisson, as the
// scripts below and in testdata/redisson stand for it: what its RedissonReadLock and
// RedissonWriteLock do on a server, with its keys and arguments in its order, rewritten
// from its published behavior. Its latch, which only its own repeated unlocks see, is
// left out.

var (
	javaRead        = javaScript("read")
	javaReadUnlock  = javaScript("read_unlock")
	javaWrite       = javaScript("write")
	javaWriteUnlock = javaScript("write_unlock")
	javaReadRenew   = javaScript("read_renew")
	// KEYS lock; ARGV lease ms, owner: 1 if it was there.
	javaRenew = redis.NewScript(`
		if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return 0 end
		return redis.call('PEXPIRE', KEYS[1], ARGV[1])`)
	// KEYS lock; ARGV lease ms, owner: a plain RLock's, nil when acquired.
	javaPlain = redis.NewScript(`
		if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
			return redis.call('PTTL', KEYS[1])
		end
		redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
		redis.call('PEXPIRE', KEYS[1], ARGV[1])
		return nil`)
	// KEYS lock, channel; ARGV message: a plain RLock's last unlock.
	javaPlainUnlock = redis.NewScript(`
		redis.call('DEL', KEYS[1])
		redis.call('PUBLISH', KEYS[2], ARGV[1])
		return 1`)
)

// javaScript returns a script of testdata/redisson, which package quorum tries too.
func javaScript(name string) *redis.Script {
	text, err := os.ReadFile(filepath.Join("testdata", "redisson", name+".lua"))
	if err != nil {
		panic(err)
	}
	return redis.NewScript(string(text))
}

// A java is one thread of a Java program, with the lock "foo".
type java struct {
	t      *testing.T
	client *redis.Client
	owner  string
}

const (
	uuid = "5d3f0c2e-8f0b-4c55-9f64-0a1b2c3d4e5f:"
	null = -100 // stands for a script's nil
)

func (j java) run(script *redis.Script, keys []string, args ...any) int64 {
	j.t.Helper()
	n, err := script.Run(context.Background(), j.client, keys, args...).Int64()
	if errors.Is(err, redis.Nil) {
		return null
	}
	if err != nil {
		j.t.Fatal(err)
	}
	return n
}

func (j java) holds() string { return "{foo}:" + j.owner + ":rwlock_timeout" }

func (j java) read(lease time.Duration) int64 {
	j.t.Helper()
	return j.run(javaRead, []string{"foo", j.holds()}, lease.Milliseconds(), j.owner, j.owner+":write")
}

func (j java) readUnlock() int64 {
	j.t.Helper()
	return j.run(javaReadUnlock, []string{"foo", "redisson_rwlock:{foo}", j.holds(), "{foo}"}, 0, j.owner)
}

func (j java) write(lease time.Duration) int64 {
	j.t.Helper()
	return j.run(javaWrite, []string{"foo"}, lease.Milliseconds(), j.owner+":write")
}

func (j java) writeUnlock() int64 {
	j.t.Helper()
	return j.run(javaWriteUnlock, []string{"foo", "redisson_rwlock:{foo}"}, 1, 30000, j.owner+":write")
}

func (j java) readRenew(lease time.Duration) int64 {
	j.t.Helper()
	return j.run(javaReadRenew, []string{"foo", "{foo}"}, lease.Milliseconds(), j.owner)
}

// A shop has a server, a node on it, two Java threads, and an ear on both
// channels.
type shop struct {
	*testing.T
	n       node.Node
	client  *redis.Client
	j1, j2  java
	ear     *redis.PubSub
	highest node.Token
}

func newShop(t *testing.T) *shop {
	p := newServer(t)
	client := p.client(t)
	ear := client.Subscribe(context.Background(), "redisson_rwlock:{foo}", "redisson_lock__channel:{foo}")
	t.Cleanup(func() { ear.Close() })
	for range 2 {
		if _, err := ear.Receive(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	return &shop{T: t, n: connect(t, p), client: client, ear: ear,
		j1: java{t, client, uuid + "1"}, j2: java{t, client, uuid + "2"}}
}

// want has a command executed, with the next token.
func (s *shop) want(status node.Status, mode node.Mode, cmd node.Command) node.Reply {
	s.Helper()
	s.highest++
	cmd.Mode = mode
	if cmd.Kind == node.Acquire {
		cmd.Claims[0].Token = s.highest
	}
	return expect(s.T, mode.String()+" "+cmd.Kind.String(), ask(s.T, s.n, cmd), status)
}

func (s *shop) acquire(mode node.Mode, owner string, ttl time.Duration) {
	s.Helper()
	cmd := acquire("foo", owner, 0)
	cmd.TTL = ttl
	s.want(node.Granted, mode, cmd)
}

func (s *shop) refused(mode node.Mode, ttl time.Duration) {
	s.Helper()
	near(s.T, "TTL told", s.want(node.Refused, mode, acquire("foo", "refused", 0)).TTL, ttl)
}

func (s *shop) release(mode node.Mode, owner string) {
	s.Helper()
	s.want(node.Released, mode, release("foo", owner, s.highest))
}

func (s *shop) extend(mode node.Mode, owner string, ttl time.Duration, kept bool) {
	s.Helper()
	if r := s.want(node.Done, mode, extend(ttl, claim("foo", owner, 0)...)); r.Kept[0] != kept {
		s.Errorf("%s kept: %v", owner, r.Kept[0])
	}
}

func (s *shop) is(what string, got, want int64) {
	s.Helper()
	if got != want {
		s.Errorf("%s: %d, want %d", what, got, want)
	}
}

// blocked requires that Java got a TTL.
func (s *shop) blocked(what string, got int64, ttl time.Duration) {
	s.Helper()
	near(s.T, what, time.Duration(got)*time.Millisecond, ttl)
}

// heard requires that since the last call these were published: the payload and,
// after a colon, "rw" or "plain" for the channel.
func (s *shop) heard(want ...string) {
	s.Helper()
	s.client.Publish(context.Background(), "redisson_rwlock:{foo}", "end")
	var got []string
	for {
		m, err := s.ear.ReceiveMessage(context.Background())
		if err != nil {
			s.Fatal(err)
		}
		if m.Payload == "end" {
			break
		}
		channel := map[string]string{"redisson_rwlock:{foo}": "rw", "redisson_lock__channel:{foo}": "plain"}[m.Channel]
		got = append(got, m.Payload+":"+channel)
	}
	if !slices.Equal(got, want) {
		s.Errorf("heard %q, want %q", got, want)
	}
}

func (s *shop) ttl(want time.Duration) {
	s.Helper()
	near(s.T, "TTL of the lock", s.client.PTTL(context.Background(), "foo").Val(), want)
}

func (s *shop) free() {
	s.Helper()
	if s.client.Exists(context.Background(), "foo").Val() != 0 {
		s.Errorf("not free: %v", s.client.HGetAll(context.Background(), "foo").Val())
	}
}

func TestRedissonNames(t *testing.T) {
	for name, want := range map[string][2]string{
		"foo":   {"{foo}:u:1:rwlock_timeout:1", "redisson_rwlock:{foo}"},
		"a{b}c": {"a{b}c:u:1:rwlock_timeout:1", "redisson_rwlock:a{b}c"},
		"x{y":   {"x{y:u:1:rwlock_timeout:1", "redisson_rwlock:x{y"},
	} {
		if got := [2]string{node.HoldKey(name, "u:1"), node.ReadWriteChannel(name)}; got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestWritersExcludeWithRedisson(t *testing.T) {
	s := newShop(t)
	woken := make(chan bool, 10)
	defer s.n.Watch("foo", node.Read, func() { woken <- true })()
	<-woken
	s.is("Java writes", s.j1.write(30*time.Second), null)
	s.refused(node.Read, 30*time.Second)
	s.refused(node.Write, 30*time.Second)
	s.refused(node.Exclusive, 30*time.Second)
	s.is("Java ends", s.j1.writeUnlock(), 1)
	<-woken
	s.heard("1:rw")

	s.acquire(node.Write, "go", 30*time.Second)
	s.blocked("Java reads", s.j1.read(time.Second), 30*time.Second)
	s.blocked("Java writes", s.j1.write(time.Second), 30*time.Second)
	s.blocked("Java locks", s.j1.run(javaPlain, []string{"foo"}, 1000, s.j1.owner), 30*time.Second)
	s.is("Java ends what is not its", s.j1.writeUnlock(), null)
	s.is("Java renews what is not its", s.j1.run(javaRenew, []string{"foo"}, 99999, s.j1.owner+":write"), 0)
	s.ttl(30 * time.Second)
	s.release(node.Write, "go")
	s.heard("1:rw")
	s.is("Java writes", s.j1.write(time.Second), null)
}

func TestDowngradeLetsRedissonIn(t *testing.T) {
	s := newShop(t)
	s.acquire(node.Write, "go", 30*time.Second)
	if r := s.want(node.Done, node.Read, node.Command{Kind: node.Downgrade, Claims: claim("foo", "go", 0)}); !r.Kept[0] {
		t.Fatal("not kept")
	}
	s.heard("1:rw")
	s.is("Java reads", s.j1.read(60*time.Second), null)
	s.blocked("Java writes", s.j2.write(time.Second), 60*time.Second)
	s.is("Java ends", s.j1.readUnlock(), 0)
	s.ttl(30 * time.Second)
	s.release(node.Read, "go")
	s.heard("0:rw")
	s.free()
}

// No TTL is lost, whichever side renews or ends first.
func TestLivesOfReadersWithRedisson(t *testing.T) {
	s := newShop(t)
	s.is("Java reads", s.j1.read(10*time.Minute), null)
	s.acquire(node.Read, "go", 30*time.Second)
	s.extend(node.Read, "go", 30*time.Second, true)
	s.ttl(10 * time.Minute)
	s.release(node.Read, "go")
	s.ttl(10 * time.Minute)
	s.is("Java ends", s.j1.readUnlock(), 1)
	s.heard("0:rw")

	// Redisson's watchdog shortens the whole lock to its own lease. So a Go reader
	// with a longer one has to renew more often than that; or Java has to end.
	s.acquire(node.Read, "go", 10*time.Minute)
	s.is("Java reads", s.j1.read(30*time.Second), null)
	s.is("Java renews", s.j1.readRenew(30*time.Second), 1)
	s.ttl(30 * time.Second)
	s.extend(node.Read, "go", 10*time.Minute, true)
	s.ttl(10 * time.Minute)
	s.is("Java renews", s.j1.readRenew(30*time.Second), 1)
	s.is("Java ends", s.j1.readUnlock(), 0)
	s.ttl(10 * time.Minute)
	s.is("Java renews what is not its", s.j1.readRenew(time.Second), 0)
	s.ttl(10 * time.Minute)
	s.release(node.Read, "go")
	s.free()
}

// Redisson counts a reader's holds, each with a life of its own.
func TestReadersOfRedissonWithSeveralHolds(t *testing.T) {
	s := newShop(t)
	s.is("Java reads", s.j1.read(30*time.Second), null)
	s.is("Java reads again", s.j1.read(10*time.Minute), null)
	s.acquire(node.Read, "go", time.Minute)
	s.release(node.Read, "go")
	s.ttl(10 * time.Minute)
	s.client.Del(context.Background(), "{foo}:"+s.j1.owner+":rwlock_timeout:1") // as if it had expired
	s.refused(node.Write, 10*time.Minute)
	s.acquire(node.Read, "go", time.Minute)
	s.release(node.Read, "go")
	s.ttl(10 * time.Minute)
	s.is("Java ends one", s.j1.readUnlock(), 1) // the second hold was all that lived
	s.free()
}

func TestDeadReadersWithRedisson(t *testing.T) {
	s := newShop(t)
	ctx := context.Background()
	s.is("Java reads", s.j1.read(30*time.Second), null)
	s.acquire(node.Read, "go", time.Minute)
	s.client.Del(ctx, "{foo}:"+s.j1.owner+":rwlock_timeout:1") // as if it had expired
	s.release(node.Read, "go")
	s.heard("0:rw")
	s.free()

	s.acquire(node.Read, "go", time.Minute)
	s.is("Java reads", s.j1.read(30*time.Second), null)
	s.client.Del(ctx, node.HoldKey("foo", "go"))
	s.extend(node.Read, "go", time.Minute, false)
	s.is("Java ends", s.j1.readUnlock(), 1)
	s.heard("0:rw")
	s.free()

	// Java dies. Its field stays as long as Go renews, and keeps no writer out then.
	s.is("Java reads", s.j1.read(30*time.Second), null)
	s.client.Del(ctx, "{foo}:"+s.j1.owner+":rwlock_timeout:1")
	s.acquire(node.Write, "go", time.Minute)
	s.ttl(time.Minute)
	s.is("Java ends what it lost", s.j1.readUnlock(), null)
	s.release(node.Write, "go")
	s.heard("1:rw")
}

func TestBreakOfRedisson(t *testing.T) {
	s := newShop(t)
	for mode := node.Read; mode <= node.Write; mode++ {
		s.acquire(mode, "go", time.Minute)
		s.client.Del(context.Background(), "foo")
		s.extend(mode, "go", time.Minute, false)
		s.want(node.Absent, mode, release("foo", "go", s.highest))
	}
	s.is("Java reads", s.j1.read(30*time.Second), null)
	s.want(node.Released, node.Exclusive, breakLock("foo", s.highest))
	s.heard("1:rw")
	s.is("Java ends what it lost", s.j1.readUnlock(), null)
}

// Redisson differs in these cases.
func TestWhatRedissonDoesNotHeed(t *testing.T) {
	s := newShop(t)
	// A writer's place in the queue keeps Go's readers out, not Java's.
	s.is("Java reads", s.j1.read(30*time.Second), null)
	waiting := acquire("foo", "go", 0)
	waiting.Wait = &node.Wait{Ticket: 1, Waiter: node.NewWaiter("me", 1, node.Write), PlaceTTL: 10 * time.Second}
	s.want(node.Refused, node.Write, waiting)
	s.refused(node.Read, 10*time.Second)
	s.is("Java reads, too", s.j2.read(30*time.Second), null)
	s.is("Java ends", s.j1.readUnlock(), 0)
	s.is("Java ends, too", s.j2.readUnlock(), 1)
	s.heard("0:rw")
	s.want(node.Granted, node.Write, waiting)
	s.release(node.Write, "go")
	s.heard("1:rw")

	// A plain lock keeps Go's readers and writers out. Java's do not see it: they
	// look for a mode. So a name is one or the other.
	s.acquire(node.Exclusive, "plain", 30*time.Second)
	s.refused(node.Read, 30*time.Second)
	s.refused(node.Write, 30*time.Second)
	s.is("Java reads over a plain lock", s.j1.read(30*time.Second), null)
}

// With a ticket the lock is a plain one.
func TestTicketsWithRedisson(t *testing.T) {
	s := newShop(t)
	woken := make(chan bool, 10)
	defer s.n.Watch("foo", node.Exclusive, func() { woken <- true })()
	<-woken
	in := func(owner string) node.Command {
		cmd := acquire("foo", owner, 0)
		cmd.Wait = &node.Wait{Ticket: 7, Waiter: "me", PlaceTTL: time.Minute}
		return cmd
	}
	s.is("Java locks", s.j1.run(javaPlain, []string{"foo"}, 30000, s.j1.owner), null)
	near(t, "TTL told", s.want(node.Refused, node.Exclusive, in("go1")).TTL, 30*time.Second)
	s.j1.run(javaPlainUnlock, []string{"foo", "redisson_lock__channel:{foo}"}, 0)
	<-woken
	s.is("Java does not look at the queue", s.j2.run(javaPlain, []string{"foo"}, 30000, s.j2.owner), null)
	s.want(node.Refused, node.Exclusive, in("go2"))
	s.j2.run(javaPlainUnlock, []string{"foo", "redisson_lock__channel:{foo}"}, 0)
	s.want(node.Granted, node.Exclusive, in("go3"))
	s.blocked("Java locks", s.j1.run(javaPlain, []string{"foo"}, 1000, s.j1.owner), 10*time.Second)
	s.heard("0:plain", "0:plain")
	s.release(node.Exclusive, "go3")
	s.heard("0:plain")
	s.free()
}
