package faults_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
)

func listening(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.Succeed(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// echo is a server that sends back what it gets.
func echo(t *testing.T) (addr string) {
	t.Helper()
	l := listening(t)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); conn.Close() }()
		}
	}()
	return l.Addr().String()
}

func proxied(t *testing.T, tap func() io.Writer) *faults.Proxy {
	t.Helper()
	return proxyTo(t, echo(t), tap)
}

func proxyTo(t *testing.T, addr string, tap func() io.Writer) *faults.Proxy {
	t.Helper()
	p, err := faults.NewProxy(addr, tap)
	assert.Succeed(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

func set(t *testing.T, p *faults.Proxy, c faults.Conduct) {
	t.Helper()
	assert.Succeed(t, p.Set(c))
}

func dialed(t *testing.T, p *faults.Proxy) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	assert.Succeed(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn, bufio.NewReader(conn)
}

// ask sends a line and returns how long the answer took.
func ask(t *testing.T, conn net.Conn, r *bufio.Reader, line string) time.Duration {
	t.Helper()
	start := time.Now()
	assert.Succeed(t, assert.ErrorOf(io.WriteString(conn, line+"\n")))
	got, err := r.ReadString('\n')
	assert.Must(t, err == nil && got == line+"\n", "sent %q, got %q, %v", line, got, err)
	return time.Since(start)
}

func TestProxyDelays(t *testing.T) {
	const delay = 5 * time.Millisecond
	p := proxied(t, nil)
	set(t, p, faults.Conduct{Delay: faults.Range{Min: delay, Max: delay}})
	conn, r := dialed(t, p)
	d := ask(t, conn, r, "first")
	assert.That(t, d >= 4*delay, "the first answer took %v: two round trips are %v", d, 4*delay)
	best := time.Hour
	for range 400 { // a busy machine may make most of them late
		if best = min(best, ask(t, conn, r, "next")); best <= 3*delay {
			break
		}
	}
	assert.That(t, best >= 2*delay && best <= 3*delay, "the fastest answer took %v: a round trip is %v", best, 2*delay)
}

// With a new random delay each time, data stays in order, and a tap sees it all.
func TestProxyKeepsOrder(t *testing.T) {
	var mu sync.Mutex
	var seen bytes.Buffer
	p := proxied(t, func() io.Writer {
		return writer(func(b []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return seen.Write(b)
		})
	})
	set(t, p, faults.Conduct{Delay: faults.Range{Max: 2 * time.Millisecond}})
	conn, r := dialed(t, p)
	var want strings.Builder
	for i := range 200 {
		line := strings.Repeat(string(rune('a'+i%26)), i) + "\n"
		want.WriteString(line)
		assert.Succeed(t, assert.ErrorOf(io.WriteString(conn, line)))
	}
	got := make([]byte, want.Len())
	if _, err := io.ReadFull(r, got); err != nil || string(got) != want.String() {
		t.Errorf("it came back in another order, or not whole: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	assert.That(t, seen.String() == want.String(), "the tap saw something else")
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func TestProxyHangs(t *testing.T) {
	p := proxied(t, nil)
	conn, r := dialed(t, p)
	ask(t, conn, r, "before")
	set(t, p, faults.Conduct{Hang: true})
	dialed(t, p) // it takes connections
	assert.Succeed(t, assert.ErrorOf(io.WriteString(conn, "meanwhile\n")))
	assert.Succeed(t, conn.SetReadDeadline(time.Now().Add(30*time.Millisecond)))
	assert.Is(t, assert.ErrorOf(r.ReadByte()), os.ErrDeadlineExceeded, "while it hung")
	set(t, p, faults.Conduct{})
	assert.Succeed(t, conn.SetReadDeadline(time.Time{}))
	got, err := r.ReadString('\n')
	assert.That(t, got == "meanwhile\n", "afterwards: %q, %v", got, err)
}

func TestProxyGoesDownAndUp(t *testing.T) {
	p := proxied(t, nil)
	conn, r := dialed(t, p)
	ask(t, conn, r, "before")
	set(t, p, faults.Conduct{Down: true})
	_, err := r.ReadByte()
	assert.That(t, err != nil, "the connection survived")
	if c, err := net.Dial("tcp", p.Addr()); err == nil {
		c.Close()
		t.Error("it takes connections")
	}
	set(t, p, faults.Conduct{})
	conn, r = dialed(t, p)
	ask(t, conn, r, "after")
}

// Closing a proxy waits for nothing: neither for what is late, nor for what hangs, both ways.
func TestProxyClosesAtOnce(t *testing.T) {
	const late = time.Minute
	for what, conduct := range map[string]faults.Conduct{
		"late":    {Delay: faults.Range{Min: late, Max: late}},
		"hanging": {Hang: true},
	} {
		accepted := make(chan net.Conn, 1)
		l := listening(t)
		go func() {
			conn, err := l.Accept()
			if err == nil {
				accepted <- conn
			}
		}()
		p := proxyTo(t, l.Addr().String(), nil)
		set(t, p, conduct)
		near, _ := dialed(t, p)
		far := <-accepted
		defer far.Close()
		for _, conn := range []net.Conn{near, far} {
			assert.Succeed(t, assert.ErrorOf(io.WriteString(conn, "on its way")))
		}
		time.Sleep(20 * time.Millisecond) // for both to be under way
		closes(t, p, what)
	}
}

func closes(t *testing.T, p *faults.Proxy, what string) {
	t.Helper()
	closed, start := make(chan bool), time.Now()
	go func() { p.Close(); close(closed) }()
	select {
	case <-closed:
		t.Logf("%s: it took %v", what, time.Since(start))
	case <-time.After(20 * time.Second):
		t.Errorf("%s: not closed after 20 s", what)
	}
}
