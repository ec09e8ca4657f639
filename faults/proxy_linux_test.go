package faults_test

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
)

// Close does not wait for a server that takes no connections.
func TestProxyClosesWhileItConnects(t *testing.T) {
	l := listening(t)
	raw := assert.Got(l.(*net.TCPListener).SyscallConn())(t)
	var refused error
	err := raw.Control(func(fd uintptr) { refused = syscall.Listen(int(fd), 0) })
	assert.Must(t, err == nil && refused == nil, "%v, %v", err, refused)
	full := false
	for range 10 {
		conn, err := net.DialTimeout("tcp", l.Addr().String(), 100*time.Millisecond)
		if err != nil {
			full = true
			break
		}
		defer conn.Close()
	}
	if !full {
		t.Skip("this kernel takes connections that nobody accepts")
	}
	p := proxyTo(t, l.Addr().String(), nil)
	dialed(t, p)
	time.Sleep(20 * time.Millisecond) // for it to connect
	closes(t, p, "while it connects")
}
