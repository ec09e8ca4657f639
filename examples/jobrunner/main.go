// Jobrunner starts a job on three hosts in each interval, by clocks that differ. It runs
// once.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/quorum"
)

const (
	interval  = 600 * time.Millisecond
	intervals = 3
	wait      = 100 * time.Millisecond
	late      = 60 * time.Millisecond  // the difference between two clocks
	minHold   = 400 * time.Millisecond // more than the difference of all clocks and the wait, less than the interval
)

func main() {
	servers, err := embedded.Start(3) // in production: redisnode.Dial("redis://10.0.0.1:6379", ...)
	if err != nil {
		log.Fatal(err)
	}
	defer servers.Close()
	begin := time.Now().Add(100 * time.Millisecond)
	var hosts sync.WaitGroup
	for i, name := range []string{"anna", "bert", "cleo"} {
		nodes, err := servers.Dial() // as another host has its own
		if err != nil {
			log.Fatal(err)
		}
		locker, err := quorum.New(nodes, quorum.Options{})
		if err != nil {
			log.Fatal(err)
		}
		defer locker.Close()
		hosts.Go(func() {
			for n := range intervals {
				time.Sleep(time.Until(begin.Add(time.Duration(n)*interval + time.Duration(i)*late)))
				start(locker, name, n+1)
			}
		})
	}
	hosts.Wait()
}

// start runs the job, unless another host does, or has.
func start(locker *quorum.Locker, host string, n int) {
	err := locker.Do(context.Background(), "report", func(context.Context, *quorum.Lease) error {
		fmt.Printf("interval %d: %s runs the job\n", n, host) // it takes no time at all
		return nil
	}, quorum.WithWait(wait), quorum.WithMinHold(minHold))
	switch {
	case errors.Is(err, quorum.ErrHeld):
		fmt.Printf("interval %d: %s has nothing to do\n", n, host)
	case err != nil:
		log.Print(err)
	}
}
