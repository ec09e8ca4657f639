package main

import (
	"strings"
	"testing"
)

func TestBench(t *testing.T) {
	t.Setenv(actAsProgram, "1") // for the processes that it starts
	all := want(t, exitOK, "What to choose", "bench", "--n", "1,3", "--for", "50ms", "--rounds", "1", "--workload", "latency,handover")
	if strings.Contains(all, "failed") {
		t.Error(all)
	}
	want(t, exitOK, "BenchmarkCold/n=1/rtt=0s/contestant=redquorum 1 ", "bench", "--n", "1", "--for", "20ms", "--rounds", "1", "--workload", "cold", "--benchstat")
}

func TestBenchRefuses(t *testing.T) {
	want(t, exitUsage, "2 nodes survive the loss of no more nodes than 1 would", "bench", "--n", "2")
	want(t, exitError, "node 1, 127.0.0.1:1, cannot be used", "bench", "--nodes", "127.0.0.1:1", "--for", "20ms")
	want(t, exitOK, "usage: redquorum bench", "help", "bench")
	if all := want(t, exitUsage, "no password", "bench", "--nodes", "redis://u:secret@h:1"); strings.Contains(all, "secret") {
		t.Error("it shows the password")
	}
	if all := want(t, exitUsage, "", "bench", "redis://u:secret@h:1"); strings.Contains(all, "secret") {
		t.Error("it shows the password")
	}
	if all := want(t, exitUsage, "", "bench", "--n", "redis://u:secret@h:1"); strings.Contains(all, "secret") {
		t.Error("it shows the password")
	}
}
