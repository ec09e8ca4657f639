package quorum_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
)

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		assert.Succeed(t, err)
		return v
	}
}

func errorOf[T any](_ T, err error) error { return err }

// expect checks that an error is, or wraps, the one that is wanted: nil is none. A remark says what is wrong otherwise.
func expect(t testing.TB, got, want error, remark ...string) {
	t.Helper()
	assert.That(t, errors.Is(got, want), "got %v, want %v %q", got, want, remark)
}

func equal[T comparable](t testing.TB, got, want T, remark ...string) {
	t.Helper()
	assert.That(t, got == want, "got %v, want %v %q", got, want, remark)
}

func atMost[T cmp.Ordered](t testing.TB, got, most T, remark ...string) {
	t.Helper()
	assert.That(t, got <= most, "got %v, want %v at most %q", got, most, remark)
}

func atLeast[T cmp.Ordered](t testing.TB, got, least T, remark ...string) {
	t.Helper()
	assert.That(t, got >= least, "got %v, want %v at least %q", got, least, remark)
}

func within[T cmp.Ordered](t testing.TB, got, least, most T, remark ...string) {
	t.Helper()
	assert.That(t, got >= least && got <= most, "got %v, want %v to %v %q", got, least, most, remark)
}

func more[T cmp.Ordered](t testing.TB, got, than T, remark ...string) {
	t.Helper()
	assert.That(t, got > than, "got %v, want more than %v %q", got, than, remark)
}

// ensure checks that something is so, and says otherwise what is wrong.
func ensure(t testing.TB, ok bool, wrong string, args ...any) {
	t.Helper()
	if !ok {
		t.Errorf(wrong, args...)
	}
}

// An error may be wanted to begin with a text, or not to be another error.
type (
	begins string
	not    struct{ is error }
)

// matches checks that an error is all that is wanted: an error, or a text in it.
func matches(t testing.TB, got error, want ...any) {
	t.Helper()
	for _, w := range want {
		ok := false
		switch w := w.(type) {
		case error:
			ok = errors.Is(got, w)
		case string:
			ok = got != nil && strings.Contains(got.Error(), w)
		case begins:
			ok = got != nil && strings.HasPrefix(got.Error(), string(w))
		case not:
			ok = !errors.Is(got, w.is)
		}
		assert.That(t, ok, "got %v, want %T %v", got, w, w)
	}
}

// says checks that there is an error with this text in it.
func says(t testing.TB, got error, want string) {
	t.Helper()
	matches(t, got, want)
}

// succeed ends the test if there is an error.
func succeed(t testing.TB, err error) {
	t.Helper()
	assert.Succeed(t, err)
}

// goesOn checks that a lease is neither lost nor over.
func goesOn(t testing.TB, lease interface {
	Remaining() time.Duration
	Context() context.Context
}) {
	t.Helper()
	assert.That(t, lease.Remaining() != 0 && lease.Context().Err() == nil, "%v remain: %v", lease.Remaining(), context.Cause(lease.Context()))
}
