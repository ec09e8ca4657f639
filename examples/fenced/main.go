// Fenced has a holder that pauses past its lease. The resource refuses its late write, as
// it has seen a higher token.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/quorum"
)

// A store remembers the highest token. In production it is a database.
type store struct {
	mu    sync.Mutex
	value string
	fence node.Token
}

var errLate = errors.New("a newer holder was here")

func (s *store) write(value string, token node.Token) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.fence {
		return errLate
	}
	s.value, s.fence = value, token
	return nil
}

func main() {
	servers, err := embedded.Start(3) // in production: redisnode.Dial("redis://10.0.0.1:6379", ...)
	if err != nil {
		log.Fatal(err)
	}
	defer servers.Close()
	locker, err := quorum.New(servers.Nodes(), quorum.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	ctx, orders := context.Background(), &store{}
	slow, err := locker.Lock(ctx, "orders/42", quorum.WithFixedLease(200*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the first holder pauses")
	time.Sleep(300 * time.Millisecond) // as a garbage collection or a suspended machine would
	err = locker.Do(ctx, "orders/42", func(_ context.Context, lease *quorum.Lease) error {
		return orders.write("shipped", lease.Token())
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the second holder writes:", orders.value)
	fmt.Println("the first holder's lease is over:", slow.Remaining() == 0)
	fmt.Println("the first holder writes all the same:", orders.write("canceled", slow.Token()))
	fmt.Println("the order is", orders.value)
}
