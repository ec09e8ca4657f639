// Package failover has one failover after the other done to real servers, each a primary
// with two replicas that three Sentinels watch, while programs lock names on them; and
// looks from outside whether two ever hold one.
//
// Half of the clients ask Sentinel for the primary. The others know one server's own
// address, and stay with it when it is deposed: nothing comes between them.
package failover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/quorum"
)

// A Config says what is done.
type Config struct {
	Server    string        // the program
	Groups    int           // nodes, each a primary with its replicas
	Failovers int           // of all groups together
	Lease     time.Duration // also MaxLease
	Seed      uint64
	Rule      string         // for which replicas a grant waits; "" is Majority
	Tell      func(Failover) // after each
}

// A Failover is one of them.
type Failover struct {
	Kind     string        `json:"kind"`
	Group    int           `json:"group"`
	Switch   time.Duration `json:"switch_ns"`  // until Sentinel named another primary
	Blocked  time.Duration `json:"blocked_ns"` // until a client of Sentinel was granted a lock again, after the switch
	Held     int           `json:"held"`       // leases that were held when it began
	Lost     int           `json:"lost"`       // of these, before they were unlocked
	Overlaps int           `json:"overlaps"`   // since the last one
	Falling  int           `json:"falling"`    // tokens that were not above those of earlier leases
}

// A Result is that of a whole run.
type Result struct {
	Failovers []Failover `json:"failovers"`
	Grants    int        `json:"grants"`
	Overlaps  int        `json:"overlaps"`
	Falling   int        `json:"falling"`
}

// Kinds are those of failovers: what happens to the primary.
var Kinds = []string{"kill", "stop", "cut", "command", "wipe"}

const (
	names   = 3
	workers = 2 // of each client
	clients = 2 // of each sort
	timeout = 300 * time.Millisecond
)

// A storm is a run.
type storm struct {
	Config
	random *rand.Rand
	groups []*group
	book   book
	pinned []*client
}

// Run starts the servers and does it all. It ends early when ctx does.
func Run(ctx context.Context, c Config) (*Result, error) {
	c.Rule = cmp.Or(c.Rule, Majority)
	s := &storm{Config: c, random: rand.New(rand.NewPCG(c.Seed, 0))}
	s.book.begin()
	defer func() {
		for _, g := range s.groups {
			g.close()
		}
	}()
	for i := range c.Groups {
		g, err := startGroup(ctx, fmt.Sprintf("group%d", i+1), c.Server)
		if err != nil {
			return nil, err
		}
		s.groups = append(s.groups, g)
	}
	led, err := s.clients(s.byURL)
	defer closeAll(led)
	if err != nil {
		return nil, err
	}
	for _, c := range led {
		c.work()
	}
	defer func() { closeAll(s.pinned) }()
	if err := s.pin(ctx); err != nil {
		return nil, err
	}
	watched, end := context.WithCancel(ctx)
	defer end()
	go s.book.watch(watched)

	r := &Result{}
	defer func() { r.Grants, r.Overlaps, r.Falling = s.book.counts() }()
	for i := 0; i < c.Failovers && ctx.Err() == nil; i++ {
		f, err := s.failOver(ctx, i)
		if err != nil && ctx.Err() == nil {
			return r, fmt.Errorf("failover %d, by %s: %w", i+1, f.Kind, err)
		}
		if err == nil {
			r.Failovers = append(r.Failovers, f)
			c.Tell(f)
		}
	}
	return r, ctx.Err()
}

// failOver does one, and waits until all is well again.
func (s *storm) failOver(ctx context.Context, i int) (f Failover, err error) {
	f.Kind, f.Group = Kinds[(i+s.random.IntN(2)*2)%len(Kinds)], s.random.IntN(len(s.groups))
	g := s.groups[f.Group]
	old := g.primary(ctx)
	if old < 0 {
		return f, g.unsettled(ctx)
	}
	_, overlaps, falling := s.book.counts()
	held := s.book.valid()
	f.Held = len(held)
	began := time.Now()
	heal, err := s.strike(ctx, f.Kind, g, old)
	if err != nil {
		return f, err
	}
	struck := time.Now()
	for again := time.Now().Add(s.uneven()); g.primary(ctx) == old ||
		g.primary(ctx) < 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(struck) > settleFor || ctx.Err() != nil {
			return f, errors.Join(cmp.Or(ctx.Err(), g.unsettled(ctx)), heal())
		}
		if time.Now().After(again) { // Sentinel gives a failover up if no replica has a copy yet
			again = time.Now().Add(s.uneven())
			_ = g.sentinels[0].client.Failover(ctx, g.name).Err()
		}
	}
	switched := time.Now()
	f.Switch = switched.Sub(began)
	select { // the old primary and its clients go on meanwhile
	case <-time.After(time.Until(began.Add(s.Lease + 2*time.Second + upTo(s.random, 3*time.Second)))):
	case <-ctx.Done():
	}
	if err := heal(); err != nil {
		return f, err
	}
	if err := g.settle(ctx, func(p int) bool { return p != old }); err != nil {
		return f, err
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if granted, ok := s.book.firstAfter(switched); ok {
			f.Blocked = granted.Sub(began)
			break
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return f, errors.New("nobody has been granted a lock for a minute")
		}
	}
	f.Lost = s.book.lost(held)
	_, o, fall := s.book.counts()
	f.Overlaps, f.Falling = o-overlaps, fall-falling
	return f, s.pin(ctx)
}

// uneven is a time between two tries of a failover. Every 10 s the other Sentinels look
// at a replica, and one that has been promoted in their last look and in this is made a
// replica again (redis#1445): tries at that pace can fail forever.
func (s *storm) uneven() time.Duration { return 5*time.Second + upTo(s.random, 4*time.Second) }

// strike begins a fault of a primary. heal ends it.
func (s *storm) strike(ctx context.Context, kind string, g *group, primary int) (heal func() error, err error) {
	server, nothing := g.servers[primary], func() error { return nil }
	switch kind {
	case "kill":
		server.Kill()
		return func() error { return g.restart(ctx, primary) }, nil
	case "stop":
		return server.Cont, server.Stop()
	case "cut":
		return func() error { return g.open(primary) }, g.doors[primary].Set(faults.Conduct{Hang: true})
	case "wipe": // it comes back at once, empty, and empties its replicas
		if err := g.restart(ctx, primary); err != nil {
			return nothing, err
		}
		time.Sleep(upTo(s.random, 2*time.Second))
	}
	for end := time.Now().Add(settleFor); ; time.Sleep(100 * time.Millisecond) {
		err := g.sentinels[0].client.Failover(ctx, g.name).Err()
		if err == nil || ctx.Err() != nil || time.Now().After(end) {
			return nothing, cmp.Or(ctx.Err(), err)
		}
		if g.primary(ctx) != primary {
			return nothing, nil
		}
	}
}

// pin replaces the pinned clients: each knows the present primaries' own addresses, and
// no others.
func (s *storm) pin(ctx context.Context) error {
	closeAll(s.pinned)
	var addrs []string
	for _, g := range s.groups {
		p := g.primary(ctx)
		if p < 0 {
			return g.unsettled(ctx)
		}
		addrs = append(addrs, g.servers[p].Addr())
	}
	var err error
	s.pinned, err = s.clients(func(i int) (node.Node, error) {
		if s.Rule != Majority {
			return s.alone(addrs[i], func(context.Context) (string, error) { return addrs[i], nil })
		}
		return one(redisnode.Dial(fmt.Sprintf("redis://%s?replicas=%d", addrs[i], groupSize-1)))
	})
	for _, c := range s.pinned {
		c.pinned = true
		c.work()
	}
	return err
}

func one(nodes []node.Node, err error) (node.Node, error) {
	if err != nil {
		return nil, err
	}
	return nodes[0], nil
}

// byURL makes the node of a group for a client of Sentinel.
func (s *storm) byURL(i int) (node.Node, error) {
	g := s.groups[i]
	if s.Rule == Majority {
		return one(redisnode.Dial(g.url()))
	}
	return s.alone(g.name, func(ctx context.Context) (string, error) {
		if p := g.primary(ctx); p >= 0 {
			return g.doors[p].Addr(), nil
		}
		return "", errors.New("the Sentinels name no primary")
	})
}

// clients makes clients of one sort.
func (s *storm) clients(nodeOf func(group int) (node.Node, error)) (made []*client, err error) {
	for range clients {
		var nodes []node.Node
		for i := range s.groups {
			n, err := nodeOf(i)
			if err != nil {
				return made, err
			}
			nodes = append(nodes, n)
		}
		l, err := quorum.New(nodes, quorum.Options{Lease: s.Lease, MaxLease: s.Lease, Timeout: timeout,
			Label: quorum.NoLabel})
		if err != nil {
			return made, err
		}
		made = append(made, &client{locker: l, book: &s.book, seed: s.random.Uint64()})
	}
	return made, nil
}

func closeAll(list []*client) {
	var all errgroup.Group
	for _, c := range list {
		all.Go(func() error {
			c.end()
			return nil
		})
	}
	_ = all.Wait()
}

// A client is a program.
type client struct {
	locker *quorum.Locker
	book   *book
	seed   uint64
	pinned bool
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

// work has workers lock names, for a moment or for some renewals.
func (c *client) work() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	for w := range workers {
		random := rand.New(rand.NewPCG(c.seed, uint64(w)))
		c.tasks.Go(func() {
			for ctx.Err() == nil {
				lease, err := c.locker.Lock(ctx, fmt.Sprintf("name%d", random.IntN(names)),
					quorum.WithWait(2*time.Second))
				if err != nil {
					continue
				}
				h := c.book.grant(lease, c.pinned)
				hold := 20*time.Millisecond + upTo(random, 200*time.Millisecond)
				if random.IntN(2) == 0 {
					hold = upTo(random, 8*time.Second)
				}
				select {
				case <-lease.Context().Done():
				case <-ctx.Done():
				case <-time.After(hold):
				}
				c.book.release(h)
				_ = lease.Unlock(context.WithoutCancel(ctx))
			}
		})
	}
}

func (c *client) end() {
	if c.cancel != nil {
		c.cancel()
	}
	_ = c.locker.Close()
	c.tasks.Wait()
}

func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d)))
}

// A book has all leases that programs rely on. They are all of this process, so one clock
// judges them.
type book struct {
	mu       sync.Mutex
	held     map[string][]*holding
	highest  map[string]node.Token
	paired   map[[2]*holding]bool
	granted  []time.Time // to clients of Sentinel
	grants   int
	overlaps int
	falling  int
}

// A holding is one lease.
type holding struct {
	*quorum.Lease
	over bool // its program is about to unlock it
	late bool // it had ended before
}

func (b *book) begin() {
	b.held, b.highest, b.paired = make(map[string][]*holding), make(map[string]node.Token), make(map[[2]*holding]bool)
}

func (b *book) grant(lease *quorum.Lease, pinned bool) *holding {
	b.mu.Lock()
	defer b.mu.Unlock()
	h, name := &holding{Lease: lease}, lease.Names()[0]
	b.grants++
	if !pinned {
		b.granted = append(b.granted, time.Now())
	}
	if lease.Token() <= b.highest[name] && lease.Remaining() > 0 {
		b.falling++
	}
	b.highest[name] = max(b.highest[name], lease.Token())
	b.held[name] = append(b.held[name], h)
	b.look(name)
	return h
}

func (b *book) release(h *holding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.over, h.late = true, h.Remaining() == 0
	name := h.Names()[0]
	b.held[name] = slices.DeleteFunc(b.held[name], func(o *holding) bool { return o == h })
}

// look counts the pairs of leases of a name that are valid at one moment.
func (b *book) look(name string) {
	for i, h := range b.held[name] {
		for _, o := range b.held[name][:i] {
			if h.Remaining() > 0 && o.Remaining() > 0 && h.Remaining() > 0 && !b.paired[[2]*holding{o, h}] {
				b.paired[[2]*holding{o, h}] = true
				b.overlaps++
			}
		}
	}
}

// watch looks all the time.
func (b *book) watch(ctx context.Context) {
	for ctx.Err() == nil {
		b.mu.Lock()
		for name := range b.held {
			b.look(name)
		}
		b.mu.Unlock()
		time.Sleep(5 * time.Millisecond)
	}
}

// lost is how many of these ended before their programs were done with them.
func (b *book) lost(all []*holding) (lost int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range all {
		if h.late || !h.over && h.Remaining() == 0 {
			lost++
		}
	}
	return lost
}

// counts are those so far.
func (b *book) counts() (grants, overlaps, falling int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.grants, b.overlaps, b.falling
}

// valid returns the leases that are held.
func (b *book) valid() (all []*holding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, list := range b.held {
		for _, h := range list {
			if h.Remaining() > 0 {
				all = append(all, h)
			}
		}
	}
	return all
}

// firstAfter is when a client of Sentinel was first granted a lock after t, if one was.
func (b *book) firstAfter(t time.Time) (granted time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, _ := slices.BinarySearchFunc(b.granted, t, time.Time.Compare)
	if i == len(b.granted) {
		return granted, false
	}
	return b.granted[i], true
}
