package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim/live"
)

type contestant struct {
	name    string
	version string
	folder  string // of its package
	alone   bool   // it is for one server
	renews  bool   // it always does, for as long as its user holds it
	setup   string
	open    func(*live.Seat) (live.Library, error)
	key     func(name string) string // on a server
	// promises are what its documentation says, by invariant; nil: all.
	promises []promise
	story    string // what goes wrong, and what it does better
	shown    string // the scenario whose run the page shows
}

const (
	patience        = "all its timeouts the plan's"
	rueidisFeatures = "https://github.com/redis/rueidis/blob/v1.0.79/rueidislock/README.md#features-backed-by-the-redis-client-side-caching"
	redisPage       = "https://redis.io/docs/latest/develop/use/patterns/distributed-locks/"
	warning         = "The Redis page warns of [restarts](" + redisPage + "#performance-crash-recovery-and-fsync) " +
		"and of [failovers](" + redisPage + "#why-failover-based-implementations-are-not-enough). "
)

type promise struct {
	invariants []string
	quote      string // word by word from the documentation in the lock's folder; "" if that is not there
	says       string // in our words
	where      string
}

func (c *contestant) title() string {
	if c.version == "" {
		return c.name
	}
	return c.name + " " + c.version
}

// judged are the invariants that a lock promises. A late write without a fencing token is
// never held against it: I5 takes it as outside of what the plan assumes.
func (c *contestant) judged() (all []string) {
	for _, p := range c.promises {
		all = append(all, p.invariants...)
	}
	if len(all) > 0 {
		all = append(all, "I5")
	}
	return all
}

// slack is how long two clients may hold one lock before that counts: for redquorum next
// to nothing. Other locks learn of a loss by a message, so they get its round trip.
func (c *contestant) slack(p *faults.Plan) time.Duration {
	if c.name == ours {
		return time.Microsecond
	}
	return 2 * p.Network.Delay.Max
}

func (c *contestant) lock(p *faults.Plan) *live.Lock {
	return &live.Lock{Title: c.title(), Open: c.open, Key: c.key, Slack: c.slack(p), Promised: c.judged()}
}

func plainKey(name string) string { return name }

var contestants = []*contestant{
	{name: "redquorum", setup: "redisnode over go-redis", open: live.OpenRedquorum, key: plainKey},
	{name: "redsync", version: "v4.18.1", folder: "github.com/go-redsync/redsync/v4",
		setup: "a pool of go-redis v9.23.0 for each node, as in its README; " + patience +
			"; WithExpiry(lease); else the defaults, with pauses drawn from the plan's seed", open: openRedsync,
		key: plainKey,
		promises: []promise{
			{[]string{"I1"}, "After this is successful, no one else can obtain the same lock (the same mutex name) until we unlock it.",
				"That is, until the end that Until returns.",
				"https://github.com/go-redsync/redsync/blob/v4.18.1/README.md#usage"},
			{[]string{"I7"}, "Redsync provides a Redis-based distributed mutual exclusion lock implementation for Go as described in [this post]",
				"The post is the Redis page: no deadlock, and it works while a majority of nodes does.",
				"https://github.com/go-redsync/redsync/blob/v4.18.1/README.md"},
			{[]string{"I9"}, "", "The Redis page: a release removes only the holder's own key.",
				redisPage + "#correct-implementation-with-a-single-instance"},
		},
		story: "Two clients hold one lock when a majority forgets it, after a restart, a failover, or with one server listed twice. " + warning +
			"So it asks for independent masters that write each command to disk, or stay away for the longest lease after a restart. redsync leaves that to the operator. " +
			"A Lock that waits has one value for all its attempts, so the late release of one attempt can remove what the next has got (late-release).\n\n" +
			"Better than redquorum: a free lock leaves nothing on a server, where redquorum leaves a fence for a day. " +
			"It works with other Redlock implementations, in any language, and needs only SET and a script.",
		shown: "S13"},
	{name: "rueidislock", version: "v1.0.79", folder: "github.com/redis/rueidis/rueidislock", alone: true, renews: true,
		setup: "one node, KeyMajority 1 and NoLoopTracking as in its README; KeyValidity the lease; else the defaults, with pauses drawn from the plan's seed",
		open:  openRueidis, key: func(name string) string { return "rueidislock:0:" + name },
		promises: []promise{
			{[]string{"I1"}, "The returned `ctx` will be canceled automatically and immediately once the `KeyMajority` is not held anymore", "", rueidisFeatures},
			{[]string{"I7"}, "The waiting `Locker.WithContext` will try acquiring the lock again automatically and immediately once it has been released by someone", "", rueidisFeatures},
		},
		story: "After a failed attempt a waiter waits for a notification, without a timer. If the server did not answer in time, " +
			"nobody holds the lock and no notification comes. A race of two goroutines does the same, once in hundreds to thousands of runs like S36: " +
			"that of a failed attempt removes the gate at which the waiter waits (`try` in lock.go). " +
			"A holder whose server is away asks again after pauses that double, and learns late that its key is gone. " +
			"Keys end at times of day (SET PXAT). So on a server a minute ahead no key lasts (seed1), and on one an hour behind the key of a dead client stays an hour longer (seed5). " +
			"FallbackSETPX helps the first command, but not renewals.\n\n" +
			"Better than redquorum: the server itself notifies the holder when its key is deleted or changed, where redquorum learns of it at the next renewal. " +
			"It shares one connection with the rest of the program.",
		shown: "S64"},
	{name: "bsm/redislock", version: "v0.9.4", folder: "github.com/bsm/redislock", alone: true,
		setup: "one node; go-redis with " + patience +
			"; LinearBackoff(100 ms) to wait. After Obtain the client asks for TTL once, and relies on that",
		open: openBSM, key: plainKey,
		promises: []promise{
			{[]string{"I1"}, `else if ttl > 0 { fmt.Println("Yay, I still have my lock!") }`,
				"This is in its example, after a call of TTL. A program that asks before each use finds out sooner.",
				"https://github.com/bsm/redislock/blob/v0.9.4/README.md#examples"},
			{[]string{"I7"}, "TTL returns the remaining time-to-live. Returns 0 if the lock has expired.",
				"So a lock that nobody releases ends.", "https://pkg.go.dev/github.com/bsm/redislock@v0.9.4#Lock.TTL"},
		},
		story: "Two clients hold one lock when its only server forgets it, after a restart or a failover. The Redis page warns of both.\n\n" +
			"Better than redquorum: it is one file of 300 lines, works with any client of go-redis, and can keep a text with the lock (Metadata).",
		shown: "S53"},
	{name: "SET NX", alone: true, setup: "one node; go-redis with " + patience +
		"; SET key random NX PX lease, a script that deletes only one's own, tries every 100 ms",
		open: openSetNX, key: plainKey,
		promises: []promise{
			{[]string{"I1"}, "", "The Redis page: a key is set only if there is none, and only its owner removes it.",
				redisPage + "#correct-implementation-with-a-single-instance"},
			{[]string{"I7"}, "", "The key expires by itself.", redisPage +
				"#correct-implementation-with-a-single-instance"},
		},
		story: "Two clients hold one lock when its only server forgets it, as above. It asks nothing after its acquire, so failovers break it by the plans as they are.\n\n" +
			"Better than redquorum: it needs no library, and every language has it.",
		shown: "S61"},
}

func contestantOf(name string) *contestant {
	i := slices.IndexFunc(contestants, func(c *contestant) bool { return c.name == name })
	if i < 0 {
		return nil
	}
	return contestants[i]
}

func openRedsync(s *live.Seat) (live.Library, error) {
	all := dial(s, s.Nodes)
	var pools []redsyncredis.Pool
	for _, c := range all {
		pools = append(pools, goredis.NewPool(c))
	}
	locks := redsync.New(pools...)
	pause := func(int) time.Duration { // as by default, but from the plan's seed
		return time.Duration(50+s.Random()%200) * time.Millisecond
	}
	return &library{all.close, func(ctx context.Context, w *live.Wanted) (*live.Held, error) {
		m := locks.NewMutex(w.Names[0], redsync.WithExpiry(w.Lease), redsync.WithRetryDelayFunc(pause))
		acquire := m.TryLockContext
		if w.Wait {
			acquire = m.LockContext
		}
		if err := acquire(ctx); err != nil {
			return nil, err
		}
		extend := func(ctx context.Context, d time.Duration) (time.Time, error) {
			if d != w.Lease { // redsync extends by the lease that the mutex was made with
				return time.Time{}, fmt.Errorf("by another lease than its first: %w", errors.ErrUnsupported)
			}
			err := orNotHeld(m.ExtendContext(ctx))
			return m.Until(), err
		}
		unlock := func(ctx context.Context) error { return orNotHeld(m.UnlockContext(ctx)) }
		return held(s, m.Value(), m.Until(), unlock, extend), nil
	}}, nil
}

func orNotHeld(ok bool, err error) error {
	if err == nil && !ok {
		return errNotHeld
	}
	return err
}

func openRueidis(s *live.Seat) (live.Library, error) {
	r := &rueidisLibrary{Seat: s, opened: make(chan struct{})}
	go r.connect()
	return &library{r.close, r.acquire}, nil
}

type rueidisLibrary struct {
	*live.Seat
	opened chan struct{} // closed when connect is over
	l      rueidislock.Locker
}

// connect needs a server that answers.
func (r *rueidisLibrary) connect() {
	defer close(r.opened)
	to := r.Nodes[0]
	client := rueidis.ClientOption{InitAddress: []string{to.Addr}, SelectDB: to.Database, ForceSingleClient: true,
		RetryDelay: r.pause}
	if to.Dial != nil {
		client.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return to.Dial(ctx, "tcp", addr)
		}
	}
	for err := error(nil); ; {
		r.l, err = rueidislock.NewLocker(rueidislock.LockerOption{KeyMajority: 1, KeyValidity: r.Plan.Lock.Lease,
			NoLoopTracking: true, ClientOption: client})
		if err == nil || !tenth(r.Life) {
			return
		}
	}
}

// pause draws like rueidis, but from the plan's seed.
func (r *rueidisLibrary) pause(attempts int, _ rueidis.Completed, _ error) time.Duration {
	base := uint64(1) << min(20, attempts)
	return min(time.Second, time.Duration(base+r.Random()%base)*time.Microsecond)
}

func (r *rueidisLibrary) close() error {
	if <-r.opened; r.l != nil {
		r.l.Close()
	}
	return nil
}

func (r *rueidisLibrary) acquire(ctx context.Context, w *live.Wanted) (*live.Held, error) {
	if w.Lease != r.Plan.Lock.Lease {
		return nil, fmt.Errorf("each lock has the Locker's KeyValidity: %w", errors.ErrUnsupported)
	}
	select {
	case <-r.opened:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if r.l == nil {
		return nil, r.Life.Err()
	}
	acquire := r.l.TryWithContext
	if w.Wait {
		acquire = r.l.WithContext
	}
	// The lock ends with the context that it was acquired with, so a step's is only for
	// the wait.
	all, cancel := context.WithCancel(r.Life)
	stop := context.AfterFunc(ctx, cancel)
	lost, release, err := acquire(all, w.Names[0])
	if !stop() && err == nil {
		release()
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	unlock := func(context.Context) error {
		defer cancel()
		if lost.Err() != nil {
			return errNotHeld
		}
		release()
		return nil
	}
	owner, until := r.Holder(w.Names[0]), clock.Never
	if w.Fixed { // it renews always: its user ends it
		until = r.Clock.Now().Add(w.Lease)
		time.AfterFunc(w.Lease, func() { _ = unlock(ctx) })
	}
	return &live.Held{Owner: owner, Lost: lost, Until: func() clock.Instant { return until }, Unlock: unlock}, nil
}

func openBSM(s *live.Seat) (live.Library, error) {
	all := dial(s, s.Nodes[:1])
	locks := redislock.New(all[0])
	return &library{all.close, func(ctx context.Context, w *live.Wanted) (*live.Held, error) {
		options := &redislock.Options{}
		if w.Wait {
			options.RetryStrategy = redislock.LinearBackoff(100 * time.Millisecond)
		}
		l, err := locks.Obtain(ctx, w.Names[0], w.Lease, options)
		// Without a deadline in ctx it gives up after the lease.
		for w.Wait && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			l, err = locks.Obtain(ctx, w.Names[0], w.Lease, options)
		}
		if err != nil {
			return nil, err
		}
		asked := time.Now()
		left, err := l.TTL(ctx)
		if err != nil {
			return nil, errors.Join(err, l.Release(context.WithoutCancel(ctx)))
		}
		extend := func(ctx context.Context, d time.Duration) (time.Time, error) {
			asked := time.Now()
			return asked.Add(d), l.Refresh(ctx, d, nil)
		}
		return held(s, l.Token(), asked.Add(left), l.Release, extend), nil
	}}, nil
}

var (
	deleteOwn = goredislib.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)
	extendOwn = goredislib.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) else return 0 end`)
)

// openSetNX opens the lock that many write by hand.
func openSetNX(s *live.Seat) (live.Library, error) {
	all := dial(s, s.Nodes[:1])
	return &library{all.close, func(ctx context.Context, w *live.Wanted) (*live.Held, error) {
		value := rand.Text()
		run := func(ctx context.Context, script *goredislib.Script, args ...any) error {
			n, err := script.Run(ctx, all[0], w.Names[:1], append([]any{value}, args...)...).Int()
			return orNotHeld(n == 1, err)
		}
		for {
			asked := time.Now()
			ok, err := all[0].SetNX(ctx, w.Names[0], value, w.Lease).Result()
			switch {
			case ok:
				extend := func(ctx context.Context, d time.Duration) (time.Time, error) {
					asked := time.Now()
					return asked.Add(d), run(ctx, extendOwn, d.Milliseconds())
				}
				unlock := func(ctx context.Context) error { return run(ctx, deleteOwn) }
				return held(s, value, asked.Add(w.Lease), unlock, extend), nil
			case !w.Wait:
				return nil, errors.Join(err, errors.New("somebody else has it"))
			case !tenth(ctx):
				return nil, ctx.Err()
			}
		}
	}}, nil
}
