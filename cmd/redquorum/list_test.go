package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/terminal"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/quorum"
)

func listOf(t *testing.T, exit int, urls string, args ...string) (l listJSON) {
	t.Helper()
	var got int
	var stdout, stderr string
	unlessLate(func() (string, bool) {
		got, stdout, stderr = redquorum(t, append([]string{"list", "--json", "--no-guard", "--nodes", urls}, args...)...)
		return stdout + stderr, got == exit
	})
	assert.That(t, got == exit, "exit status %d, want %d: %s", got, exit, stderr)
	decode(t, stdout, &l)
	return l
}

func (l listJSON) names() string {
	var names []string
	for _, lock := range l.Locks {
		names = append(names, lock.Name+" "+lock.State)
	}
	return strings.Join(names, ", ")
}

func TestList(t *testing.T) {
	t.Parallel()
	for kind, start := range map[string]func(*testing.T) []string{"embedded": embeddedAddrs, "redis-server": serverAddrs} {
		t.Run(kind, func(t *testing.T) {
			addrs := start(t)
			urls := strings.Join(addrs, ",")
			ctx := t.Context()
			out := want(t, exitOK, "no lock is held\n", "list", "--no-guard", "--nodes", urls)
			tests.Says(t, out, "!NAME")
			l := newLockerOf(t, urls, quorum.Options{NoRestartGuard: true})
			lease := hold(t, l, "orders/1")
			hold(t, l, "orders/2", quorum.WithWrite())
			hold(t, l, "app/x")
			readers := []*quorum.Lease{hold(t, l, "r", quorum.WithRead()), hold(t, l, "r", quorum.WithRead())}
			waited := waits(t, newLockerOf(t, urls, quorum.Options{NoRestartGuard: true}), "orders/1")
			// Keys that are no locks: more than one step reads, and other programs'
			// hashes.
			client := clientOf(t, addrs[0])
			_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i := range 2 * scanStep {
					p.HSet(ctx, fmt.Sprint("hash:", i), "field", i)
				}
				p.Set(ctx, "string", "text", 0)
				p.HSet(ctx, "orders/3", "00000000-0000-4000-8000-000000000000:12", 1) // Redisson's, on one node
				return p.PExpire(ctx, "orders/3", time.Minute).Err()
			})
			assert.Succeed(t, err)

			var all listJSON
			assert.Eventually(t, "all nodes, and the waiter", func() bool {
				all = listOf(t, exitOK, urls, "--all")
				return len(all.Unread) == 0 && len(all.Locks) == 5 && all.Locks[1].HeldBy == 3 && all.Locks[1].Waiting == 1 && all.Locks[4].HeldBy == 3 && len(all.Locks[4].Owners) == 2
			})
			assert.Equal(t, all.names(), "app/x held, orders/1 held, orders/2 held, orders/3 partial, r held")
			first, write, read := all.Locks[1], all.Locks[2], all.Locks[4]
			if first.Owner != lease.Owner() || first.Mode != "exclusive" || first.Left < 20_000 || first.Left > 30_000 || first.Nodes != 3 {
				t.Errorf("%+v", all)
			}
			assert.That(t, write.Mode == "write" && read.Mode == "read" && len(read.Owners) == len(readers), "%+v, %+v", write, read)
			lists := func(names string, args ...string) {
				t.Helper()
				assert.Eventually(t, names, func() bool { return listOf(t, exitOK, urls, args...).names() == names })
			}
			lists("orders/1 held", "orders/[13]")
			lists("x held", "--prefix", "app/")
			names := fileOf(t, "orders/2\norders/1\r\n\norders/3\nstring\nnobody's\n")
			lists("orders/2 held, orders/1 held", "--names-from", names)
			for _, addr := range addrs {
				clientOf(t, addr).Set(ctx, "string", "text", 0)
			}
			lists("orders/2 held, orders/1 held, orders/3 partial, string held", "--names-from", names, "--all")
			lists("x held", "--prefix", "app/", "--names-from", fileOf(t, "x"))
			special := hold(t, l, "[app]*/x")
			lists("x held", "--prefix", "[app]*/") // it looks like a pattern
			_ = special.Unlock(ctx)
			says := func(text string, args ...string) {
				t.Helper()
				assert.Eventually(t, text, func() bool {
					status, stdout, _ := redquorum(t, append([]string{"list", "--no-guard", "--nodes", urls}, args...)...)
					return status == exitOK && strings.Contains(stdout, text)
				})
			}
			says("2 locks are held; 1 more on too few nodes: --all lists them\n", "orders/*")
			says("partial  orders/3  exclusive  ", "orders/3", "--all")
			says("no lock is held; 1 more on too few nodes\n", "orders/3", "--all")
			_ = lease.Unlock(ctx)
			<-waited
		})
	}
}

// A truncated reply has no names.
func TestScanIsCutShort(t *testing.T) {
	o := redisnode.Server{Options: &redis.Options{Protocol: 2, MaxRetries: -1, DisableIdentity: true}}
	o.Options.Dialer = func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			b := make([]byte, 1<<10)
			for n, err := 0, error(nil); err == nil && !strings.Contains(string(b[:n]), "scan"); {
				if n, err = far.Read(b); !strings.Contains(string(b[:n]), "scan") {
					_, _ = far.Write([]byte("-ERR unknown command\r\n"))
				}
			}
			_, _ = far.Write([]byte("*2\r\n$1\r\n0\r\n*3\r\n$1\r\na\r\n"))
		}()
		return near, nil
	}
	names, err := scan(t.Context(), o, "", "*")
	assert.That(t, len(names) == 0 && err != nil, "%q, %v", names, err)
}

type late struct{ node.Node }

func (n late) Submit(cmd node.Command, reply func(node.Reply)) {
	if cmd.Kind == node.Inspect && cmd.Claims[0].Name == "a" {
		reply(node.Reply{Err: node.ErrTimeout})
		return
	}
	n.Node.Submit(cmd, reply)
}

// A lock is not missing because nodes did not answer about it.
func TestListOfLateNodes(t *testing.T) {
	l, err := quorum.New([]node.Node{late{model.New(clock.System(), "n1")}, late{model.New(clock.System(), "n2")}, model.New(clock.System(), "n3")},
		quorum.Options{NoRestartGuard: true})
	assert.Succeed(t, err)
	t.Cleanup(func() { _ = l.Close() })
	errs := make([]error, 3)
	locks := assert.Got(inspectAll(t.Context(), l, []string{"a", "b"}, errs))(t)
	assert.That(t, len(locks) == 0 && errs[0] != nil && errs[1] != nil && errs[2] == nil, "%v, %v", locks, errs)
}

// Nodes that are not read are named. A majority is enough to find every lock.
func TestListWithoutNodes(t *testing.T) {
	tests.NeedLong(t)
	servers, urls := startNodes(t, 3)
	hold(t, newLocker(t, urls), "a")
	servers[0].Stall()
	var l listJSON
	assert.Eventually(t, "held on the other nodes", func() bool {
		l = listOf(t, exitOK, urls)
		return l.names() == "a held" && len(l.Unread) == 1
	})
	assert.That(t, l.Unread[0].Node == servers[0].Addr(), "%+v", l)
	servers[1].Kill()
	l = listOf(t, exitError, urls)
	assert.That(t, len(l.Unread) == 2, "%+v", l)
	want(t, exitError, "unknown: 1 of 3 nodes are usable, 2 needed; 1 may be held: too few", "list", "--nodes", urls)
	servers[0].Resume()
}

func TestListAfterARestart(t *testing.T) {
	servers, urls := startNodes(t, 3)
	hold(t, newLocker(t, urls), "a")
	restart := func(i int) {
		servers[i].Kill()
		assert.Succeed(t, servers[i].Restart(true))
	}
	restart(0)
	tests.Says(t, want(t, exitOK, "1 lock is held\n", "list", "--nodes", urls), "may have lost locks")
	restart(1)
	restart(2)
	tests.Says(t, want(t, exitError, "unknown: 0 of 3 nodes are usable, 2 needed\n", "list", "--nodes", urls), "may have lost locks")
	want(t, exitOK, "no lock is held\n", "list", "--nodes", urls, "--no-guard")
}

func TestListOfNothing(t *testing.T) {
	const urls = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
	tests.Says(t, want(t, exitError, "unknown: 0 of 3 nodes are usable, 2 needed\n", "list", "--nodes", urls), "!held", "redquorum list: not usable: 127.0.0.1:1, 127.0.0.1:2, 127.0.0.1:3: connection refused\n")
	l := listOf(t, exitError, urls)
	assert.That(t, l.Verdict == "unknown" && l.Read == 0 && l.Needed == 2 && len(l.Unread) == 3, "%+v", l)
}

func TestListVerdict(t *testing.T) {
	lock := func(states ...string) (locks []lockJSON) {
		for _, s := range states {
			locks = append(locks, lockJSON{State: s})
		}
		return locks
	}
	for _, c := range []struct {
		locks  []lockJSON
		all    bool
		unread int
		want   string
	}{
		{nil, false, 0, "no lock is held"},
		{nil, false, 1, "no lock is held"},
		{nil, false, 2, "unknown: 1 of 3 nodes are usable, 2 needed"},
		{lock("held"), false, 0, "1 lock is held"},
		{lock("held", "held"), false, 2, "unknown: 1 of 3 nodes are usable, 2 needed; 2 locks are held"},
		{lock("partial", "held"), false, 0, "1 lock is held; 1 more on too few nodes: --all lists them"},
		{lock("partial"), true, 0, "no lock is held; 1 more on too few nodes"},
		{lock("unknown"), false, 0, "no lock is held; 1 may be held: too few nodes are usable: --all lists them"},
		{lock("unknown"), true, 2, "unknown: 1 of 3 nodes are usable, 2 needed; 1 may be held: too few nodes are usable"},
	} {
		assert.Equal(t, newList(c.locks, c.all, 3, make([]unreadJSON, c.unread)).verdict(c.all), c.want)
	}
}

func TestIsLock(t *testing.T) {
	const owner = "0a1b2c3d-0000-8000-8000-000000000000:12"
	for _, c := range []struct {
		fields string
		want   bool
	}{
		{owner + " 1", true},
		{owner + ":offer 1", true},
		{"mode read " + owner + " 1 " + owner + "3 2", true},
		{"mode write " + owner + ":write 1", true},
		{"", false},
		{"mode read", false},
		{"mode dark " + owner + " 1", false},
		{owner + " one", false},
		{owner + " 1 name x", false},
		{"user:12 1", false},
	} {
		assert.Equal(t, isLock(strings.Fields(c.fields)), c.want, c.fields)
	}
}

func TestLeft(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		ttls []time.Duration
		want time.Duration
	}{
		{[]time.Duration{30 * s, 20 * s, 10 * s}, 20 * s}, // the majority ends with its second
		{[]time.Duration{30 * s, 20 * s}, 20 * s},
		{[]time.Duration{5 * s}, 5 * s},
		{[]time.Duration{node.NoExpiry, 20 * s, 10 * s}, 20 * s},
		{[]time.Duration{node.NoExpiry, node.NoExpiry, 10 * s}, node.NoExpiry},
		{[]time.Duration{node.NoExpiry}, node.NoExpiry},
	} {
		r := &quorum.Report{Owner: "a", Quorum: 2, Nodes: []quorum.NodeReport{{Owners: []string{"b"}, TTL: time.Hour}}}
		for _, ttl := range c.ttls {
			r.Nodes = append(r.Nodes, quorum.NodeReport{Owners: []string{"a"}, TTL: ttl})
		}
		assert.Equal(t, left(r), c.want, c.ttls)
	}
}

func TestCut(t *testing.T) {
	for line, want := range map[string]string{"": "", "12345": "12345", "123456": "1234…", "GrößeÄ": "Größ…"} {
		assert.Equal(t, terminal.Cut(line, 5), want, line)
	}
}
