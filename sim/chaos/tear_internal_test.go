package chaos

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node/redisserver"
)

// A server cuts the torn command off, and comes back with what was before it.
func TestTornTail(t *testing.T) {
	s := tests.Servers(t, 1, redisserver.Config{AppendOnly: true})[0]
	dir := ""
	_ = admin(s, func(c *redis.Client) error {
		dir = c.ConfigGet(context.Background(), "dir").Val()["dir"]
		return c.Set(context.Background(), "x", "1", 0).Err()
	})
	disk := t.TempDir()
	assert.Succeed(t, copyDisk(dir, disk))
	assert.Succeed(t, (&world{}).fromDisk(s, disk))
	_ = admin(s, func(c *redis.Client) error {
		assert.Equal(t, c.Get(context.Background(), "x").Val(), "1", "it has")
		return nil
	})
	if said, _ := os.ReadFile(filepath.Join(dir, "output")); !strings.Contains(string(said), "runcated") {
		t.Errorf("it does not speak of a truncated file:\n%s", said)
	}
}
