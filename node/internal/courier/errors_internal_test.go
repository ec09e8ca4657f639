package courier

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
)

// inWords is how servers say a text: as it is, or as raised by a command of a script,
// with which the script ends or goes on.
func inWords(text string) []string {
	const sha = "0123456789abcdef0123456789abcdef01234567"
	// the last is Valkey 9
	all := []string{text, text + " script: " + sha + ", on @user_script:15.", text + " script: on @user_script:15."}
	for _, place := range []string{"@user_script:15: ", "@user_script:15: @user_script: 15: ",
		"@user_script:15: @user_script: 15: -"} {
		all = append(all, "ERR Error running script (call to f_"+sha+"): "+place+text) // Redis 6
	}
	return append(all, "@user_script: 15: "+text, "@user_script: 15: -"+text+"\r\n")
}

// The errors are in servers' own words.
func TestMeaning(t *testing.T) {
	for text, want := range map[string]error{
		"WRONGTYPE Operation against a key holding the wrong kind of value":                                   node.ErrWrongType,
		"OOM command not allowed when used memory > 'maxmemory'.":                                             node.ErrOutOfMemory,
		"READONLY You can't write against a read only replica.":                                               node.ErrReadOnly,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":                    node.ErrReadOnly,
		"MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.": node.ErrMisconf,
		"MISCONF Valkey is configured to save RDB snapshots, but it's currently unable to persist to disk.":   node.ErrMisconf,
		"LOADING Redis is loading the dataset in memory":                                                      node.ErrLoading,
		"BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.":             node.ErrBusy,
		"NOREPLICAS Not enough good replicas to write.":                                                       node.ErrServer,
		"NOAUTH Authentication required.":                                                                     node.ErrAuth,
		"WRONGPASS invalid username-password pair or user is disabled.":                                       node.ErrAuth,
		"ERR invalid password": node.ErrAuth, // Redis 5
		// Redis 6
		"NOPERM this user has no permissions to run the 'subscribe' command or its subcommand": node.ErrAuth,
		"NOPERM User locker has no permissions to run the 'subscribe' command":                 node.ErrAuth,
		"NOPERM No permissions to access a channel":                                            node.ErrAuth,
		// Redis 6
		"The user executing the script can't run this command or subcommand":                                     node.ErrAuth,
		"The user executing the script can't access at least one of the keys mentioned in the command arguments": node.ErrAuth,
		"The user executing the script can't publish to the channel mentioned in the command":                    node.ErrAuth,
		// Redis 7.0
		"ERR The user executing the script can't publish to the channel mentioned in the command": node.ErrAuth,
		// Redis 7.2, Valkey
		"ERR ACL failure in script: User locker has no permissions to run the 'set' command": node.ErrAuth,
		"ERR ACL failure in script: No permissions to access a key":                          node.ErrAuth,
		// Redis 6
		"Unknown Redis command called from Lua script": node.ErrUnsupported,
		"ERR Unknown Redis command called from script": node.ErrUnsupported,
		// Valkey
		"ERR Unknown command called from script":                            node.ErrUnsupported,
		"ERR unknown command `EVALSHA`, with args beginning with: `0123`, ": node.ErrUnsupported,
		"ERR unknown command 'EVALSHA', with args beginning with: '0123' ":  node.ErrUnsupported,
		// Redis 6
		"user_script:15: attempt to compare nil with number":                      node.ErrWrongType,
		"ERR user_script:15: attempt to compare number with nil":                  node.ErrWrongType,
		"ERR user_script:15: attempt to perform arithmetic on a nil value":        node.ErrWrongType,
		"ERR user_script:15: attempt to perform arithmetic on a string value":     node.ErrWrongType,
		"ERR user_script:15: bad argument #2 to 'max' (number expected, got nil)": node.ErrWrongType,
		// Redis 6
		"Lua script attempted to access a non local key in a cluster node": node.ErrServer,
		"ERR Script attempted to access a slot not served":                 node.ErrServer,
		"ERR Script killed by user with SCRIPT KILL...":                    node.ErrServer,
		"ERR max number of clients reached":                                node.ErrUnreachable,
		"CROSSSLOT Keys in request don't hash to the same slot":            node.ErrUnsupported,
		"CLUSTERDOWN Hash slot not served":                                 node.ErrServer,
		"TRYAGAIN Multiple keys request during rehashing of slot":          node.ErrServer,
		"MOVED 15495 127.0.0.1:6379":                                       node.ErrServer,
		"":                                                                 node.ErrServer,
	} {
		for _, said := range inWords(text) {
			if got := serverError(errors.New(said)); !errors.Is(got, want) ||
				strings.Contains(got.Error(), "@user_script") {
				t.Errorf("%q: %v, want %v without the place in the script", said, got, want)
			}
		}
	}
}

// asGoRedis is an error that a server has sent to a client of a Dialer's, if it has one.
type asGoRedis string

func (e asGoRedis) Error() string { return string(e) }
func (asGoRedis) RedisError()     {}

// A refused handshake is permanent, except for what passes by itself, or if the next
// connection may have other credentials.
func TestARefusedHandshake(t *testing.T) {
	server := func(text string) error { return refusal{error: errors.New(text)} }
	alert := func(text string) error { return &net.OpError{Op: "remote error", Err: errors.New("tls: " + text)} }
	for _, tt := range []struct {
		err, want error
		forGood   bool
	}{
		{server("ERR DB index is out of range"), node.ErrUnsupported, true},
		{server("ERR something new"), node.ErrUnsupported, true},
		{server("NOTBUSY something new"), node.ErrUnsupported, true},
		{server("DENIED Redis is running in protected mode"), node.ErrAuth, true},
		{server("WRONGPASS invalid username-password pair"), node.ErrAuth, true},
		{server("LOADING Redis is loading the dataset in memory"), node.ErrLoading, false},
		{server("BUSY Redis is busy running a script."), node.ErrBusy, false},
		{server("MASTERDOWN Link with MASTER is down"), node.ErrReadOnly, false},
		{server("ERR max number of clients reached"), node.ErrUnreachable, false},
		{server("ERR max number of clients + cluster connections reached"), node.ErrUnreachable, false},
		{server("CLUSTERDOWN The cluster is down"), node.ErrServer, false},
		{alert("certificate required"), node.ErrAuth, true},
		{alert("bad certificate"), node.ErrAuth, true},
		{alert("protocol version not supported"), node.ErrUnsupported, true},
		{alert("internal error"), node.ErrUnreachable, false},
		{fmt.Errorf("dial: %w", alert("unknown certificate authority")), node.ErrAuth, true},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, node.ErrUnsupported, true},
		{errors.New("tls: server selected unsupported protocol version 301"), node.ErrUnsupported, true},
		{&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: new(x509.Certificate)}},
			node.ErrCertificate, true},
		{syscall.ECONNREFUSED, node.ErrUnreachable, false},
		{io.EOF, node.ErrUnreachable, false},
		{context.DeadlineExceeded, node.ErrUnreachable, false},
		{errors.New("ssh: the tunnel is closed"), node.ErrUnreachable, false},
		{fmt.Errorf("lookup: %w", server("NOAUTH of another server")), node.ErrUnreachable, false},
		{asGoRedis("NOAUTH of another server"), node.ErrUnreachable, false},
		{InPlace(fmt.Errorf("%w: no Sentinel knows it", node.ErrAuth)), node.ErrAuth, true},
	} {
		if got := handshakeError(tt.err, false); !errors.Is(got, tt.want) || node.Permanent(got) != tt.forGood {
			t.Errorf("%v: %v, permanent %v", tt.err, got, node.Permanent(got))
		}
		got := handshakeError(tt.err, true)
		if forGood := tt.forGood && tt.want != node.ErrAuth; !errors.Is(got, tt.want) ||
			node.Permanent(got) != forGood {
			t.Errorf("%v, with other credentials: %v, permanent %v", tt.err, got, node.Permanent(got))
		}
	}
}

// A reset drops what the server has said before it, so it is asked again.
func TestAResetIsListenedTo(t *testing.T) {
	for said, want := range map[string]error{"-DENIED by a proxy\r\n": node.ErrAuth, "+hello\r\n": resp.ErrProtocol,
		"": nil} {
		synctest.Test(t, func(t *testing.T) {
			var s wireServer
			dials := 0
			n := s.node(t, target(func(ctx context.Context) (net.Conn, error) {
				if dials++; dials%2 == 1 { // the first of each attempt to connect
					return tests.Playing(iotest.ErrReader(syscall.ECONNRESET)), nil
				}
				if said != "" {
					return tests.Playing(strings.NewReader(said)), nil
				}
				return s.dial(ctx)
			}, ""), 0)
			r := acquires(n)
			assert.That(t, errors.Is(r.Err, want), "%q: %v", said, r.Err)
		})
	}
}

// A name whose keys are in different slots never becomes a lock: a waiter gets an error.
func TestCrossSlotIsPermanent(t *testing.T) {
	got := serverError(errors.New("CROSSSLOT Keys in request don't hash to the same slot"))
	assert.That(t, node.Permanent(got), "%v is not permanent", got)
	text := got.Error()
	assert.That(t, strings.Contains(text, "CROSSSLOT") && strings.Contains(text, "brace"), "unhelpful: %v", text)
}

// A server repeats the arguments of an unknown command.
func TestServerErrorHidesArguments(t *testing.T) {
	got := serverError(errors.New("ERR unknown command 'auth', with args beginning with: 's3cretpassword' "))
	assert.That(t, got.Error() == "not supported by the server: ERR unknown command 'auth'", "got %q", got)
}

// It lacks the place in our own script.
func TestServerErrorText(t *testing.T) {
	const want = "the key at this name is not a lock: WRONGTYPE Operation against a key holding the wrong kind of value"
	for _, said := range inWords("WRONGTYPE Operation against a key holding the wrong kind of value") {
		got := serverError(errors.New(said))
		assert.That(t, got.Error() == want, "%q: got %q", said, got)
	}
}

func TestNetworkError(t *testing.T) {
	for _, tt := range []struct {
		err, want error
		text      string
	}{
		{io.EOF, node.ErrUnreachable, "unreachable: the server closed the connection"},
		{&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}, node.ErrUnreachable,
			"unreachable: connection reset by peer"},
		{&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}, node.ErrUnreachable,
			"unreachable: connection refused"},
		{&net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}, node.ErrTimeout, "no answer in time"},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), node.ErrTimeout, "no answer in time"},
	} {
		if got := networkError(tt.err); !errors.Is(got, tt.want) || !errors.Is(got, tt.err) || got.Error() != tt.text {
			t.Errorf("%v: %v, want %v", tt.err, got, tt.text)
		}
	}
}
