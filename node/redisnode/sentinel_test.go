package redisnode_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
)

// A refusal is permanent if all Sentinels that answer refuse. The error has their words
// in the order of the URL, equal ones once.
func TestErrorsOfSentinels(t *testing.T) {
	t.Parallel()
	const (
		refused  = "connection refused"
		wrong    = "WRONGPASS invalid username-password pair or user is disabled."
		stranger = "ERR unknown command 'sentinel'"
		noReply  = `what came is no reply of a Redis server: "*9000000000000000000\r\n"`
		open, no = "&sentinel_password=secret", "&sentinel_password=no"
	)
	a, b := newSentinel(t, "127.0.0.1:1").addr, newSentinel(t, "127.0.0.1:1").addr
	redis := serveTCP(t, func(conn net.Conn) { // as one that knows no Sentinel, nor users
		defer conn.Close()
		buf := make([]byte, 1000)
		if n, err := conn.Read(buf); err == nil {
			const no = "-ERR unknown command 'sentinel', with args beginning with: 's3cret' \r\n"
			fmt.Fprint(conn, strings.Repeat(no, strings.Count(string(buf[:n]), "*")))
			_, _ = conn.Read(buf)
		}
	})
	nonsense := serveTCP(t, func(conn net.Conn) {
		defer conn.Close()
		fmt.Fprint(conn, "*9000000000000000000\r\n")
		_, _ = conn.Read(make([]byte, 1000))
	})
	_, pair := certificate(t, t.TempDir())
	private := serveTCP(t, func(conn net.Conn) {
		defer conn.Close()
		tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{pair}}).Handshake()
	})
	dir := t.TempDir()
	assert.Succeed(t, os.WriteFile(filepath.Join(dir, "no"), []byte("no\n"), 0o600))
	file := "&sentinel_password_file=" + filepath.Join(dir, "no")
	const nobody, none = "127.0.0.1:1", "127.0.0.1:2"
	for _, tt := range []struct {
		of       []string
		settings string
		want     error
		says     string // begins with "!" if it is not permanent
	}{
		{[]string{a}, no, node.ErrAuth, a + ": " + wrong},
		{[]string{a}, "", node.ErrAuth, a + ": NOAUTH Authentication required."},
		{[]string{redis}, "", node.ErrUnsupported, redis + ": " + stranger},
		{[]string{b, nobody, a, none}, no, node.ErrAuth,
			b + ", " + a + ": " + wrong + "; " + nobody + ", " + none + ": " + refused},
		{[]string{redis, nonsense, a}, no, node.ErrUnsupported,
			redis + ": " + stranger + "; " + nonsense + ": " + noReply + "; " + a + ": " + wrong},
		{[]string{private}, "tls", node.ErrCertificate,
			private + ": tls: failed to verify certificate: x509: certificate signed by unknown authority"},
		{[]string{nobody, a}, open + "/other", node.ErrUnreachable,
			"!" + nobody + ": " + refused + "; " + a + ": does not watch it"},
		{[]string{redis, a}, open + "/other", node.ErrUnreachable,
			"!" + redis + ": " + stranger + "; " + a + ": does not watch it"},
		{[]string{none, nobody}, "", node.ErrUnreachable, "!" + none + ", " + nobody + ": " + refused},
		{[]string{nonsense}, "", node.ErrUnreachable, "!" + nonsense + ": " + noReply},
		// Files are read for each question: the next one may have the right password.
		{[]string{a}, file, node.ErrAuth, "!" + a + ": " + wrong},
		{[]string{a}, file + "ne", node.ErrUnreachable,
			"!" + a + ": open " + filepath.Join(dir, "none") + ": no such file or directory"},
	} {
		scheme, name := "sentinel://", "mymaster"
		settings, other := strings.CutSuffix(tt.settings, "/other")
		if other {
			name = "other"
		}
		if settings == "tls" {
			scheme, settings = "rediss+sentinel://", ""
		}
		r := answered(t, dial(t, scheme+strings.Join(tt.of, ",")+"/"+name+"?replicas=2"+settings))
		says, passes := strings.CutPrefix(tt.says, "!")
		text := r.Err.Error()
		if !errors.Is(r.Err, tt.want) || node.Permanent(r.Err) == passes || !strings.HasSuffix(text, name+": "+says) {
			t.Errorf("%v%s: %q, permanent %v; want %v, %q", tt.of, tt.settings, text, node.Permanent(r.Err), tt.want, says)
		}
	}
}

// answered asks again while the machine is too busy for an answer in time.
func answered(t *testing.T, n node.Node) (r node.Reply) {
	t.Helper()
	assert.Eventually(t, "an answer in time", func() bool {
		r = ask(t, n, inspect("a"))
		return r.Err == nil || !strings.HasSuffix(r.Err.Error(), node.ErrTimeout.Error())
	})
	return r
}

func TestPasswordOfSentinelsInAFile(t *testing.T) {
	t.Parallel()
	s, file := newSentinel(t, "127.0.0.1:1"), filepath.Join(t.TempDir(), "password")
	assert.Succeed(t, os.WriteFile(file, []byte("old\n"), 0o600))
	n := dial(t, "sentinel://"+s.addr+"/mymaster?replicas=1&sentinel_password_file="+file)
	expectErr(t, "the old password", answered(t, n), node.ErrAuth)
	assert.Succeed(t, os.WriteFile(file, []byte("secret\n"), 0o600))
	assert.Eventually(t, "the new password", func() bool { ask(t, n, inspect("a")); return s.asked.Load() > 0 })
	_, err := redisnode.Parse("sentinel://a:1/main?replicas=2&sentinel_password_file=/f&sentinel_password=x")
	assert.Says(t, err, "it has both sentinel_password and sentinel_password_file")
}

// With rediss+sentinel:// Sentinels are asked by TLS alone: their answers decide where
// passwords go. Their certificates, and the primary's, have to name the host that was
// dialed, even an address.
func TestSentinelsAreAskedByTLS(t *testing.T) {
	t.Parallel()
	pool, pair := certificate(t, t.TempDir())
	var mu sync.Mutex
	var plain []byte
	secure := func(conn net.Conn, serve func(net.Conn)) {
		server := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{pair}})
		if server.Handshake() != nil {
			conn.Close()
			return
		}
		serve(server)
	}
	primary := serveTCP(t, func(conn net.Conn) {
		secure(conn, func(conn net.Conn) { fmt.Fprint(conn, "-LOADING by TLS\r\n"); conn.Close() })
	})
	s := new(sentinel)
	s.primary.Store(primary)
	s.addr = serveTCP(t, func(conn net.Conn) {
		first := make([]byte, 1)
		if n, _ := conn.Read(first); n == 0 || first[0] != 22 { // of a handshake
			mu.Lock()
			defer mu.Unlock()
			plain = append(plain, first[:n]...)
			conn.Close()
			return
		}
		secure(&begun{conn, first}, s.serve)
	})
	url := "rediss+sentinel://" + s.addr + "/mymaster?replicas=1&sentinel_password=secret"
	server := assert.Got(redisnode.Parse(url))(t)
	server.TLSConfig.RootCAs = pool
	nodes := assert.Got(redisnode.DialServers(server))(t)
	defer nodes[0].Close()
	expectErr(t, "the primary, by TLS", answered(t, nodes[0]), node.ErrLoading)
	assert.That(t, s.asked.Load() > 0, "it was not asked by TLS")

	hosts := map[string]bool{}
	server = assert.Got(redisnode.Parse(url))(t)
	server.TLSConfig.InsecureSkipVerify = true
	server.TLSConfig.VerifyConnection = func(c tls.ConnectionState) error {
		mu.Lock()
		defer mu.Unlock()
		hosts[c.ServerName] = true
		_, err := c.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, DNSName: c.ServerName})
		return err
	}
	byHand := assert.Got(redisnode.DialServers(server))(t)
	defer byHand[0].Close()
	expectErr(t, "the primary, verified by hand", answered(t, byHand[0]), node.ErrLoading)
	mu.Lock()
	defer mu.Unlock()
	assert.That(t, len(hosts) == 1 && hosts["127.0.0.1"], "verified for %v", hosts)
	assert.That(t, len(plain) == 0, "asked without TLS: %q", plain)
}

type begun struct {
	net.Conn
	first []byte
}

func (b *begun) Read(to []byte) (int, error) {
	if len(b.first) == 0 {
		return b.Conn.Read(to)
	}
	n := copy(to, b.first)
	b.first = b.first[n:]
	return n, nil
}

// A Sentinel that answers nonsense costs its own answer: no memory, and not the process.
func TestHostileSentinel(t *testing.T) {
	good := newSentinel(t, "127.0.0.1:1")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	exploded.Store(0)
	for _, b := range bombs {
		for _, stage := range []string{"auth", "sentinel"} {
			bad, left := newHostile(t, stage, b)
			n := dial(t, "sentinel://"+bad+","+good.addr+"/mymaster?replicas=1&sentinel_password=secret")
			what := fmt.Sprintf("%.20q to %s is left, and the primary dialed", b.head, stage)
			assert.Eventually(t, what, func() bool { // the good one may have answered first
				r := ask(t, n, inspect("a"))
				select {
				case <-left:
					return strings.Contains(fmt.Sprint(r.Err), "connection refused")
				default:
					return false
				}
			})
			n.Close()
		}
	}
	runtime.ReadMemStats(&after)
	each := int64(after.TotalAlloc-before.TotalAlloc) / exploded.Load()
	assert.That(t, each <= 3<<20, "%d MB were allocated for a bomb", each>>20)
	assert.That(t, good.asked.Load() > 0, "the good one was not asked")
}

// An error of the caller's functions is theirs: another server may have sent it.
func TestErrorsOfTheCallersFunctionsAreNoRefusals(t *testing.T) {
	t.Parallel()
	p := newServer(t)
	const noAuth = asServer("NOAUTH Authentication required.")
	for _, err := range []error{redis.Nil, fmt.Errorf("lookup: %w", redis.Nil), noAuth, fmt.Errorf("x: %w", noAuth)} {
		for what, client := range failing(p.addr, err) {
			r := answered(t, wrap(t, client, redisnode.Options{Name: "a"}))
			assert.That(t, errors.Is(r.Err, node.ErrUnreachable) && !node.Permanent(r.Err), "%s, %v: %+v", what, err, r)
		}
	}
	sentinel := newSentinel(t, p.addr)
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "other", DialTimeout: 100 * time.Second,
		SentinelAddrs: []string{sentinel.addr}, SentinelPassword: "secret"})
	r := ask(t, wrap(t, client, redisnode.Options{Replicas: 2}), inspect("a"))
	assert.That(t, errors.Is(r.Err, node.ErrUnreachable) && !node.Permanent(r.Err), "a failover client: %+v", r)
}

// asServer is an error of a server, as go-redis marks it.
type asServer string

func (e asServer) Error() string { return string(e) }
func (asServer) RedisError()     {}

// failing are clients of a server, each with a function that returns err.
func failing(addr string, err error) map[string]redis.UniversalClient {
	dial := func(context.Context, string, string) (net.Conn, error) { return nil, err }
	credentials := func(context.Context) (string, string, error) { return "", "", err }
	one := func(o redis.Options) *redis.Client {
		o.Addr = addr
		return redis.NewClient(&o)
	}
	all := func(o redis.ClusterOptions) *redis.ClusterClient {
		o.Addrs = []string{addr}
		return redis.NewClusterClient(&o)
	}
	greet := func(context.Context, *redis.Conn) error { return err }
	wrapped := func(context.Context, string, string) (net.Conn, error) { return nil, fmt.Errorf("dial: %w", err) }
	return map[string]redis.UniversalClient{
		"a dialer":                         one(redis.Options{Dialer: dial}),
		"credentials":                      one(redis.Options{CredentialsProviderContext: credentials}),
		"streaming credentials":            one(redis.Options{StreamingCredentialsProvider: broken{err}}),
		"a dialer of a cluster":            all(redis.ClusterOptions{Dialer: dial}),
		"credentials of a cluster":         all(redis.ClusterOptions{CredentialsProviderContext: credentials}),
		"streaming credentials, a cluster": all(redis.ClusterOptions{StreamingCredentialsProvider: broken{err}}),
		"OnConnect of a cluster":           all(redis.ClusterOptions{OnConnect: greet}),
		"a dialer of another client":       struct{ *redis.Client }{one(redis.Options{Dialer: wrapped})},
	}
}

// A broken provider has no credentials.
type broken struct{ err error }

func (b broken) Subscribe(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	return nil, nil, b.err
}
