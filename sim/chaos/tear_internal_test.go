package chaos

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node/redisserver"
)

// A server cuts the torn command off, and comes back with what was before it.
func TestTornTail(t *testing.T) {
	tests.NeedServer(t)
	s, err := redisserver.Start(redisserver.Config{AppendOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	dir := ""
	_ = admin(s, func(c *redis.Client) error {
		dir = c.ConfigGet(context.Background(), "dir").Val()["dir"]
		return c.Set(context.Background(), "x", "1", 0).Err()
	})
	disk := t.TempDir()
	if err := copyDisk(dir, disk); err != nil {
		t.Fatal(err)
	}
	if err := (&world{}).fromDisk(s, disk); err != nil {
		t.Fatal(err)
	}
	_ = admin(s, func(c *redis.Client) error {
		if have := c.Get(context.Background(), "x").Val(); have != "1" {
			t.Errorf("it has %q", have)
		}
		return nil
	})
	if said, _ := os.ReadFile(filepath.Join(dir, "output")); !strings.Contains(string(said), "runcated") {
		t.Errorf("it does not speak of a truncated file:\n%s", said)
	}
}
