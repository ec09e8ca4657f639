//go:build unix

package redisnode

import (
	"errors"
	"io"
	"syscall"
)

var errUnexpected = errors.New("data that nobody asked for")

// peek looks at what a socket has received, without waiting and without taking
// it. It returns nil if there is nothing.
func peek(conn syscall.RawConn) error {
	var found error
	err := conn.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR):
		case err != nil:
			found = err
		case n == 0:
			found = io.EOF
		default:
			found = errUnexpected
		}
		return true
	})
	return errors.Join(err, found)
}
