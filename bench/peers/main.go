// Peers measures redquorum and its rivals, on the same servers and in the same run:
//
//	cd bench/peers && go run . --spawn --n 5
//
// It has the flags of redquorum bench, and --contestants. It is a Go module of its own,
// so that nobody who uses redquorum gets the rivals as well.
//
// # The contestants
//
// All of them lock names for the time that the benchmark asks for, on the same Redis
// masters, and wait for a name as they do by themselves. If a contestant lacks something,
// it is added as its users would add it; nothing else is added.
//
//   - redquorum, with all its features on: see [bench.Redquorum].
//   - redsync v4.18.1 over go-redis v9.23.0, each with its defaults: Lock and Unlock wait
//     for all nodes, and a waiter tries again after 50 to 250 ms. The bound of 32 tries
//     is lifted, as a caller is to wait until it is served. Behind slow links the pool
//     has a connection for each caller: with the default, ten for each processor, callers
//     would wait for each other's round trips. Without such links more connections are
//     slower, and it is the default. Keep has a goroutine for each lock, which extends it
//     at each third of its time, and again if that fails: redsync leaves that to its
//     user.
//   - redsync-ff is the same with WithFailFast, redsync's only way to be back at the
//     majority.
//   - redsync-auto is redsync over go-redis's AutoPipeline, which sends the commands of
//     all callers in few pipelines.
//   - rueidislock v1.0.79. By itself it puts 2q-1 keys for each lock on one deployment,
//     and has the lock with q of them. Here key i goes to master i, through its
//     ClientBuilder, which makes this the work of Redlock. NoLoopTracking is on, its
//     documented way to be faster. TryNextAfter is 1 s: with the default of 20 ms a slow
//     moment is taken for a broken node, and with NoLoopTracking a waiter that met one
//     may never wake. Others may not, either: eight callers of two lockers that took
//     turns for one name slept forever in 2 runs of 15, and in none of 40 without
//     NoLoopTracking. Therefore a hung node costs it this second, and not the default's
//     20 ms. It renews every lock; so Lock is Keep. The time of a lock is that of its
//     locker: there is one for each.
package main

import (
	"context"
	"os"

	"github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/redquorum/redquorum/bench"
	"github.com/redquorum/redquorum/internal/cli"
)

var contestants = []bench.Contestant{
	bench.Redquorum(),
	redsyncLock("redsync", "v4.18.1 over go-redis v9.23.0, defaults, behind links a connection for each caller, tries without end", plain),
	redsyncLock("redsync-ff", "as redsync, with WithFailFast(true)", plain, redsync.WithFailFast(true)),
	redsyncLock("redsync-auto", "as redsync, over go-redis's AutoPipeline with its defaults", pipelined),
	rueidisLock(),
}

func main() {
	redis.SetLogger(&logging.VoidLogger{}) // what goes wrong is in the report
	os.Exit(cli.Run(context.Background(), bench.Command(bench.Program{
		Name:        "peers",
		Contestants: contestants,
		Base:        "redsync",
	}), os.Args[1:], os.Stdout, os.Stderr))
}
