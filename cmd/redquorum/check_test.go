package main

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/quorum"
)

// A command under run finds out that it still has the lock, and others that an owner does not; on real servers.
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
