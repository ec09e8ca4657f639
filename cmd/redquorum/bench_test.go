package main

import (
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/tests"
)

func TestBench(t *testing.T) {
	tests.NeedSeconds(t)
	t.Setenv(actAsProgram, "1") // for the processes that it starts
	status, stdout, stderr := redquorum(t, "bench", "--n", "1,3", "--for", "50ms", "--rounds", "1", "--workload", "latency,handover")
	all := stdout + stderr
	switch {
	case strings.Contains(all, "no answer in time"):
		t.Log("this machine is too busy for the 500ms that a command may take: " + all)
	case status != exitOK || strings.Contains(all, "failed"):
		t.Errorf("status %d:\n%s", status, all)
	}
	if !strings.Contains(stdout, "What to choose") {
		t.Error("no recommendation:\n" + all)
	}
}

func TestBenchRefuses(t *testing.T) {
	want(t, exitUsage, "2 nodes survive the loss of no more nodes than 1 would", "bench", "--n", "2")
	want(t, exitError, "node 1, 127.0.0.1:1, cannot be used", "bench", "--nodes", "127.0.0.1:1", "--for", "20ms")
	if all := want(t, exitUsage, "percent-encoded", "bench", "--nodes", "redis://u:sec/ret@h:1"); strings.Contains(all, "secret") {
		t.Error("it shows the password")
	}
	if all := want(t, exitUsage, "", "bench", "redis://u:secret@h:1"); strings.Contains(all, "secret") {
		t.Error("it shows the password")
	}
	if all := want(t, exitUsage, "", "bench", "--n", "redis://u:secret@h:1"); strings.Contains(all, "secret") {
		t.Error("it shows the password")
	}
}
