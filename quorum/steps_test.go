package quorum_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/quorum"
)

// A lock and its unlock, each step as text.
func TestSteps(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var lines []string
		l := w.locker(quorum.Options{Label: quorum.NoLabel, Steps: func(line string) { lines = append(lines, line) }})
		unlock(t, must[*quorum.Lease](t)(l.Lock(t.Context(), "x")))
		got := regexp.MustCompile(`(?m)^[\d.]+ |[\w-]+:\d+|\d{6,}`).ReplaceAllString(strings.Join(lines, "\n"), "*")
		got = strings.ReplaceAll(got, "set the alarm; ", "") // if the task that brings time sleeps already
		want := strings.Join([]string{
			"*lock x -> send n1: acquire x by * with * for 30s",
			"*n1 answers acquire x by * with * for 30s: granted -> wake a caller",
			"*unlock x -> send n1: release x by * with *",
			"*n1 answers release x by * with *: released -> wake a caller",
		}, "\n")
		equal(t, got, want)
	})
}

// A panic that somebody recovers, as net/http does, does not keep the Locker from its work.
func TestRecoveredPanic(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		panics := true
		l := w.locker(quorum.Options{Trace: func(e quorum.Event) {
			if panics && e.Kind == quorum.EventReleased {
				panics = false
				panic("of the caller")
			}
		}})
		held, other := lock(t, l, "held"), lock(t, l, "x")
		func() {
			defer func() { _ = recover() }()
			_ = other.Unlock(background)
		}()
		time.Sleep(5 * time.Minute)
		goesOn(t, held)
		unlock(t, lock(t, l, "x"))
		unlock(t, held)
	})
}
