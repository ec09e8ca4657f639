package redisnode_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/nodetest"
	"github.com/redquorum/redquorum/node/nodetest/systems"
)

// TestLua54 runs the scripts by Lua 5.4, which Dragonfly has, and requires the model's replies,
// also of each plain command as a group of one.
func TestLua54(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	path, err := exec.LookPath("lua5.4")
	if err != nil {
		t.Skip(err)
	}
	m := miniredis.RunT(t)
	l := startLua(t, path, m.Addr())
	m.Server().SetPreHook(l.hook)
	s, done, err := systems.Reach("lua 5.4", m.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	s.Advance = func(d time.Duration) error {
		if d > 0 {
			m.FastForward(d - 1) // as systems.Miniredis does
		}
		return nil
	}
	nodetest.Differential(t, 5000, systems.Model(), s)

	m.FlushAll()
	p := &process{t: t, addr: m.Addr()}
	var cmds [2][]node.Command
	for i := range 10 {
		cmds[0] = append(cmds[0], acquire(fmt.Sprint("a", i), "me", 5))
		cmds[1] = append(cmds[1], release(fmt.Sprint("a", i), "me", 5))
	}
	cmds[0][3].Claims[0].Owner = "you" // whose lock is not released
	for k, r := range crowd(t, p, 2, cmds[0]) {
		expect(t, fmt.Sprint("acquire ", k), r, node.Granted)
	}
	for k, r := range crowd(t, p, 2, cmds[1]) {
		expect(t, fmt.Sprint("release ", k), r, map[bool]node.Status{true: node.Absent, false: node.Released}[k == 3])
	}
	for k, r := range crowd(t, p, 2, cmds[0][2:5]) {
		expect(t, fmt.Sprint("late copy ", k), r, []node.Status{node.Stale, node.Granted, node.Stale}[k])
	}
	for tries := 0; len(l.scripts) < 11 && tries < 20; tries++ { // a busy machine may send them one by one
		m.FlushAll()
		crowd(t, p, 2, cmds[0])
		crowd(t, p, 2, cmds[1])
	}
	if len(l.scripts) != 11 && !testing.Short() { // which draws few commands
		t.Errorf("%d scripts ran, want all 11", len(l.scripts))
	}
}

// A lua is a process of another version of Lua than servers have. Instead of its server it
// executes the scripts, and asks that for the commands in them.
type lua struct {
	t      *testing.T
	server *redis.Client
	in     io.Writer
	out    *bufio.Reader

	mu      sync.Mutex
	scripts map[string]string // by their SHA
}

func startLua(t *testing.T, path, addr string) *lua {
	cmd := exec.Command(path, "testdata/lua54.lua")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	l := &lua{t: t, in: in, out: bufio.NewReader(out), scripts: make(map[string]string),
		server: redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})}
	t.Cleanup(func() {
		l.server.Close()
		in.Close()
		_ = cmd.Wait()
	})
	return l
}

// hook answers in place of the server.
func (l *lua) hook(c *server.Peer, cmd string, args ...string) (done bool) {
	switch cmd {
	case "INFO":
		c.WriteBulk("run_id:0123456789abcdef\r\nuptime_in_seconds:86400\r\n")
	case "EVAL", "EVALSHA":
		l.mu.Lock()
		defer l.mu.Unlock()
		if cmd == "EVAL" {
			l.scripts[redis.NewScript(args[0]).Hash()] = args[0]
		} else if args[0] = l.scripts[args[0]]; args[0] == "" {
			c.WriteError("NOSCRIPT No matching script.")
			return true
		}
		reply, err := l.run(args)
		if err == nil && strings.Contains(reply, "BUG: ") { // or a group would be sent in parts, and nobody see it
			err = errors.New(reply)
		}
		if err != nil {
			l.t.Error(err)
			c.WriteError("ERR " + err.Error())
			return true
		}
		c.WriteRaw(reply)
	default:
		return false
	}
	return true
}

// run executes a script, and returns its answer as a server sends it.
func (l *lua) run(args []string) (reply string, err error) {
	l.send(args)
	for {
		line, err := l.out.ReadString('\n')
		if err != nil {
			return "", fmt.Errorf("lua: %w", err)
		}
		kind, text := line[0], line[1:len(line)-1]
		n, err := strconv.Atoi(text)
		if err != nil {
			return "", fmt.Errorf("lua: it says %q", line)
		}
		switch kind {
		case '=':
			answer := make([]byte, n)
			_, err := io.ReadFull(l.out, answer)
			return string(answer), err
		case '?':
			words := make([]any, n)
			for i := range words {
				var size int
				if _, err := fmt.Fscanf(l.out, "%d\n", &size); err != nil {
					return "", err
				}
				word := make([]byte, size)
				if _, err := io.ReadFull(l.out, word); err != nil {
					return "", err
				}
				words[i] = string(word)
			}
			val, err := l.server.Do(l.t.Context(), words...).Result()
			l.value(words[0].(string), val, err)
		}
	}
}

// send writes words, each with its length.
func (l *lua) send(words []string) {
	var b strings.Builder
	fmt.Fprintf(&b, "%d\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&b, "%d\n%s", len(word), word)
	}
	io.WriteString(l.in, b.String())
}

// value writes what a command was answered.
func (l *lua) value(command string, val any, err error) {
	if err != nil && !errors.Is(err, redis.Nil) {
		fmt.Fprintf(l.in, "-%d\n%s", len(err.Error()), err)
		return
	}
	switch val := val.(type) {
	case nil:
		io.WriteString(l.in, "_0\n")
	case int64:
		fmt.Fprintf(l.in, ":%d\n", val)
	case string:
		kind := '$'
		if command == "SET" || command == "TYPE" {
			kind = '+'
		}
		fmt.Fprintf(l.in, "%c%d\n%s", kind, len(val), val)
	case []any:
		fmt.Fprintf(l.in, "*%d\n", len(val))
		for _, one := range val {
			l.value("", one, nil)
		}
	default:
		l.t.Errorf("%s: %T", command, val)
	}
}
