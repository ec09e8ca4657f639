package courier

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
)

// A stale connection is one whose Close does not end what waits: that of an SSH client whose network is dead.
type stale struct {
	tunnel
	closed *atomic.Int32
}

func (s stale) Close() error { s.closed.Add(1); return nil }

// dead returns a connection that nobody reads or writes at the other end, and its true Close.
func dead() (conn stale, end func()) {
	near, _ := net.Pipe()
	return stale{tunnel{near}, new(atomic.Int32)}, func() { near.Close() }
}

// Deadlines are those of a net.Conn, also of a connection that has none: one that is set while something waits
// counts, and when it is gone the connection works on. No goroutine stays: the bubble would not end.
func TestDeadlinesOfATunnel(t *testing.T) {
	buf := make([]byte, 10)
	for what, tt := range map[string]struct {
		set func(net.Conn, time.Time) error
		do  func(net.Conn) (int, error)
	}{
		"read":  {net.Conn.SetReadDeadline, func(c net.Conn) (int, error) { return c.Read(buf) }},
		"write": {net.Conn.SetWriteDeadline, func(c net.Conn) (int, error) { return c.Write(make([]byte, 1<<20)) }},
		"both":  {net.Conn.SetDeadline, func(c net.Conn) (int, error) { return c.Read(buf) }},
	} {
		for when, d := range map[string]time.Duration{"before": 3 * time.Second, "meanwhile": 3 * time.Second, "at once": -time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				conn, end := dead()
				c := dated(conn)
				began := time.Now()
				if when == "before" {
					assert.NoError(t, tt.set(c, began.Add(d)))
				}
				failed := make(chan error)
				go func() { _, err := tt.do(c); failed <- err }()
				synctest.Wait()
				if when != "before" {
					assert.NoError(t, tt.set(c, began.Add(d)))
				}
				assert.Is(t, <-failed, os.ErrDeadlineExceeded, what, when)
				assert.Equal(t, time.Since(began), max(0, d), what, when)
				c.Close()
				c.Close()
				synctest.Wait()
				assert.Equal(t, conn.closed.Load(), 1, "closed", what, when)
				end()
			})
		}
	}
	synctest.Test(t, func(t *testing.T) { // a deadline that has passed does no harm to what follows
		near, far := net.Pipe()
		c := dated(tunnel{near})
		c.SetReadDeadline(time.Now().Add(time.Second))
		_, err := c.Read(buf)
		assert.Is(t, err, os.ErrDeadlineExceeded)
		c.SetReadDeadline(time.Time{})
		go far.Write([]byte("+OK\r\n"))
		n, err := c.Read(buf)
		assert.That(t, err == nil && string(buf[:n]) == "+OK\r\n", "%q, %v", buf[:n], err)
		c.Close()
		_, err = far.Read(buf)
		assert.Is(t, err, io.EOF, "after Close")
	})
}

// So have go-redis's, which fails where it cannot set one.
func TestATunnelToACluster(t *testing.T) {
	c := Checked(tunnel{playing(strings.NewReader("+OK\r\n"))})
	defer c.Close()
	assert.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	text, err := io.ReadAll(c)
	assert.That(t, err == nil && string(text) == "+OK\r\n", "%q, %v", text, err)
}

// The end of a connection comes through as it is, with all that was said before: a server that has ended it may
// have said why.
func TestTheEndOfATunnel(t *testing.T) {
	reset := errors.New("connection reset by peer")
	for _, why := range []error{nil, reset} {
		synctest.Test(t, func(t *testing.T) {
			said := io.Reader(strings.NewReader("-DENIED\r\n"))
			if why != nil {
				said = io.MultiReader(said, iotest.ErrReader(why))
			}
			c := dated(mute{tunnel{playing(said)}})
			defer c.Close()
			_, err := c.Write(make([]byte, 1<<20))
			assert.NoError(t, err)
			text, err := io.ReadAll(c)
			assert.That(t, string(text) == "-DENIED\r\n" && err == why, "%q, %v; want %v", text, err, why)
			synctest.Wait()
			_, err = c.Write([]byte("x"))
			assert.That(t, err == why || why == nil && err == io.EOF, "to write: %v; want %v", err, why)
		})
	}
}

// A mute connection takes nothing.
type mute struct{ net.Conn }

func (mute) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// A server that says nothing at first, or no more, is left in time, also through a tunnel whose Close ends nothing. So
// a dialer that makes a new tunnel gets to do so.
func TestASilentTunnelIsLeft(t *testing.T) {
	for _, silent := range []string{"handshake", "commands"} {
		synctest.Test(t, func(t *testing.T) {
			var s wireServer
			var ends []func()
			dials := 0
			n := s.node(t, target(func(ctx context.Context) (net.Conn, error) {
				if dials++; silent == "handshake" && dials == 1 {
					conn, end := dead()
					ends = append(ends, end)
					return conn, nil
				}
				conn, err := s.dial(ctx)
				ends = append(ends, func() { conn.Close() })
				return stale{tunnel{conn}, new(atomic.Int32)}, err
			}, ""), 0)
			if silent == "commands" {
				granted(t, n)
				s.late.Store(int64(time.Hour))
			}
			acquires(n)
			time.Sleep(minSilence)
			granted(t, n)
			assert.Equal(t, dials, 2, silent)
			n.Close()
			for _, end := range ends {
				end()
			}
			time.Sleep(time.Hour)
		})
	}
}
