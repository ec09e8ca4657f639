package redisnode_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/internal/assert"
)

// A client that cannot connect, as after a test has killed its server, prints nothing next to the
// failures of tests.
func TestClientsAreQuiet(t *testing.T) {
	t.Parallel()
	const asChild = "REDQUORUM_TEST_DIAL"
	if os.Getenv(asChild) != "" {
		c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, MinIdleConns: 5})
		defer c.Close()
		assert.That(t, c.Ping(t.Context()).Err() != nil, "somebody answers at port 1")
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^TestClientsAreQuiet$")
	child.Env = append(os.Environ(), asChild+"=1")
	if out, err := child.CombinedOutput(); err != nil || strings.Contains(string(out), "redis: ") {
		t.Errorf("%v: %s", err, out)
	}
}
