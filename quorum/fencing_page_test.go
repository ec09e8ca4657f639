package quorum_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/redis/go-redis/v9"
)

// The script of docs/fencing.md refuses lower tokens, on Redis itself. Its other statements are
// tested in contrib/fencesql and contrib/fencecheck.
func TestFencingScript(t *testing.T) {
	page, err := os.ReadFile("../docs/fencing.md")
	if err != nil {
		t.Fatal(err)
	}
	scripts := regexp.MustCompile("(?s)```lua\n(.*?)```").FindAllSubmatch(page, -1)
	if len(scripts) != 1 {
		t.Fatalf("docs/fencing.md has %d scripts, want 1", len(scripts))
	}
	options, err := redis.ParseURL(servers(t, 1)[0].URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	script := redis.NewScript(string(scripts[0][1]))
	for _, c := range []struct {
		token, want int64
		value       string
	}{{7, 1, "a"}, {6, 0, "a"}, {7, 1, "b"}, {1<<53 - 2, 1, "c"}, {1<<53 - 1, 1, "d"}, {1<<53 - 2, 0, "d"}, {8, 0, "d"}} {
		written := c.value
		if c.want == 0 {
			written = "late"
		}
		if n, err := script.Run(t.Context(), client, []string{"order"}, c.token, written).Int64(); n != c.want || err != nil {
			t.Errorf("token %d: %d, %v", c.token, n, err)
		}
		if value, err := client.HGet(t.Context(), "order", "value").Result(); value != c.value || err != nil {
			t.Errorf("after token %d: %q, %v; want %q", c.token, value, err, c.value)
		}
	}
}
