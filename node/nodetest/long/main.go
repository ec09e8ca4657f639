// Long is nodetest's comparison of the model, miniredis and a Redis server at length: a
// test makes some ten thousands of operations, this program as many as you ask for. It
// starts the redis-server that it finds.
//
//	go run ./node/nodetest/long --ops 1000000
//
// It shows how far it is, and at the end how often each command came to each
// outcome. At the first difference it ends with status 1, the shortest sequence
// that it finds to show it, as a rule, and the seed to draw it again.
//
//	go run ./node/nodetest/long --play FILE
//
// plays the rules of a file on each of the three, and says which of them keep them. Times of
// milliseconds are for the first two alone.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/nodetest"
	"github.com/redquorum/redquorum/node/nodetest/systems"
	"github.com/redquorum/redquorum/node/redisserver"
)

func main() {
	fs := flag.NewFlagSet("long", flag.ExitOnError)
	ops := fs.Int("ops", 1_000_000, "about how many `operations` to compare")
	seed := fs.Uint64("seed", 0, "the `number` that a difference was reported with; 0 is a new one")
	play := fs.String("play", "", "play the rules of this `file` instead")
	every := fs.Duration("every", 10*time.Second, "how often to show how far it is")
	_ = fs.Parse(os.Args[1:]) // it exits by itself

	// Rapid takes its settings from the flags of a test.
	testing.Init()
	_ = flag.CommandLine.Parse([]string{"-rapid.nofailfile", "-rapid.seed=" + strconv.FormatUint(*seed, 10)})

	err := with(func(all ...nodetest.System) error {
		if *play != "" {
			return playFile(*play, all...)
		}
		return compare(*ops, *every, all...)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// with does something with the model, miniredis and a Redis server.
func with(do func(all ...nodetest.System) error) error {
	server, err := redisserver.Start(redisserver.Config{})
	if err != nil {
		return err
	}
	defer server.Close()
	redis, done, err := systems.Redis(server)
	if err != nil {
		return err
	}
	defer done()
	miniredis, done, err := systems.Miniredis()
	if err != nil {
		return err
	}
	defer done()
	model := systems.Model()
	defer model.Node.Close()
	return do(model, miniredis, redis)
}

// playFile plays the rules of a file on each system.
func playFile(name string, all ...nodetest.System) (errs error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	for _, s := range all {
		err := nodetest.Play(s, string(text))
		if err == nil {
			fmt.Println(s.Name, "keeps them")
		}
		errs = errors.Join(errs, err)
	}
	return errs
}

func compare(ops int, every time.Duration, all ...nodetest.System) error {
	model := all[0]
	counted := &counting{Node: model.Node}
	model.Node = counted

	var t report
	over := make(chan struct{})
	begun := time.Now()
	go func() {
		defer close(over)
		nodetest.Differential(&t, ops, append([]nodetest.System{model}, all[1:]...)...)
	}()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	soFar := func() (n int64, gone time.Duration, rate float64) {
		n, gone = counted.n.Load(), time.Since(begun)
		return n, gone.Round(time.Second), float64(n) / gone.Seconds()
	}
	for {
		select {
		case <-ticker.C:
			n, gone, rate := soFar()
			fmt.Printf("%v: %d of %d operations, %.0f/s\n", gone, n, ops, rate)
		case <-over:
			n, gone, rate := soFar()
			if t.failed.Load() {
				return fmt.Errorf("failed after %d operations, in %v", n, gone)
			}
			fmt.Printf("no difference in %d operations, in %v: %.0f/s\n", n, gone, rate)
			return nil
		}
	}
}

// counting counts a node's commands.
type counting struct {
	node.Node
	n atomic.Int64
}

func (c *counting) Submit(cmd node.Command, reply func(node.Reply)) {
	c.n.Add(1)
	c.Node.Submit(cmd, reply)
}

// A report is what a test is to Differential, outside of a test.
type report struct {
	rapid.TB // of what is not here nothing is used
	failed   atomic.Bool
}

func (r *report) Helper()                        {}
func (r *report) Name() string                   { return "long" }
func (r *report) Log(args ...any)                { fmt.Println(args...) }
func (r *report) Logf(format string, a ...any)   { fmt.Printf(format+"\n", a...) }
func (r *report) Fail()                          { r.failed.Store(true) }
func (r *report) Failed() bool                   { return r.failed.Load() }
func (r *report) FailNow()                       { r.Fail(); runtime.Goexit() }
func (r *report) Error(args ...any)              { r.Log(args...); r.Fail() }
func (r *report) Errorf(format string, a ...any) { r.Logf(format, a...); r.Fail() }
func (r *report) Fatal(args ...any)              { r.Log(args...); r.FailNow() }
