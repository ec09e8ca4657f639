package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
)

// olderCommit is the first whose programs say that they are v0.1.0.
const olderCommit = "0d29e66"

// olderProgram builds the command of that commit.
func olderProgram(t *testing.T) (path string) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, "redquorum")
	for _, step := range []struct{ what, script string }{
		{"no commit " + olderCommit + " here, as in a shallow clone", "cd ../.. && git archive -o $DIR/source.tar " + olderCommit},
		{"no tar", "cd $DIR && mkdir source && tar -xf source.tar -C source"},
		{"its modules cannot be downloaded", "cd $DIR/source && go mod download"},
		{"", "cd $DIR/source && go build -o $DIR/redquorum ./cmd/redquorum"},
	} {
		cmd := exec.Command("sh", "-c", step.script)
		cmd.Env = append(os.Environ(), "DIR="+dir)
		if out, err := cmd.CombinedOutput(); err != nil && step.what != "" {
			t.Skip(step.what)
		} else if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return path
}

// While programs are upgraded, and when an upgrade is taken back, old and new ones exclude each other, wait for each
// other and draw rising tokens. Each sees what the other holds.
func TestUpgrade(t *testing.T) {
	tests.NeedLong(t)
	older, newer := olderProgram(t), os.Args[0]
	urls := tests.Server(t).URL() + "," + tests.Server(t).URL() + "," + tests.Server(t).URL()
	run := func(path string, more ...string) *program {
		return startProgram(t, path, append([]string{"run", "--nodes", urls, "--name", "x", "--no-guard"}, more...)...)
	}
	t.Run("turns", func(t *testing.T) {
		dir := t.TempDir()
		script := "cd " + dir + " && mkdir held && echo $REDQUORUM_TOKEN >>tokens && sleep 0.1 && rmdir held || echo overlap >>tokens"
		var all []*program
		const turns = 5
		for range turns {
			all = append(all, run(older, "--", "sh", "-c", script), run(newer, "--", "sh", "-c", script))
		}
		for _, p := range all {
			p.exits(exitOK)
		}
		text, err := os.ReadFile(filepath.Join(dir, "tokens"))
		assert.Succeed(t, err)
		tokens, last := strings.Fields(string(text)), 0
		for _, token := range tokens {
			n, err := strconv.Atoi(token)
			assert.That(t, err == nil && n > last, "%s after %d", token, last)
			last = n
		}
		assert.That(t, len(tokens) == 2*turns, "%d turns of %d", len(tokens), 2*turns)
	})
	for _, c := range []struct{ title, holder, other string }{{"old holder", older, newer}, {"new holder", newer, older}} {
		t.Run(c.title, func(t *testing.T) {
			held := filepath.Join(t.TempDir(), "held")
			p := run(c.holder, "--", "sh", "-c", "touch "+held+"; read end")
			assert.Eventually(t, "the lock is held", func() bool { _, err := os.Stat(held); return err == nil })
			run(c.other, "--try", "--", "true").exits(exitHeld)
			startProgram(t, c.other, "status", "--nodes", urls, "--no-guard", "x").exits(exitOK, "held")
			waiting := run(c.other, "--", "true")
			_ = p.in.Close()
			p.exits(1) // of read
			waiting.exits(exitOK)
		})
	}
}
