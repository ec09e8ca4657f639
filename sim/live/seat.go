package live

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/quorum"
)

type Lock struct {
	Title    string // its name and version
	Open     func(*Seat) (Library, error)
	Key      func(name string) string // on a server
	Prefix   string                   // before all names there, for a Lock of this project
	Slack    time.Duration            // how long two clients may hold one lock before that counts
	Promised []string                 // the invariants that it is held to; none: all
}

// A Seat is what a client's process knows when it opens its lock.
type Seat struct {
	Plan   *faults.Plan
	Client int
	Start  int     // how often the client was started before
	Nodes  []Place // that it was configured with
	Clock  clock.Clock
	Life   context.Context          // of the process
	Random func() uint64            // what its lock draws; nil: what it likes
	Prefix string                   // before all names on the nodes
	Holder func(name string) string // whose key a node has by the client's latest command; nil if that is not known
}

// A Place is where a node is.
type Place struct {
	Number   int                                                               `json:"number"`
	Addr     string                                                            `json:"addr"`
	Database int                                                               `json:"database"`
	Dial     func(ctx context.Context, network, addr string) (net.Conn, error) `json:"-"` // nil: over TCP
}

// Options are go-redis's defaults, but for where it dials.
func (at *Place) Options() *redis.Options {
	o := &redis.Options{Addr: at.Addr, DB: at.Database, Dialer: at.Dial}
	if at.Dial != nil {
		// They hold a mutex while they wait for the network, which virtual time waits
		// for.
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	}
	return o
}

// Draw returns random numbers for one process of a client, safe for concurrent use.
func Draw(p *faults.Plan, client, start int) func() uint64 {
	var mu sync.Mutex
	random := p.Stream(faults.OfEngine, client+start*faults.MaxClients)
	return func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return random.Next()
	}
}

// OpenRedquorum opens redquorum as its users do.
func OpenRedquorum(s *Seat) (Library, error) {
	locker, err := open(s, s.Nodes, s.Plan.Quorum(s.Client))
	var far *quorum.Locker
	if err == nil && s.Plan.Work.Joint > 0 {
		far, err = open(s, s.Nodes[:min(len(s.Nodes), s.Plan.FarNodes())], 0)
	}
	if err != nil {
		return nil, err
	}
	return Redquorum(locker, far, s.Clock), nil
}

func open(s *Seat, at []Place, need int) (*quorum.Locker, error) {
	var nodes []node.Node
	for _, at := range at {
		client := redis.NewClient(at.Options())
		n, err := redisnode.New(client, redisnode.Options{Name: fmt.Sprintf("n%d", at.Number+1), Clock: s.Clock})
		_ = client.Close() // the node has its own
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	options := Options(s.Plan, s.Clock)
	options.Quorum = cmp.Or(need, len(nodes)/2+1)
	options.Drift = max(options.Drift, 1e-9) // 0 would be the default
	options.Random, options.Prefix = s.Random, s.Prefix
	return quorum.New(nodes, options)
}
