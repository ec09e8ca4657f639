package main

import (
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// holdOn is "hold" on nodes of the test.
func holdOn(urls, flags string, names ...string) []string {
	return append(append([]string{"hold", "--nodes", urls}, names...), strings.Fields(flags)...)
}

// It holds the lock until a signal, and says so when it has it.
func TestHold(t *testing.T) {
	_, urls := startNodes(t, 3)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		if signal.Ignored(s) {
			continue // under nohup or the like, and so by the program
		}
		p := start(t, holdOn(urls, "", "a", "b")...)
		p.says("\n")
		held := statusOf(t, exitOK, "b", urls)
		if line := p.out.String(); held.Verdict != "held" || !strings.HasPrefix(line, "holding a,b: owner "+held.Owner+", token ") {
			t.Errorf("%s%+v", line, held)
		}
		ends(t, exitHeld, holdOn(urls, "--try", "a")...)
		start(t, holdOn(urls, "--wait 100ms --conflict-exit-code 9", "a")...).exits(9)
		p.signal(s)
		if out := p.exits(exitOK); strings.Count(out, "\n") != 1 {
			t.Errorf("more than a line: %s", out)
		}
		verdictIs(t, "a", urls, "free")
	}
}

func TestHoldJSON(t *testing.T) {
	_, urls := startNodes(t, 3)
	p := start(t, holdOn(urls, "--json --read", "a")...)
	p.says("\n")
	var held holdJSON
	decode(t, p.out.String(), &held)
	if s := statusOf(t, exitOK, "a", urls); len(held.Names) != 1 || held.Names[0] != "a" || held.Owner != s.Owner || held.Token == 0 || s.Mode != "read" {
		t.Errorf("%+v, and %+v", held, s)
	}
	p.signal(syscall.SIGTERM)
	p.exits(exitOK)
}

// It says once that somebody asks for the lock, and holds it.
func TestHoldIsAsked(t *testing.T) {
	urls := parallelNodes(t, 3)
	p := start(t, holdOn(urls, "", "a")...)
	p.says("holding a")
	want(t, exitOK, "", "ask", "a", "--nodes", urls)
	p.says("somebody asks for the lock")
	want(t, exitOK, "", "ask", "a", "--nodes", urls)
	verdictIs(t, "a", urls, "held")
	p.signal(syscall.SIGTERM)
	if out := p.exits(exitOK); strings.Count(out, "asks for") != 1 {
		t.Error(out)
	}
}

// A lock that is lost, or that was held for long enough, ends it with the status of run.
func TestHoldLoses(t *testing.T) {
	urls := parallelNodes(t, 3)
	p := start(t, holdOn(urls, "--lease 2s", "a")...)
	p.says("holding a")
	want(t, exitOK, "", "break", "a", "--yes", "--nodes", urls)
	p.exits(exitLost, "redquorum hold: ")
	start(t, holdOn(urls, "--max-hold 300ms", "a")...).exits(exitLost, "maximum hold time reached")
}
