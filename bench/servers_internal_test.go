package bench

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/internal/tests"
)

// Each node is a cluster of its own, and all its masters are looked after.
func TestClusters(t *testing.T) {
	t.Parallel()
	tests.NeedServer(t)
	f, err := newField(t.Context(), &Config{Servers: Spawned, Masters: 2}, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if len(f.addrs) != 2 || len(f.clients) != 4 || f.cpu(t.Context(), 2) <= f.cpu(t.Context(), 1) {
		t.Errorf("nodes at %v, %d masters, which have used %v, those of the first %v", f.addrs, len(f.clients), f.cpu(t.Context(), 2), f.cpu(t.Context(), 1))
	}
	const keys = 50
	for _, addr := range f.addrs {
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}})
		defer c.Close()
		for i := range keys {
			if err := c.Set(t.Context(), fmt.Sprintf("some-%d", i), 1, 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, c := range f.clients {
		if n := c.DBSize(t.Context()).Val(); n == 0 || n == keys {
			t.Errorf("master %d has %d keys", i, n)
		}
	}
	for _, nodes := range []int{1, 2} { // first those of one node, then those of the other
		if n, err := f.clear(t.Context(), nodes, "some-", 0); n != keys || err != nil {
			t.Errorf("%d keys were left on the first %d nodes, %v", n, nodes, err)
		}
	}
}
