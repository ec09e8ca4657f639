package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/terminal"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

func statusOf(t *testing.T, exit int, name, urls string) (s statusJSON) {
	t.Helper()
	var got int
	var stdout, stderr string
	unlessLate(func() (string, bool) {
		got, stdout, stderr = redquorum(t, "status", name, "--json", "--nodes", urls)
		return stdout + stderr, !timedOut(stdout + stderr)
	})
	assert.That(t, got == exit, "exit status %d, want %d: %s", got, exit, stderr)
	decode(t, stdout, &s)
	return s
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	assert.Must(t, err == nil, "%v in %s", err, text)
}

func (s statusJSON) states() string {
	var states []string
	for _, n := range s.Nodes {
		states = append(states, n.State)
	}
	return strings.Join(states, " ")
}

// Like run --quorum they work on an even number of nodes.
func TestStatusAndBreakOfAnEvenNumber(t *testing.T) {
	tests.NeedSeconds(t)
	urls := parallelNodes(t, 4)
	p := start(t, "run", "--name", "a", "--quorum", "3", "--no-guard", "--nodes", urls, "--", "sleep", "60")
	defer p.signal(syscall.SIGTERM)
	assert.Eventually(t, "held", func() bool { return statusOf(t, exitOK, "a", urls).HeldBy == 4 })
	s := statusOf(t, exitOK, "a", urls)
	assert.That(t, s.Quorum == 3, "a majority of 4 is %d", s.Quorum)
	want(t, exitOK, "", "break", "a", "--yes", "--nodes", urls)
	verdictIs(t, "a", urls, "free")
}

func TestStatus(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	servers, urls := startNodes(t, 3)
	l := newLocker(t, urls)

	s := statusOf(t, exitOK, "a", urls)
	if s.Name != "a" || s.Verdict != "free" || s.Owner != "" || s.HeldBy != 0 || s.Quorum != 2 || s.states() != "free free free" {
		t.Errorf("free: %+v", s)
	}
	want(t, exitOK, "a is free", "status", "a", "--nodes", urls)

	lease := hold(t, l, "a")
	owner := lease.Owner()
	assert.Eventually(t, "held by all", func() bool { return statusOf(t, exitOK, "a", urls).HeldBy == 3 })
	s = statusOf(t, exitOK, "a", urls)
	assert.That(t, s.Verdict == "held" && s.Owner == owner && s.states() == "held held held", "held: %+v", s)
	n := s.Nodes[0]
	if n.Node != servers[0].Addr() || n.Owner != owner || n.TTL <= 0 || n.TTL > 30000 || n.Fence != lease.Token() || n.Error != "" {
		t.Errorf("a node that holds: %+v", n)
	}
	want(t, exitOK, "a is held on 3 of 3 nodes, for ", "status", "--nodes", urls, "a")
	want(t, exitOK, "\n  by "+owner+"\n", "status", "--nodes", urls, "a")

	servers[0].Kill()
	s = statusOf(t, exitOK, "a", urls)
	assert.That(t, s.Verdict == "held" && s.HeldBy == 2 && s.states() == "error held held" && s.Nodes[0].Error != "", "a dead node: %+v", s)
	assert.Succeed(t, servers[0].Restart(true))
	s = statusOf(t, exitOK, "a", urls)
	assert.That(t, s.Verdict == "held" && strings.HasPrefix(s.states(), "abstaining") && s.Nodes[0].Abstaining > 0, "a restarted node: %+v", s)
	want(t, exitOK, "ignored for ", "status", "a", "--nodes", urls)

	servers[0].Kill()
	servers[1].Kill()
	s = statusOf(t, exitError, "a", urls)
	assert.That(t, s.Verdict == "no-quorum", "no quorum: %+v", s)
	want(t, exitError, "a: 1 of 3 nodes are usable, 2 needed", "status", "a", "--nodes", urls)
}

func TestStatusContended(t *testing.T) {
	tests.NeedSeconds(t)
	urls := parallelNodes(t, 3)
	for url := range strings.SplitSeq(urls, ",") {
		hold(t, newLocker(t, url), "a") // on this node alone
	}
	s := statusOf(t, exitOK, "a", urls)
	assert.That(t, s.Verdict == "contended" && s.HeldBy == 1, "%+v", s)
	want(t, exitOK, "a is contended", "status", "a", "--nodes", urls)
}

func TestStatusOfReadersAndWriters(t *testing.T) {
	tests.NeedSeconds(t)
	urls := parallelNodes(t, 3)
	l := newLocker(t, urls)
	ctx := t.Context()
	first := hold(t, l, "a", quorum.WithRead())
	second := hold(t, l, "a", quorum.WithRead())
	var s statusJSON
	assert.Eventually(t, "held by both", func() bool {
		s = statusOf(t, exitOK, "a", urls)
		return len(s.Owners) == 2 && s.Nodes[0].Mode == "read" // not all nodes may have answered at first
	})
	assert.That(t, s.Verdict == "held" && s.Mode == "read" && len(s.Waiting) == 0, "%+v", s)
	tests.Says(t, want(t, exitOK, "a is held for reading on 3 of 3 nodes, for ", "status", "a", "--nodes", urls), "by "+first.Owner(), "by "+second.Owner())
	waited := waits(t, newLocker(t, urls), "a", quorum.WithWrite())
	assert.Eventually(t, "a writer that waits", func() bool { return len(statusOf(t, exitOK, "a", urls).Waiting) == 1 })
	want(t, exitOK, "waiting, in this order:\n  1  ", "status", "a", "--nodes", urls)
	_, _ = first.Unlock(ctx), second.Unlock(ctx)
	writer := <-waited
	want(t, exitOK, "a is held for writing on ", "status", "a", "--nodes", urls)
	want(t, exitOK, "\n  by "+writer.Owner(), "status", "a", "--nodes", urls)
	reads := waits(t, l, "a", quorum.WithRead())
	assert.Eventually(t, "a reader that waits", func() bool { return len(statusOf(t, exitOK, "a", urls).Waiting) == 1 })
	want(t, exitOK, "\nwaiting, in this order:\n  1  ", "status", "a", "--nodes", urls)
	_ = writer.Unlock(ctx)
	if lease := <-reads; lease != nil {
		_ = lease.Unlock(ctx)
	}
}

// A key of redsync is shown as another library's lock, also by servers that are ignored
// after their start. No command touches it, and run waits for it.
func TestStatusOfString(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	for _, c := range []struct {
		name           string
		start          func(*testing.T) []string
		status         int
		verdict, state string
	}{{"embedded", embeddedAddrs, exitOK, "held", "held"}, {"redis-server", serverAddrs, exitError, "no-quorum", "abstaining"}} {
		t.Run(c.name, func(t *testing.T) {
			addrs := c.start(t)
			urls := "redis://" + strings.Join(addrs, ",redis://")
			for _, addr := range addrs[:2] {
				client := clientOf(t, addr)
				assert.Succeed(t, client.SetNX(t.Context(), "a", "bWFkZSBieSByZWRzeW5j", 10*time.Minute).Err())
			}
			s := statusOf(t, c.status, "a", urls)
			n := s.Nodes[0]
			if s.Verdict != c.verdict || s.Owner != "" || n.State != c.state || n.String != "bWFkZSBieSByZWRzeW5j" ||
				n.TTL <= 0 || n.TTL > 600_000 || n.Error != "" || s.Nodes[2].String != "" {
				t.Errorf("%+v", s)
			}
			want(t, c.status, "2 of 3 nodes have the string bWFkZSBieSByZWRzeW5j there", "status", "a", "--nodes", urls)
			want(t, exitConfig, node.ErrWrongType.Error(), "break", "a", "--yes", "--nodes", urls)
			again := statusOf(t, c.status, "a", urls)
			assert.That(t, again.Nodes[1].String == n.String && again.Nodes[1].TTL > 0, "after break: %+v", again)
			if c.verdict != "held" {
				return
			}
			out := want(t, exitOK, "a is held on 2 of 3 nodes, for ", "status", "a", "--nodes", urls)
			tests.Says(t, out, "nobody else gets this name")
			assert.Eventually(t, "not a program with redquorum has it", func() bool { // all nodes answer in time
				status, _, stderr := redquorum(t, "ask", "a", "--nodes", urls)
				return status == exitLost && strings.Contains(stderr, "not a program with redquorum")
			})
			want(t, exitLost, "not held", "check", "a", "--owner", "o", "--nodes", urls)
			run := []string{"run", "--try", "--name", "a", "--nodes", urls, "--", "true"}
			start(t, run...).exits(exitHeld, quorum.ErrHeld.Error())
			assert.Succeed(t, clientOf(t, addrs[1]).Del(t.Context(), "a").Err())
			want(t, exitOK, "The other nodes can still grant this name.", "status", "a", "--nodes", urls)
			start(t, run...).exits(exitOK)
		})
	}
}

func embeddedAddrs(t *testing.T) (addrs []string) {
	servers, _ := startNodes(t, 3)
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

func serverAddrs(t *testing.T) (addrs []string) {
	for range 3 {
		addrs = append(addrs, tests.Server(t).Addr())
	}
	return addrs
}

// A user who writes to a server, or names a lock, cannot control the terminal.
func TestEscapesAreNotPrinted(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	const name = "\x1b[2Jgone\u009b31m\nnext\tfield"
	const evil = name + "\xff"
	servers, urls := startNodes(t, 3)
	for _, s := range servers {
		client := clientOf(t, s.Addr())
		assert.Succeed(t, client.HSet(t.Context(), name, evil, 1).Err())
	}
	check := func(out string) {
		t.Helper()
		for _, r := range out {
			assert.Must(t, (unicode.IsPrint(r) || r == '\n') && r != utf8.RuneError, "%q in %q", r, out)
		}
	}
	const shown, owner = `"\x1b[2Jgone\u009b31m\nnext\tfield"`, `"\x1b[2Jgone\u009b31m\nnext\tfield\xff"`
	check(want(t, exitOK, shown+" is held on 3 of 3 nodes\n  by "+owner+"\n", "status", name, "--nodes", urls))
	for _, args := range [][]string{{"status", name}, {"check", name, "--owner", name}} {
		_, out, _ := redquorum(t, append(args, "--json", "--nodes", urls)...)
		check(out)
		tests.Says(t, out, `"name":"\u001b[2Jgone\u009b31m\nnext\tfield"`)
	}
	check(want(t, exitOK, "removed the lock "+shown+", held by "+owner+", on 3 nodes\n", "break", name, "--yes", "--nodes", urls))
	check(want(t, exitOK, shown+" was free", "break", name, "--yes", "--nodes", urls))
	check(want(t, exitOK, shown+" is free", "status", name, "--nodes", urls))
	addr := fakeServer(t, "", map[string]string{"run_id": "a", "uptime_in_seconds": "99", "role": "master", "redis_version": "7\x1b[2J"})
	check(want(t, exitUnsafe, `7\x1b[2J`, "doctor", "--nodes", addr))
	assert.Equal(t, printable("Müller's lock 日本"), "Müller's lock 日本")
}

// --nodes overrides REDQUORUM_NODES.
func TestNodesFromEnvironment(t *testing.T) {
	_, urls := startNodes(t, 3)
	t.Setenv("REDQUORUM_NODES", urls)
	want(t, exitOK, "a is free", "status", "a")
	want(t, exitError, "0 of 1 nodes are usable", "status", "a", "--nodes", "redis://127.0.0.1:1")
}

// --prefix precedes the name on the nodes, and is not shown.
func TestPrefix(t *testing.T) {
	tests.NeedSeconds(t)
	urls := parallelNodes(t, 3)
	owner := hold(t, newLocker(t, urls), "app/job").Owner()
	want(t, exitOK, "job is free", "status", "job", "--nodes", urls)
	want(t, exitOK, "\n  by "+owner+"\n", "status", "job", "--prefix", "app/", "--nodes", urls)
	ends(t, exitHeld, runOn(urls, "--try --prefix app/", "echo", "never")...)
	ends(t, exitOK, runOn(urls, "--try", "true")...)
	want(t, exitOK, `removed the lock "job", held by `+owner, "break", "job", "--prefix", "app/", "--yes", "--nodes", urls)
	want(t, exitUsage, "--prefix is before every name", "status", "job", "--prefix", "redisson_", "--nodes", urls)
}

func TestBreak(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	servers, urls := startNodes(t, 3)
	want(t, exitOK, `"a" was free`, "break", "a", "--yes", "--nodes", urls)

	l := newLocker(t, urls)
	lease := hold(t, l, "a")
	want(t, exitUsage, "add --yes", "break", "a", "--nodes", urls)
	verdictIs(t, "a", urls, "held")
	want(t, exitOK, "held by "+lease.Owner(), "break", "a", "--yes", "--nodes", urls)
	verdictIs(t, "a", urls, "free")
	if next, err := newLocker(t, urls).TryLock(context.Background(), "a"); err != nil {
		t.Errorf("the next holder: %v", err)
	} else if next.Token() <= lease.Token() {
		t.Errorf("token %d after %d", next.Token(), lease.Token())
	}

	servers[0].Kill()
	servers[1].Kill()
	want(t, exitNoQuorum, quorum.ErrNoQuorum.Error(), "break", "a", "--yes", "--nodes", urls)
}

// They name the holder's program, its note, and the waiters.
func TestLabelsAndNotes(t *testing.T) {
	urls := parallelNodes(t, 3)
	owner := hold(t, newLockerOf(t, urls, quorum.Options{Label: "web-1"}), "a", quorum.WithNote("job-42")).Owner()
	assert.Eventually(t, "labeled", func() bool {
		s := statusOf(t, exitOK, "a", urls)
		return s.Labels[owner] == "web-1" && s.Notes[owner] == "job-42"
	})
	// On a busy machine the nodes may be too slow to tell.
	says := func(want int, text string, args ...string) {
		t.Helper()
		assert.Eventually(t, text, func() bool {
			status, stdout, stderr := redquorum(t, args...)
			return status == want && strings.Contains(stdout+stderr, text)
		})
	}
	says(exitOK, "\n  by web-1, "+owner+": job-42\n", "status", "a", "--nodes", urls)
	says(exitOK, "  web-1: job-42\n", "list", "--nodes", urls)
	says(exitOK, `"label":"web-1","note":"job-42"`, "list", "--json", "--nodes", urls)
	says(exitHeld, "lock is held by another owner (web-1: job-42): ", "run", "--name", "a", "--try", "--nodes", urls, "--", "true")

	p := start(t, holdOn(urls, "--label me", "a")...)
	p.says(": a is held by web-1, " + owner + ": job-42")
	assert.Eventually(t, "labeled", func() bool {
		s := statusOf(t, exitOK, "a", urls)
		return len(s.Waiting) == 1 && s.Labels[s.Waiting[0]] == "me"
	})
	p.signal(syscall.SIGTERM)
	p.exits(exitHeld)

	p = start(t, holdOn(urls, "--note job-43", "b")...)
	p.says("holding b")
	assert.Eventually(t, "labeled", func() bool {
		s := statusOf(t, exitOK, "b", urls)
		return strings.HasSuffix(s.Labels[s.Owner], fmt.Sprintf(" pid %d redquorum hold", p.cmd.Process.Pid)) && s.Notes[s.Owner] == "job-43"
	})
	p.signal(syscall.SIGTERM)
	p.exits(exitOK)
	want(t, exitOK, `removed the lock "a", held by web-1 (`+owner+"), on ", "break", "a", "--yes", "--nodes", urls)
}

// The text fits 80 columns, and has the wait queue.
func TestStatusPrints(t *testing.T) {
	owner := func(n int) string { return fmt.Sprintf("0a1b2c3d-0000-8000-8000-000000000000:123456789012345678%d", n) }
	var waiters []string
	for i := range 12 {
		waiters = append(waiters, owner(i))
	}
	some := quorum.NodeReport{Node: "192.168.100.100:16379", State: "held", Owners: []string{owner(9)}, TTL: 29*time.Second + 310*time.Millisecond, Fence: 1795461253404373, Waiting: waiters}
	other := some
	other.Owners, other.Waiting = []string{owner(8)}, nil
	down := quorum.NodeReport{Node: "192.168.100.101:16379", State: "error", Err: errors.New(strings.Repeat("some error ", 20))}
	r := &quorum.Report{Name: "orders/42", Verdict: "held", Owner: owner(9), Owners: []string{owner(9)}, HeldBy: 3, Quorum: 3,
		Waiting: waiters, Nodes: []quorum.NodeReport{some, some, some, other, down}}
	settings := []string{"nodes 5, quorum 3, replicas [], MaxLease 30s, Grace 0s", "nodes 3, quorum 2, replicas [], MaxLease 1m0s, Grace 0s"}
	out := reportText(nil, r, make([]string, len(r.Nodes)), settings)
	tests.Narrow(t, out, terminal.Page)
	tests.Says(t, out,
		"orders/42 is held on 3 of 5 nodes, for 29.3s more unless it is renewed\n  by "+owner(9)+"\nwaiting, in this order:\n  1  "+owner(0)+" (3 nodes)\n  2  ",
		"\n  and 2 more: --json has all\n\nNODE                   STATE  TTL",
		"\n192.168.100.100:16379  held   29.31s  1795461253404373\n192.168.100.101:16379  error  -       -\n",
		"\n\n192.168.100.100:16379: held by\n  "+owner(8)+"\n192.168.100.101:16379: some error ",
		"\n\nprograms use these nodes with different settings: nodes 5, quorum 3, replicas",
	)
}

func TestStatusGroupsNodes(t *testing.T) {
	refused := errors.New("unreachable: refused")
	for _, c := range []struct {
		nodes []quorum.NodeReport
		want  string
	}{
		{[]quorum.NodeReport{{Node: "a"}, {Node: "b"}}, ""},
		{[]quorum.NodeReport{{Node: "a", Err: refused}, {Node: "b", Err: refused}}, "\nall nodes: unreachable: refused\n"},
		{[]quorum.NodeReport{{Node: "a", Err: refused}, {Node: "b"}, {Node: "c", Err: errors.New("other")}, {Node: "d", Err: refused}},
			"\na, d: unreachable: refused\nc: other\n"},
	} {
		var b strings.Builder
		if writeDetails(&b, &quorum.Report{Nodes: c.nodes}, make([]string, len(c.nodes))); b.String() != c.want {
			t.Errorf("%q, want %q", b.String(), c.want)
		}
	}
}

func TestPainter(t *testing.T) {
	assert.Equal(t, painter(false).paint(red, "x"), "x")
	assert.Equal(t, painter(true).paint(red, "x"), "\x1b[31mx\x1b[0m")
}

// A name that nobody can get is not just free.
func TestStatusOfServersThatRefuseWrites(t *testing.T) {
	t.Parallel()
	a, b, c := tests.Server(t, "--maxmemory", "1"), tests.Server(t, "--min-replicas-to-write", "1"), tests.Server(t)
	urls := strings.Join([]string{a.URL(), b.URL(), c.URL()}, ",")
	out := want(t, exitOK, "job is free; nobody can get it now: only 1 of 3 nodes accept writes, 2 needed", "status", "job", "--no-guard", "--nodes", urls)
	tests.Says(t, strings.ReplaceAll(out, "\n ", ""), a.Addr()+": refuses writes: OOM ", b.Addr()+": refuses writes: NOREPLICAS ")
	_, stdout, _ := redquorum(t, "status", "job", "--json", "--no-guard", "--nodes", urls)
	var s statusJSON
	decode(t, stdout, &s)
	assert.That(t, s.Verdict == "free" && strings.HasPrefix(s.Nodes[0].Refused, "OOM ") && s.Nodes[2].Refused == "", "%+v", s)
	client := clientOf(t, c.Addr())
	assert.Equal(t, client.DBSize(t.Context()).Val(), 0, "it has left")
}

// Servers with something else at the name are usable; the name is not.
func TestStatusOfOtherKeys(t *testing.T) {
	servers, urls := startNodes(t, 3)
	for i, s := range servers {
		client := clientOf(t, s.Addr())
		key := []string{"job", "job", "list"}[i]
		assert.Succeed(t, client.RPush(t.Context(), key, "x").Err())
	}
	out := want(t, exitError, "job cannot be locked: 2 of 3 nodes have a key there that is not a lock", "status", "job", "--nodes", urls)
	assert.That(t, !strings.Contains(out, "usable") && strings.Count(out, "  not a lock  ") == 2, "%v", out)
	want(t, exitOK, "list is free", "status", "list", "--nodes", urls)
}
