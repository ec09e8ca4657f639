package main

import (
	"strings"
	"testing"
)

// The note of a lock is shown to all who ask for it, on real servers, and to those who do not get it.
func TestNote(t *testing.T) {
	t.Parallel()
	urls := strings.Join(serverAddrs(t), ",")
	p := start(t, holdOn(urls, "--no-guard --label worker --note job-42", "a")...)
	p.says("holding a")
	for _, args := range [][]string{{"status", "a"}, {"status", "a", "--json"}, {"list"}, {"list", "--json"}} {
		if out := want(t, exitOK, "job-42", append(args, "--nodes", urls, "--no-guard")...); !strings.Contains(out, "worker") {
			t.Error(out)
		}
	}
	if out := ends(t, exitHeld, holdOn(urls, "--no-guard --try", "a")...); !strings.Contains(out, "(worker: job-42)") {
		t.Error(out)
	}
	want(t, exitOK, `"notes":{"`, "status", "a", "--json", "--nodes", urls, "--no-guard")
	want(t, exitUsage, "--note", append(holdOn(urls, "--no-guard", "b"), "--note", "two\nlines")...)
}
