package main

import (
	"bytes"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/terminal"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/quorum"
)

func TestDemo(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	out := demos(t, 6*time.Second, demoLacks, func(string) []string { return nil })
	tests.Narrow(t, out, terminal.Page)
	tests.Says(t, out, "!nobody works", "!free, ", "!\x1b")
}

// demos tries a demo that lacks nothing, each time for longer: on a busy machine the
// workers come too late. args makes the arguments for a length.
func demos(t *testing.T, length time.Duration, lacks func(out string) string, args func(length string) []string) string {
	t.Helper()
	for end := time.Now().Add(2 * patience); ; length = min(3*length, patience/2) {
		status, stdout, stderr := redquorum(t, append([]string{"demo", "--for", length.String()}, args(length.String())...)...)
		out := stdout + stderr
		missing := lacks(out)
		if status == exitOK && missing == "" {
			return out
		}
		idle := strings.Contains(out, "\n0 critical sections")
		wrong := strings.Contains(out, "WRONG") && !idle || strings.Contains(out, "rose each time: false")
		assert.Must(t, !wrong && time.Now().Before(end), "--for %v: status %d; %q is missing in:\n%s", length, status, missing, out)
	}
}

func notExact(out string) string { return lacksText(out, "exact") }

func lacksText(out, text string) string {
	if strings.Contains(out, text) {
		return ""
	}
	return text
}

func demoLacks(out string) string {
	out = strings.Join(strings.Fields(out), " ")
	for _, text := range []string{"node 2 is killed", "node 4 stalls", "4 workers add to one number", "no count may be lost.", "1 silent", ", 1 ignored", "write refused: newer token seen",
		"old ones refused: 1", "leases lost: ", "by a worker that paused)", "fencing tokens rose each time: true", "without a token the late write would have set the number from "} {
		if !strings.Contains(out, text) {
			return text
		}
	}
	return ""
}

func TestDemoOnServers(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	servers, urls := startNodes(t, 3)
	demos(t, 2*time.Second, notExact, func(string) []string { return []string{"--nodes", urls} })

	servers[0].Kill()
	servers[1].Kill()
	want(t, exitError, "no quorum", "demo", "--for", "2s", "--nodes", urls)

	const young = "nodes that started recently are ignored"
	demos(t, 2*time.Second, func(out string) string { return lacksText(out, young) }, func(maxLease string) []string {
		for _, s := range servers[:2] {
			assert.Succeed(t, s.Restart(true))
		}
		return []string{"--max-lease", maxLease, "--nodes", urls}
	})
}

func TestDemoIsInterrupted(t *testing.T) {
	tests.NeedLong(t)
	if signal.Ignored(syscall.SIGINT) {
		t.Skip("SIGINT is ignored, as under nohup, and so by the program")
	}
	t.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector's own
	best := time.Hour
	for try := 0; try < 3 && best > 1500*time.Millisecond; try++ { // a busy machine may make one slow
		p := start(t, "demo", "--for", "20s")
		p.says("node 4 stalls")
		asked := time.Now()
		p.signal(syscall.SIGINT)
		out := p.exits(-1) // by the signal
		best = min(best, time.Since(asked))
		if !strings.Contains(out, "\n0 critical sections") {
			assert.That(t, strings.Contains(out, ": exact\n"), "%v", out)
		}
		assert.That(t, strings.HasSuffix(out, "\ninterrupted\n"), "%v", out)
	}
	assert.That(t, best <= 1500*time.Millisecond, "it took %v", best)
}

func TestDemoVerdict(t *testing.T) {
	var out bytes.Buffer
	for _, c := range []struct {
		number, fallen int
		want           int
		text           string
	}{
		{3, 0, exitOK, "the number is 3: exact"},
		{2, 0, exitError, "the number is 2: WRONG"},
		{3, 1, exitError, "fencing tokens rose each time: false"},
	} {
		out.Reset()
		d := newDemo(&command{stdout: &out}, 5)
		d.number, d.done, d.fallen = c.number, [demoWorkers]int{1, 1, 1, 0}, c.fallen
		got := d.verdict()
		assert.That(t, got == c.want && strings.Contains(out.String(), c.text), "%+v: status %d\n%s", c, got, out.String())
	}
	if full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0); err == nil {
		defer full.Close()
		got := newDemo(&command{stdout: full}, 5).screen.end("x")
		assert.That(t, got != nil, "a full device is no error")
	}
	assert.Equal(t, newDemo(&command{stdout: &out}, 5).verdict(), exitError, "nothing was counted: status")
}

// The picture fits a terminal of 80 by 24, and overwrites itself.
func TestPicture(t *testing.T) {
	var out bytes.Buffer
	d := newDemo(&command{stdout: &out}, 5)
	d.screen.live, d.screen.painter = true, false
	d.report = &quorum.Report{Nodes: make([]quorum.NodeReport, 5)}
	for i := range d.report.Nodes {
		d.report.Nodes[i].State = "abstaining"
		d.report.Nodes[i].Abstains = 30 * time.Second
	}
	d.number, d.fence = 1<<20, 1<<53-1
	d.done = [demoWorkers]int{99999, 99999, 99999, 99999}
	for range 20 {
		d.say(strings.Repeat("long ", 40) + "end")
	}
	d.screen.draw(d)
	picture := strings.ReplaceAll(out.String(), "\x1b[K", "")
	lines := strings.Split(strings.TrimSuffix(picture, "\n"), "\n")
	if len(lines) > 21 { // two more come at the end, and the shell's prompt
		t.Errorf("%d lines:\n%s", len(lines), picture)
	}
	tests.Narrow(t, picture, 80)
	tests.Says(t, picture, "end\n")
	out.Reset()
	d.screen.draw(d)
	up := "\x1b[21A"
	assert.That(t, strings.HasPrefix(out.String(), up), "the second picture does not begin with %q: %q", up, out.String()[:20])
}
