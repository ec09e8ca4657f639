package redisnode_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/node/redisserver"
)

func works(t *testing.T, n node.Node) {
	t.Helper()
	l := listen(t, n, "a")
	defer l.stop()
	r := expect(t, "acquire", ask(t, n, acquire("a", "me", 1)), node.Granted)
	assert.That(t, r.Life != nil && r.Life.ID != "", "life %+v", r.Life)
	expect(t, "refused", ask(t, n, acquire("a", "you", 2)), node.Refused)
	expect(t, "extend", ask(t, n, extend(time.Minute, claim("a", "me", 0)...)), node.Done)
	expect(t, "inspect", ask(t, n, inspect("a")), node.Done)
	before := l.wakes.Load()
	expect(t, "release", ask(t, n, release("a", "me", 1)), node.Released)
	l.next(t, "woken", before)
	expect(t, "break", ask(t, n, breakLock("a", 3)), node.Absent)
	var cmds []node.Command
	for i := range 100 {
		cmds = append(cmds, acquire(name(i), "me", 5), release(name(i), "me", 5))
	}
	for _, r := range submit(n, cmds...)() {
		assert.Succeed(t, r.Err)
	}
}

func wrap(t testing.TB, client redis.UniversalClient, opts redisnode.Options) node.Node {
	t.Helper()
	n := assert.Got(redisnode.New(client, opts))(t)
	t.Cleanup(func() { n.Close(); client.Close() })
	return n
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "rq") // t.TempDir is too long for a socket
	assert.Succeed(t, err)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	newServer(t, "--unixsocket", path)
	n := dial(t, "unix://"+path+"?db=2")
	want := path + "/2"
	assert.That(t, n.Name() == want, "name %q, want %q", n.Name(), want)
	works(t, n)
}

// newTLSServer has a certificate of its own, which pool has, at addr.
func newTLSServer(t *testing.T, args ...string) (p *process, addr string, pool *x509.CertPool) {
	t.Helper()
	tests.NeedServer(t)
	dir, port := t.TempDir(), freePort(t)
	pool, _ = certificate(t, dir)
	file := func(name string) string { return filepath.Join(dir, name) }
	args = append(args, "--tls-port", port, "--tls-cert-file", file("cert"), "--tls-key-file", file("key"), "--tls-ca-cert-file", file("cert"))
	if s, err := redisserver.Start(redisserver.Config{Args: args}); err == nil {
		s.Close()
	} else if regexp.MustCompile("Failed finding TLS support|Bad directive").MatchString(err.Error()) {
		t.Skip("this redis-server was built without TLS")
	}
	return newServer(t, args...), "127.0.0.1:" + port, pool
}

// The server's certificate is checked, and a hang passed, which may block a handshake for
// longer.
func TestTLS(t *testing.T) {
	t.Parallel()
	p, addr, pool := newTLSServer(t, "--tls-auth-clients", "no")

	works(t, wrap(t, redis.NewClient(&redis.Options{Addr: addr, TLSConfig: &tls.Config{RootCAs: pool}}), redisnode.Options{}))

	p.do("flushall")
	n := dial(t, "rediss://"+addr+"?skip_verify=true")
	works(t, n)
	connections := func() int { return atoi(t, infoField(p, "stats", "total_connections_received")) }
	before := connections()
	for range 3 { // a peek through TLS must not find a fault, and has to find one
		time.Sleep(30 * time.Millisecond)
		expect(t, "after a rest", ask(t, n, inspect("a")), node.Done)
	}
	if now := connections(); now != before+1 { // the second look's own
		t.Errorf("%d new connections", now-before-1)
	}
	p.restart()
	time.Sleep(30 * time.Millisecond)
	expect(t, "after a restart", ask(t, n, inspect("a")), node.Done)

	var r node.Reply
	n = dial(t, "rediss://"+addr)
	assert.Eventually(t, "an answer in time", func() bool { r = ask(t, n, inspect("a")); return !errors.Is(r.Err, node.ErrTimeout) })
	expectErr(t, "unknown authority", r, node.ErrCertificate)
	assert.That(t, strings.Contains(r.Err.Error(), "certificate"), "unhelpful: %v", r.Err)
	p.freeze()
	defer p.thaw()
	soon(t, "closing", func() { dial(t, "rediss://"+addr+"?skip_verify=true").Close() })
}

// A bad certificate has to be replaced, whatever client connects and whatever is wrong
// with it.
func TestCertificateIsPermanent(t *testing.T) {
	pool, pair := certificate(t, t.TempDir())
	addr := serveTCP(t, func(conn net.Conn) {
		defer conn.Close()
		tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{pair}}).Handshake()
	})
	tomorrow := func() time.Time { return time.Now().Add(24 * time.Hour) }
	byHand := func(tls.ConnectionState) error { return x509.UnknownAuthorityError{} }
	for what, config := range map[string]*tls.Config{
		"unknown authority": {},
		"another host":      {RootCAs: pool, ServerName: "elsewhere"},
		"expired":           {RootCAs: pool, Time: tomorrow},
		"refused by hand":   {InsecureSkipVerify: true, VerifyConnection: byHand},
	} {
		for kind, client := range map[string]redis.UniversalClient{
			"client":  redis.NewClient(&redis.Options{Addr: addr, TLSConfig: config}),
			"cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, TLSConfig: config}),
		} {
			r := expectErr(t, what, ask(t, wrap(t, client, redisnode.Options{}), inspect("a")), node.ErrCertificate)
			assert.That(t, node.Permanent(r.Err) && !errors.Is(r.Err, node.ErrUnreachable), "%s, %s: %v", what, kind, r.Err)
		}
	}
	expectErr(t, "Dial", ask(t, dial(t, "rediss://"+addr), inspect("a")), node.ErrCertificate)
	// Other failures of a handshake may pass.
	expectErr(t, "trusted, but no server", ask(t, wrap(t, redis.NewClient(&redis.Options{Addr: addr, TLSConfig: &tls.Config{RootCAs: pool}}), redisnode.Options{}), inspect("a")), node.ErrUnreachable)
}

func certificate(t *testing.T, dir string) (pool *x509.CertPool, pair tls.Certificate) {
	t.Helper()
	key, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err2 := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	secret, err3 := x509.MarshalECPrivateKey(key)
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})
	pair, err4 := tls.X509KeyPair(certPEM, keyPEM)
	if err := errors.Join(err1, err2, err3, err4, os.WriteFile(filepath.Join(dir, "cert"), certPEM, 0o600),
		os.WriteFile(filepath.Join(dir, "key"), keyPEM, 0o600)); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return pool, pair
}

func newCluster(t testing.TB, masters int) *process {
	t.Helper()
	const slots = 1 << 14
	var all []*process
	for i := range masters {
		p := newServer(t, "--cluster-enabled", "yes", "--cluster-require-full-coverage", "yes")
		add := []any{"cluster", "addslots"} // addslotsrange needs Redis 7
		for slot := i * slots / masters; slot < (i+1)*slots/masters; slot++ {
			add = append(add, slot)
		}
		p.do(add...)
		if i > 0 {
			_, port, _ := net.SplitHostPort(p.addr)
			all[0].do("cluster", "meet", "127.0.0.1", port)
		}
		all = append(all, p)
	}
	for _, p := range all {
		clusterUp(t, p)
	}
	return all[0]
}

func clusterUp(t testing.TB, p *process) {
	t.Helper()
	assert.Eventually(t, "the cluster is up", func() bool {
		return strings.Contains(p.do("cluster", "info").(string), "cluster_state:ok")
	})
}

func TestCluster(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	p := newCluster(t, 1)
	n := wrap(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{p.addr}}), redisnode.Options{})
	assert.That(t, n.Name() == p.addr, "name %q", n.Name())
	works(t, n)
	first := expect(t, "warm", ask(t, n, acquire("x", "me", 1)), node.Granted).Life
	var claims []node.Claim
	for i := range 20 {
		claims = append(claims, node.Claim{Name: name(i), Owner: "me"})
		if i%2 == 0 {
			expect(t, "granted", ask(t, n, acquire(name(i), "me", 10)), node.Granted)
		}
	}
	r := expect(t, "extend over slots", ask(t, n, extend(time.Minute, claims...)), node.Done)
	for i, kept := range r.Kept {
		assert.That(t, kept == (i%2 == 0), "claim %d: kept %v", i, kept)
	}
	apart := acquire("x", "me", 2)
	apart.Claims = append(apart.Claims, claim("y", "me", 2)...)
	for what, cmd := range map[string]node.Command{"half a hash tag": acquire("a{b", "me", 1), "names in two slots": apart} {
		if r := expectErr(t, what, ask(t, n, cmd), node.ErrUnsupported); !node.Permanent(r.Err) || !strings.Contains(r.Err.Error(), "brace") {
			t.Errorf("%s: not permanent, or unhelpful: %v", what, r.Err)
		}
	}
	p.do("script", "flush")
	works2 := expect(t, "after a flush", ask(t, n, acquire("y", "me", 1)), node.Granted)
	assert.That(t, works2.Life.ID == first.ID && works2.Life.Born == first.Born, "life %+v, was %+v", works2.Life, first)
	down := after(0)
	p.restart()
	clusterUp(t, p)
	assert.Eventually(t, "the node is up", func() bool { r = ask(t, n, acquire("z", "me", 1)); return r.Err == nil })
	assert.That(t, r.Life.ID != first.ID && r.Life.Born >= down, "life %+v after a restart, was %+v", r.Life, first)
}

// TestOtherClient uses a client of unknown kind.
func TestOtherClient(t *testing.T) {
	p := newServer(t)
	wrapped := struct{ *redis.Client }{p.client(t)}
	_, err := redisnode.New(wrapped, redisnode.Options{})
	assert.That(t, err != nil, "a node without a name")
	n := wrap(t, wrapped, redisnode.Options{Name: "wrapped"})
	assert.That(t, n.Name() == "wrapped", "name %q", n.Name())
	works(t, n)
}

func TestWrappedCluster(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	p := newCluster(t, 2)
	direct := wrap(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{p.addr}}), redisnode.Options{})
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{p.addr}})
	wrapped := wrap(t, struct{ *redis.ClusterClient }{client}, redisnode.Options{Name: "wrapped"})
	want := expect(t, "direct", ask(t, direct, inspect("a")), node.Done).Life
	if got := expect(t, "wrapped", ask(t, wrapped, inspect("a")), node.Done).Life; got.ID != want.ID || !strings.Contains(got.ID, "+") {
		t.Errorf("its life is of %s, and the cluster's of %s", got.ID, want.ID)
	}
}

// User and password are asked for each connection, wherever they come from, as in
// go-redis.
func TestCredentials(t *testing.T) {
	p := newServer(t)
	p.locker("~*", "&*", "+@all")
	p.do("acl", "setuser", "default", "resetpass", ">s3cret")
	admin := redis.NewClient(&redis.Options{Addr: p.addr, Password: "s3cret"})
	defer admin.Close()
	var asked atomic.Int32
	pair := func() (string, string) { asked.Add(1); return "locker", "s3cret" }
	for what, o := range map[string]*redis.Options{
		"options":  {Username: "locker", Password: "s3cret"},
		"password": {Password: "s3cret"},
		"provider": {CredentialsProvider: pair},
		"provider with a context": {CredentialsProvider: func() (string, string) { return "nobody", "" },
			CredentialsProviderContext: func(context.Context) (string, string, error) { user, password := pair(); return user, password, nil }},
		"streaming provider": {Username: "nobody", Password: "nothing", StreamingCredentialsProvider: stream{pair}},
		"no credentials": {CredentialsProviderContext: func(context.Context) (string, string, error) {
			return "", "", errors.New("the vault is closed")
		}},
	} {
		o.Addr = p.addr
		before := asked.Load()
		n := wrap(t, redis.NewClient(o), redisnode.Options{})
		if what == "no credentials" {
			r := expectErr(t, what, ask(t, n, inspect("a")), node.ErrUnreachable)
			assert.That(t, strings.Contains(r.Err.Error(), "vault"), "unhelpful: %v", r.Err)
			continue
		}
		admin.FlushAll(t.Context())
		works(t, n)
		got := asked.Load() - before
		assert.That(t, !strings.Contains(what, "provider") || got == 2, "%s: asked %d times, for two connections", what, got)
	}
}

// A stream is a provider that says when the credentials change.
type stream struct {
	pair func() (user, password string)
}

func (s stream) Subscribe(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	return auth.NewBasicCredentials(s.pair()), func() error { return nil }, nil
}

// refuses requires that a client cannot be made a node, and why.
func refuses(t *testing.T, client redis.UniversalClient, why string) {
	t.Helper()
	assert.Says(t, assert.ErrorOf(redisnode.New(client, redisnode.Options{Name: "a"})), why, client)
}

func TestOnConnectIsRefused(t *testing.T) {
	o := &redis.Options{Addr: "127.0.0.1:1", OnConnect: func(context.Context, *redis.Conn) error { return nil }}
	client := redis.NewClient(o)
	defer client.Close()
	refuses(t, client, "OnConnect")
	assert.Says(t, assert.ErrorOf(redisnode.DialOptions(&redis.Options{Addr: "127.0.0.1:1"}, o)), "server 2 of 2: OnConnect", "DialOptions")
}

// A ring moves a name to another server as soon as one is down.
func TestRingIsRefused(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}})
	defer ring.Close()
	refuses(t, ring, "Ring")
}

// Sentinel leads to another server while the old one still grants locks.
func TestSentinelIsRefused(t *testing.T) {
	o := &redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{"127.0.0.1:1"}}
	for _, client := range []redis.UniversalClient{redis.NewFailoverClient(o), redis.NewFailoverClusterClient(o)} {
		defer client.Close()
		refuses(t, client, "Sentinel")
	}
}

func TestDialErrors(t *testing.T) {
	for url, want := range map[string]string{
		"":                             "not a URL",
		"s3cret":                       "not a URL",
		"redis:u:s3cret@host":          "not a URL",
		"u:s3cret":                     "not a URL",
		"u:s3cret@host:1":              "not a URL",
		"s3cret@host:1":                "not a URL",
		"host/s3cret:1":                "not a URL",
		"host#s3cret:1":                "not a URL",
		"host:1/s3cret":                "not a URL",
		"host:1?password=s3cret":       "not a URL",
		"s3cret:0":                     "not a URL",
		"s3cret:65536":                 "not a URL",
		":6379":                        "not a URL",
		"s3 cret:1":                    "malformed",
		"http://u:s3cret@host":         "scheme",
		"://u:s3cret@host":             "malformed",
		"redis://u:s3cret":             "malformed",
		"redis://:s3cret":              "malformed",
		"redis://u:s3cret@host:port":   "malformed",
		"redis://u:s3cret%zz@host":     "malformed",
		"redis://u:s3c/ret@host:1":     "malformed",
		"redis://u:s3cret@[::1":        "malformed",
		"redis://u:s3 cret@host\x7f:1": "malformed",
		"redis://s3cret:s3cret@h@st:x": "malformed",
		"redis://:s3cret@host:1/x":     "database",
		"redis://u:12/s3cret":          "database",
		"redis://u:p@s3cret/s3cret":    "database",
		"redis://u:s3cret@host:1?dial_timeout=soon": "setting",
		"redis://u:s3cret@host:1?nonsense=s3cret":   "setting",
		"redis://u:p@host:1?password=s3cret":        "setting",
		"redis://u:12?s3cret":                       "setting",
		"redis://u:12?dial_timeout=s3cret":          "setting",
		"unix://u:s3cret@":                          "socket",
	} {
		_, err := redisnode.Dial("redis://127.0.0.1:1", url)
		if err == nil {
			t.Errorf("%q: no error", url)
			continue
		}
		if text := err.Error(); strings.Contains(text, "s3c") || strings.Contains(text, "cret") {
			t.Errorf("a password in %q", text)
		} else if !strings.Contains(text, "server 2 of 2") || !strings.Contains(text, want) {
			t.Errorf("%q: %q does not say which URL, or not %q", url, text, want)
		}
	}
	_, err := redisnode.Dial("x", "y")
	assert.That(t, err != nil && strings.Contains(err.Error(), "1 of 2") && strings.Contains(err.Error(), "2 of 2"), "not all are reported: %v", err)
	nodes, err := redisnode.Dial()
	assert.That(t, err == nil && len(nodes) == 0, "nothing to dial: %v, %v", nodes, err)
}

func TestImpossibleOptions(t *testing.T) {
	good := redisnode.Server{Options: &redis.Options{Addr: "127.0.0.1:1"}}
	for _, c := range []struct {
		server redisnode.Server
		want   string
	}{
		{redisnode.Server{}, "redisnode: server 2 of 2: no options"},
		{redisnode.Server{Options: good.Options, Replicas: -1}, "redisnode: server 2 of 2: its Replicas are -1"},
		{redisnode.Server{Options: &redis.Options{Addr: "127.0.0.1:1", DB: -1}}, "redisnode: server 2 of 2: DB is -1"},
	} {
		assert.Says(t, assert.ErrorOf(redisnode.DialServers(good, c.server)), c.want)
	}
	assert.Says(t, assert.ErrorOf(redisnode.DialOptions(nil)), "redisnode: server 1 of 1: no options")
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DB: -1})
	defer client.Close()
	refuses(t, client, "redisnode: DB is -1")
}

// A safeBuffer is safe for concurrent use.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestNewRefusesNil(t *testing.T) {
	for _, client := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil), (*redis.Ring)(nil)} {
		refuses(t, client, "no client")
	}
}

// refusal is a server that refuses a handshake with such an error for good; if says is
// empty it refuses nothing, and if want is nil any error will do.
type refusal struct {
	options redis.Options
	cluster bool
	want    error
	says    string
}

func (f refusal) test(t *testing.T, what string) {
	t.Helper()
	var client redis.UniversalClient = redis.NewClient(&f.options)
	if f.cluster {
		o := f.options
		client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{o.Addr}, Password: o.Password, TLSConfig: o.TLSConfig})
	}
	r := ask(t, wrap(t, client, redisnode.Options{}), inspect("a"))
	if f.says == "" {
		expect(t, what, r, node.Done)
	} else if text := fmt.Sprint(r.Err); strings.Contains(text, "s3cret") || strings.Contains(text, "pa55") {
		t.Errorf("%s: a password in %q", what, text)
	} else if !errors.Is(r.Err, f.want) && f.want != nil || !node.Permanent(r.Err) || !strings.Contains(r.Err.Error(), f.says) {
		t.Errorf("%s: %v, permanent %v", what, r.Err, node.Permanent(r.Err))
	}
}

// Waiting does not help if the program was configured for another server. The error has
// the server's words.
func TestARefusedHandshakeIsPermanent(t *testing.T) {
	t.Parallel()
	plain := newServer(t)
	closed := newServer(t, "--requirepass", "pa55word")
	for what, f := range map[string]refusal{
		"a database too many":          {redis.Options{Addr: plain.addr, DB: 99}, false, node.ErrUnsupported, "DB index is out of range"},
		"another user":                 {redis.Options{Addr: plain.addr, Username: "nobody", Password: "s3cret"}, false, node.ErrAuth, "WRONGPASS"},
		"a password too many":          {redis.Options{Addr: plain.addr, Password: "s3cret"}, false, nil, ""}, // Redis takes any
		"no password":                  {redis.Options{Addr: closed.addr}, false, node.ErrAuth, "NOAUTH"},
		"the password":                 {redis.Options{Addr: closed.addr, Password: "pa55word"}, false, nil, ""},
		"a wrong password":             {redis.Options{Addr: closed.addr, Password: "s3cret"}, false, node.ErrAuth, "WRONGPASS"},
		"a user with a wrong password": {redis.Options{Addr: closed.addr, Username: "u", Password: "s3cret"}, false, node.ErrAuth, "WRONGPASS"},
		"a cluster's client":           {redis.Options{Addr: plain.addr}, true, node.ErrUnsupported, "cluster support disabled"},
		"a cluster's client, password": {redis.Options{Addr: closed.addr, Password: "s3cret"}, true, node.ErrAuth, "WRONGPASS"},
	} {
		f.test(t, what)
	}
}

// A server that does not know AUTH repeats the password. No error of a server or a
// Sentinel does.
func TestNoErrorHasAPassword(t *testing.T) {
	t.Parallel()
	p := newServer(t, "--rename-command", "AUTH", "", "--rename-command", "HELLO", "")
	sentinel := redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{p.addr}, SentinelUsername: "u", SentinelPassword: "s3cret"}
	for what, n := range map[string]node.Node{
		"a server":                     dial(t, "redis://u:s3cret@"+p.addr),
		"a cluster":                    wrap(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{p.addr}, Username: "u", Password: "s3cret"}), redisnode.Options{}),
		"Sentinels":                    dial(t, "sentinel://"+p.addr+",127.0.0.1:1/main?replicas=2&sentinel_username=u&sentinel_password=s3cret"),
		"Sentinels, by go-redis alone": wrap(t, redis.NewFailoverClient(&sentinel), redisnode.Options{Replicas: 2}),
	} {
		r := ask(t, n, inspect("a"))
		assert.Says(t, r.Err, "unknown command", what)
		assert.That(t, !strings.Contains(fmt.Sprint(r.Err), "s3cret"), "%s: a password in %v", what, r.Err)
		if what == "Sentinels" {
			assert.Says(t, r.Err, "connection refused", "what the others say is left out")
		}
	}
}

func TestARefusedTLSHandshakeIsPermanent(t *testing.T) {
	t.Parallel()
	_, addr, pool := newTLSServer(t)
	_, pair := certificate(t, t.TempDir())
	older := &tls.Config{RootCAs: pool, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	for what, f := range map[string]refusal{
		"no client certificate": {redis.Options{Addr: addr, TLSConfig: &tls.Config{RootCAs: pool}}, false, node.ErrAuth, "certificate required"},
		"none, by TLS 1.2":      {redis.Options{Addr: addr, TLSConfig: &tls.Config{RootCAs: pool, MaxVersion: tls.VersionTLS12}}, false, nil, "remote error: tls: "},
		"a stranger's":          {redis.Options{Addr: addr, TLSConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}}, false, node.ErrAuth, "certificate"},
		"an old version of TLS": {redis.Options{Addr: addr, TLSConfig: older}, false, node.ErrUnsupported, "protocol version"},
	} {
		f.test(t, what)
	}
}

// A provider may have other credentials for the next connection.
func TestCredentialsOfAProviderMayChange(t *testing.T) {
	t.Parallel()
	p := newServer(t, "--requirepass", "new")
	var password atomic.Value
	password.Store("old")
	n := wrap(t, redis.NewClient(&redis.Options{Addr: p.addr, CredentialsProvider: func() (string, string) {
		return "", password.Load().(string)
	}}), redisnode.Options{})
	r := expectErr(t, "the old password", ask(t, n, inspect("a")), node.ErrAuth)
	assert.That(t, !node.Permanent(r.Err), "permanent: %v", r.Err)
	password.Store("new")
	assert.Eventually(t, "the new password", func() bool { return ask(t, n, inspect("a")).Err == nil })
}
