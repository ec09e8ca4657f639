package quorum

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A Locker takes locks on one set of nodes. Make one for the life of the
// program; its methods may be called from any task at any time.
type Locker struct {
	nodes []node.Node
	need  int // how many of them must grant
	opts  Options
	clock clock.Clock
	uuid  string

	deployment string // the nodes' names, sorted

	rounds  freelist[round]
	waiters freelist[waiter]
	agenda  *agenda
	last    atomic.Int64 // the highest token made
	lead    atomic.Int64 // microseconds by which the highest fence seen is ahead of the monotonic clock here

	releases atomic.Int64 // how many are not over
	leaving  atomic.Bool  // Close waits for them

	outlasted atomic.Bool // it has told that others have a longer MaxLease

	seen     []seen
	learning sync.Mutex

	listening sync.Once // for turns in line

	mu    sync.Mutex
	hears nodeSet // nodes that have said that they would tell of them

	unwanted []outcast // heirs that are not to have anything any more, as they came
	lines    map[string]*line
	crowds   map[string]struct{} // names that whoever wanted them last had to wait for
	active   int                 // operations under way
	attempts int                 // attempts under way
	outside  []*waiter           // those that wait to make one
	closed   bool                // no new operations
	idle     clock.Signal
}

// New returns a Locker on nodes, at most 63 of them, which from now on belong to
// it: Close closes them. If New fails they remain the caller's. It does not wait
// for them to be reachable. All programs that share locks must list the same
// nodes, in the same order where possible.
func New(nodes []node.Node, options Options) (*Locker, error) {
	opts, err := options.fill()
	if err != nil {
		return nil, err
	}
	switch n := len(nodes); {
	case n == 0:
		return nil, errors.New("quorum: no nodes")
	case n > maxNodes-1:
		return nil, fmt.Errorf("quorum: %d nodes; at most %d are supported", n, maxNodes-1)
	case n%2 == 0 && !opts.AllowEven && opts.Need == 0:
		return nil, fmt.Errorf("quorum: %d nodes survive the loss of no more nodes than %d would; "+
			"list an odd number, or set AllowEven", n, n-1)
	}
	need, err := opts.quorum(len(nodes))
	if err != nil {
		return nil, err
	}
	names := make(map[string]bool)
	for _, n := range nodes {
		if n == nil {
			return nil, errors.New("quorum: a node is nil")
		}
		if names[n.Name()] {
			return nil, fmt.Errorf("quorum: node %s is listed twice: %w", n.Name(), ErrSameServer)
		}
		names[n.Name()] = true
	}
	l := &Locker{
		nodes: nodes,
		need:  need,
		opts:  opts,
		clock: opts.Clock,
		uuid:  uuid(opts.Random(), opts.Random()),

		deployment: strings.Join(slices.Sorted(maps.Keys(names)), ","),

		seen:   make([]seen, len(nodes)),
		lines:  make(map[string]*line),
		crowds: make(map[string]struct{}),
		idle:   opts.Clock.NewSignal(),
	}
	for i := range l.seen {
		l.seen[i].twin.Store(-1)
	}
	l.agenda = newAgenda(l)
	l.clock.Go(l.agenda.serve)
	return l, nil
}

// Lock acquires name, and waits for it until ctx ends or a bound given by
// [WithWait] has passed. The lease is renewed by itself, at each third of its
// length, until it is unlocked (but see [WithFixedLease] and MaxHold).
//
// Errors match ErrHeld or ErrNoQuorum, whichever the last attempt met, joined
// by ctx's error if that ended the wait: then an attempt that was cut off does not
// count if there was one before it. Other errors match ErrDeadlock or ErrClosed. The
// error is ctx's alone if ctx had ended before. An invalid option, and a name that
// is empty or reserved (see [node.CheckName]), return an error that matches none of
// these. A permanent error on too many nodes (a key of another type, a refused password)
// ends the wait at once. An [*Error] has the details.
func (l *Locker) Lock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	s, err := l.settings(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	return l.acquire(ctx, &s)
}

// TryLock acquires name in one attempt, without waiting for another owner. It
// lasts at most Options.Timeout. Errors are those of Lock. While others wait with Lock
// a name goes from one to the next, and hardly any TryLock finds it free.
func (l *Locker) TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	s, err := l.settings(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	s.wait = 0
	return l.acquire(ctx, &s)
}

// Do acquires name as Lock does, calls fn, and unlocks, also if fn panics. fn's
// context is ctx, but it ends as soon as the lease can no longer be relied on: fn must
// then stop. Its cause is that of [Lease.Context]: an error that matches ErrLost, or
// ErrClosed if the Locker was closed meanwhile. Do returns fn's error, joined by one that
// matches ErrNotHeld if the lease did not last until fn returned.
func (l *Locker) Do(ctx context.Context, name string, fn func(context.Context, *Lease) error, opts ...Option) (err error) {
	lease, err := l.Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	defer func() {
		unlocked := lease.Unlock(ctx)
		if !errors.Is(unlocked, ErrNotHeld) {
			return
		}
		if errors.Is(err, context.Cause(lease.Context())) { // then fn has told it all
			unlocked = &Error{Op: "release", Name: lease.h.claim.title(), Err: ErrNotHeld}
		}
		err = errors.Join(err, unlocked)
	}()
	h := lease.h
	h.mu.Lock()
	inner := h.attach(ctx)
	h.mu.Unlock()
	defer h.detach(inner)
	return fn(inner.Context, lease)
}

// Resume takes over a lease from its handle, whichever process acquired it. As
// many nodes as must grant one must still have it. The lease gets the length that it
// was acquired with, unless an option says otherwise, and keeps its token.
//
// What bounds the lease goes on to do so: see [Handle]. Options can bound it more, by
// WithFixedLease, by WithMaxHold, counted from this call, and of a fixed lease by a
// shorter one; what would bound it less has no effect.
//
// Errors match ErrNotHeld when the nodes no longer have it or nothing is left of a
// bound (and ErrMaxHold, if that is why), ErrNoQuorum when too few answered; or are ctx's
// error alone if it had ended before.
func (l *Locker) Resume(ctx context.Context, from Handle, opts ...Option) (*Lease, error) {
	from.restore()
	if err := from.check(); err != nil {
		return nil, err
	}
	if over := from.age(l.clock.Wall(), l.opts.Drift); over != nil {
		c := claim{Claim: node.Claim{Name: from.Name}, names: from.Names}
		return nil, &Error{Op: "resume", Name: c.title(), Need: l.need, Err: ErrNotHeld, Cause: over}
	}
	opts = append([]Option{WithNames(from.Names...), withMode(from.Mode)}, opts...)
	if from.Lease > 0 {
		opts = append([]Option{WithLease(from.Lease)}, opts...)
	}
	s, err := l.settings(ctx, from.Name, opts)
	if err != nil {
		return nil, err
	}
	from.bound(&s)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("resume %q: %w", s.title(), stopped(ctx))
	}
	if !l.enter() {
		return nil, ErrClosed
	}
	defer l.leave()
	c := s.claim
	c.Owner, c.Token = from.Owner, from.Token
	r := l.begin(node.Extend, c, s.lease+l.opts.Grace, l.timeout(s.lease))
	defer r.done()
	r.guarded = true
	r.ask(allNodes(len(l.nodes)))
	verdict := r.await(ctx)
	switch {
	case verdict == won && l.clock.Now() < validUntil(r.start, s.lease, l.opts.Drift):
		l.seeFence(max(from.Token, from.High))
		took := l.clock.Now().Sub(r.start)
		if s.maxHold > 0 { // not from now
			if s.maxHold -= took; s.maxHold <= 0 {
				return nil, r.fail("resume", ErrNotHeld, ErrMaxHold)
			}
		}
		lease := l.admit(ctx, r, &s, from.High)
		lease.h.mayBeKept(l.expiry(r.start, l.opts.MaxLease)) // no extension shortens what the nodes have
		l.observe(Event{Kind: Acquired, Name: s.title(), Owner: c.Owner, Token: c.Token, Took: took})
		return lease, nil
	case r.missing(l.need):
		return nil, r.fail("resume", ErrNotHeld, nil)
	}
	return nil, r.fail("resume", ErrNoQuorum, stopped(ctx))
}

// Close unlocks every lease, ends all waiting with ErrClosed, sees to it that
// what was released before is confirmed, as far as nodes answer, and closes the
// nodes. It lasts at most about three times Options.Timeout, and leaves no task behind, but
// for a Dialer that hangs (see package redisnode). Another Close returns nil at once, also while the first is under way.
func (l *Locker) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	for _, name := range l.inOrder() {
		for _, w := range l.lines[name].queue {
			w.signal.Set()
		}
	}
	idle := l.active == 0
	l.mu.Unlock()
	for !idle {
		l.idle.Wait(context.Background(), clock.Never)
		l.mu.Lock()
		idle = l.active == 0
		l.mu.Unlock()
	}
	l.leaving.Store(true)
	l.agenda.hurry(l.clock.Now())
	var open []farewell
	for _, h := range l.holders() {
		if h.end(ErrClosed) {
			open = append(open, farewell{h: h, start: l.clock.Now(), round: h.release()})
		}
	}
	var unconfirmed error
	for _, f := range open {
		if err := f.released(context.Background()); errors.Is(err, ErrNoQuorum) {
			unconfirmed = errors.Join(unconfirmed, err)
		}
		f.round.done()
	}
	for until := l.clock.Now().Add(l.opts.Timeout); l.releases.Load() > 0; {
		if l.idle.Wait(context.Background(), until) == clock.WakePassed {
			break
		}
	}
	for _, it := range l.agenda.close() {
		if h, ok := it.(*hold); ok && h.end(ErrClosed) { // of a handle that was resumed more than once here: the name has only the latest
			l.observe(Event{Kind: Released, Name: h.claim.title(), Owner: h.claim.Owner, Token: h.claim.Token})
		}
	}
	errs := []error{unconfirmed}
	for _, n := range l.nodes {
		if err := n.Close(); err != nil {
			errs = append(errs, fmt.Errorf("closing node %s: %w", n.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// inOrder returns the names of all lines, sorted. l.mu is held.
func (l *Locker) inOrder() []string {
	names := make([]string, 0, len(l.lines))
	for name := range l.lines {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// holders returns all that is held here, in the order of the names.
func (l *Locker) holders() (holds []*hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range l.inOrder() {
		holds = append(holds, l.lines[name].holds()...)
	}
	return holds
}

// enter notes the begin of an operation, unless the Locker is closed.
func (l *Locker) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.active++
	return true
}

// leave notes its end.
func (l *Locker) leave() {
	l.mu.Lock()
	l.active--
	wake := l.closed && l.active == 0
	l.mu.Unlock()
	if wake {
		l.idle.Set()
	}
}

// timeout bounds a round about a lease of length d.
func (l *Locker) timeout(d time.Duration) time.Duration { return min(l.opts.Timeout, d/3) }

// nextToken makes a token above every one that this Locker has made, and above
// the given one: from the wall clock, so that tokens rise also when all nodes
// have forgotten theirs. But one that is far ahead leads the tokens of its own name
// alone. It fails only when the 53 bits are used up.
func (l *Locker) nextToken(above node.Token) (node.Token, bool) {
	if l.farAhead(above) {
		return above + 1, above < node.MaxToken
	}
	now := max(l.clock.Wall().UnixMicro(), l.micros()+l.lead.Load())
	for {
		last := l.last.Load()
		t := max(now, last+1, int64(above)+1)
		if t > int64(node.MaxToken) {
			return 0, false
		}
		if l.last.CompareAndSwap(last, t) {
			return node.Token(t), true
		}
	}
}

// seeFence learns from a fence that another client's clock is ahead, so that
// the next tokens need not be refused first.
//
// The lead is over the monotonic clock. Over one that is set to and fro it would
// be counted again each time, and tokens would run away from all clocks.
func (l *Locker) seeFence(fence node.Token) {
	if l.farAhead(fence) {
		return
	}
	d := int64(fence) - l.micros()
	for {
		lead := l.lead.Load()
		if d <= lead || l.lead.CompareAndSwap(lead, d) {
			return
		}
	}
}

// farAhead reports whether a token is further ahead than clocks may differ. Somebody
// wrote it, or a clock was far off; it concerns its own name alone.
func (l *Locker) farAhead(token node.Token) bool { return token > l.horizon() }

// horizon is the highest token that is not.
func (l *Locker) horizon() node.Token {
	return node.Token(l.clock.Wall().UnixMicro() + l.opts.FenceRetention.Microseconds())
}

// micros reads the monotonic clock in the unit of tokens.
func (l *Locker) micros() int64 { return int64(l.clock.Now()) / 1000 }

// ownerName makes the owner of one attempt, in the form that Redisson gives its
// owners. The number is drawn anew from the random source each time, so that
// not even two copies of one process can make the same.
func (l *Locker) ownerName() string {
	b := make([]byte, 0, 64)
	b = append(b, l.uuid...)
	b = append(b, ':')
	return string(strconv.AppendUint(b, l.opts.Random()>>1, 10))
}

// uuid formats random bits as a UUID of version 8 (RFC 9562, section 5.8), by which
// [node.Foreign] knows redquorum's owners.
func uuid(hi, lo uint64) string {
	hi = hi&^0xf000 | 0x8000
	lo = lo&^(3<<62) | 2<<62
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", hi>>32, hi>>16&0xffff, hi&0xffff, lo>>48, lo&(1<<48-1))
}

// chance draws a number from 0 up to 1.
func (l *Locker) chance() float64 { return float64(l.opts.Random()>>11) / (1 << 53) }

func (l *Locker) observe(e Event) {
	if l.opts.Observer != nil {
		l.opts.Observer.Observe(e)
	}
}
