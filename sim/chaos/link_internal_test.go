package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/live"
)

// A fake is a server that answers each command with its last word, and remembers it.
type fake struct {
	net.Listener
	mu  sync.Mutex
	got []string
}

func newFake(t *testing.T) *fake {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.Succeed(t, err)
	f := &fake{Listener: listener}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go f.serve(conn)
		}
	}()
	return f
}

func (f *fake) serve(conn net.Conn) {
	defer conn.Close()
	from := bufio.NewReader(conn)
	for {
		_, words, err := live.ReadMessage(from)
		if err != nil {
			return
		}
		last := words[len(words)-1]
		f.mu.Lock()
		f.got = append(f.got, last)
		f.mu.Unlock()
		if words[0] == "subscribe" {
			fmt.Fprintf(conn, "*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$1\r\n0\r\n*1\r\n$4\r\nlast\r\n")
			continue
		}
		fmt.Fprintf(conn, "$%d\r\n%s\r\n", len(last), last)
	}
}

// executed waits until the server has executed so many commands, and returns them.
func (f *fake) executed(t *testing.T, n int) []string {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		got := slices.Clone(f.got)
		f.mu.Unlock()
		if len(got) >= n {
			return got
		}
		assert.Must(t, !time.Now().After(end), "%v", got)
	}
}

// unseen is a link to a server. Nobody notes what happens on it.
func unseen(target func() string) *link {
	return &link{commands: new(live.Commands), target: target, serve: func(context.Context) {}, note: func(sim.Entry) {},
		born: func() clock.Instant { return 0 }, sends: func(*live.Command) {},
		answered: func(clock.Instant, *live.Command, []string) {}, notifies: func(clock.Instant, []string) {}}
}

func newTestLink(t *testing.T, f *fake) *link {
	l := unseen(f.Addr().String)
	assert.Succeed(t, l.open(new(faults.Plan), 0))
	t.Cleanup(l.close)
	return l
}

// A caller is a client's end of a connection.
type caller struct {
	t *testing.T
	net.Conn
	from *bufio.Reader
}

func dial(t *testing.T, l *link) *caller {
	t.Helper()
	conn := assert.Got(net.Dial("tcp", l.addr()))(t)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	return &caller{t, conn, bufio.NewReader(conn)}
}

func (c *caller) send(words ...string) {
	c.t.Helper()
	text := fmt.Sprintf("*%d\r\n", len(words))
	for _, w := range words {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
	}
	assert.Succeed(c.t, assert.ErrorOf(c.Write([]byte(text))))
}

func (c *caller) wants(replies ...string) {
	c.t.Helper()
	for _, want := range replies {
		_, words, err := live.ReadMessage(c.from)
		assert.Must(c.t, err == nil && strings.Join(words, " ") == want, "%v, %v; want %s", words, err, want)
	}
}

func event(t *testing.T, text string) *faults.Event {
	return &parse(t, "nodes 1\nclients 1\nat 0s "+text+"\n").Events[0]
}

const acquireText, releaseText = "--!df\n-- acquire: x\nreturn 1", "-- release_all: x\nreturn 1"

// A command that is kept is overtaken, and the client gets the replies in its order.
func TestHeldCommandIsOvertaken(t *testing.T) {
	f := newFake(t)
	l := newTestLink(t, f)
	c := dial(t, l)
	hold := event(t, "hold c1>n1 acquire 1")
	l.strike(hold, false)
	c.send("eval", acquireText, "1", "x", "first")
	c.send("eval", releaseText, "1", "x", "second")
	c.send("eval", acquireText, "1", "x", "third") // only one is kept
	got := f.executed(t, 2)
	assert.That(t, slices.Equal(got, []string{"second", "third"}), "executed %v", got)
	l.strike(hold, true)
	c.wants("first", "second", "third")
}

// A held command arrives also when the client has given its connection up.
func TestHeldCommandOutlivesItsConnection(t *testing.T) {
	f := newFake(t)
	l := newTestLink(t, f)
	hold := event(t, "hold c1>n1 acquire")
	l.strike(hold, false)
	c := dial(t, l)
	c.send("eval", acquireText, "1", "x", "late")
	c.send("ping", "there")
	f.executed(t, 1)
	c.Close()
	l.strike(hold, true)
	got := f.executed(t, 2)
	assert.That(t, got[1] == "late", "executed %v", got)
}

// await returns when something is so of the link.
func (l *link) await(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		is := holds()
		l.mu.Unlock()
		if is {
			return
		}
		assert.Must(t, !time.Now().After(end), "it does not come to that")
	}
}

// A connection that has lost something in a cut is reset when the cut ends; one that has
// not goes on.
func TestCut(t *testing.T) {
	f := newFake(t)
	l := newTestLink(t, f)
	c, quiet := dial(t, l), dial(t, l)
	c.send("ping", "before")
	c.wants("before")
	quiet.send("ping", "quiet")
	quiet.wants("quiet")
	cut := event(t, "cut c1<n1")
	l.strike(cut, false)
	c.send("ping", "lost") // executed, and not answered
	f.executed(t, 3)
	l.await(t, func() bool { return slices.ContainsFunc(l.conns, func(c *conn) bool { return c.lost[toClient] }) })
	l.strike(cut, true)
	_, err := c.from.ReadByte()
	assert.That(t, err != nil, "the reply came")
	quiet.send("ping", "again")
	quiet.wants("again")
	cut = event(t, "cut c1>n1")
	l.strike(cut, false)
	quiet.send("ping", "nowhere")
	later := dial(t, l) // it hangs
	later.send("ping", "nowhere")
	l.await(t, func() bool { return len(l.conns) == 2 && l.conns[0].lost[toNode] && l.conns[1].lost[toNode] })
	l.strike(event(t, "heal c1-n1"), false)
	for _, c := range []*caller{quiet, later} {
		_, err := c.from.ReadByte()
		assert.That(t, err != nil, "it was answered")
	}
	got := f.executed(t, 4)
	assert.That(t, !slices.Contains(got, "nowhere"), "executed %v", got)
}

// The connections that there are lose everything, and are reset in the end. New ones
// work.
func TestHalfOpen(t *testing.T) {
	f := newFake(t)
	l := newTestLink(t, f)
	old := dial(t, l)
	old.send("ping", "before")
	old.wants("before")
	fault := event(t, "halfopen c1-n1")
	l.strike(fault, false)
	old.send("ping", "nowhere")
	c := dial(t, l)
	c.send("ping", "there")
	c.wants("there")
	cut := event(t, "cut c1-n1")
	l.strike(cut, false)
	l.strike(cut, true) // which is not the end of the other fault
	c.send("ping", "again")
	c.wants("again")
	old.SetDeadline(time.Now().Add(20 * time.Millisecond))
	assert.Is(t, assert.ErrorOf(old.from.ReadByte()), os.ErrDeadlineExceeded, "a half-open connection")
	old.SetDeadline(time.Now().Add(20 * time.Second))
	l.strike(fault, true)
	_, err := old.from.ReadByte()
	assert.That(t, err != nil && !errors.Is(err, os.ErrDeadlineExceeded), "at the end of the fault: %v", err)
	l.strike(event(t, "reset c1-n1"), false)
	_, err = c.from.ReadByte()
	assert.That(t, err != nil, "a connection was not reset")
	got := f.executed(t, 3)
	assert.That(t, !slices.Contains(got, "nowhere"), "executed %v", got)
}

func TestDeafen(t *testing.T) {
	f := newFake(t)
	l := newTestLink(t, f)
	deafen := event(t, "deafen c1-n1")
	l.strike(deafen, false)
	c := dial(t, l)
	c.send("subscribe", "x")
	c.wants("subscribe x 1", "last")
	l.strike(deafen, true)
	c = dial(t, l)
	c.send("subscribe", "x")
	c.wants("subscribe x 1", "message x 0", "last")
}

func TestDuplicate(t *testing.T) {
	f := newFake(t)
	l := newTestLink(t, f)
	l.strike(event(t, "duplicate c1>n1 100% 1ms"), false)
	c := dial(t, l)
	c.send("eval", acquireText, "1", "x", "twice")
	c.wants("twice")
	got := f.executed(t, 2)
	assert.That(t, slices.Equal(got, []string{"twice", "twice"}), "executed %v", got)
}
