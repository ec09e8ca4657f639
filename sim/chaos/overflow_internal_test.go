package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/sim/live"
)

// A reset has the server close the subscriber of one client, and no other. The client gets nothing
// of what the server had to send.
func TestServerClosesSubscriber(t *testing.T) {
	tests.NeedServer(t)
	t.Parallel()
	h := startHost(t, "nodes 1\nclients 2\n")
	var links []*link
	for range 2 {
		l := unseen(h.addr)
		assert.Succeed(t, l.open(new(faults.Plan), 0))
		t.Cleanup(l.close)
		links = append(links, l)
	}
	one, other, plain := dial(t, links[0]), dial(t, links[1]), dial(t, links[0])
	for _, c := range []*caller{one, other} {
		c.send("subscribe", "x")
		c.wants("subscribe x 1")
	}
	plain.send("ping", "there")
	plain.wants("there")
	begun := time.Now()
	links[0].strike(event(t, "reset c1-n1"), false)
	for _, c := range []*caller{one, plain} {
		if _, words, err := live.ReadMessage(c.from); err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("%v, %v", words, err)
		}
	}
	t.Logf("closed after %v", time.Since(begun))
	said, err := os.ReadFile(filepath.Join(h.dataDir(t.Context()), "output"))
	assert.Equal(t, strings.Count(string(said), "overcoming of output buffer limits"), 1, err, said)
	_ = h.admin(func(c *redis.Client) error {
		if n := field(c.Info(t.Context(), "stats").Val(), "client_output_buffer_limit_disconnections"); n != "1" && n != "" { // since Redis 7.2
			t.Errorf("by its own count the server has closed %s subscribers", n)
		}
		assert.Equal(t, c.Publish(t.Context(), "x", "0").Val(), 1)
		return nil
	})
	other.wants("message x 0")
}
