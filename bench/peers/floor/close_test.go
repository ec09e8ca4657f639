package floor

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/node/redisserver"
)

// Unlock is back at the majority; nothing of it is lost when Close follows.
func TestCloseLeavesNoLock(t *testing.T) {
	if err := redisserver.Available(); err != nil {
		t.Skip(err)
	}
	servers, err := redisserver.StartN(3, redisserver.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var addrs []string
	for _, s := range servers {
		defer s.Close()
		addrs = append(addrs, s.Addr())
	}
	c, err := Dial(t.Context(), addrs)
	if err != nil {
		t.Fatal(err)
	}
	var locks []Held
	for i := range 500 {
		h, err := c.Lock(t.Context(), fmt.Sprint("lock", i), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		locks = append(locks, h)
	}
	// One server is slow to take what the others have confirmed.
	if err := servers[0].Stop(); err != nil {
		t.Fatal(err)
	}
	for _, h := range locks {
		if err := h.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	time.AfterFunc(100*time.Millisecond, func() { _ = servers[0].Cont() })
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: addrs[0]})
	defer client.Close()
	if left := client.Keys(t.Context(), "lock*").Val(); len(left) > 0 {
		t.Errorf("%d locks are left", len(left))
	}
}
