package courier

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/redquorum/redquorum/internal/neterr"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/node"
)

// codes are the first words of a server's errors, and what they mean for a lock. When a
// script fails on READONLY, OOM or MISCONF it has changed nothing: its first write is
// refused like all later ones, or it changes nothing and Redis refuses none after it.
var codes = []struct {
	word string
	err  error
}{
	{"WRONGTYPE", node.ErrWrongType},
	{"LOADING", node.ErrLoading},
	{"BUSY", node.ErrBusy},
	{"READONLY", node.ErrReadOnly},
	{"MASTERDOWN", node.ErrReadOnly}, // a replica that serves no stale data
	{"MISCONF", node.ErrMisconf},
	{"OOM", node.ErrOutOfMemory},
	{"NOAUTH", node.ErrAuth},
	{"DENIED", node.ErrAuth}, // protected mode
	{"WRONGPASS", node.ErrAuth},
	{"NOPERM", node.ErrAuth},
}

// phrases are for errors that have no word of their own.
var phrases = []struct {
	text string
	err  error
}{
	{"The user executing the script", node.ErrAuth}, // Redis 7.0: NOPERM inside a script
	{"ACL failure in script", node.ErrAuth},         // Redis 7.2, Valkey: the same, where the script goes on
	{"invalid password", node.ErrAuth},              // Redis 5: AUTH
	{"unknown command", node.ErrUnsupported},
	{"Unknown Redis command", node.ErrUnsupported},              // inside a script
	{"Unknown command called from script", node.ErrUnsupported}, // Valkey: the same
	{"unknown subcommand", node.ErrUnsupported},
	{"is not supported", node.ErrUnsupported}, // miniredis: INFO server
	{"max number of clients", node.ErrUnreachable},
}

// fromServer reports whether the server sent err. An error that only contains a refusal
// is somebody else's: that of a Dialer, for instance, which has asked another server.
func fromServer(err error) bool {
	switch err.(type) {
	case resp.Error, refusal:
		return true
	}
	return false
}

// inScript is what servers add to what a command inside a script raised: Redis 7 and
// newer after it, Valkey 9.1 without the script's hash, Redis 6 before it, and only a
// part of that if the script goes on. The place in the script is of no use to a user.
var inScript = regexp.MustCompile(
	` script: ([0-9a-f]+|([0-9a-f]+, )?on @user_script:\d+\.)$|` +
		`^(ERR Error running script \(call to \w+\): )?(@user_script: ?\d+: )+-?|\s+$`)

// noNumber is Lua's error if a script has read a fence that is no number.
var noNumber = regexp.MustCompile(
	`compare (nil with number|number with nil)|arithmetic on a (nil|string) value|` +
		`between (nil|string) and number|number expected, got nil`)

var errDemoted = fmt.Errorf("%w: it was a replica a moment ago", node.ErrUnreachable)

// ErrNotAsked is a Client's answer to a command for a server that it was not asked about
// by Ask.
var ErrNotAsked error = refusal{error: errors.New("MOVED to a master that has not answered INFO yet")}

// redirected reports whether a member of a cluster answered that another has the name, or
// may have it. Then it has executed nothing.
func redirected(err error) bool {
	return isMoved(err) || fromServer(err) && strings.HasPrefix(err.Error(), "ASK ")
}

func isMoved(err error) bool { return fromServer(err) && strings.HasPrefix(err.Error(), "MOVED ") }

var errNoToken = fmt.Errorf("%w: its fence, at redquorum_fence:{NAME} or redquorum_readers:{NAME}, "+
	"is not a token", node.ErrWrongType)

// A refusal is an error that the server sent over this connection, as a resp.Error is.
// Only code that reads the connection makes one.
type refusal struct {
	error
	means error // nil: nobody has looked yet
}

// Refusal marks an error that a Client has read from its server.
func Refusal(err error) error { return refusal{error: err} }

// InPlace makes an error of a Target's Dial as final as if its server had sent it. means
// is one of package node's.
func InPlace(means error) error { return refusal{means, means} }

// refused makes a refusal of err that says what it means, if the server sent it.
func refused(err error) error {
	if fromServer(err) {
		return refusal{err, serverError(err)}
	}
	return err
}

// serverError gives an error that the server sent its meaning.
func serverError(err error) error {
	if known, _ := err.(refusal); known.means != nil {
		return known.means
	}
	text := inScript.ReplaceAllString(clip(neterr.Text(err)), "")
	if noNumber.MatchString(text) {
		return errNoToken
	}
	if strings.HasPrefix(text, "CROSSSLOT") {
		return fmt.Errorf("%w: %s: on a cluster the names of one lock, and a name with a brace, "+
			"need one whole hash tag, such as {a}b", node.ErrUnsupported, printable(text))
	}
	return fmt.Errorf("%w: %s", meaning(text), printable(text))
}

// maxText is how much of a server's text is read, and goes into an error.
const maxText = 512

func clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "..."
}

// printable returns text, quoted if it has anything that a terminal may interpret.
func printable(text string) string {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// A shown is an error with another text, as its own is too long, not printable, or has
// addresses.
type shown struct {
	error
	text string
}

func (e shown) Error() string { return e.text }
func (e shown) Unwrap() error { return e.error }

// show makes err short and printable, as parts of its text may be a server's.
func show(err error) error {
	if text := printable(clip(neterr.Text(err))); text != err.Error() {
		return shown{err, text}
	}
	return err
}

func meaning(text string) error {
	words := strings.Fields(text)
	if len(words) > 0 && words[0] != "ERR" {
		words = words[:1]
	}
	// miniredis wraps what a command inside a script raised in words of its own.
	for _, word := range words {
		for _, c := range codes {
			if word == c.word {
				return c.err
			}
		}
	}
	for _, p := range phrases {
		if strings.Contains(text, p.text) {
			return p.err
		}
	}
	return node.ErrServer
}

// networkError gives an error that did not come from the server its meaning.
func networkError(err error) error {
	if neterr.Timeout(err) {
		return shown{errors.Join(node.ErrTimeout, err), node.ErrTimeout.Error()}
	}
	return unreachable(err)
}

func unreachable(err error) error {
	why := node.ErrUnreachable
	if ofCertificate(err) {
		why = node.ErrCertificate
	}
	return because(why, err)
}

func because(why, err error) error { return fmt.Errorf("%w: %w", why, show(err)) }

// ofCertificate reports whether err is that of a certificate that does not verify: by
// package tls, or by a function of the caller's that returns what package x509 says.
func ofCertificate(err error) bool {
	var (
		verify    *tls.CertificateVerificationError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
	)
	return errors.As(err, &verify) || errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid)
}

// handshakeError is why a node is down: what connectError says, but a server that refuses
// the handshake is configured otherwise than the program expects, unless it says that
// this passes. renews says that the next connection may have other credentials.
func handshakeError(err error, renews bool) error {
	means := connectError(err)
	switch {
	case errors.Is(means, node.ErrServer) && !passes.MatchString(err.Error()):
		means = because(node.ErrUnsupported, err)
	case ofTLS(err):
		means = because(node.ErrUnsupported, err)
		if aboutClient.MatchString(err.Error()) {
			means = because(node.ErrAuth, err)
		}
	}
	if renews && errors.Is(means, node.ErrAuth) {
		return fmt.Errorf("%w: %w", node.ErrUnreachable, means)
	}
	return means
}

// passes are servers' refusals of a handshake that no code says to be passing: those of a
// cluster.
var passes = regexp.MustCompile(`^(CLUSTERDOWN|TRYAGAIN|MOVED|ASK) `)

// aboutClient are the alerts of TLS about the client's certificate.
var aboutClient = regexp.MustCompile(`remote error: tls: .*(certificate|access denied)`)

// ofTLS reports whether err says that the two ends do not agree on TLS: an alert of the
// server's, or what package tls has against its first messages.
func ofTLS(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		text := op.Err.Error()
		return text != "tls: internal error" && text != "tls: user canceled"
	}
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	return plain || strings.HasPrefix(err.Error(), "tls: ") && !ofCertificate(err)
}

// connectError is why a node is down: the server's error, if it sent one. It is nil if
// err is.
func connectError(err error) error {
	if err == nil {
		return nil
	}
	if fromServer(err) {
		return serverError(err)
	}
	return unreachable(err)
}
