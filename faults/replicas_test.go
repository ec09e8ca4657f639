package faults_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
)

// replicated has what is of primaries and replicas.
const replicated = `nodes 6
clients 2
lock replicas=2
at 1ms sever n1 n2,n3 for 1s
at 2ms promote n2
at 3ms demote n1,n3 n2
at 4ms lead c* n2
at 5ms crash n4 empty for 10ms
`

func TestReplicas(t *testing.T) {
	p := parsed(t, replicated)
	roundTrip(t, p)
	e := p.Events
	if p.Lock.Replicas != 2 || p.Sites() != 2 || p.Need() != 2 || p.Members(4) != faults.Of(3, 4, 5) ||
		e[0].Source != faults.Of(1, 2) || e[0].For != time.Second || e[2].Source != faults.Of(1) || e[3].Source != faults.Of(1) {
		t.Errorf("read as:\n%s", p)
	}
	for line, want := range map[string]string{
		"at 1ms sever n1":            "want the servers at the other end",
		"at 1ms sever n1 n4":         "n1 is with n2,n3",
		"at 1ms sever n1 n1,n2":      "severed from itself",
		"at 1ms demote n1 n4":        "n1 is with n2,n3",
		"at 1ms demote n1 empty":     "want another server of the same node",
		"at 1ms lead c1 n1,n2":       "want one server",
		"at 1ms lead c1 n9":          "there is no n9",
		"at 1ms crash n1 replica":    "promote another one",
		"at 0s view c1 n1":           "about nodes that are one server",
		"at 0s alias n1,n2":          "about nodes that are one server",
		"at 1ms break c1 x":          "about nodes that are one server",
		"work joint=1%":              "for nodes that are one server",
		"lock need=3":                "more than half of 2 nodes",
		"at 1ms promote n1 for 10ms": "cannot have \"for\"",
	} {
		assert.Says(t, assert.ErrorOf(faults.Parse("redquorum plan 1\n"+replicated+line+"\n")), want, line)
	}
	for line, want := range map[string]string{
		"lock replicas=3":    "nodes is 5, and lock replicas 3; want a multiple of 4 nodes",
		"at 1ms sever n1 n2": "want lock replicas=2, say",
		"at 1ms lead c1 n2":  "want lock replicas=2, say",
	} {
		assert.Says(t, assert.ErrorOf(faults.Parse("redquorum plan 1\n"+line+"\n")), want, line)
	}
	// A plan that has none is written as it always was.
	if text := faults.New(3, 1).String(); strings.Contains(text, "replicas") {
		t.Errorf("written:\n%s", text)
	}
}

// Drawn plans with failovers are valid. Those without are what they were.
func TestGenerateReplicas(t *testing.T) {
	failovers := 0
	for seed := range uint64(300) {
		p := faults.Generate(seed, faults.Profile{Replicas: true, Machines: seed%2 == 0})
		if err := p.Check(); err != nil {
			t.Errorf("seed %d: %v\n%s", seed, err, p)
		}
		for _, e := range p.Events {
			if e.Verb == faults.Promote {
				failovers++
			}
		}
	}
	assert.That(t, failovers >= 300, "%d failovers", failovers)
}
