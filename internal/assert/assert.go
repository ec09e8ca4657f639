// Package assert has checks for tests, a line each.
package assert

import (
	"errors"
	"strings"
	"time"
)

type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// That fails the test unless so. The text says what is wrong otherwise.
func That(t T, so bool, wrong string, args ...any) {
	t.Helper()
	if !so {
		t.Errorf(wrong, args...)
	}
}

// Must is That, and ends the test.
func Must(t T, so bool, wrong string, args ...any) {
	t.Helper()
	if !so {
		t.Fatalf(wrong, args...)
	}
}

func NoError(t T, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%v", err)
	}
}

// Succeed is NoError, and ends the test.
func Succeed(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// Got returns the result of a call that must not fail, as Got(f())(t).
func Got[V any](v V, err error) func(T) V {
	return func(t T) V {
		t.Helper()
		Succeed(t, err)
		return v
	}
}

// ErrorOf returns the error of a call that has a result, too.
func ErrorOf[V any](_ V, err error) error { return err }

// Equal fails the test unless got is want. More values may say what this is about.
func Equal[V comparable](t T, got, want V, about ...any) {
	t.Helper()
	if got != want {
		t.Errorf("got %#v, want %#v %v", got, want, about)
	}
}

// Is fails the test unless got is, or wraps, want; nil is none.
func Is(t T, got, want error, about ...any) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("got %v, want %v %v", got, want, about)
	}
}

// Says fails the test unless got has this text in it.
func Says(t T, got error, want string, about ...any) {
	t.Helper()
	if got == nil || !strings.Contains(got.Error(), want) {
		t.Errorf("got %v, want %q %v", got, want, about)
	}
}

// Eventually waits until so, and ends the test after a minute, which no sound run needs.
func Eventually(t T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
	}
}
