// Cache has readers that share a cache, and a writer that has it alone.
package main

import (
	"context"
	"fmt"
	"log"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/quorum"
)

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

	var price, currency string // two parts that belong together
	var readers, most, torn atomic.Int64
	read := func(context.Context, *quorum.Lease) error {
		n := readers.Add(1)
		defer readers.Add(-1)
		most.Store(max(most.Load(), n))
		before := price
		time.Sleep(20 * time.Millisecond)
		if before[:3] != currency {
			torn.Add(1)
		}
		return nil
	}
	write := func(to string) func(context.Context, *quorum.Lease) error {
		return func(context.Context, *quorum.Lease) error {
			price = to + " 10"
			time.Sleep(20 * time.Millisecond)
			currency = to
			return nil
		}
	}

	ctx := context.Background()
	do := func(work func(context.Context, *quorum.Lease) error, mode quorum.Option) {
		if err := locker.Do(ctx, "price", work, mode); err != nil {
			log.Fatal(err)
		}
	}
	do(write("EUR"), quorum.WithWrite())
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			for range 5 {
				do(read, quorum.WithRead())
			}
		})
	}
	for _, to := range []string{"USD", "GBP", "JPY"} {
		time.Sleep(30 * time.Millisecond)
		do(write(to), quorum.WithWrite())
		fmt.Println("the writer has changed the cache to", to)
	}
	all.Wait()
	fmt.Printf("readers at the same time: %t; readers that saw half of a change: %d\n", most.Load() > 1, torn.Load())
}
