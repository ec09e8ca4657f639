package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/quorum"
)

func holdOn(urls, flags string, names ...string) []string {
	return append(append([]string{"hold", "--nodes", urls}, names...), strings.Fields(flags)...)
}

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
		out := p.exits(exitOK)
		assert.That(t, strings.Count(out, "\n") == 1, "more than a line: %s", out)
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

func TestHoldIsAsked(t *testing.T) {
	urls := parallelNodes(t, 3)
	p := start(t, holdOn(urls, "", "a")...)
	p.says("holding a")
	want(t, exitOK, "", "ask", "a", "--nodes", urls)
	p.says("somebody asks for the lock")
	want(t, exitOK, "", "ask", "a", "--nodes", urls)
	verdictIs(t, "a", urls, "held")
	p.signal(syscall.SIGTERM)
	out := p.exits(exitOK)
	assert.That(t, strings.Count(out, "asks for") == 1, "%v", out)
}

func TestHoldLoses(t *testing.T) {
	urls := parallelNodes(t, 3)
	p := start(t, holdOn(urls, "--lease 2s", "a")...)
	p.says("holding a")
	want(t, exitOK, "", "break", "a", "--yes", "--nodes", urls)
	p.exits(exitLost, "redquorum hold: ")
	start(t, holdOn(urls, "--max-hold 300ms", "a")...).exits(exitLost, "maximum hold time reached")
}

// A command under run is asked to finish by another process, on real servers, and may go
// on.
func TestAsk(t *testing.T) {
	t.Parallel()
	urls := strings.Join(serverAddrs(t), ",")
	asks := func(status int, name string) string {
		return ends(t, status, "ask", name, "--nodes", urls, "--no-guard")
	}
	tests.Says(t, asks(exitLost, "job"), `ask "job": lock is not held`)
	p := start(t, runOn(urls, "--no-guard --on-ask term", "sh", "-c", "trap 'echo finishes; exit 7' TERM; echo works; while :; do sleep 0.05; done")...)
	p.says("works")
	asks(exitOK, "job")
	p.exits(7, "somebody asks for the lock: the command gets SIGTERM", "finishes")

	p = start(t, runOn(urls, "--no-guard", "sh", "-c", "trap 'echo told' TERM; echo works; read x; echo done")...)
	p.says("works")
	asks(exitOK, "job") // of one that does not listen
	done := filepath.Join(t.TempDir(), "done")
	q := start(t, "run", "other", "--nodes", urls, "--no-guard", "--on-ask", "SIGUSR1", "--", "sh", "-c",
		`trap 'echo told' USR1; echo works; until [ -e "$0" ]; do sleep 0.02; done`, done)
	q.says("works")
	asks(exitOK, "other")
	q.says("told")
	for range 3 { // its command has the signal
		asks(exitOK, "other")
	}
	_, _ = p.in.Write([]byte("on\n"))
	assert.Succeed(t, os.WriteFile(done, nil, 0o600))
	p.exits(exitOK, "!told", "done")
	out := q.exits(exitOK)
	signals, said := strings.Count(out, "told\n"), strings.Count(out, "somebody asks")
	assert.That(t, signals == 1 && said == 1, "want one signal:\n%s", out)
}

// A command under run checks its own lock, and one that an owner does not have, on real
// servers.
func TestCheck(t *testing.T) {
	t.Parallel()
	urls := strings.Join(serverAddrs(t), ",")
	p := start(t, runOn(urls, "--no-guard", "sh", "-c", "echo begun; while read x; do "+
		actAsProgram+`=yes "$0" check job --no-guard --nodes `+urls+`; echo "status $?"; done`, os.Args[0])...)
	p.says("begun")
	for _, want := range []string{"status 0", "status 76"} {
		_, _ = p.in.Write([]byte("check\n"))
		p.says(want)
		if want == "status 0" {
			ends(t, exitOK, "break", "job", "--yes", "--no-guard", "--nodes", urls)
		}
	}
	_ = p.in.Close()
}

func TestCheckVerdicts(t *testing.T) {
	servers, urls := startNodes(t, 3)
	l := newLocker(t, urls)
	lease := hold(t, l, "a")
	check := func(status int, verdict, owner string, flags ...string) {
		t.Helper()
		var got checkJSON
		out := want(t, status, "", append([]string{"check", "a", "--nodes", urls, "--json"}, flags...)...)
		line, _, _ := strings.Cut(out, "\n")
		if decode(t, line, &got); got.Name != "a" || got.Owner != owner || got.Verdict != verdict || (got.Error == "") != (verdict == "held") {
			t.Errorf("%+v", got)
		}
	}
	want(t, exitUsage, "no owner", "check", "a", "--nodes", urls)
	check(exitOK, "held", lease.Owner(), "--owner", lease.Owner())
	t.Setenv("REDQUORUM_OWNER", lease.Owner())
	check(exitOK, "held", lease.Owner())
	assert.Equal(t, want(t, exitOK, "", "check", "a", "--nodes", urls), "", "without --json it says")
	check(exitLost, "not-held", "other", "--owner", "other")
	several := hold(t, l, "b", quorum.WithNames("c"))
	for names, status := range map[string]int{"b,c": exitOK, "b": exitOK, "a,b": exitLost, "b,": exitLost} {
		want(t, status, "", "check", names, "--nodes", urls, "--owner", several.Owner())
	}
	assert.Succeed(t, lease.Unlock(context.Background()))
	check(exitLost, "not-held", lease.Owner())
	servers[0].Close()
	servers[1].Close()
	check(exitNoQuorum, "no-quorum", lease.Owner())
	want(t, exitNoQuorum, `ask "a": no quorum of nodes`, "ask", "a", "--nodes", urls)
}
