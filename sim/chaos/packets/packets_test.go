package packets_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/sim/chaos/packets"
	"github.com/redquorum/redquorum/sim/chaos/packets/packetstest"
)

// A scene has a server and a client in a namespace of their own.
type scene struct {
	t        *testing.T
	listener net.Listener
	link     *packets.Link
}

// newScene returns nil in a process that has no namespace.
func newScene(t *testing.T) *scene {
	r := packetstest.Open(t)
	if r == nil {
		return nil
	}
	l := assert.Got(net.Listen("tcp", packets.Near+":0"))(t)
	t.Cleanup(func() { l.Close() })
	return &scene{t, l, r.Link(l.Addr().(*net.TCPAddr).Port, new(faults.Plan).Stream(faults.OfNetwork, 1))}
}

// connect returns both ends of a new connection.
func (s *scene) connect() (client, server net.Conn) {
	s.t.Helper()
	client, err := net.DialTimeout("tcp", s.link.Addr(), 30*time.Second)
	if err == nil {
		server, err = s.listener.Accept()
	}
	assert.Succeed(s.t, err)
	s.t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// established returns how many ends of connections TCP takes for open.
func established(t *testing.T) int {
	t.Helper()
	text := assert.Got(os.ReadFile("/proc/self/net/tcp"))(t)
	return strings.Count(string(text), " 01 ") // the state; no other column has two digits
}

// TCP sends what is lost again, and puts into order what comes late: nothing is missing in the end.
func TestLossAndOrder(t *testing.T) {
	s := newScene(t)
	if s == nil {
		return
	}
	client, server := s.connect()
	before := packetstest.SentAgain(t)
	fifth, late := faults.Percent(20), faults.Range{Max: 5 * time.Millisecond}
	s.link.Set(faults.Trouble{Loss: [2]faults.Ratio{fifth, fifth}, Delay: [2]faults.Range{late, late}}, time.Time{})
	want := make([]byte, 200_000)
	for i := range want {
		want[i] = byte(rand.Int())
	}
	go client.Write(want)
	got := make([]byte, len(want))
	server.SetDeadline(time.Now().Add(time.Minute))
	_, err := io.ReadFull(server, got)
	assert.That(t, err == nil && bytes.Equal(got, want), "%v, or the bytes differ", err)
	if c := s.link.Count(); c.Lost == 0 || packetstest.SentAgain(t) == before {
		t.Errorf("%+v, and TCP has sent %d segments again", c, packetstest.SentAgain(t)-before)
	}
}

// A peer that vanishes sends no FIN: its end is gone, and the other one stays open.
func TestVanish(t *testing.T) {
	s := newScene(t)
	if s == nil {
		return
	}
	client, server := s.connect()
	n := established(t)
	assert.Must(t, n == 2, "%d ends are open, want 2", n)
	s.link.Set(faults.Trouble{Cut: [2]bool{true, true}}, time.Time{})
	client.(*net.TCPConn).SetLinger(0)
	client.Close()
	server.SetDeadline(time.Now().Add(200 * time.Millisecond))
	assert.Is(t, assert.ErrorOf(server.Read(make([]byte, 1))), os.ErrDeadlineExceeded)
	assert.Equal(t, established(t), 1)
	// The peer is back, and has forgotten the connection.
	s.link.Set(faults.Trouble{}, time.Time{})
	server.SetDeadline(time.Now().Add(10 * time.Second))
	server.Write([]byte("x"))
	_, err := server.Read(make([]byte, 1))
	assert.That(t, err != nil && !errors.Is(err, os.ErrDeadlineExceeded), "%v, want a reset", err)
}

// Half-open connections are silent, and new ones work. Later TCP delivers what was written.
func TestHalfOpen(t *testing.T) {
	s := newScene(t)
	if s == nil {
		return
	}
	client, server := s.connect()
	s.link.Set(faults.Trouble{}, time.Now())
	client.Write([]byte("old"))
	newClient, newServer := s.connect()
	newClient.Write([]byte("new"))
	b := make([]byte, 3)
	newServer.SetDeadline(time.Now().Add(10 * time.Second))
	_, err := io.ReadFull(newServer, b)
	assert.That(t, err == nil && string(b) == "new", "%q, %v", b, err)
	server.SetDeadline(time.Now().Add(300 * time.Millisecond))
	n, err := server.Read(b)
	assert.That(t, errors.Is(err, os.ErrDeadlineExceeded), "%q, %v", b[:n], err)
	assert.Equal(t, established(t), 4)
	s.link.Set(faults.Trouble{}, time.Time{})
	server.SetDeadline(time.Now().Add(10 * time.Second))
	_, err = io.ReadFull(server, b)
	assert.That(t, err == nil && string(b) == "old", "%q, %v", b, err)
}

// The network of the machine is left alone.
func TestOpenOutside(t *testing.T) {
	if r, err := packets.Open(); err == nil {
		r.Close()
		t.Error("a device in a network that is not its own")
	}
}
