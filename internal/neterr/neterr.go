// Package neterr shortens network errors, and leaves out addresses, so that errors of
// several servers with one cause are equal. The text around an error names the server.
package neterr

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
)

// arguments are what a server repeats of an unknown command. Of AUTH that is a password.
var arguments = regexp.MustCompile(", with args beginning with.*")

// Text returns the text of err with its cause instead of a network error, and without
// arguments.
func Text(err error) string {
	if Timeout(err) {
		return "no answer in time"
	}
	text := arguments.ReplaceAllString(err.Error(), "")
	if text == io.EOF.Error() {
		return "the server closed the connection"
	}
	// Package tls makes an OpError of an alert, but without a network.
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Net != "" {
		return strings.Replace(text, op.Error(), cause(op.Err), 1)
	}
	return text
}

func Timeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

func cause(err error) string {
	if call, ok := errors.AsType[*os.SyscallError](err); ok {
		return call.Err.Error()
	}
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		return "lookup of its name: " + lookup.Err
	}
	return err.Error()
}
