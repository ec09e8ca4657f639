// Leader has three hosts that elect a leader. It leads for a while and resigns; the next
// one leads.
package main

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/quorum"
)

func main() {
	servers, err := embedded.Start(3) // in production: redisnode.Dial("redis://10.0.0.1:6379", ...)
	if err != nil {
		log.Fatal(err)
	}
	defer servers.Close()
	var hosts sync.WaitGroup
	for _, name := range []string{"anna", "bert", "cleo"} {
		nodes, err := servers.Dial() // as another host has its own
		if err != nil {
			log.Fatal(err)
		}
		locker, err := quorum.New(nodes, quorum.Options{Label: name})
		if err != nil {
			log.Fatal(err)
		}
		defer locker.Close()
		hosts.Go(func() {
			campaign := election.New(locker, "scheduler", election.Options{})
			err := campaign.Run(context.Background(), func(ctx context.Context, lease *quorum.Lease) error {
				return lead(ctx, campaign, name)
			})
			if err != nil {
				log.Print(err)
			}
		})
	}
	hosts.Wait()
}

// lead returns when the leadership is lost: Run then campaigns again.
func lead(ctx context.Context, campaign *election.Election, name string) error {
	leader, err := campaign.Leader(ctx) // what a follower sees
	if err != nil {
		return err
	}
	fmt.Printf("%s leads, and the others see %s\n", name, leader.Identity)
	select {
	case <-time.After(300 * time.Millisecond): // the work
		fmt.Printf("%s resigns\n", name)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
