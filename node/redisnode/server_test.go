package redisnode_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/node/redisserver"
)

type process struct {
	*redisserver.Server
	t    testing.TB
	addr string // host:port
}

func TestMain(m *testing.M) {
	tests.Parallel(16)
	os.Exit(m.Run())
}

// newServer has no persistence.
func newServer(t testing.TB, args ...string) *process {
	t.Helper()
	s := tests.Server(t, args...)
	return &process{Server: s, t: t, addr: s.Addr()}
}

func (p *process) restart() {
	p.t.Helper()
	assert.Succeed(p.t, p.Restart(false))
}

func (p *process) freeze() {
	p.t.Helper()
	assert.Succeed(p.t, p.Stop())
}

func (p *process) thaw() { p.Cont() }

// allow changes the rules for the user locker, except for channels before Redis 6.2.
func (p *process) allow(rules ...any) {
	p.t.Helper()
	if !p.rulesChannels() {
		rules = slices.DeleteFunc(slices.Clone(rules), func(rule any) bool {
			return rule == "resetchannels" || strings.HasPrefix(rule.(string), "&")
		})
	}
	p.do(append([]any{"acl", "setuser", "locker"}, rules...)...)
}

// locker makes a user with these rules alone, and returns its URL.
func (p *process) locker(rules ...any) (url string) {
	p.t.Helper()
	p.allow(append([]any{"reset", "on", ">s3cret"}, rules...)...)
	return "redis://locker:s3cret@" + p.addr
}

func (p *process) rulesChannels() bool {
	return !strings.HasPrefix(infoField(p, "server", "redis_version"), "6.0.")
}

func (p *process) needChannelRules() {
	p.t.Helper()
	if !p.rulesChannels() {
		p.t.Skip("this server has no rules for channels")
	}
}

func freePort(t testing.TB) string {
	t.Helper()
	l := assert.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func (p *process) client(t testing.TB) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: p.addr, MaxRetries: -1, DisableIdentity: true})
	t.Cleanup(func() { c.Close() })
	return c
}

func (p *process) do(args ...any) any {
	p.t.Helper()
	c := redis.NewClient(&redis.Options{Addr: p.addr, DisableIdentity: true})
	defer c.Close()
	val, err := c.Do(context.Background(), args...).Result()
	assert.Must(p.t, err == nil, "%v: %v", args, err)
	return val
}

func connect(t testing.TB, p *process) node.Node {
	t.Helper()
	return dial(t, "redis://"+p.addr)
}

func serve(t testing.TB, args ...string) (*process, node.Node) {
	t.Helper()
	p := newServer(t, args...)
	return p, connect(t, p)
}

func dial(t testing.TB, url string) node.Node {
	t.Helper()
	nodes := assert.Got(redisnode.Dial(url))(t)
	t.Cleanup(func() { nodes[0].Close() })
	return nodes[0]
}

// soon is generous, as the machine may be busy: f only must not wait for what takes a
// minute.
func soon(t testing.TB, what string, f func()) {
	t.Helper()
	began := time.Now()
	f()
	took := time.Since(began)
	assert.That(t, took <= 10*time.Second, "%s took %v", what, took)
}

var system = clock.System()

func after(d time.Duration) clock.Instant { return system.Now().Add(d) }

// submit gives commands without a deadline ten seconds. wait returns their replies.
func submit(n node.Node, cmds ...node.Command) (wait func() []node.Reply) {
	replies := make([]node.Reply, len(cmds))
	var open sync.WaitGroup
	for i, cmd := range cmds {
		if cmd.Deadline == 0 {
			cmd.Deadline = after(10 * time.Second)
		}
		if cmd.Retention == 0 {
			cmd.Retention = time.Hour
		}
		open.Add(1)
		n.Submit(cmd, func(r node.Reply) { replies[i] = r; open.Done() })
	}
	return func() []node.Reply { open.Wait(); return replies }
}

func ask(t testing.TB, n node.Node, cmd node.Command) node.Reply {
	t.Helper()
	r := submit(n, cmd)()[0]
	assert.Must(t, (r.Err != nil) == (r.Status == node.Unknown), "%v: status %v with error %v", cmd.Kind, r.Status, r.Err)
	return r
}

func claim(name, owner string, token node.Token) []node.Claim {
	return []node.Claim{{Name: name, Owner: owner, Token: token}}
}

func acquire(name, owner string, token node.Token) node.Command {
	return node.Command{Kind: node.Acquire, Claims: claim(name, owner, token), TTL: 10 * time.Second}
}

func release(name, owner string, token node.Token) node.Command {
	return node.Command{Kind: node.Release, Claims: claim(name, owner, token)}
}

func breakLock(name string, token node.Token) node.Command {
	return node.Command{Kind: node.Break, Claims: claim(name, "", token)}
}

func inspect(name string) node.Command {
	return node.Command{Kind: node.Inspect, Claims: claim(name, "", 0)}
}

func extend(ttl time.Duration, claims ...node.Claim) node.Command {
	return node.Command{Kind: node.Extend, Claims: claims, TTL: ttl}
}

func name(i int) string { return fmt.Sprintf("name-%d", i) }

// infoField reads one field of INFO.
func infoField(p *process, section, field string) string {
	p.t.Helper()
	text, _ := p.do("info", section).(string)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), field+":"); ok {
			return value
		}
	}
	p.t.Fatalf("INFO %s has no %s", section, field)
	return ""
}

func atoi(t testing.TB, s string) int {
	t.Helper()
	n := assert.Got(strconv.Atoi(s))(t)
	return n
}

func within(d time.Duration, cmd node.Command) node.Command {
	cmd.Deadline = after(d)
	return cmd
}

// serveTCP serves each connection in a task of its own until the test ends.
func serveTCP(t testing.TB, serve func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.Succeed(t, err)
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { serve(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); conns.Wait() })
	return l.Addr().String()
}
