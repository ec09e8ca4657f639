package redisconn_test

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/nodetest"
	"github.com/redquorum/redquorum/node/nodetest/systems"
	"github.com/redquorum/redquorum/node/redisconn"
	"github.com/redquorum/redquorum/node/redisserver"
)

// A node keeps all rules, also through a tunnel.
func TestRules(t *testing.T) {
	t.Parallel()
	server := tests.Server(t)
	nodetest.Run(t, func(t *testing.T) nodetest.System {
		s, done, err := systems.Redis(server, 0)
		assert.Succeed(t, err)
		s.Node.Close() // is that of redisnode
		s.Node, err = redisconn.New(tunnel(server.Addr()), redisconn.Options{Name: "redis"})
		assert.Succeed(t, err)
		t.Cleanup(func() { s.Node.Close(); done() })
		return s
	})
}

func inspect(n node.Node) node.Reply {
	replies := make(chan node.Reply, 1)
	n.Submit(node.Command{Kind: node.Inspect, Claims: []node.Claim{{Name: "a"}},
		Deadline: clock.System().Now().Add(10 * time.Second)},
		func(r node.Reply) { replies <- r })
	return <-replies
}

// Options are passed on.
func TestOptions(t *testing.T) {
	s := tests.Servers(t, 1, redisserver.Config{Unix: true, Args: []string{"--requirepass", "s3cret"}})[0]
	dial := func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "unix", s.Addr()) }
	var asked atomic.Int32
	credentials := func(context.Context) (string, string, error) { asked.Add(1); return "", "s3cret", nil }
	for what, tt := range map[string]struct {
		o    redisconn.Options
		want error
	}{
		"password":       {redisconn.Options{Password: "s3cret"}, nil},
		"credentials":    {redisconn.Options{Password: "other", Credentials: credentials}, nil},
		"wrong password": {redisconn.Options{Password: "other"}, node.ErrAuth},
		"no password":    {redisconn.Options{}, node.ErrAuth},
		"a database":     {redisconn.Options{Password: "s3cret", DB: 2, ClientName: "me"}, nil},
		"no database":    {redisconn.Options{Password: "s3cret", DB: 99}, node.ErrUnsupported},
		"a bad name":     {redisconn.Options{Password: "s3cret", ClientName: "with spaces"}, node.ErrUnsupported},
	} {
		tt.o.Name = what
		n := assert.Got(redisconn.New(dial, tt.o))(t)
		r := inspect(n)
		assert.That(t, errors.Is(r.Err, tt.want), "%s: %+v, want %v", what, r, tt.want)
		assert.That(t, n.Name() == what, "its name is %q, want %q", n.Name(), what)
		n.Close()
	}
	assert.That(t, asked.Load() != 0, "nobody asked for credentials")
	nothing, err := redisconn.New(func(context.Context) (net.Conn, error) { return nil, nil },
		redisconn.Options{Name: "nothing"})
	assert.Succeed(t, err)
	r := inspect(nothing)
	assert.That(t, errors.Is(r.Err, node.ErrUnreachable), "a dialer that returns nothing: %+v", r)
	nothing.Close()
	_, err = redisconn.New(dial, redisconn.Options{})
	assert.That(t, err != nil, "a node without a name")
	_, err = redisconn.New(nil, redisconn.Options{Name: "a"})
	assert.That(t, err != nil, "a node without a dialer")
	assert.Says(t, assert.ErrorOf(redisconn.New(dial, redisconn.Options{Name: "a", DB: -1})), "Options.DB is -1")
}

// DialTimeout is a second by default.
func TestDialTimeout(t *testing.T) {
	for set, reached := range map[time.Duration]bool{0: false, 10 * time.Second: true} {
		synctest.Test(t, func(t *testing.T) {
			n := assert.Got(redisconn.New(func(context.Context) (net.Conn, error) {
				time.Sleep(9 * time.Second)
				return nil, errors.New("here it is")
			}, redisconn.Options{Name: "far", DialTimeout: set}))(t)
			r := inspect(n)
			assert.That(t, strings.Contains(r.Err.Error(), "here it is") == reached, "%v: %v", set, r.Err)
			n.Close()
			time.Sleep(time.Minute)
		})
	}
	_, err := redisconn.New(tunnel("a"), redisconn.Options{Name: "a", DialTimeout: -1})
	assert.Says(t, err, "Options.DialTimeout is -1ns")
}

// This package needs no client of Redis, and runs in a browser.
func TestImports(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	const module = "github.com/redquorum/redquorum/"
	run := func(env []string, args ...string) string {
		cmd := exec.Command("go", args...)
		cmd.Env = append(cmd.Environ(), env...)
		out, err := cmd.CombinedOutput()
		assert.Must(t, err == nil, "%v: %v\n%s", args, err, out)
		return string(out)
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	allowed := []string{"clock", "internal/backlog", "internal/lives", "internal/neterr", "internal/replicas",
		"internal/resp",
		"node", "node/internal/courier", "node/redisconn"}
	for _, dep := range strings.Fields(run(nil, "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}",
		".")) {
		// CLOCK_BOOTTIME
		if !slices.Contains(allowed, strings.TrimPrefix(dep, module)) && !strings.HasPrefix(dep, "golang.org/x/sys/") {
			t.Errorf("it imports %s", dep)
		}
	}
	run([]string{"GOOS=js", "GOARCH=wasm"}, "build", ".")
}
