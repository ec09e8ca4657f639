package redisnode

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/neterr"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/node/internal/courier"
)

// go-redis learns of new masters in the background, at any time.
func TestOnlyMastersThatWereAskedGetCommands(t *testing.T) {
	slots := func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 1<<14 - 1, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}}}, nil
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: slots})
	defer client.Close()
	master := assert.Got(client.MasterForKey(t.Context(), "a"))(t)
	r := &shared{client: client, timeout: time.Second, asked: map[*redis.Client]bool{}}
	assert.Is(t, assert.ErrorOf(r.to("a")), courier.ErrNotAsked, "a command for a master that was not asked")
	r.asked[master] = true
	to, err := r.to("a")
	assert.That(t, to == master && err == nil, "a command for a master that was asked goes to %v: %v", to, err)
}

// A tape is a connection to a server that says no more than this.
type tape struct {
	net.Conn
	said *strings.Reader
}

func (t tape) Read(b []byte) (int, error)  { return t.said.Read(b) }
func (t tape) Write(b []byte) (int, error) { return len(b), nil }

func playing(said string) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		conn, _ := net.Pipe()
		return tape{conn, strings.NewReader(said)}, nil
	}
}

// The DialTimeout of any client counts, unless go-redis has set it.
func TestTimeoutOfAClient(t *testing.T) {
	for set, want := range map[time.Duration]time.Duration{
		0: time.Second, time.Millisecond: time.Millisecond, time.Minute: time.Minute,
	} {
		single := redis.NewClient(&redis.Options{Addr: "a", DialTimeout: set, ReadTimeout: time.Millisecond})
		cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"a"}, DialTimeout: set})
		failover := redis.NewFailoverClient(&redis.FailoverOptions{SentinelAddrs: []string{"a"}, DialTimeout: set})
		for _, client := range []redis.UniversalClient{
			single, cluster, failover, struct{ *redis.Client }{single}, struct{ *redis.ClusterClient }{cluster},
		} {
			got, err := timeoutOf(client)
			assert.That(t, got == want && err == nil, "%T, %v: %v, %v", client, set, got, err)
		}
		single.Close()
		cluster.Close()
		failover.Close()
	}
}

// A cluster is one node, so its errors say which server failed.
func TestErrorsOfAClusterNameTheServer(t *testing.T) {
	o := redis.ClusterOptions{Addrs: []string{"10.0.0.1:7001"}, Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}}
	r := newCluster(o, time.Second)
	defer r.Close()
	_, err := r.Ask(t.Context(), [][]string{{"PING"}})
	assert.That(t, err != nil && neterr.Text(err) == "server 10.0.0.1:7001: connection refused", "%v", err)
}

func TestConnectionsOfAClusterAreChecked(t *testing.T) {
	r := newCluster(redis.ClusterOptions{Addrs: []string{"a"}, Dialer: playing("*2147483647\r\n:1\r\n")}, time.Second)
	defer r.Close()
	conn := assert.Got(r.client.(*redis.ClusterClient).Options().Dialer(t.Context(), "tcp", "a"))(t)
	read, err := io.ReadAll(conn)
	assert.That(t, len(read) == 0 && errors.Is(err, resp.ErrProtocol), "%q, %v", read, err)
}

func FuzzPubSub(f *testing.F) {
	for _, text := range []string{"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n", "*3\r\n$9\r\nsubscribe\r\n$-1\r\n:1\r\n", "*1\r\n*-1\r\n", "*0\r\n",
		"*3\r\n$7\r\nmessage\r\n*1\r\n:1\r\n$1\r\na\r\n", "*3\r\n:0\r\n:100\r\n:9223372036854775807\r\n", "-NOPERM channel\r\n",
		"*3\r\n$7\r\nmessage\r\n:1\r\n:1\r\n", "*1\r\n$7\r\nmessage\r\n", "*2\r\n$4\r\npong\r\n$0\r\n\r\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, said string) {
		dial := playing("-ERR unknown command\r\n" + said)
		client := redis.NewClient(&redis.Options{Addr: "a", MaxRetries: -1, DisableIdentity: true, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return courier.Checked(conn), err
		}})
		defer client.Close()
		sub := (&shared{client: client, timeout: time.Second}).Subscribe([]string{"a"})
		defer sub.Close()
		for range len(said) + 2 { // each costs it a byte at least
			var said redis.Error
			if _, _, err := sub.Receive(); err != nil && !errors.As(err, &said) {
				return
			}
		}
	})
}

// No error shows any part of a password, whatever its commas and special characters do to
// the URL.
func FuzzParseURL(f *testing.F) {
	const secret = "s3cret"
	for _, special := range []string{"", ",", ":", "/", "?", "#", "@", "%", " ", "[", "]", ":12/", ":12?", "@h/", "://", ",x://"} {
		f.Add("redis://user:", special, "@127.0.0.1:80")
		f.Add("redis://", special, "")
		f.Add("user:1", special, "@127.0.0.1:80")
		f.Add("", special, ":80")
		f.Add("unix://user:1", special, "@/run/redis.sock")
	}
	f.Fuzz(func(t *testing.T, before, special, after string) {
		for u := range strings.SplitSeq(before+special+secret+special+after, ",") {
			_, err := ParseURL(u)
			assert.That(t, err == nil || !strings.Contains(err.Error(), secret), "%q: a password in %q", u, err)
		}
	})
}
