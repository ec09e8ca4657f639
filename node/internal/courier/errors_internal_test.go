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

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// TestMeaning has what servers say, in their own words: as a command of a script that ends with
// it, as one of a script that goes on, and without a script.
func TestMeaning(t *testing.T) {
	const (
		before  = "ERR Error running script (call to f_0123456789abcdef0123456789abcdef01234567): @user_script:15: " // Redis 6
		after   = " script: 0123456789abcdef0123456789abcdef01234567, on @user_script:15."                           // Redis 7 and 8, Valkey 8; Valkey 9 has the next instead
		valkey9 = " script: on @user_script:15."
	)
	for text, want := range map[string]error{
		// Redis 6.
		before + "WRONGTYPE Operation against a key holding the wrong kind of value":                                                        node.ErrWrongType,
		before + "@user_script: 15: -OOM command not allowed when used memory > 'maxmemory'.":                                               node.ErrOutOfMemory,
		before + "@user_script: 15: -READONLY You can't write against a read only replica.":                                                 node.ErrReadOnly,
		before + "@user_script: 15: -MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.":   node.ErrMisconf,
		before + "@user_script: 15: -NOREPLICAS Not enough good replicas to write.":                                                         node.ErrServer,
		before + "@user_script: 15: The user executing the script can't run this command or subcommand":                                     node.ErrAuth,
		before + "@user_script: 15: The user executing the script can't access at least one of the keys mentioned in the command arguments": node.ErrAuth,
		before + "@user_script: 15: The user executing the script can't publish to the channel mentioned in the command":                    node.ErrAuth,
		before + "@user_script: 15: Unknown Redis command called from Lua script":                                                           node.ErrUnsupported,
		before + "@user_script: 15: Lua script attempted to access a non local key in a cluster node":                                       node.ErrServer,
		before + "user_script:15: attempt to compare nil with number":                                                                       node.ErrWrongType,
		before + "user_script:15: attempt to compare number with nil":                                                                       node.ErrWrongType,
		before + "user_script:15: attempt to perform arithmetic on a nil value":                                                             node.ErrWrongType,
		before + "user_script:15: bad argument #2 to 'max' (number expected, got nil)":                                                      node.ErrWrongType,
		before + "Script killed by user with SCRIPT KILL...":                                                                                node.ErrServer,
		"@user_script: 15: -READONLY You can't write against a read only replica.\r\n":                                                      node.ErrReadOnly,
		"@user_script: 15: -OOM command not allowed when used memory > 'maxmemory'.\r\n":                                                    node.ErrOutOfMemory,
		"@user_script: 15: The user executing the script can't publish to the channel mentioned in the command":                             node.ErrAuth,
		"NOPERM this user has no permissions to run the 'subscribe' command or its subcommand":                                              node.ErrAuth,
		"NOPERM this user has no permissions to access one of the keys used as arguments":                                                   node.ErrAuth,
		"MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.":                               node.ErrMisconf,
		"ERR unknown command `EVALSHA`, with args beginning with: `0123`, ":                                                                 node.ErrUnsupported,
		"ERR invalid password": node.ErrAuth, // Redis 5
		// Redis 7.0 and 8.2, Valkey 8.1.
		"WRONGTYPE Operation against a key holding the wrong kind of value" + after:                                          node.ErrWrongType,
		"OOM command not allowed when used memory > 'maxmemory'." + after:                                                    node.ErrOutOfMemory,
		"READONLY You can't write against a read only replica." + after:                                                      node.ErrReadOnly,
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk." + after:           node.ErrMisconf,
		"NOREPLICAS Not enough good replicas to write." + after:                                                              node.ErrServer,
		"ERR Unknown Redis command called from script" + after:                                                               node.ErrUnsupported,
		"ERR Unknown command called from script" + after:                                                                     node.ErrUnsupported, // Valkey
		"ERR The user executing the script can't run this command or subcommand" + after:                                     node.ErrAuth,        // 7.0
		"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments" + after: node.ErrAuth,
		"ERR The user executing the script can't publish to the channel mentioned in the command":                            node.ErrAuth, // and goes on
		"ERR ACL failure in script: User locker has no permissions to run the 'set' command" + after:                         node.ErrAuth, // 8.2, Valkey
		"ERR ACL failure in script: No permissions to access a key" + after:                                                  node.ErrAuth,
		"ERR ACL failure in script: No permissions to access a channel":                                                      node.ErrAuth, // and goes on
		"NOPERM User locker has no permissions to run the 'subscribe' command":                                               node.ErrAuth,
		"NOPERM No permissions to access a channel":                                                                          node.ErrAuth,
		"ERR user_script:15: attempt to compare number with nil" + after:                                                     node.ErrWrongType,
		"ERR user_script:15: attempt to perform arithmetic on a nil value" + after:                                           node.ErrWrongType,
		"ERR user_script:15: bad argument #2 to 'max' (number expected, got nil)" + after:                                    node.ErrWrongType,
		"ERR Script attempted to access a non local key in a cluster node" + after:                                           node.ErrServer,
		"ERR Script attempted to access a slot not served" + after:                                                           node.ErrServer,
		"ERR Script killed by user with SCRIPT KILL..." + after:                                                              node.ErrServer,
		"ERR unknown command 'EVALSHA', with args beginning with: '0123' ":                                                   node.ErrUnsupported,
		// Valkey 9.1.
		"MISCONF Valkey is configured to save RDB snapshots, but it's currently unable to persist to disk." + valkey9: node.ErrMisconf,
		"ERR user_script:15: attempt to compare nil with number" + valkey9:                                            node.ErrWrongType,
		"ERR Attempted to access a non local key in a cluster node" + valkey9:                                         node.ErrServer,
		"ERR Script killed by user with SCRIPT KILL." + valkey9:                                                       node.ErrServer,
		// All of them, to the script as a whole.
		"LOADING Redis is loading the dataset in memory":                                          node.ErrLoading,
		"LOADING Valkey is loading the dataset in memory":                                         node.ErrLoading,
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.":  node.ErrBusy,
		"BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.": node.ErrBusy,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":        node.ErrReadOnly,
		"NOAUTH Authentication required.":                                                         node.ErrAuth,
		"WRONGPASS invalid username-password pair or user is disabled.":                           node.ErrAuth,
		"ERR max number of clients reached":                                                       node.ErrUnreachable,
		"CLUSTERDOWN Hash slot not served":                                                        node.ErrServer,
		"CROSSSLOT Keys in request don't hash to the same slot":                                   node.ErrUnsupported,
		"TRYAGAIN Multiple keys request during rehashing of slot":                                 node.ErrServer,
		"MOVED 15495 127.0.0.1:6379":                                                              node.ErrServer,
		"":                                                                                        node.ErrServer,
	} {
		texts := []string{text}
		if said, ok := strings.CutSuffix(text, after); ok {
			texts = append(texts, said+valkey9)
		}
		for _, text := range texts {
			got := serverError(errors.New(text))
			if !errors.Is(got, want) {
				t.Errorf("%q: %v, want %v", text, got, want)
			}
			if strings.Contains(got.Error(), "@user_script") {
				t.Errorf("%q: %q has the place in the script", text, got)
			}
		}
	}
}

// Whatever refuses a handshake is permanent, but for what passes by itself, and where the next connection may
// have other credentials.
func TestARefusedHandshake(t *testing.T) {
	server := func(text string) error { return serverReply{errors.New(text)} }
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
		{&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: new(x509.Certificate)}}, node.ErrCertificate, true},
		{syscall.ECONNREFUSED, node.ErrUnreachable, false},
		{io.EOF, node.ErrUnreachable, false},
		{context.DeadlineExceeded, node.ErrUnreachable, false},
		{errors.New("ssh: the tunnel is closed"), node.ErrUnreachable, false},
	} {
		if got := handshakeError(tt.err, false); !errors.Is(got, tt.want) || node.Permanent(got) != tt.forGood {
			t.Errorf("%v: %v, permanent %v", tt.err, got, node.Permanent(got))
		}
		got := handshakeError(tt.err, true)
		if forGood := tt.forGood && tt.want != node.ErrAuth; !errors.Is(got, tt.want) || node.Permanent(got) != forGood {
			t.Errorf("%v, with other credentials: %v, permanent %v", tt.err, got, node.Permanent(got))
		}
	}
}

// A reset drops what the server has said before it: it is asked again for that.
func TestAResetIsListenedTo(t *testing.T) {
	for said, want := range map[string]error{"-DENIED by a proxy\r\n": node.ErrAuth, "+hello\r\n": ErrProtocol, "": nil} {
		synctest.Test(t, func(t *testing.T) {
			s := &wireServer{heard: make(map[string]int)}
			dials := 0
			n := ToServer(target(func(ctx context.Context) (net.Conn, error) {
				if dials++; dials%2 == 1 { // the first of each attempt to connect
					return tape{Reader: iotest.ErrReader(syscall.ECONNRESET)}, nil
				}
				if said != "" {
					return playing([]byte(said)), nil
				}
				return s.dial(ctx)
			}, ""), Options{Clock: clock.Runtime()})
			defer n.Close()
			if r := acquires(n); !errors.Is(r.Err, want) {
				t.Errorf("%q: %v", said, r.Err)
			}
		})
	}
}

// A name whose keys are in different slots never becomes a lock: a waiter gets an error.
func TestCrossSlotIsPermanent(t *testing.T) {
	got := serverError(errors.New("CROSSSLOT Keys in request don't hash to the same slot"))
	if !node.Permanent(got) {
		t.Errorf("%v is not permanent", got)
	}
	if text := got.Error(); !strings.Contains(text, "CROSSSLOT") || !strings.Contains(text, "brace") {
		t.Errorf("unhelpful: %v", text)
	}
}

// A server that does not know a command repeats what came with it.
func TestServerErrorHidesArguments(t *testing.T) {
	got := serverError(errors.New("ERR unknown command 'auth', with args beginning with: 's3cretpassword' "))
	if got.Error() != "not supported by the server: ERR unknown command 'auth'" {
		t.Errorf("got %q", got)
	}
}

// The text that a user reads is without the place in our own script.
func TestServerErrorText(t *testing.T) {
	const want = "the key at this name is not a lock: WRONGTYPE Operation against a key holding the wrong kind of value"
	const text = "WRONGTYPE Operation against a key holding the wrong kind of value"
	for _, said := range []string{
		text,
		text + " script: 0123456789abcdef0123456789abcdef01234567, on @user_script:17.",
		text + " script: on @user_script:17.",
		"ERR Error running script (call to f_0123456789abcdef0123456789abcdef01234567): @user_script:17: " + text,
		"@user_script: 17: -" + text + "\r\n",
	} {
		if got := serverError(errors.New(said)); got.Error() != want {
			t.Errorf("%q: got %q", said, got)
		}
	}
}

func TestNetworkError(t *testing.T) {
	for _, tt := range []struct {
		err, want error
		text      string
	}{
		{io.EOF, node.ErrUnreachable, "unreachable: the server closed the connection"},
		{&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}, node.ErrUnreachable, "unreachable: connection reset by peer"},
		{&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}, node.ErrUnreachable, "unreachable: connection refused"},
		{&net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}, node.ErrTimeout, "no answer in time"},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), node.ErrTimeout, "no answer in time"},
	} {
		if got := networkError(tt.err); !errors.Is(got, tt.want) || !errors.Is(got, tt.err) || got.Error() != tt.text {
			t.Errorf("%v: %v, want %v", tt.err, got, tt.text)
		}
	}
}
