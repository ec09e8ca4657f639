package quorum_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func errorOf[T any](_ T, err error) error { return err }

// expect checks that an error is, or wraps, the one that is wanted: nil is none. A remark says what is wrong otherwise.
func expect(t testing.TB, got, want error, remark ...string) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("got %v, want %v %q", got, want, remark)
	}
}

func equal[T comparable](t testing.TB, got, want T, remark ...string) {
	t.Helper()
	if got != want {
		t.Errorf("got %v, want %v %q", got, want, remark)
	}
}

func atMost[T cmp.Ordered](t testing.TB, got, most T, remark ...string) {
	t.Helper()
	if got > most {
		t.Errorf("got %v, want %v at most %q", got, most, remark)
	}
}

func atLeast[T cmp.Ordered](t testing.TB, got, least T, remark ...string) {
	t.Helper()
	if got < least {
		t.Errorf("got %v, want %v at least %q", got, least, remark)
	}
}

func within[T cmp.Ordered](t testing.TB, got, least, most T, remark ...string) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("got %v, want %v to %v %q", got, least, most, remark)
	}
}

func more[T cmp.Ordered](t testing.TB, got, than T, remark ...string) {
	t.Helper()
	if got <= than {
		t.Errorf("got %v, want more than %v %q", got, than, remark)
	}
}

// matches checks that an error is all of those that are wanted.
func matches(t testing.TB, got error, want ...error) {
	t.Helper()
	for _, err := range want {
		expect(t, got, err)
	}
}

// says checks that there is an error with this text in it.
func says(t testing.TB, got error, want string) {
	t.Helper()
	if got == nil || !strings.Contains(got.Error(), want) {
		t.Errorf("got %v, want an error about %q", got, want)
	}
}

// succeed ends the test if there is an error.
func succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// goesOn checks that a lease is neither lost nor over.
func goesOn(t testing.TB, lease interface {
	Remaining() time.Duration
	Context() context.Context
}) {
	t.Helper()
	if lease.Remaining() == 0 || lease.Context().Err() != nil {
		t.Errorf("%v remain: %v", lease.Remaining(), context.Cause(lease.Context()))
	}
}
