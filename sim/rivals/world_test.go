package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/redquorum/redquorum/sim"
)

func bubbleOf(t *testing.T) bubble {
	return func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }
}

func TestTry(t *testing.T) {
	for _, s := range sim.Scenarios() {
		if want := os.Getenv("SC"); want != "" && !strings.Contains(want, s.ID) {
			continue
		}
		for name := range strings.SplitSeq(os.Getenv("LOCK"), ",") {
			t.Run(s.ID+name, func(t *testing.T) {
				o := contestantOf(name).scenario(bubbleOf(t), &s)
				fmt.Println(o)
				if o.result == nil {
					return
				}
				if os.Getenv("SC") != "" {
					for _, l := range o.result.Story(60) {
						fmt.Println(l)
					}
				}
				if os.Getenv("TRACE") != "" {
					for _, l := range o.result.Trace.Entries {
						fmt.Println(l)
					}
				}
			})
		}
	}
}
