package main

import (
	"net"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
)

// The doctor and status see of a primary and its replicas what programs see.
func TestDoctorOfAPrimaryWithReplicas(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	primary := tests.Server(t, "--min-replicas-to-write", "2", "--min-replicas-max-lag", "2", "--repl-ping-replica-period", "1", "--repl-diskless-sync-delay", "0")
	host, port, _ := net.SplitHostPort(primary.Addr())
	follows := []string{"--replicaof", host, port}
	a, b := tests.Server(t, follows...), tests.Server(t, append(follows, "--replica-priority", "0")...)
	url := primary.URL() + "?replicas=2"
	var r diagnosis
	assert.Eventually(t, "replicas that have followed for long enough", func() bool {
		r = doctor(t, grownUp, url)
		return r.Nodes[0].Abstains == 0 && r.has(primary.Addr(), "info", "1 of 2 replicas confirmed") || r.has(primary.Addr(), "info", "2 of 2 replicas confirmed")
	})
	its := primary.Addr() + ": "
	tests.Says(t, r.lines(), "info "+its+"replica "+a.Addr()+": online, ", "info "+its+"replica "+b.Addr()+" has priority 0",
		"info "+its+"the primary is now "+primary.Addr(),
		"warning "+its+"min-replicas-to-write is 2, and locks need 1")
	tests.Says(t, doctor(t, grownUp, a.URL()+"?replicas=2").lines(), "is a replica of "+primary.Addr(), "!the primary is now")
	r = doctor(t, grownUp, primary.URL())
	tests.Says(t, r.lines(), "warning "+its+"has 2 connected replica")
	tests.Says(t, r.advice("connected replica"), "?replicas=2")
	tests.Says(t, doctor(t, grownUp, primary.URL()+"?replicas=1").lines(), "unsafe "+its+"has 2 replicas, but its URL says replicas=1")

	b.Kill()
	assert.Eventually(t, "a replica is away", func() bool {
		return doctor(t, grownUp, url).has(primary.Addr(), "warning", "1 of 2 replicas follow it; it needs 1")
	})
	client := clientOf(t, primary.Addr())
	assert.Succeed(t, client.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err())
	assert.Succeed(t, a.Stop())
	_, stdout, _ := redquorum(t, "status", "--nodes", url, "job")
	tests.Says(t, strings.Join(strings.Fields(stdout), " "), "0 of 2 replicas confirm them; it needs 1")
	assert.Eventually(t, "too few replicas", func() bool {
		return doctor(t, grownUp, url).has(primary.Addr(), "unsafe", "0 of 2 replicas follow it; it needs 1")
	})
	const refusal = "NOREPLICAS Not enough good replicas to write."
	if do := remedyFor(refusal, 2); !strings.Contains(do, "may be 1 at most") || remedyFor(refusal, 0) == do {
		t.Errorf("%s: %s", refusal, do)
	}
}

// advice is what to do about a finding.
func (d diagnosis) advice(finding string) string {
	for _, f := range d.Findings {
		if strings.Contains(f.Finding, finding) {
			return f.Do
		}
	}
	return ""
}
