package quorum_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// The steps of a lock and its unlock are compared as text.
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

// Such a panic ends the program even if the caller would recover it.
func TestAPanicInAStepEndsTheProgram(t *testing.T) {
	if os.Getenv("REDQUORUM_TEST_PANICS") == "" {
		program := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=30s")
		program.Env = append(os.Environ(), "REDQUORUM_TEST_PANICS=yes")
		out, err := program.CombinedOutput()
		ensure(t, err != nil && strings.Contains(string(out), "no entropy, in a step of a Locker:\n") && strings.Contains(string(out), "steps_test.go"), "%v\n%s", err, out)
		return
	}
	made := false
	l, err := quorum.New([]node.Node{model.New(clock.System(), "n1")}, quorum.Options{Random: func() uint64 {
		if made {
			panic("no entropy")
		}
		return 1
	}})
	succeed(t, err)
	made = true
	defer func() { _ = recover() }()
	defer func() { _ = l.Close() }()
	_, _ = l.Lock(background, "x")
}

type panicking struct{ context.Context }

func (panicking) Done() <-chan struct{} { panic("of the caller") }

// A call that ended by a panic holds neither the name nor Close up.
func TestACallThatPanicsIsOver(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.delay(time.Millisecond, 0)
		panics, o := true, new(observer)
		l := w.locker(quorum.Options{Trace: func(e quorum.Event) {
			o.observe(e)
			if panics && e.Kind == quorum.EventWaiting {
				panics = false
				panic("of the caller")
			}
		}})
		held := lock(t, l, "held")
		for name, ctx := range map[string]context.Context{"held": background, "x": panicking{background}} {
			synctest.Wait() // else another goroutine may carry out the effects of this call
			func() {
				defer func() { ensure(t, recover() == "of the caller", "%s: there was no panic", name) }()
				_, _ = l.Lock(ctx, name)
			}()
		}
		unlock(t, held)
		time.Sleep(time.Second)
		equal(t, o.count(quorum.EventNotAcquired)+o.count(quorum.EventAcquired), 3, "calls that have an end")
		for _, name := range []string{"held", "x"} {
			unlock(t, tryLock(t, l, name))
		}
		succeed(t, l.Close())
	})
}

// If somebody recovers the panic, as net/http does, the Locker goes on.
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
