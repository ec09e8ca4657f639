package assert

import (
	"errors"
	"fmt"
	"testing"
)

type recorder struct{ said string }

func (*recorder) Helper()                           {}
func (r *recorder) Errorf(text string, args ...any) { r.said += "error: " + fmt.Sprintf(text, args...) }
func (r *recorder) Fatalf(text string, args ...any) { r.said += "fatal: " + fmt.Sprintf(text, args...) }

func TestChecks(t *testing.T) {
	one, two := errors.New("one"), errors.New("two")
	for said, check := range map[string]func(t T, good bool){
		"error: 3 words":                  func(t T, good bool) { That(t, good, "%d words", 3) },
		"fatal: 3 words":                  func(t T, good bool) { Must(t, good, "%d words", 3) },
		"error: one":                      func(t T, good bool) { NoError(t, map[bool]error{false: one}[good]) },
		"fatal: one":                      func(t T, good bool) { Succeed(t, map[bool]error{false: one}[good]) },
		"fatal: two":                      func(t T, good bool) { Got(0, map[bool]error{false: two}[good])(t) },
		"error: got false, want true [x]": func(t T, good bool) { Equal(t, good, true, "x") },
		"error: got one, want two [x]":    func(t T, good bool) { Is(t, one, map[bool]error{false: two, true: one}[good], "x") },
		"error: got one, want \"two\" []": func(t T, good bool) { Says(t, one, map[bool]string{false: "two", true: "ne"}[good]) },
		"error: got <nil>, want \"\" []":  func(t T, good bool) { Says(t, map[bool]error{true: one}[good], "") },
	} {
		for _, good := range []bool{true, false} {
			var r recorder
			check(&r, good)
			if want := map[bool]string{false: said}[good]; r.said != want {
				t.Errorf("%q, want %q", r.said, want)
			}
		}
	}
}
