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
	succeed(t, err)
	scripts := regexp.MustCompile("(?s)```lua\n(.*?)```").FindAllSubmatch(page, -1)
	equal(t, len(scripts), 1, "scripts in docs/fencing.md")
	options, err := redis.ParseURL(servers(t, 1)[0].URL())
	succeed(t, err)
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
		n, err := script.Run(t.Context(), client, []string{"order"}, c.token, written).Int64()
		ensure(t, n == c.want && err == nil, "token %d: %d, %v", c.token, n, err)
		value, err := client.HGet(t.Context(), "order", "value").Result()
		ensure(t, value == c.value && err == nil, "after token %d: %q, %v; want %q", c.token, value, err, c.value)
	}
}
