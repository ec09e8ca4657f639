// Redquorum takes locks on a majority of independent Redis masters, from the
// command line: it runs a command under a lock, shows who holds one, and says
// whether servers are fit to hold any.
package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

func main() {
	redis.SetLogger(&logging.VoidLogger{}) // what goes wrong is in the verbs' own output
	if len(os.Args) > 1 && os.Args[1] == wardenVerb {
		os.Exit(wardenMain(os.Args[2:]))
	}
	code := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)
	// A shell ends its loop only if the signal has killed its child. Process 1 of a
	// container cannot be killed so.
	if code == exitInterrupted && os.Getpid() != 1 && !signal.Ignored(os.Interrupt) {
		signal.Reset(os.Interrupt)
		_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
		time.Sleep(time.Second) // until it is delivered
	}
	os.Exit(code)
}

// notIgnored leaves out signals that nohup, or a shell that runs a script's background,
// has this process ignore.
func notIgnored(signals ...os.Signal) []os.Signal {
	return slices.DeleteFunc(signals, signal.Ignored)
}
