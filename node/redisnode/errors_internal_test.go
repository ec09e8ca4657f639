package redisnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/redquorum/redquorum/node"
)

// TestMeaning has what servers say that are not at hand for the other tests.
func TestMeaning(t *testing.T) {
	const sha = "f_0123456789abcdef0123456789abcdef01234567"
	for text, want := range map[string]error{
		// Redis 6, inside a script.
		"ERR Error running script (call to " + sha + "): @user_script:15: WRONGTYPE Operation against a key holding the wrong kind of value":                                  node.ErrWrongType,
		"ERR Error running script (call to " + sha + "): @user_script:24: @user_script: 24: -OOM command not allowed when used memory > 'maxmemory'.":                         node.ErrOutOfMemory,
		"ERR Error running script (call to " + sha + "): @user_script:24: @user_script: 24: -READONLY You can't write against a read only replica.":                           node.ErrReadOnly,
		"ERR Error running script (call to " + sha + "): @user_script:24: @user_script: 24: -MISCONF Redis is configured to save RDB snapshots, but it is currently not able": node.ErrMisconf,
		"ERR Error running script (call to " + sha + "): @user_script:24: @user_script: 24: -NOPERM The user executing the script can't run this command or subcommand":       node.ErrAuth,
		"ERR Error running script (call to " + sha + "): @user_script:24: @user_script: 24: Unknown Redis command called from Lua script":                                     node.ErrUnsupported,
		"ERR Error running script (call to " + sha + "): @user_script:24: user_script:24: attempt to compare nil with number":                                                 node.ErrWrongType,
		// Redis 6, inside a script that goes on.
		"@user_script: 116: -READONLY You can't write against a read only replica.\r\n":                node.ErrReadOnly,
		"@user_script: 33: -OOM command not allowed when used memory > 'maxmemory'.\r\n":               node.ErrOutOfMemory,
		"@user_script: 45: -NOPERM The user executing the script can't run this command or subcommand": node.ErrAuth,
		// Redis 7 and 8.
		"WRONGTYPE Operation against a key holding the wrong kind of value script: 0123, on @user_script:15.": node.ErrWrongType,
		"OOM command not allowed when used memory > 'maxmemory'. script: 0123, on @user_script:24.":           node.ErrOutOfMemory,
		"ERR The user executing the script can't run this command or subcommand script: 0123":                 node.ErrAuth,
		"ERR user_script:117: bad argument #2 to 'max' (number expected, got nil) script: 0123":               node.ErrWrongType,
		"NOPERM ACL failure in script: User locker has no permissions to run the 'get' command":               node.ErrAuth,
		"ERR ACL failure in script: User locker has no permissions to run the 'publish' command":              node.ErrAuth, // and goes on
		"ERR ACL failure in script: No permissions to access a channel":                                       node.ErrAuth, // likewise
		"ERR unknown command 'EVALSHA', with args beginning with: ":                                           node.ErrUnsupported,
		// Cluster.
		"CLUSTERDOWN The cluster is down":                                                        node.ErrServer,
		"CROSSSLOT Keys in request don't hash to the same slot":                                  node.ErrUnsupported,
		"TRYAGAIN Multiple keys request during rehashing":                                        node.ErrServer,
		"MOVED 1 10.0.0.1:6379":                                                                  node.ErrServer,
		"ERR unknown command 'auth', with args beginning with: 's3cretpassword' ":                node.ErrUnsupported,
		"ERR max number of clients reached":                                                      node.ErrServer,
		"ERR invalid password":                                                                   node.ErrAuth,
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.": node.ErrBusy,
		"": node.ErrServer,
	} {
		if got := serverError(errors.New(text)); !errors.Is(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// A name whose keys are in different slots never becomes a lock: who waits for it is to be told.
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

// What a user reads is without the place in our own script.
func TestServerErrorText(t *testing.T) {
	const want = "the key at this name is not a lock: WRONGTYPE Operation against a key holding the wrong kind of value"
	const text = "WRONGTYPE Operation against a key holding the wrong kind of value"
	for _, said := range []string{
		text,
		text + " script: 0123456789abcdef0123456789abcdef01234567, on @user_script:17.",
		"ERR Error running script (call to f_0123456789abcdef0123456789abcdef01234567): @user_script:17: " + text,
		"@user_script: 17: -" + text + "\r\n",
	} {
		if got := serverError(errors.New(said)); got.Error() != want {
			t.Errorf("%q: got %q", said, got)
		}
	}
}

func TestNetworkError(t *testing.T) {
	for _, tt := range []struct{ err, want error }{
		{io.EOF, node.ErrUnreachable},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, node.ErrUnreachable},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, node.ErrUnreachable},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, node.ErrTimeout},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), node.ErrTimeout},
	} {
		if got := networkError(tt.err); !errors.Is(got, tt.want) || !errors.Is(got, tt.err) {
			t.Errorf("%v: %v, want %v", tt.err, got, tt.want)
		}
	}
}
