package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node/nodetest"
)

func TestCompare(t *testing.T) {
	tests.NeedServer(t)
	err := with(func(all ...nodetest.System) error { return compare(500, time.Second, all...) })
	if err != nil {
		t.Error(err)
	}
}

// A system that answers otherwise is reported by its name, with the line.
func TestPlay(t *testing.T) {
	tests.NeedServer(t)
	name := filepath.Join(t.TempDir(), "found.txt")
	const text = "modes exclusive\n\n# A rule.\nacquire n by a token=5 ttl=7s -> granted\nadvance 2s\ninspect n -> held by a ttl=%s fence=5\n"
	for ttl, want := range map[string]string{"5s": "", "4s": "model: line 6: inspect n"} {
		if err := os.WriteFile(name, fmt.Appendf(nil, text, ttl), 0o600); err != nil {
			t.Fatal(err)
		}
		err := with(func(all ...nodetest.System) error { return playFile(name, all...) })
		if got := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %v", ttl, err)
		}
	}
}
