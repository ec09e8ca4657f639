// Package fencecall carries fencing tokens over HTTP calls, and refuses late ones.
// Package fencegrpc does the same for gRPC.
//
// The caller's client sends the tokens of the leases that a request's context belongs to
// (see quorum.FromContext):
//
//	client := &http.Client{Transport: fencecall.Transport(nil)}
//	...
//	err := locker.Do(ctx, "orders/42", func(ctx context.Context, lease *quorum.Lease) error {
//		request, err := http.NewRequestWithContext(ctx, "POST", "http://stock/orders/42/ship", nil)
//		...
//		response, err := client.Do(request)
//
// The service says which lock protects what a request is about. It answers 428
// Precondition Required to a call without a token of that lock, and 409 Conflict to one
// whose token is lower than another that it has seen, with both tokens:
//
//	http.Handle("POST /orders/{id}/ship", fencecall.Handler(store, func(r *http.Request) string {
//		return "orders/" + r.PathValue("id")
//	}, ship))
//
// # What this does, and what it does not
//
// It refuses calls that come late. A call that pauses after the check can still work next
// to a newer one. A database closes this gap, if the service passes it the token with
// each write ([Token]; package fencesql).
//
// This is for authenticated callers that the service trusts, not for the public: a token
// that is too high locks all honest callers out. A token counts only for the name that it
// was sent with. Locks of one name on other nodes, or under another Options.Prefix, have
// tokens that are not comparable.
//
// A request whose body can be read again may be sent again with the same token, and is
// accepted: make it idempotent.
package fencecall

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// Header has one value for each lease: the token, a space, and the lock's name as in the
// path of a URL, with %2C for a comma. A proxy may join several values to one, with
// commas between.
const Header = "Redquorum-Token"

// ErrNoToken: a call has no token of the lock that protects what it is about.
var ErrNoToken = errors.New("no fencing token")

// A LateError says that a call came after one with a higher token.
type LateError struct {
	Name           string
	Token, Highest node.Token
}

func (e *LateError) Error() string {
	return fmt.Sprintf("late call: its fencing token of %q is %d, and one with %d was here", e.Name, e.Token, e.Highest)
}

// Values returns what Header says of the leases that ctx belongs to.
func Values(ctx context.Context) (values []string) {
	for _, lease := range quorum.FromContext(ctx) {
		for _, name := range lease.Names() {
			values = append(values, fmt.Sprintf("%d %s", lease.Token(), url.PathEscape(name)))
		}
	}
	return values
}

// Admit raises the highest token of name in the store to the one that the values of a
// Header have for it. The context that it returns has that token. Errors match
// ErrNoToken, or are a *LateError or the store's.
func Admit(ctx context.Context, store Store, name string, values []string) (context.Context, error) {
	token := node.Token(0)
	for v := range strings.SplitSeq(strings.Join(values, ","), ",") {
		number, escaped, _ := strings.Cut(strings.TrimSpace(v), " ")
		n, err := strconv.ParseInt(number, 10, 64)
		if of, bad := url.PathUnescape(escaped); err == nil && bad == nil && of == name && n > 0 &&
			node.Token(n) <= node.MaxToken {
			token = max(token, node.Token(n))
		}
	}
	if token == 0 {
		return nil, fmt.Errorf("%w of %q", ErrNoToken, name)
	}
	highest, err := store.Raise(ctx, name, token)
	switch {
	case err != nil:
		return nil, fmt.Errorf("fencing token of %q: %w", name, err)
	case highest > token:
		return nil, &LateError{Name: name, Token: token, Highest: highest}
	}
	return context.WithValue(ctx, tokenKey{}, token), nil
}

type tokenKey struct{}

// Token returns the token with which a call was let in, or 0: pass it to the database
// with each write.
func Token(ctx context.Context) node.Token {
	token, _ := ctx.Value(tokenKey{}).(node.Token)
	return token
}

// Transport adds the tokens of a request's context to it. next sends the request; nil
// means http.DefaultTransport.
func Transport(next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return transport{next}
}

type transport struct{ next http.RoundTripper }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if values := Values(r.Context()); len(values) > 0 {
		r = r.Clone(r.Context())
		if r.Header == nil {
			r.Header = make(http.Header)
		}
		r.Header[Header] = values
	}
	return t.next.RoundTrip(r)
}

// Handler lets requests in to next that have the newest token of the lock that nameOf
// returns. With "" a request needs none.
func Handler(store Store, nameOf func(*http.Request) string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := nameOf(r)
		if name == "" {
			next.ServeHTTP(w, r)
			return
		}
		ctx, err := Admit(r.Context(), store, name, r.Header.Values(Header))
		if err == nil {
			next.ServeHTTP(w, r.WithContext(ctx))
			return
		}
		status := http.StatusServiceUnavailable
		if _, late := errors.AsType[*LateError](err); late {
			status = http.StatusConflict
		} else if errors.Is(err, ErrNoToken) {
			status = http.StatusPreconditionRequired
		}
		http.Error(w, err.Error(), status)
	})
}
