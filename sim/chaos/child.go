package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/bits"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/live"
)

// A Seat is what a client's process knows when it opens its lock.
type Seat struct {
	Plan   *faults.Plan // stretched
	Client int
	Start  int     // how often the client was started before
	Nodes  []Place // that it was configured with
	Clock  clock.Clock
}

// A Place is where a node is.
type Place struct {
	Number   int    `json:"number"`
	Addr     string `json:"addr"`
	Database int    `json:"database"`
}

// Client is the whole of a client's process: it reads what to do from its standard input, says on
// its standard output that it is there, and returns when it is done, or when its parent is gone. open
// makes the client's lock. nil opens the one that the plan names.
func Client(ctx context.Context, in io.Reader, out io.Writer, open func(*Seat) (live.Library, error)) error {
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
	var b beginning
	if _, err := io.WriteString(out, ready); err != nil {
		return err
	}
	if err := from.Decode(&b); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_ = from.Decode(new(beginning)) // until the end
		cancel()
	}()
	c := newPlanned(p, o.Client, b.Begun)
	if open == nil {
		open = openPlanned
	}
	starts := o.Start
	again := func() (live.Library, error) {
		starts++
		return open(&Seat{p, o.Client, starts - 1, o.Nodes, c})
	}
	library, err := again()
	if err != nil {
		return err
	}
	diary := &diary{c: c, log: log, set: newSetClient(o.Store, o.Client, o.Start)}
	c.NewSignal().Wait(ctx, b.Begun)
	player := &live.Player{Plan: p, Client: o.Client, Start: o.Start, Library: library, Clock: c, True: c.Clock, Begun: b.Begun, Report: diary.write}
	if p.Lock.Client == faults.Redquorum {
		player.Open = again
	}
	player.Play(ctx)
	return nil
}

// openPlanned opens redquorum or textbook Redlock.
func openPlanned(s *Seat) (live.Library, error) {
	p, c := s.Plan, s.Clock
	if p.Lock.Client == faults.Plain {
		return newTextbook(s), nil
	}
	var nodes []node.Node
	for _, at := range s.Nodes {
		client := redis.NewClient(&redis.Options{Addr: at.Addr, DB: at.Database})
		n, err := redisnode.New(client, redisnode.Options{Name: fmt.Sprintf("n%d", at.Number+1), Clock: c})
		if err != nil {
			return nil, err
		}
		_ = client.Close() // the node has its own
		nodes = append(nodes, n)
	}
	options := live.Options(p, c)
	options.Quorum = cmp.Or(p.Lock.Need, len(nodes)/2+1)
	options.Drift = max(options.Drift, 1e-9) // 0 would be the default
	options.Random = clones(s)
	locker, err := quorum.New(nodes, options)
	if err != nil {
		return nil, err
	}
	return live.Redquorum(locker, c), nil
}

// clones returns the random numbers of a client that is a clone of another, nil of all others: these
// draw from the kernel.
func clones(s *Seat) func() uint64 {
	for i := range s.Plan.Events {
		e := &s.Plan.Events[i]
		if e.Verb != faults.Clone || !e.Procs.Clients.Has(s.Client) {
			continue
		}
		random := s.Plan.Stream(faults.OfEngine, bits.TrailingZeros64(uint64(e.Procs.Clients))+s.Start*faults.MaxClients)
		var mu sync.Mutex
		return func() uint64 {
			mu.Lock()
			defer mu.Unlock()
			return random.Next()
		}
	}
	return nil
}

// A diary is what a client's process has to say, a line for each entry. Its times are true ones.
type diary struct {
	c   *planned
	log *os.File
	set *setClient
}

func (d *diary) write(e sim.Entry) {
	e.At = d.c.at()
	if e.Until != 0 {
		e.Until = d.c.trueTime(d.c.begun.Add(e.Until)).Sub(d.c.begun)
	}
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

var _ clock.Clock = (*planned)(nil)
