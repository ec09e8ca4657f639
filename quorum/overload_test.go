package quorum_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// A busy server takes equally long for each command, and also executes those that nobody
// waits for.
type busy struct {
	mu     sync.Mutex
	free   time.Time
	each   time.Duration        // command
	away   time.Duration        // there and back
	jitter func() time.Duration // on top of that, in order
	last   time.Time            // when it answered last
}

// turn returns when the next command's answer will have come.
func (b *busy) turn() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); b.free.Before(now) {
		b.free = now
	}
	b.free = b.free.Add(b.each)
	at := b.free.Add(b.away)
	if b.jitter != nil {
		at = at.Add(b.jitter())
	}
	if b.last.Before(at) {
		b.last = at
	}
	return time.Until(b.last)
}

func (w *world) busy(o quorum.Options, servers []*busy) *quorum.Locker {
	return w.through(o, func(i int, n node.Node, cmd node.Command, reply func(node.Reply)) {
		cmd = own(cmd)
		var once sync.Once
		late := time.AfterFunc(cmd.Deadline.Sub(w.clock.Now()), func() { once.Do(func() { reply(node.Reply{Err: node.ErrTimeout}) }) })
		cmd.Deadline = cmd.Deadline.Add(time.Hour)
		time.AfterFunc(servers[i].turn(), func() {
			n.Submit(cmd, func(r node.Reply) {
				late.Stop()
				once.Do(func() { reply(r) })
			})
		})
	})
}

// An overload is programs that ask much of servers for a while, and little before and
// after.
type overload struct {
	programs, few, many int           // callers of each
	joins               time.Duration // the first is there, the others begin so long after each other under load
	timeouts            []time.Duration
	servers             []*busy
	take                func(l *quorum.Locker, name string) (*quorum.Lease, error)
}

func lockFor2s(l *quorum.Locker, name string) (*quorum.Lease, error) {
	return l.Lock(background, name, quorum.WithWait(2*time.Second))
}

func within300ms(l *quorum.Locker, name string) (*quorum.Lease, error) {
	ctx, cancel := context.WithTimeout(background, 300*time.Millisecond)
	defer cancel()
	return l.Lock(ctx, name)
}

func tryAtOnce(l *quorum.Locker, name string) (*quorum.Lease, error) {
	return l.TryLock(background, name)
}

func tryFor(d time.Duration) func(*quorum.Locker, string) (*quorum.Lease, error) {
	return func(l *quorum.Locker, name string) (*quorum.Lease, error) {
		ctx, cancel := context.WithTimeout(background, d)
		defer cancel()
		return l.TryLock(ctx, name)
	}
}

func alike(n int, one func() *busy) (all []*busy) {
	for range n {
		all = append(all, one())
	}
	return all
}

const calm, load = 3, 8 // seconds

// run returns the number of locks in each second, and of held leases that were lost.
func (o overload) run(w *world) (locks [2*calm + load]int, lost int) {
	var mu sync.Mutex
	began := time.Now()
	var all sync.WaitGroup
	callers := func(l *quorum.Locker, p, n int, from, to time.Duration) {
		for i := range n {
			all.Go(func() {
				for time.Sleep(time.Until(began.Add(from))); time.Since(began) < to; {
					lease, err := o.take(l, fmt.Sprint(p, "/", i))
					if err != nil {
						time.Sleep(5 * time.Millisecond)
						continue
					}
					mu.Lock()
					if s := int(time.Since(began) / time.Second); s < len(locks) {
						locks[s]++
					}
					mu.Unlock()
					_ = lease.Unlock(background)
				}
			})
		}
	}
	before, after := calm*time.Second, (calm+load)*time.Second
	var held []*quorum.Lease
	for p := range o.programs {
		from := before
		if p > 0 && o.joins > 0 {
			from += time.Duration(p) * o.joins
			time.Sleep(time.Until(began.Add(from)))
		}
		timeout := 500 * time.Millisecond
		if o.timeouts != nil {
			timeout = o.timeouts[p%len(o.timeouts)]
		}
		l := w.busy(quorum.Options{NoRestartGuard: true, Timeout: timeout}, o.servers)
		held = append(held, lock(w.t, l, fmt.Sprint("held", p), quorum.WithLease(3*time.Second)))
		if from == before {
			callers(l, p, o.few, 0, before)
		}
		callers(l, p, o.many, from, after)
		callers(l, p, o.few, after, after+before)
	}
	all.Wait()
	for _, l := range held {
		if l.Context().Err() != nil {
			lost++
		}
	}
	return locks, lost
}

// While programs ask for much more than the nodes can do, these do as much as before, and
// no lease is lost. Afterwards nothing of it is left.
func TestOverload(t *testing.T) {
	slow := func() *busy { return &busy{each: time.Millisecond} }
	quick := func() *busy { return &busy{each: time.Millisecond / 5} }
	far := func() *busy { return &busy{each: time.Millisecond, away: 10 * time.Millisecond} }
	further := func() *busy { return &busy{each: time.Millisecond, away: 100 * time.Millisecond} }
	jitters := func() *busy {
		return &busy{each: time.Millisecond, jitter: func() time.Duration { return rand.N(20 * time.Millisecond) }}
	}
	oneSlow := append(alike(4, slow), &busy{each: 10 * time.Millisecond})
	for what, o := range map[string]overload{
		"Lock":                        {take: lockFor2s},
		"a context of 300 ms":         {take: within300ms},
		"TryLock":                     {take: tryAtOnce},
		"TryLock, a context of 100ms": {take: tryFor(100 * time.Millisecond)},
		"TryLock, a context of 50ms":  {take: tryFor(50 * time.Millisecond)},
		"TryLock, 8 programs, 50ms":   {take: tryFor(50 * time.Millisecond), programs: 8, few: 2, many: 100},
		"many programs":               {take: lockFor2s, programs: 24, few: 2, many: 50, servers: alike(3, quick)},
		"far":                         {take: lockFor2s, servers: alike(3, far)},
		"further":                     {take: lockFor2s, servers: alike(3, further), few: 40},
		"jitter":                      {take: lockFor2s, servers: alike(3, jitters)},
		"a slow node of five":         {take: lockFor2s, servers: oneSlow},
		"programs that join":          {take: lockFor2s, programs: 12, few: 2, many: 40, joins: 600 * time.Millisecond},
		"Timeouts that differ":        {take: lockFor2s, timeouts: []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second}},
	} {
		t.Run(what, func(t *testing.T) {
			if o.programs == 0 {
				o.programs, o.many = 3, 600
			}
			if o.few == 0 {
				o.few = 4
			}
			if o.servers == nil {
				o.servers = alike(3, slow)
			}
			inWorld(t, len(o.servers), func(w *world) {
				locks, lost := o.run(w)
				t.Log(locks, lost)
				before := slices.Min(locks[1:calm])
				ensure(t, lost == 0, "%d leases are lost", lost)
				ensure(t, 2*slices.Min(locks[calm:calm+load]) >= before, "before it, under load, and after it: %v", locks)
				ensure(t, 10*slices.Min(locks[calm+load+1:2*calm+load-1]) >= 9*before, "after it: %v", locks)
			})
		})
	}
}

// They are repeated a few at a time, so that they are no load of their own.
func TestFewRepeatsAtATime(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		var mu sync.Mutex
		open, most := 0, 0
		l := w.through(quorum.Options{}, func(i int, n node.Node, cmd node.Command, reply func(node.Reply)) {
			if i > 0 || cmd.Kind != node.Release {
				n.Submit(cmd, reply)
				return
			}
			mu.Lock()
			open++
			most = max(most, open)
			mu.Unlock()
			n.Submit(cmd, func(r node.Reply) {
				mu.Lock()
				open--
				mu.Unlock()
				reply(r)
			})
		})
		var leases []*quorum.Lease
		for i := range 100 {
			leases = append(leases, lock(t, l, fmt.Sprint("x", i)))
		}
		w.nodes[0].Hang(true)
		for _, lease := range leases {
			unlock(t, lease)
		}
		time.Sleep(2 * time.Second) // each was repeated once
		mu.Lock()
		most = 0
		mu.Unlock()
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		ensure(t, most > 0 && most <= 4, "%d releases are repeated at the same time", most)
	})
}
