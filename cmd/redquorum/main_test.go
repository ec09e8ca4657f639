package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/quorum"
)

const actAsProgram = "REDQUORUM_TEST_ACTS_AS_PROGRAM"

func TestMain(m *testing.M) {
	child := len(os.Args) > 2 && os.Args[2] == "--"+chaosChild
	if os.Getenv(actAsProgram) != "" || child || len(os.Args) > 1 && os.Args[1] == wardenVerb {
		os.Unsetenv(actAsProgram)
		main()
	}
	os.Unsetenv("REDQUORUM_NODES")
	os.Unsetenv("REDQUORUM_MAX_LEASE")
	atOnce := 16
	if tests.Race { // servers in this process would answer too late
		atOnce = 5
	}
	tests.Parallel(atOnce)
	os.Exit(m.Run())
}

func redquorum(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, talk bytes.Buffer
	status = run(t.Context(), args, &out, &talk)
	return status, out.String(), talk.String()
}

// patience is generous: a busy machine takes its time.
const patience = time.Minute

// timedOut reports whether a text tells of a late server.
func timedOut(said string) bool {
	return strings.Contains(said, node.ErrTimeout.Error()) || strings.Contains(said, "i/o timeout")
}

// unlessLate calls look again while its result is not good and some server was late, for
// as long as a lease.
func unlessLate(look func() (said string, good bool)) {
	late := false
	for end := time.Now().Add(patience); ; {
		said, good := look()
		late = late || timedOut(said) || strings.Contains(strings.Join(strings.Fields(said), " "), "nodes are usable")
		if good || !late || time.Now().After(end) {
			return
		}
	}
}

// want checks the status and a part of the output, on whichever stream. It returns both
// streams.
func want(t *testing.T, status int, text string, args ...string) (all string) {
	t.Helper()
	var got int
	unlessLate(func() (string, bool) {
		var stdout, stderr string
		got, stdout, stderr = redquorum(t, args...)
		all = stdout + stderr
		return all, got == status && strings.Contains(all, text)
	})
	assert.That(t, got == status && strings.Contains(all, text), "%q: status %d, want %d; %q should be in:\n%s", args, got, status, text, all)
	return all
}

// startNodes starts servers in this process.
func startNodes(t *testing.T, n int) (servers []*embedded.Server, urls string) {
	t.Helper()
	var all []string
	for range n {
		s := assert.Got(embedded.StartServer())(t)
		t.Cleanup(s.Close)
		servers = append(servers, s)
		all = append(all, "redis://"+s.Addr())
	}
	return servers, strings.Join(all, ",")
}

func parallelNodes(t *testing.T, n int) (urls string) {
	t.Helper()
	t.Parallel()
	_, urls = startNodes(t, n)
	return urls
}

func newLocker(t *testing.T, urls string) *quorum.Locker {
	t.Helper()
	return newLockerOf(t, urls, quorum.Options{Label: quorum.NoLabel})
}

func newLockerOf(t *testing.T, urls string, o quorum.Options) *quorum.Locker {
	t.Helper()
	nodes := assert.Got(redisnode.Dial(strings.Split(urls, ",")...))(t)
	l := assert.Got(quorum.New(nodes, o))(t)
	t.Cleanup(func() { l.Close() })
	return l
}

func hold(t *testing.T, l *quorum.Locker, name string, opts ...quorum.Option) *quorum.Lease {
	t.Helper()
	lease := assert.Got(l.Lock(t.Context(), name, append(opts, quorum.WithWait(patience))...))(t)
	t.Cleanup(func() { lease.Unlock(context.Background()) })
	return lease
}

// waits sends the lease when it is granted; nil if it never is.
func waits(t *testing.T, l *quorum.Locker, name string, opts ...quorum.Option) <-chan *quorum.Lease {
	got := make(chan *quorum.Lease, 1)
	go func() {
		lease, err := l.Lock(t.Context(), name, append(opts, quorum.WithWait(patience))...)
		assert.NoError(t, err)
		got <- lease
	}()
	return got
}

func verdictIs(t *testing.T, name, urls, want string) {
	t.Helper()
	s := statusOf(t, exitOK, name, urls)
	assert.That(t, s.Verdict == want, "%s, not %s: %+v", s.Verdict, want, s)
}

func clientOf(t *testing.T, url string) *redis.Client {
	t.Helper()
	servers := assert.Got(cli.Servers([]string{url}))(t)
	client := redis.NewClient(servers[0])
	t.Cleanup(func() { client.Close() })
	return client
}

func fileOf(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	assert.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// textOf is what a file has.
func textOf(t *testing.T, path string) string {
	t.Helper()
	text := assert.Got(os.ReadFile(path))(t)
	return string(text)
}

// serve handles each connection at a new address with do.
func serve(t *testing.T, do func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.Succeed(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				do(c)
			}()
		}
	}()
	return l.Addr().String()
}
