package redisnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/redquorum/redquorum/node"
)

// lifeKnownFor is how long a shared link goes without asking for lives again: go-redis makes
// new connections without notice.
const lifeKnownFor = time.Second

// shared is the route through a client that manages connections by itself: a cluster client
// of the node's own, or the caller's client of any other kind.
type shared struct {
	client           redis.UniversalClient
	handshakeTimeout time.Duration
	own              bool
}

// newCluster copies a cluster client's options and overrides those that the courier needs
// to be different.
func newCluster(o redis.ClusterOptions) *shared {
	timeout := handshakeTimeout(o.DialTimeout, o.ReadTimeout)
	o.Protocol = 2
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.DialTimeout = timeout
	o.DisableIdentity = true
	o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	connect := o.Dialer
	if connect == nil {
		connect = dialer(o.TLSConfig)
	}
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := connect(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return newChecked(conn, maxInspect), nil
	}
	o.PoolSize, o.MaxConcurrentDials = 4, 0
	o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = 0, 0, 0
	o.PipelinePoolSize = -1
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewClusterClient(&o)
	return &shared{client: client, handshakeTimeout: timeout, own: true}
}

func (r *shared) oneServer() bool { return false }

func (r *shared) open(ctx context.Context) (link, []string, error) {
	l := &lane{route: r, opened: time.Now(), asked: make(map[*redis.Client]bool)}
	texts, err := l.info(ctx)
	return l, texts, err
}

func (r *shared) subscribe(_ context.Context, channels []string) (subscription, error) {
	// Subscribe returns no error. It comes with the first read.
	return pubSub{r.client.Subscribe(within(r.handshakeTimeout), channels...)}, nil
}

func (r *shared) close() {
	if r.own {
		r.client.Close()
	}
}

// A pubSub is the subscription of a shared route.
type pubSub struct{ redis *redis.PubSub }

func (p pubSub) subscribe(channels ...string) error {
	return p.redis.Subscribe(within(askFor), channels...)
}

func (p pubSub) unsubscribe(channels ...string) error {
	return p.redis.Unsubscribe(within(askFor), channels...)
}

func (p pubSub) ping() error { return p.redis.Ping(within(askFor)) }
func (p pubSub) close()      { p.redis.Close() }

// receive also ends when go-redis panics. It does that when it has read a list of other elements
// than a message has.
func (p pubSub) receive() (channel, message string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errNoNotice, p)
		}
	}()
	msg, err := p.redis.ReceiveTimeout(context.Background(), quietLimit)
	switch msg := msg.(type) {
	case *redis.Message:
		return msg.Channel, msg.Payload, nil
	case *redis.Subscription:
		if msg.Kind == "subscribe" {
			return msg.Channel, "", nil
		}
	}
	return "", "", err
}

// A lane is the link of a shared route.
type lane struct {
	route  *shared
	opened time.Time

	// asked are the masters that have answered INFO, if the client is the node's own. Nothing
	// is sent to others: they may have been promoted since.
	asked map[*redis.Client]bool
}

// masters is a ClusterClient, or a client that is built around one.
type masters interface {
	ForEachMaster(context.Context, func(context.Context, *redis.Client) error) error
}

// shards is a Ring or a ClusterClient.
type shards interface {
	ForEachShard(context.Context, func(context.Context, *redis.Client) error) error
}

// info asks every master of a cluster.
func (l *lane) info(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, l.route.handshakeTimeout)
	defer cancel()
	cluster, ok := l.route.client.(masters)
	if !ok {
		text, err := introduce(ctx, l.route.client)
		return []string{text}, err
	}
	var mu sync.Mutex
	var texts []string
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		text, err := introduce(ctx, master)
		mu.Lock()
		defer mu.Unlock()
		texts = append(texts, text)
		l.asked[master] = true
		return err
	})
	return texts, err
}

func introduce(ctx context.Context, server redis.UniversalClient) (string, error) {
	pipe := server.Pipeline()
	for _, words := range introduction {
		var args []any
		for _, word := range words {
			args = append(args, word)
		}
		pipe.Do(ctx, args...)
	}
	cmds, _ := pipe.Exec(ctx)
	var answers []result
	for _, cmd := range cmds {
		val, err := cmd.(*redis.Cmd).Result()
		answers = append(answers, result{val, err})
	}
	return introduced(answers)
}

// carry sends what is queued as one pipeline after the other, and waits for
// each.
func (l *lane) carry(s *server, life *node.Life) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var batch []*call
	var results []result
	for {
		switch s.await(ticker.C, nil) {
		case over:
			return nil
		case idle:
			continue
		}
		if time.Since(l.opened) >= lifeKnownFor {
			return nil
		}
		batch = s.take(batch)
		if len(batch) == 0 {
			continue
		}
		results = l.send(s, batch, results[:0])
		clear(batch)
		if !s.settle(results, life) {
			return nil
		}
	}
}

func (l *lane) send(s *server, batch []*call, results []result) []result {
	pipes := make(map[pipelined]redis.Pipeliner)
	var cmds []request
	latest := batch[0].deadline
	for _, c := range batch {
		var w words
		c.append(&w, c.asText, "") // the life is that of all servers together
		var args []any
		for _, word := range w.list() {
			args = append(args, word)
		}
		cmd := request{redis.NewCmd(context.Background(), args...)}
		cmd.SetFirstKeyPos(3)
		cmds = append(cmds, cmd)
		latest = max(latest, c.deadline)
		to, err := l.to(args[3].(string))
		if err != nil {
			cmd.SetErr(err)
			continue
		}
		if pipes[to] == nil {
			pipes[to] = to.Pipeline()
		}
		pipes[to].Process(context.Background(), cmd)
	}
	ctx := within(min(latest.Sub(s.clock.Now()), maxSilence))
	var wg sync.WaitGroup
	for _, pipe := range pipes {
		wg.Go(func() { pipe.Exec(ctx) })
	}
	wg.Wait()
	for _, cmd := range cmds {
		val, err := cmd.Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			val = err
		}
		results = append(results, understand(val))
	}
	return results
}

// A pipelined is a client of a server, or one that finds the servers by itself.
type pipelined interface {
	Pipeline() redis.Pipeliner
}

// to returns the client over which a command with key goes.
func (l *lane) to(key string) (pipelined, error) {
	cluster, ok := l.route.client.(*redis.ClusterClient)
	if !ok {
		return l.route.client, nil
	}
	master, err := cluster.MasterForKey(within(l.route.handshakeTimeout), key)
	if err == nil && !l.asked[master] {
		err = errNotAsked
	}
	return master, err
}

// A request is a command that go-redis must not send again by itself, as it may have been
// executed already.
type request struct{ *redis.Cmd }

func (request) NoRetry() bool { return true }

// abort has nothing to do: each pipeline has a bound.
func (l *lane) abort() {}

func (l *lane) close() {}

// submitEach sends an Extend of many claims as one command for each: a script
// cannot touch keys on different servers. A claim without an answer makes the
// whole one Unknown.
func (s *server) submitEach(cmd node.Command, reply func(node.Reply)) {
	var mu sync.Mutex
	open := len(cmd.Claims)
	all := node.Reply{Status: node.Done, Kept: make([]bool, open)}
	unsent := true
	for i := range cmd.Claims {
		one := cmd
		one.Claims = cmd.Claims[i : i+1]
		s.Submit(one, func(r node.Reply) {
			mu.Lock()
			unsent = unsent && r.Unsent
			if r.Err != nil && all.Err == nil {
				all.Status, all.Err = node.Unknown, r.Err
			}
			if r.Err == nil {
				all.Kept[i], all.Life = r.Kept[0], r.Life
			}
			open--
			last := open == 0
			mu.Unlock()
			if !last {
				return
			}
			if all.Err != nil {
				all.Kept, all.Unsent = nil, unsent
			}
			reply(all)
		})
	}
}
