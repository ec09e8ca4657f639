package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/bits"
	"os"
	"os/signal"
	"syscall"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/live"
)

// Client is the whole of a client's process: it reads what to do from its standard input,
// says on its standard output that it is there, and returns when it is done, or when its
// parent is gone. open makes the client's lock. nil opens the one that the plan names.
func Client(ctx context.Context, in io.Reader, out io.Writer, open func(*live.Seat) (live.Library, error)) error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) // the parent decides
	var o order
	from := json.NewDecoder(in)
	if err := from.Decode(&o); err != nil {
		return err
	}
	p, err := faults.Parse(o.Plan)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer log.Close()
	var begun clock.Instant
	if _, err := io.WriteString(out, ready); err != nil {
		return err
	}
	if err := from.Decode(&begun); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_ = from.Decode(new(any)) // until the end
		cancel()
	}()
	c := live.NewClock(p, o.Client, begun, clock.System())
	if open == nil {
		open = openPlanned
	}
	starts := o.Start
	again := func() (live.Library, error) {
		starts++
		return open(&live.Seat{Plan: p, Client: o.Client, Start: starts - 1, Nodes: o.Nodes, Clock: c, Life: ctx,
			Random: clones(p, o.Client, starts-1)})
	}
	library, err := again()
	if err != nil {
		return err
	}
	diary := &diary{log: log, set: newSetClient(o.Store, o.Client, o.Start)}
	c.NewSignal().Wait(ctx, begun)
	player := &live.Player{Plan: p, Client: o.Client, Start: o.Start, Library: library, Clock: c, Begun: begun,
		Report: diary.write}
	if p.Lock.Client == faults.Redquorum {
		player.Open = again
	}
	player.Play(ctx)
	return nil
}

// openPlanned opens redquorum or textbook Redlock.
func openPlanned(s *live.Seat) (live.Library, error) {
	if s.Plan.Lock.Client == faults.Plain {
		return newTextbook(s), nil
	}
	return live.OpenRedquorum(s)
}

// clones returns the random numbers of a client that is a clone of another, nil of all
// others: these draw from the kernel.
func clones(p *faults.Plan, client, start int) func() uint64 {
	for i := range p.Events {
		if e := &p.Events[i]; e.Verb == faults.Clone && e.Procs.Clients.Has(client) {
			return live.Draw(p, bits.TrailingZeros64(uint64(e.Procs.Clients)), start)
		}
	}
	return nil
}

// A diary is what a client's process has to say, a line for each entry.
type diary struct {
	log *os.File
	set *setClient
}

func (d *diary) write(e sim.Entry) {
	line, err := json.Marshal(e)
	if err == nil {
		_, err = d.log.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) // its parent is to know
	}
	d.set.sees(&e)
}
