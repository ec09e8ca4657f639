package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
)

func TestStray(t *testing.T) {
	for list, says := range map[string]string{
		`"redis://a,redis://b,redis://c"`: `server 1 of 3, "\"redis://a": it has a '"': leave out quotation marks`,
		`redis://a,redis://b,redis://c"`:  `it has a '"': leave out quotation marks`,
		`'a,b,c'`:                         `it has a '\'': leave out quotation marks`,
		"a,b,c:6379\"":                    `it has a '"': leave out quotation marks`,
		"“a:1,b:1,c:1”":                   `it has a '\u201c': leave out quotation marks`,
		"redis://a\nredis://b\nredis://c": `it has a '\n': separate servers by commas alone`,
		"a,b\nc":                          `it has a '\n': separate servers by commas alone`,
		"a b c":                           `it has a ' ': separate servers by commas alone`,
		"a;b;c":                           `it has a ';': separate servers by commas alone`,
		"redis://u:\"pass\"@h:port":       `malformed`,
	} {
		t.Setenv("REDQUORUM_NODES", list)
		tests.Says(t, want(t, exitUsage, "server ", "status", "x"), says, "!pass\"")
	}
}

func TestPasswordFile(t *testing.T) {
	s := tests.Server(t, "--requirepass", "s3kr1t, with @ and %")
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		t.Helper()
		assert.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	}
	status := func(exit int, text, nodes string) string {
		t.Helper()
		return want(t, exit, text, "status", "x", "--no-guard", "--nodes", nodes, "--password-file", file)
	}
	status(exitUsage, "no such file", s.Addr())
	write("\n")
	status(exitUsage, "is empty", s.Addr())
	write("s3kr1t, with @ and %\r\n")
	status(exitOK, "x is free", s.Addr())
	status(exitError, "WRONGPASS", "redis://:0ther@"+s.Addr()) // the URL's own comes first
	write("0ther")
	tests.Says(t, status(exitError, "WRONGPASS", s.Addr()), "!0ther")

	client := clientOf(t, "redis://:s3kr1t%2C%20with%20%40%20and%20%25@"+s.Addr())
	assert.Succeed(t, client.Do(t.Context(), "ACL", "SETUSER", "eve", "on", ">0ther", "~*", "+@all", "-ping").Err())
	user := fileOf(t, "eve\n")
	want(t, exitOK, "x is free", "status", "x", "--no-guard", "--nodes", s.Addr(), "--password-file", file, "--user-file", user)
	want(t, exitUnsafe, "-> ACL SETUSER eve +ping", "doctor", "--nodes", s.Addr(), "--password-file", file, "--user-file", user)
	want(t, exitUsage, "--user-file needs --password-file", "status", "x", "--nodes", s.Addr(), "--user-file", user)
}

// selfSigned makes a certificate for 127.0.0.1 that is its own CA.
func selfSigned(t *testing.T) (pair tls.Certificate, cert, key string) {
	t.Helper()
	private := assert.Got(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der := assert.Got(x509.CreateCertificate(rand.Reader, template, template, private.Public(), private))(t)
	secret := assert.Got(x509.MarshalPKCS8PrivateKey(private))(t)
	file := func(kind string, der []byte) string {
		return fileOf(t, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, file("CERTIFICATE", der), file("PRIVATE KEY", secret)
}

// mutual is the TLS of a server whose clients have the certificate in a file.
func mutual(t *testing.T, pair tls.Certificate, file string) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	assert.Must(t, pool.AppendCertsFromPEM([]byte(textOf(t, file))), "%v", file)
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
}

func withTLS(t *testing.T, addr string, config *tls.Config) string {
	t.Helper()
	return serve(t, func(raw net.Conn) {
		outer := tls.Server(raw, config)
		inner, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		defer inner.Close()
		go func() { _, _ = io.Copy(inner, outer); inner.Close() }()
		_, _ = io.Copy(outer, inner)
	})
}

func TestTLSFlags(t *testing.T) {
	t.Parallel()
	pair, cert, key := selfSigned(t)
	servers, _ := startNodes(t, 3)
	var urls []string
	for _, s := range servers {
		urls = append(urls, "rediss://"+withTLS(t, s.Addr(), mutual(t, pair, cert)))
	}
	nodes := strings.Join(urls, ",")
	all := []string{"--cacert", cert, "--cert", cert, "--key", key, "--nodes", nodes}
	want(t, exitOK, "a is free", append([]string{"status", "a"}, all...)...)
	demos(t, time.Second, notExact, func(string) []string { return all })
	ends(t, exitOK, append(append([]string{"run", "--name", "a", "--try"}, all...), "-c", "true")...)
	tests.Says(t, want(t, exitError, "", append([]string{"doctor", "--nodes", urls[0]}, all[:6]...)...), "!not reachable")
	elsewhere := strings.Replace(urls[0], "127.0.0.1", "localhost", 1) // which the certificate does not name
	tests.Says(t, want(t, exitUnsafe, "failed to verify", append([]string{"doctor", "--nodes", elsewhere}, all[:6]...)...),
		"?sni=NAME")
	want(t, exitOK, "a is free", append([]string{"status", "a", "--nodes", elsewhere + "?sni=127.0.0.1"}, all[:6]...)...)
	want(t, exitError, "unknown authority", "status", "a", "--nodes", nodes)
	want(t, exitError, "", "status", "a", "--nodes", nodes, "--cacert", cert)

	want(t, exitUsage, "--cert and --key need each other", "status", "a", "--nodes", nodes, "--cert", cert)
	want(t, exitUsage, "has no certificate in PEM", "status", "a", "--nodes", nodes, "--cacert", key)
	want(t, exitUsage, "no such file", "status", "a", "--nodes", nodes, "--cacert", key+"x")
	want(t, exitUsage, "no such file", "status", "a", "--nodes", nodes, "--cert", key+"x", "--key", key)
	want(t, exitUsage, "no node's URL begins with rediss://", "status", "a", "--nodes", "a", "--cacert", cert)
}

// Sentinels have their own certificates, which --cacert is for, too.
func TestTLSFlagsWithSentinel(t *testing.T) {
	t.Parallel()
	pair, cert, key := selfSigned(t)
	secure := withTLS(t, tests.Server(t).Addr(), mutual(t, pair, cert))
	_, port, _ := net.SplitHostPort(secure)
	sentinel := withTLS(t, serve(t, func(c net.Conn) {
		if _, err := c.Read(make([]byte, 1000)); err == nil {
			fmt.Fprintf(c, "*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%s\r\n", len(port), port)
			_, _ = c.Read(make([]byte, 1))
		}
	}), mutual(t, pair, cert))
	asks := func(sentinel string, verb ...string) []string {
		to := "rediss+sentinel://" + sentinel + "/m?replicas=1"
		return append(verb, "--cacert", cert, "--cert", cert, "--key", key, "--nodes", to)
	}
	want(t, exitOK, "a is free", asks(sentinel, "status", "a")...)
	elsewhere := strings.Replace(sentinel, "127.0.0.1", "localhost", 1) // which the certificate does not name
	want(t, exitError, "certificate cannot be trusted", asks(elsewhere, "status", "a")...)
	named := asks(elsewhere, "status", "a")
	named[len(named)-1] += "&sni=127.0.0.1"
	want(t, exitOK, "a is free", named...)
	tests.Says(t, want(t, exitUnsafe, "", asks(sentinel, "doctor")...), "the primary is now "+secure)
}

// Passwords, certificates and CAs are replaced while programs run, first at the server or
// first in the files.
func TestFilesAreReplaced(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	for _, serverFirst := range []bool{true, false}[:tests.Times(1, 2)] {
		t.Run(fmt.Sprint("server first ", serverFirst), func(t *testing.T) {
			t.Parallel()
			s := tests.Server(t, "--requirepass", "old")
			admin := clientOf(t, "redis://:old@"+s.Addr())
			pair, cert, key := selfSigned(t)
			next, nextCert, nextKey := selfSigned(t)
			var now atomic.Pointer[tls.Config]
			now.Store(mutual(t, pair, cert))
			renewed := mutual(t, next, nextCert)
			addr := withTLS(t, s.Addr(), &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return now.Load(), nil }})
			password := fileOf(t, "old")
			flags := "--no-guard --lease 6s --password-file " + password + " --cacert " + cert + " --cert " + cert + " --key " + key
			holder := start(t, holdOn("rediss://"+addr, flags, "job")...)
			holder.says("holding job")
			waiter := start(t, runOn("rediss://"+addr, flags, "echo", "at last")...)
			waiter.says(": job is held by")

			files := func() {
				for file, by := range map[string]string{key: nextKey, cert: nextCert, password: fileOf(t, "new")} {
					assert.Succeed(t, os.Rename(by, file))
				}
			}
			if !serverFirst {
				files()
			}
			now.Store(renewed)
			assert.Succeed(t, admin.ConfigSet(t.Context(), "requirepass", "new").Err())
			_ = admin.Do(t.Context(), "client", "kill", "type", "normal", "skipme", "yes").Err()
			_ = admin.Do(t.Context(), "client", "kill", "type", "pubsub").Err()
			if serverFirst {
				time.Sleep(time.Second) // time in which the files are old
				files()
			}
			time.Sleep(7 * time.Second) // longer than the lease
			holder.signal(syscall.SIGTERM)
			holder.exits(exitOK)
			waiter.exits(0, "at last")
		})
	}
}
