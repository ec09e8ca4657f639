package quorum_test

import (
	"cmp"
	"errors"
	"testing"
)

func must[T any](t *testing.T) func(T, error) T {
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
