package redisnode_test

import (
	"crypto/tls"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
)

// refusal is a server that refuses a client's handshake with an error like want that says so, and forever; where says is
// empty it refuses nothing, where want is nil any error will do.
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
	} else if !errors.Is(r.Err, f.want) && f.want != nil || !node.Permanent(r.Err) || !strings.Contains(r.Err.Error(), f.says) {
		t.Errorf("%s: %v, permanent %v", what, r.Err, node.Permanent(r.Err))
	}
}

// A server that refuses the handshake is not what the program was configured for, and waiting does not help.
// The error has the reason in the words of the server.
func TestARefusedHandshakeIsPermanent(t *testing.T) {
	t.Parallel()
	plain := newServer(t)
	closed := newServer(t, "--requirepass", "secret")
	for what, f := range map[string]refusal{
		"a database too many":          {redis.Options{Addr: plain.addr, DB: 99}, false, node.ErrUnsupported, "DB index is out of range"},
		"another user":                 {redis.Options{Addr: plain.addr, Username: "nobody", Password: "x"}, false, node.ErrAuth, "WRONGPASS"},
		"a password too many":          {redis.Options{Addr: plain.addr, Password: "x"}, false, nil, ""}, // Redis takes any
		"no password":                  {redis.Options{Addr: closed.addr}, false, node.ErrAuth, "NOAUTH"},
		"a cluster's client":           {redis.Options{Addr: plain.addr}, true, node.ErrUnsupported, "cluster support disabled"},
		"a cluster's client, password": {redis.Options{Addr: closed.addr, Password: "x"}, true, node.ErrAuth, "WRONGPASS"},
	} {
		f.test(t, what)
	}
}

func TestARefusedTLSHandshakeIsPermanent(t *testing.T) {
	t.Parallel()
	_, addr, pool := newTLSServer(t)
	stranger := t.TempDir()
	certificate(t, stranger)
	pair, err := tls.LoadX509KeyPair(filepath.Join(stranger, "cert"), filepath.Join(stranger, "key"))
	if err != nil {
		t.Fatal(err)
	}
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

// Somebody who gives credentials to each connection may have others for the next one.
func TestCredentialsOfAProviderMayChange(t *testing.T) {
	t.Parallel()
	p := newServer(t, "--requirepass", "new")
	var password atomic.Value
	password.Store("old")
	n := wrap(t, redis.NewClient(&redis.Options{Addr: p.addr, CredentialsProvider: func() (string, string) {
		return "", password.Load().(string)
	}}), redisnode.Options{})
	r := expectErr(t, "the old password", ask(t, n, inspect("a")), node.ErrAuth)
	if node.Permanent(r.Err) {
		t.Errorf("permanent: %v", r.Err)
	}
	password.Store("new")
	eventually(t, "the new password", func() bool { return ask(t, n, inspect("a")).Err == nil })
}
