package fencecall_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/contrib/fencecall"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/quorum"
)

func TestStores(t *testing.T) {
	servers := embedded.ForTest(t, 1)
	client := redis.NewClient(&redis.Options{Addr: servers.Server(0).Addr()})
	defer client.Close()
	for what, store := range map[string]fencecall.Store{"memory": fencecall.Memory(), "Redis": fencecall.Redis(client, "fences:")} {
		for _, row := range []struct{ token, highest node.Token }{{5, 5}, {7, 7}, {6, 7}, {7, 7}, {node.MaxToken, node.MaxToken}} {
			if highest, err := store.Raise(t.Context(), "a", row.token); err != nil || highest != row.highest {
				t.Errorf("%s, after %d: %d, want %d (%v)", what, row.token, highest, row.highest, err)
			}
		}
		if highest, err := store.Raise(t.Context(), "b", 1); err != nil || highest != 1 {
			t.Errorf("%s, of another name: %d (%v)", what, highest, err)
		}
	}
}

// A holder pauses before its call, and another one has the lock and calls meanwhile.
func TestALateCallIsRefused(t *testing.T) {
	nodes := embedded.ForTest(t, 3)
	locker := func() *quorum.Locker {
		l, err := quorum.New(nodes.Nodes(), quorum.Options{NoRestartGuard: true, Lease: 300 * time.Millisecond})
		assert.Succeed(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	const name = "orders/4, 2%ü"
	server := httptest.NewServer(fencecall.Handler(fencecall.Memory(), func(r *http.Request) string { return r.URL.Query().Get("lock") },
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.That(t, fencecall.Token(r.Context()) != 0 || r.URL.Query().Get("lock") == "", "a call without a token was let in")
		})))
	defer server.Close()
	client := &http.Client{Transport: fencecall.Transport(nil)}
	call := func(ctx context.Context, lock string, want int) (said string) {
		t.Helper()
		r := assert.Got(http.NewRequestWithContext(ctx, "POST", server.URL, nil))(t)
		q := r.URL.Query()
		q.Set("lock", lock)
		r.URL.RawQuery = q.Encode()
		response := assert.Got(client.Do(r))(t)
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		assert.That(t, response.StatusCode == want, "%d %s, want %d", response.StatusCode, body, want)
		return string(body)
	}

	call(t.Context(), "", http.StatusOK) // what no lock protects
	call(t.Context(), name, http.StatusPreconditionRequired)

	first := assert.Got(locker().Lock(t.Context(), name, quorum.WithFixedLease(300*time.Millisecond)))(t)
	ctx := context.WithoutCancel(first.Context()) // it does not notice that its lease has ended
	call(ctx, name, http.StatusOK)
	call(ctx, name, http.StatusOK) // a retry
	call(ctx, "another", http.StatusPreconditionRequired)
	second := assert.Got(locker().Lock(t.Context(), name))(t)
	call(second.Context(), name, http.StatusOK)
	said := call(ctx, name, http.StatusConflict)
	for _, token := range []node.Token{first.Token(), second.Token()} {
		assert.That(t, strings.Contains(said, fmt.Sprint(token)), "%q does not tell %v", said, token)
	}
	literal := &http.Request{Method: "GET", URL: &url.URL{Scheme: "http", Host: server.Listener.Addr().String(), RawQuery: url.Values{"lock": {name}}.Encode()}}
	response := assert.Got(client.Transport.RoundTrip(literal.WithContext(second.Context())))(t) // it has no Header yet
	response.Body.Close()
	assert.Equal(t, response.StatusCode, http.StatusOK)
	_ = second.Unlock(t.Context())
}

func TestHeadersThatAreNoToken(t *testing.T) {
	for _, v := range []string{"", "5", "x a", "-5 a", "0 a", "5 b", "9007199254740993 a", "99999999999999999999 a", "5 %zz", "5  a", " a"} {
		_, err := fencecall.Admit(t.Context(), fencecall.Memory(), "a", []string{v})
		assert.That(t, err != nil, "%q counts as a token of a", v)
	}
	for _, values := range [][]string{{"4 a", "7 b", "5 a"}, {"4 a, 7 b,5 a"}, {" 7 b\t, 5 a ", "4 a"}} { // a proxy may join lines
		ctx, err := fencecall.Admit(t.Context(), fencecall.Memory(), "a", values)
		assert.That(t, err == nil && fencecall.Token(ctx) == 5, "of %q: %v (%v)", values, ctx, err)
	}
}

func TestAStoreThatFails(t *testing.T) {
	servers := embedded.ForTest(t, 1)
	client := redis.NewClient(&redis.Options{Addr: servers.Server(0).Addr(), MaxRetries: -1})
	defer client.Close()
	in := 0
	handler := fencecall.Handler(fencecall.Redis(client, "fences:"), func(*http.Request) string { return "a" },
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { in++ }))
	call := func(token string, want int) {
		t.Helper()
		r, w := httptest.NewRequest("POST", "/", nil), httptest.NewRecorder()
		r.Header.Set(fencecall.Header, token+" a")
		handler.ServeHTTP(w, r)
		assert.Equal(t, w.Code, want)
	}
	call("5", http.StatusOK)
	servers.Server(0).Kill()
	call("5", http.StatusServiceUnavailable)
	call("9", http.StatusServiceUnavailable)
	assert.Equal(t, in, 1, "calls that were let in")
	assert.Succeed(t, servers.Server(0).Restart(false))
	call("4", http.StatusConflict)
	call("5", http.StatusOK)
}
