package main

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"fmt"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
)

func run(t *testing.T, p *faults.Plan, c *contestant) (r *sim.Result, lacks []string) {
	synctest.Test(t, func(*testing.T) { r, lacks = carryOut(p, c) })
	return r, lacks
}

func TestTry(t *testing.T) {
	for _, s := range sim.Scenarios() {
		if want := os.Getenv("SC"); want != "" && !strings.Contains(want, s.ID) {
			continue
		}
		name := os.Getenv("LOCK")
		c := contestantOf(name)
		p := s.Plan(sim.Variants[len(sim.Variants)-1])
		t.Run(s.ID, func(t *testing.T) {
			t0 := time.Now()
			r, lacks := run(t, p, c)
			var v any = ""
			if w := r.Worst(); w != nil { v = w }
			fmt.Printf("%s %-40s %-8s %v %v %v\n", s.ID, s.Title, r.Verdict, v, lacks, time.Since(t0).Round(time.Millisecond))
			if os.Getenv("SC") != "" {
				for _, l := range r.Story(60) { fmt.Println(l) }
			}
			if os.Getenv("TRACE") != "" {
				for _, l := range r.Trace.Entries { fmt.Println(l) }
			}
		})
	}
}
