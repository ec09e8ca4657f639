package pipes

import (
	"context"
	"fmt"
	"math/bits"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/live"
)

// Redquorum is this project's lock over redisnode and go-redis.
var Redquorum = live.Lock{Title: "redquorum", Open: live.OpenRedquorum, Key: func(name string) string { return name },
	Slack: time.Microsecond}

type world struct {
	p        *faults.Plan
	lock     *live.Lock
	clock    clock.Clock
	zero     clock.Instant // when the plan begins, by clock
	begun    time.Time     // and about then by the machine's
	commands live.Commands
	record   live.Record

	nodes   []at
	links   [][]*link // by client and node
	network context.Context
	tasks   sync.WaitGroup // of the network

	mu       sync.Mutex
	entries  []sim.Entry
	messages int
	clients  []*process
	playing  sync.WaitGroup
	lacks    []string
}

// An at is where a node is: several nodes may share a server.
type at struct {
	redis *redis
	db    int
}

type process struct {
	player *live.Player
	kill   context.CancelFunc
	faults.Process
	starts int
}

// Run carries out a plan, and judges it. lacks is what the lock does not have.
func Run(p *faults.Plan, lock *live.Lock) (r *sim.Result, lacks []string) {
	w := &world{p: p, lock: lock, clock: clock.Runtime(), begun: time.Now(),
		record: live.Record{Exact: true, Prefix: lock.Prefix}}
	w.zero = w.clock.Now()
	network, unplug := context.WithCancel(context.Background())
	w.network = network
	w.build()
	live.Strike(network, w.clock, w.zero, p, w.report, w.strike, func() {
		for i, c := range w.clients {
			if !c.Dead && c.player == nil {
				w.start(i)
			}
		}
	})
	live.Calm(p, w.report, w.now, w.heal)
	w.playing.Wait()
	time.Sleep(live.Expiry(p))
	for _, s := range w.servers() {
		s.mu.Lock()
		s.tick()
		s.tell()
		s.mu.Unlock()
	}
	unplug()
	w.tasks.Wait()
	for _, s := range w.servers() {
		s.close()
	}
	judge := live.Judge{Lock: lock.Title, Slack: lock.Slack, Promised: lock.Promised, Record: &w.record}
	return judge.Result(p, w.entries), w.lacks
}

// now is how long ago the plan has begun. All times come from here: two clocks that are
// read one after the other can differ by a millisecond on a busy machine, and a vote
// would come after what follows from it.
func (w *world) now() time.Duration { return w.clock.Now().Sub(w.zero) }

func (w *world) build() {
	for n := range w.p.Nodes {
		first := bits.TrailingZeros64(uint64(w.p.Server(n)))
		if first == n {
			w.nodes = append(w.nodes, at{newRedis(w, n), 0})
		} else {
			w.nodes = append(w.nodes, at{w.nodes[first].redis, n})
		}
	}
	for c := range w.p.Clients {
		w.links = append(w.links, nil)
		for n := range w.p.Nodes {
			w.links[c] = append(w.links[c], &link{w: w, client: c, node: n, changed: make(chan struct{}),
				random: w.p.Stream(faults.OfNetwork, c*faults.MaxNodes+n)})
		}
		w.clients = append(w.clients, &process{})
	}
	w.tasks.Go(w.expire)
	w.tasks.Go(func() { // the disks
		for ok := sleep(w.network, w.p.FirstSync()); ok; ok = sleep(w.network, time.Second) {
			for _, s := range w.servers() {
				s.sync()
			}
		}
	})
}

// expire lets keys expire as Redis does, ten times a second.
func (w *world) expire() {
	for sleep(w.network, 100*time.Millisecond) {
		for _, s := range w.servers() {
			s.mu.Lock()
			s.tick()
			s.mu.Unlock()
		}
	}
}

func (w *world) servers() (all []*redis) {
	for _, n := range w.nodes {
		if !slices.Contains(all, n.redis) {
			all = append(all, n.redis)
		}
	}
	return all
}

func (w *world) start(i int) {
	c := w.clients[i]
	life, kill := context.WithCancel(context.Background())
	again := func() (live.Library, error) {
		c.starts++
		return w.lock.Open(w.seat(i, life, c.starts-1))
	}
	library, err := again()
	if err != nil {
		panic(err)
	}
	c.player = &live.Player{Plan: w.p, Client: i, Start: c.starts - 1, Library: library, Clock: w.clockOf(i),
		Begun: w.zero, Report: w.report}
	c.kill = kill
	if w.p.Lock.Client == faults.Redquorum {
		c.player.Open = again
	}
	player := c.player
	w.playing.Go(func() {
		defer kill()
		player.Play(life)
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, what := range player.Lacks() {
			if !slices.Contains(w.lacks, what) {
				w.lacks = append(w.lacks, what)
			}
		}
	})
}

func (w *world) strike(e *faults.Event, end bool) {
	for i, links := range w.links {
		for n, l := range links {
			if e.Links.Clients.Has(i) && e.Links.Nodes.Has(n) {
				w.strikeLink(l, e, end)
			}
		}
		if e.Procs.Clients.Has(i) {
			w.strikeClient(i, e, end)
		}
	}
	if e.Verb != faults.Alias && e.Verb != faults.View {
		w.strikeServers(e, end)
	}
}

func (w *world) strikeLink(l *link, e *faults.Event, end bool) {
	at := w.nodes[l.node].redis
	switch e.Verb {
	case faults.Reset, faults.HalfOpen:
		at.breakLink(l, e.Verb == faults.HalfOpen, end)
	case faults.Heal:
		at.breakLink(l, true, true)
		l.strike(e, end)
	default:
		l.strike(e, end)
	}
}

func (w *world) strikeClient(i int, e *faults.Event, end bool) {
	switch c := w.clients[i]; c.Strike(e, end) {
	case faults.Kill:
		if c.kill != nil {
			c.kill()
		}
	case faults.Start:
		w.start(i)
	}
}

func (w *world) strikeServers(e *faults.Event, end bool) {
	var struck []*redis
	for n, at := range w.nodes {
		if !e.Procs.Nodes.Has(n) || slices.Contains(struck, at.redis) {
			continue
		}
		struck = append(struck, at.redis)
		at.redis.strike(e, end)
	}
}

func (w *world) heal(n int) {
	for _, links := range w.links {
		w.strikeLink(links[n], &faults.Event{Verb: faults.Heal}, false)
	}
	w.nodes[n].redis.heal()
}

func (w *world) report(e sim.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.At == 0 {
		e.At = w.now()
	}
	w.entries = append(w.entries, e)
}

// message numbers the messages of the trace; 0 is for all others.
func (w *world) message(kind string) int {
	if kind == "" {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.messages++
	return w.messages
}

func (w *world) tellMessage(l *link, way int, kind sim.Kind, p *parcel) {
	if p.message == 0 {
		return
	}
	e := sim.Entry{Kind: kind, Client: l.client, Node: l.node, Message: p.message, ToClient: way == toClient,
		Text: p.kind}
	if kind == sim.KindSend {
		e.Until = p.due.Sub(w.begun)
	}
	if way == toClient {
		e.Text = "the answer to " + p.kind
	}
	w.report(e)
}

// holder is the owner of a key by a client's latest command, or "".
func (w *world) holder(client int, name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	owner := ""
	for i := range w.entries {
		switch e := &w.entries[i]; {
		case e.Kind == sim.KindExecute && e.Client == client && e.Text == "acquire":
			owner = "" // what was before does not count
		case e.Kind == sim.KindKey && e.Name == name && owner == "":
			owner = e.Owner
		}
	}
	return owner
}

// clockOf is the machine's clock for locks that read that.
func (w *world) clockOf(client int) clock.Clock {
	if w.p.Lock.Client == faults.Plain {
		return w.clock
	}
	return live.NewClock(w.p, client, w.zero, w.clock)
}

func (w *world) seat(client int, life context.Context, start int) *live.Seat {
	s := &live.Seat{Plan: w.p, Client: client, Start: start, Clock: w.clockOf(client), Life: life,
		Random: live.Draw(w.p, client, start), Prefix: w.lock.Prefix,
		Holder: func(name string) string { return w.holder(client, name) }}
	for n, link := range w.links[client] {
		if !w.p.Lists(client).Has(n) {
			continue
		}
		// An address of its own: a name would be looked up.
		s.Nodes = append(s.Nodes, live.Place{Number: n, Addr: fmt.Sprintf("127.0.0.%d:6379", n+1),
			Database: w.nodes[n].db,
			Dial:     func(ctx context.Context, _, _ string) (net.Conn, error) { return link.dial(ctx, life) }})
	}
	return s
}
