package neterr

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
)

func TestText(t *testing.T) {
	here, there := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 46412}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 6379}
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: there, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{refused, "connection refused"},
		{fmt.Errorf("HELLO: %w", refused), "HELLO: connection refused"},
		{&net.OpError{Op: "read", Net: "tcp", Source: here, Addr: there, Err: os.NewSyscallError("read", syscall.ECONNRESET)}, "connection reset by peer"},
		{&net.OpError{Op: "write", Net: "tcp", Source: here, Addr: there, Err: net.ErrClosed}, "use of closed network connection"},
		{&net.OpError{Op: "read", Net: "tcp", Source: here, Addr: there, Err: os.ErrDeadlineExceeded}, "no answer in time"},
		{context.DeadlineExceeded, "no answer in time"},
		{&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "a", Server: "10.0.0.3:53", IsNotFound: true}}, "lookup of its name: no such host"},
		{&net.OpError{Op: "remote error", Err: tls.AlertError(42)}, "remote error: tls: bad certificate"},
		{io.EOF, "the server closed the connection"},
		{errors.New("WRONGPASS no"), "WRONGPASS no"},
		{fmt.Errorf("a: %w", errors.Join(errors.New("ERR unknown command `AUTH`, with args beginning with: `s3cret`, "), refused)),
			"a: ERR unknown command `AUTH`\nconnection refused"},
	} {
		assert.Equal(t, Text(tt.err), tt.want, tt.err)
	}
}
