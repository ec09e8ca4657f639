package redisnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/node/internal/courier"
)

// A shared client manages connections by itself: a cluster client of the node's own, or
// the caller's client of any other kind.
type shared struct {
	client  redis.UniversalClient
	timeout time.Duration // of a handshake
	own     bool

	// asked are the masters that have answered INFO, if the client is the node's own.
	// Nothing is sent to others: they may have been promoted since.
	asked map[*redis.Client]bool
}

// newCluster copies a cluster client's options and overrides those that the courier needs
// to be different.
func newCluster(o redis.ClusterOptions, timeout time.Duration) *shared {
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
			return nil, callers{fmt.Errorf("server %s: %w", addr, err)} // the node's name is that of the whole cluster
		}
		return courier.Checked(conn), nil
	}
	if ask := o.CredentialsProviderContext; ask != nil {
		o.CredentialsProviderContext = func(ctx context.Context) (user, password string, err error) {
			user, password, err = ask(ctx)
			return user, password, ofCaller(err)
		}
	}
	if p := o.StreamingCredentialsProvider; p != nil {
		o.StreamingCredentialsProvider = streaming{p}
	}
	if do := o.OnConnect; do != nil {
		o.OnConnect = func(ctx context.Context, conn *redis.Conn) error {
			if err := do(ctx, conn); err != nil {
				return fmt.Errorf("OnConnect: %w", ofCaller(err)) // go-redis unwraps it
			}
			return nil
		}
	}
	o.PoolSize, o.MaxConcurrentDials = 4, 0
	o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = 0, 0, 0
	o.PipelinePoolSize = -1
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &shared{client: redis.NewClusterClient(&o), timeout: timeout, own: true}
}

// A callers error is what a function of the caller's has returned. No server of the
// cluster has said it, even if it contains an error of go-redis.
type callers struct{ error }

func (c callers) Unwrap() error { return c.error }

func ofCaller(err error) error {
	if err != nil {
		return callers{err}
	}
	return nil
}

type streaming struct {
	auth.StreamingCredentialsProvider
}

func (s streaming) Subscribe(l auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	now, unsubscribe, err := s.StreamingCredentialsProvider.Subscribe(l)
	return now, unsubscribe, ofCaller(err)
}

// said returns err, marked if a server has sent it. The dialers of a caller's client are
// not known, so of that only an error counts that nobody has wrapped.
func (r *shared) said(err error) error {
	reply, ok := err.(redis.Error)
	if r.own {
		if _, of := errors.AsType[callers](err); !of {
			reply, ok = errors.AsType[redis.Error](err)
		}
	}
	if !ok {
		return err
	}
	return courier.Refusal(reply)
}

func (r *shared) Close() {
	if r.own {
		r.client.Close()
	}
}

type masters interface {
	ForEachMaster(context.Context, func(context.Context, *redis.Client) error) error
}

type shards interface {
	ForEachShard(context.Context, func(context.Context, *redis.Client) error) error
}

// Ask asks every master of a cluster.
func (r *shared) Ask(ctx context.Context, commands [][]string) (replies [][]any, err error) {
	cluster, ok := r.client.(masters)
	if !ok {
		return [][]any{r.ask(ctx, r.client, commands)}, nil
	}
	var mu sync.Mutex
	r.asked = make(map[*redis.Client]bool)
	err = cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		said := r.ask(ctx, master, commands)
		mu.Lock()
		defer mu.Unlock()
		replies = append(replies, said)
		r.asked[master] = true
		return nil
	})
	return replies, r.said(err)
}

func (r *shared) ask(ctx context.Context, server redis.UniversalClient, commands [][]string) (replies []any) {
	pipe := server.Pipeline()
	for _, words := range commands {
		pipe.Do(ctx, list(words)...)
	}
	cmds, _ := pipe.Exec(ctx)
	for _, cmd := range cmds {
		replies = append(replies, r.reply(cmd.(*redis.Cmd)))
	}
	return replies
}

func list(words []string) (args []any) {
	for _, word := range words {
		args = append(args, word)
	}
	return args
}

func (r *shared) reply(cmd *redis.Cmd) any {
	val, err := cmd.Result()
	if err != nil && err != redis.Nil {
		return r.said(err)
	}
	return val
}

// Send sends by a pipeline to each server.
func (r *shared) Send(commands [][]string, d time.Duration) (replies []any) {
	pipes := make(map[pipelined]redis.Pipeliner)
	var cmds []request
	for _, words := range commands {
		cmd := request{redis.NewCmd(context.Background(), list(words)...)}
		cmd.SetFirstKeyPos(3)
		cmds = append(cmds, cmd)
		to, err := r.to(words[3])
		if err != nil {
			cmd.SetErr(err)
			continue
		}
		if pipes[to] == nil {
			pipes[to] = to.Pipeline()
		}
		pipes[to].Process(context.Background(), cmd)
	}
	ctx := within(d)
	var wg sync.WaitGroup
	for _, pipe := range pipes {
		wg.Go(func() { pipe.Exec(ctx) })
	}
	wg.Wait()
	for _, cmd := range cmds {
		replies = append(replies, r.reply(cmd.Cmd))
	}
	return replies
}

// A pipelined is a client of a server, or one that finds the servers by itself.
type pipelined interface {
	Pipeline() redis.Pipeliner
}

// to returns the client over which a command with key goes.
func (r *shared) to(key string) (pipelined, error) {
	cluster, ok := r.client.(*redis.ClusterClient)
	if !ok {
		return r.client, nil
	}
	master, err := cluster.MasterForKey(within(r.timeout), key)
	if err == nil && !r.asked[master] {
		err = courier.ErrNotAsked
	}
	return master, err
}

// A request is a command that go-redis must not send again by itself, as it may have been
// executed already.
type request struct{ *redis.Cmd }

func (request) NoRetry() bool { return true }

// Subscribe reports an error only with the first read.
func (r *shared) Subscribe(channels []string) courier.Subscription {
	return pubSub{r.client.Subscribe(within(r.timeout), channels...), r}
}

type pubSub struct {
	redis *redis.PubSub
	of    *shared
}

func (p pubSub) Subscribe(channels ...string) error {
	return p.redis.Subscribe(within(courier.AskFor), channels...)
}

func (p pubSub) Unsubscribe(channels ...string) error {
	return p.redis.Unsubscribe(within(courier.AskFor), channels...)
}

func (p pubSub) Ping() error { return p.redis.Ping(within(courier.AskFor)) }

func (p pubSub) Close() error { return p.redis.Close() }

// Receive also ends when go-redis panics, which it does when it has read a list of other
// elements than a message has.
func (p pubSub) Receive() (channel, message string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: a message: %v", resp.ErrProtocol, p)
		}
	}()
	msg, err := p.redis.ReceiveTimeout(context.Background(), courier.QuietLimit)
	switch msg := msg.(type) {
	case *redis.Message:
		if msg.Payload != "" {
			return msg.Channel, msg.Payload, nil
		}
	case *redis.Subscription:
		if msg.Kind == "subscribe" {
			return msg.Channel, "", nil
		}
	}
	return "", "", p.of.said(err)
}

// A bound is a context with a deadline and no channel. go-redis makes the deadline the
// socket's.
type bound struct{ at time.Time }

func within(d time.Duration) *bound { return &bound{time.Now().Add(d)} }

func (b *bound) Deadline() (time.Time, bool) { return b.at, true }

func (b *bound) Done() <-chan struct{} { return nil }

func (b *bound) Err() error { return nil }

func (b *bound) Value(any) any { return nil }
