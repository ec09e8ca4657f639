package main

import (
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/tests"
)

// A command under run is asked to finish by another process, on real servers, and goes on if it likes to.
func TestAsk(t *testing.T) {
	t.Parallel()
	urls := strings.Join(serverAddrs(t), ",")
	asks := func(status int, name string) string {
		return ends(t, status, "ask", name, "--nodes", urls, "--no-guard")
	}
	tests.Says(t, asks(exitLost, "job"), `ask "job": lease is not held`)
	p := start(t, runOn(urls, "--no-guard --on-ask term", "sh", "-c", "trap 'echo finishes; exit 7' TERM; echo works; while :; do sleep 0.05; done")...)
	p.says("works")
	asks(exitOK, "job")
	p.exits(7, "somebody asks for the lock: the command gets SIGTERM", "finishes")

	p = start(t, runOn(urls, "--no-guard", "sh", "-c", "trap 'echo told' TERM; echo works; read x; echo done")...)
	p.says("works")
	asks(exitOK, "job") // of one that does not listen
	q := start(t, "run", "other", "--nodes", urls, "--no-guard", "--on-ask", "SIGUSR1", "--", "sh", "-c", "trap 'echo told' USR1; echo works; while read x; do echo $x; done")
	q.says("works")
	asks(exitOK, "other")
	q.says("told")
	for _, each := range []*program{p, q} {
		_, _ = each.in.Write([]byte("on\n"))
		_ = each.in.Close()
	}
	p.exits(exitOK, "!told", "done")
	q.exits(exitOK)
}
