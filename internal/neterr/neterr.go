// Package neterr says network errors in a few words, without addresses. So errors of
// several servers are equal if their causes are. The text around an error names the
// server.
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

// arguments are what a server repeats of a command that it does not know. Of AUTH that is
// a password.
var arguments = regexp.MustCompile(", with args beginning with.*")

// Text returns the text of err with the cause in place of a network error, and without
// arguments.
func Text(err error) string {
	if Timeout(err) {
		return "no answer in time"
	}
	text := arguments.ReplaceAllString(err.Error(), "")
	if text == io.EOF.Error() {
		return "the server closed the connection"
	}
	// Package tls makes an OpError of an alert, too, but without a network.
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Net != "" {
		return strings.Replace(text, op.Error(), cause(op.Err), 1)
	}
	return text
}

// Timeout reports whether err says that something took too long.
func Timeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// cause is what a network operation ended with.
func cause(err error) string {
	if call, ok := errors.AsType[*os.SyscallError](err); ok {
		return call.Err.Error()
	}
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		return "lookup of its name: " + lookup.Err
	}
	return err.Error()
}
