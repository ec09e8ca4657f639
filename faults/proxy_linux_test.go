package faults_test

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
)

// Closing a proxy does not wait for a server that takes no connections either.
func TestProxyClosesWhileItConnects(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var refused error
	if err := raw.Control(func(fd uintptr) { refused = syscall.Listen(int(fd), 0) }); err != nil || refused != nil {
		t.Fatal(err, refused)
	}
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
	p, err := faults.NewProxy(l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	dialed(t, p)
	time.Sleep(20 * time.Millisecond) // for it to connect
	closed := make(chan bool)
	go func() { p.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Error("not closed after 20 s")
	}
}
