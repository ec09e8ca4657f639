// Package courier is what packages redisnode and redisconn have in common, and imports no
// client: the queue of a node and its connections, the scripts, and what a server's
// answers mean. The page docs/connection.md describes it.
//
// A node is a server. It puts calls into its queue. Its keeper makes one link after the
// other, each by the route to the server, and has it carry these calls. The lifespan
// knows since when the server lives. The watcher has a connection for messages.
package courier

import (
	"cmp"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/replicas"
	"github.com/redquorum/redquorum/node"
)

type server struct {
	*background
	name     string
	route    route
	queue    *queue
	lifespan *lifespan
	watch    *watcher
	follow   *followers
}

type Options struct {
	Name   string
	Clock  clock.Clock
	Queue  int
	Logger *slog.Logger

	Replicas int // only of one server
}

// ToServer returns a node for one server, to which it makes connections of its own.
func ToServer(t Target, o Options) node.Node { return start(newDirect(t), o) }

// Through returns a node for all servers to which a client leads. Ask has so much time.
// renews is as in a Target.
func Through(c Client, timeout time.Duration, renews bool, o Options) node.Node {
	o.Clock = cmp.Or(o.Clock, clock.System())
	return start(&shared{Client: c, timeout: timeout, others: renews, clock: o.Clock}, o)
}

func start(r route, o Options) *server {
	s := assemble(r, newBackground(o), o)
	if r.oneServer() {
		s.queue.groups.least = eachLeast
	}
	k := &keeper{s.background, r, s.queue, s.lifespan, s.follow, s.watch}
	s.tasks.Add(1)
	go k.run()
	return s
}

func assemble(r route, b *background, o Options) *server {
	s := &server{background: b, name: o.Name, route: r,
		lifespan: &lifespan{background: b}, follow: &followers{count: replicas.Count(o.Replicas)}}
	s.queue = newQueue(b, s.lifespan, r.oneServer(), o.Queue)
	s.watch = newWatcher(r, s.lifespan, s.queue.linked)
	return s
}

func (s *server) Name() string { return s.name }

func (s *server) Replicas() int { return int(s.follow.count) }

func (s *server) Submit(cmd node.Command, reply func(node.Reply)) {
	if cmd.Kind == node.Extend && len(cmd.Claims) > 1 && !s.route.oneServer() {
		submitEach(s.Submit, cmd, reply)
		return
	}
	if err := s.queue.enqueue(cmd, reply); err != nil {
		reply(node.Reply{Err: err, Unsent: true})
	}
}

func (s *server) Watch(name string, mode node.Mode, wake func()) (stop func()) {
	one := &watch{wake: func(string) { wake() }}
	if mode != node.Exclusive {
		return s.watch.add(node.ReadWriteChannel(name), one)
	}
	return s.watch.add(node.Channel(name), one)
}

func (s *server) Listen(process string, hear func(node.Turn)) (stop func()) {
	one := new(watch)
	one.wake = func(message string) {
		switch turn, ok := s.turn(message); {
		case !ok:
		case turn.Life != nil && s.follow.count > 0:
			s.holdTurn(turn, func(life *node.Life) { turn.Life = life; hear(turn) }, one)
		default:
			hear(turn)
		}
	}
	return s.watch.add(node.WaiterChannel(process), one)
}

// turnWait is how long a hand-over may wait for replicas.
const turnWait = 500 * time.Millisecond

// holdTurn tells to of a hand-over once enough replicas have it, or without a Life if
// that is not known.
func (s *server) holdTurn(turn node.Turn, hear func(*node.Life), to *watch) {
	holds := s.queue.hold(turn.Life.ID, held{turn: true, deadline: s.clock.Now().Add(turnWait),
		with:  node.Reply{Status: node.Granted},
		reply: func(r node.Reply) { to.do(func() { hear(r.Life) }) }})
	if !holds {
		hear(nil)
	}
}

// turn reads a message to a process. A hand-over has a Life only if its run_id is the one
// that INFO has reported over this connection as well: a replica passes on what its
// primary publishes, and that takes a hand-over back which none of its own connections
// has heard of. Anybody may have sent it: the waiter checks its proof.
func (s *server) turn(message string) (t node.Turn, ok bool) {
	what, rest, _ := strings.Cut(message, " ")
	switch what {
	case "":
		return t, true
	case "turn":
		waiter, name, _ := strings.Cut(rest, " ")
		return node.Turn{Name: name, Waiter: waiter}, name != "" && waiter != ""
	}
	parts := strings.SplitN(rest, " ", 5)
	if what != "grant" || len(parts) < 5 || parts[4] == "" {
		return t, false
	}
	token, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || token < 1 || token > int64(node.MaxToken) || parts[0] == "" {
		return t, false
	}
	t = node.Turn{Name: parts[4], Owner: parts[0], Token: node.Token(token), Server: parts[2], Proof: parts[3]}
	if life := s.lifespan.current(); life != nil && life.ID == t.Server && !s.watch.elsewhere(life) {
		t.Life = life
	}
	return t, true
}

func (s *server) Close() error {
	s.queue.close()
	s.cancel()
	s.watch.close()
	s.route.close() // ends all that waits for the network
	s.finish()
	return nil
}
