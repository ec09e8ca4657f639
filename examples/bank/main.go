// Bank moves money between accounts. Each transfer locks its two accounts as one lock, so
// no two transfers wait for each other, whatever their order.
package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/quorum"
)

const accounts = 4

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

	// Only the locks keep two tellers from one account. In a database each row would have
	// a fence, too: see docs/fencing.md.
	var balance [accounts]int
	for i := range balance {
		balance[i] = 100
	}
	name := func(i int) string { return fmt.Sprint("account/", i) }
	var tellers sync.WaitGroup
	for range 5 {
		tellers.Go(func() {
			for range 10 {
				from := rand.IntN(accounts)
				to := (from + 1 + rand.IntN(accounts-1)) % accounts
				err := locker.Do(context.Background(), name(from), func(context.Context, *quorum.Lease) error {
					was, had := balance[from], balance[to]
					time.Sleep(time.Millisecond)
					balance[from], balance[to] = was-5, had+5
					return nil
				}, quorum.WithNames(name(to)))
				if err != nil {
					log.Fatal(err)
				}
			}
		})
	}
	tellers.Wait()
	sum := 0
	for _, b := range balance {
		sum += b
	}
	fmt.Printf("after 50 transfers there are %d in all accounts together\n", sum)
}
