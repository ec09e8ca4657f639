package quorum

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// Defaults returns what the zero value of [Options] means. Lease is MaxLease if that is less.
func Defaults() Options {
	return Options{
		Lease:          30 * time.Second,
		MaxLease:       30 * time.Second,
		Drift:          0.01,
		Timeout:        500 * time.Millisecond,
		RetryEvery:     time.Second,
		FenceRetention: 24 * time.Hour,
	}
}

// Options configure a Locker. The zero value is sensible.
type Options struct {
	// Lease is how long a lock lasts without renewal. The name of a dead holder stays
	// taken for that time. It must be at most MaxLease. 0 means 30 s, or MaxLease if
	// that is less.
	Lease time.Duration

	// MaxLease is the longest lease in use anywhere in the deployment, by any program
	// that shares locks over these nodes: a longer one is refused. A node that restarted
	// is ignored for MaxLease and Grace, because it may have forgotten a lock. So is a
	// new node, because it looks the same. For renewals it is ignored for a third of
	// MaxLease. An attempt must be decided within a third of MaxLease, and waiters are handed a
	// lock directly only if that is no less than RetryEvery. 0 means 30 s.
	MaxLease time.Duration

	// MaxHold bounds how long one acquisition is renewed, counted from the
	// acquisition; after it the lease ends with ErrMaxHold. 0 means no bound.
	MaxHold time.Duration

	// Grace is how much longer the nodes keep a key than its holder relies on
	// it: time for work to stop after its context ended. The name stays taken
	// that much longer if the holder dies. It should be the same in all programs.
	// Direct hand-over needs Grace <= Timeout.
	Grace time.Duration

	// Drift is by what fraction of itself a lease is shortened, because clocks
	// run at different rates; 2 ms are added. It must cover the drift of the
	// holder's clock and that of the nodes' together. 0 means 0.01.
	Drift float64

	// Timeout bounds one round of commands to the nodes, and so every operation that
	// does not wait for the lock: TryLock, Extend, Resume, Unlock. If a third of the
	// lease is shorter, that is the bound for all of these but Unlock. 0 means 500 ms.
	Timeout time.Duration

	// RetryEvery is how long a waiter sleeps at most before it tries again without a
	// notice, as notices can be lost. If nodes hang and attempts take long, it may
	// sleep for Timeout more, or, if it has no place in a queue, for a few times as
	// long as an attempt. 0 means 1 s.
	RetryEvery time.Duration

	// MaxDown bounds how long a call waits for a lock while so many nodes do not answer that none can
	// be granted. When that has lasted for MaxDown, calls that wait return ErrNoQuorum, and so do later
	// calls at once, but for one each RetryEvery, which asks the nodes. A call that waits learns of it
	// after RetryEvery and Timeout more at most. 0 means no bound: calls wait as long as they would for
	// a holder. Renewal goes on in any case.
	MaxDown time.Duration

	// FenceRetention is how long nodes remember the highest fencing token of a name,
	// counted from the acquisition: renewal and Unlock bring no higher token. After a
	// fence has expired, tokens still rise if the wall clocks of all clients agree to
	// within this time. After nodes have restarted without the fence, they rise if the
	// clocks agree to within MaxLease less Timeout, because a token may be Timeout
	// behind its clock. 0 means 24 h.
	//
	// It costs memory on every node: about 150 bytes for each name, for that time. Ten new names a
	// second are 130 MB in 24 hours, and 5 MB in one. Names of a fixed set cost no more than
	// the set.
	FenceRetention time.Duration

	// Quorum is how many nodes must grant a lease, and keep it at each renewal, and
	// confirm an Unlock: more than half of them. 0 means a majority, the least
	// that is safe.
	//
	// More than a majority guards against nodes that forget a lock unnoticed. If every
	// program needs k of N nodes, up to 2k-N-1 may forget a lock, and still nobody else
	// gets it: none with 3 of 5, two with 4 of 5, four with 5 of 5. It costs
	// availability: if more than N-k nodes are down or slow, nobody gets or keeps a
	// lease. If a few nodes have lost a lease and a majority still has it, renewal puts
	// it back on them; the lease ends if that has not worked by the end of its time.
	//
	// Programs with different Quorums exclude each other, too; between them k is the
	// mean of the two.
	//
	// An even number of nodes is refused unless Quorum is set: its majority survives no more
	// failures than that of one node fewer.
	Quorum int

	// NoRestartGuard lets a node vote right after a start. Safe only if no
	// node can forget a lock that it has granted: appendfsync always, or, in tests,
	// servers that never had one.
	NoRestartGuard bool

	// Prefix is put before every name on the nodes, such as "shop/". Applications that share
	// servers and have different prefixes cannot take each other's locks. All keys and channels
	// of a name contain it, so an ACL can use it (see package redisnode). All programs that
	// share locks must have the same one. Names in this package do not show it: those in errors,
	// events, reports and handles are without it.
	Prefix string

	// SharedNodes leaves the nodes open at Close, since other Lockers use them as well.
	// Their maker closes them, when the last Locker is closed.
	SharedNodes bool

	// Label says for people which program this is. It is shown to those who ask who holds a lock: by
	// Inspect, in errors that match ErrHeld, and by the commands status and list. What follows the
	// first 100 bytes is left out, and what cannot be printed becomes "?". "" means the host, the process ID and the program's name;
	// [NoLabel] means none.
	//
	// Each node keeps it in one key for the Locker, however many locks it has. The key is written
	// while the Locker acquires, waits for or renews locks, at most once in half of MaxLease, and
	// expires after twice MaxLease.
	Label string

	// Observe receives every event; nil means none. One goroutine calls it, with one event after the
	// other, in the order in which they happened. It may block: nothing of the Locker waits for it but
	// Close, for at most Timeout. Up to 65,536 events wait for it; an [EventsLeftOut] says how many did
	// not fit. If it panics, the program ends.
	Observe func(Event)

	// Trace receives every event as Observe does, but at once, in the goroutine in which it happens,
	// and by several at the same time. It is for simulators and tests. It must not block, panic, or
	// call the Locker: if it blocks, renewals are late and leases are lost.
	Trace func(Event)

	// Logger gets lost leases as errors. It gets warnings for nodes that fail, that are
	// ignored because they restarted or are listed twice, and for leases that reach
	// their MaxHold. Its handler may block, as Observe may: 4,096 lines wait for it, and the log
	// says how many did not fit. Nil means no log.
	Logger *slog.Logger

	// Clock is where time comes from. Nil means clock.System().
	Clock clock.Clock

	// Random returns 64 random bits, for owner names and jitter. It must be
	// unpredictable, and different after a virtual machine was cloned. Nil
	// means the kernel's generator.
	Random func() uint64
}

// longest bounds what is added to instants and sent to servers. For "never" it
// is long enough.
const longest = 10 * 365 * 24 * time.Hour

// fill returns o with defaults in place of zeros, or what is wrong with it.
func (o Options) fill() (Options, error) {
	def := Defaults()
	for _, d := range []struct {
		name  string
		field *time.Duration
		def   time.Duration
	}{
		{"MaxLease", &o.MaxLease, def.MaxLease},
		{"Lease", &o.Lease, min(def.Lease, cmp.Or(o.MaxLease, def.MaxLease))},
		{"MaxHold", &o.MaxHold, 0},
		{"Grace", &o.Grace, 0},
		{"Timeout", &o.Timeout, def.Timeout},
		{"RetryEvery", &o.RetryEvery, def.RetryEvery},
		{"MaxDown", &o.MaxDown, 0},
		{"FenceRetention", &o.FenceRetention, def.FenceRetention},
	} {
		if *d.field < 0 || *d.field > longest {
			return o, fmt.Errorf("quorum: Options.%s is %v; it must not be negative, nor more than %v", d.name, *d.field, longest)
		}
		*d.field = cmp.Or(*d.field, d.def)
	}
	o.Drift = cmp.Or(o.Drift, def.Drift)
	if !(o.Drift > 0 && o.Drift < 0.5) {
		return o, fmt.Errorf("quorum: Options.Drift is %v; it must be between 0 and 0.5, as a lease is shortened by it twice", o.Drift)
	}
	if short := min(o.Timeout, o.RetryEvery); short < time.Millisecond {
		return o, fmt.Errorf("quorum: Options.Timeout is %v and Options.RetryEvery is %v; each must be at least 1ms", o.Timeout, o.RetryEvery)
	}
	if o.FenceRetention < o.MaxLease {
		return o, fmt.Errorf("quorum: Options.FenceRetention is %v; it must not be shorter than MaxLease, %v", o.FenceRetention, o.MaxLease)
	}
	if o.Prefix != "" {
		if err := node.CheckName(o.Prefix); err != nil {
			return o, fmt.Errorf("quorum: Options.Prefix is before every name: %w", err)
		}
	}
	o.Label = shortLabel(cmp.Or(o.Label, defaultLabel()))
	o.Clock = cmp.Or(o.Clock, clock.System())
	if o.Random == nil {
		o.Random = kernelRandom
	}
	return o, o.checkLease(o.Lease)
}

// checkLease says what is wrong with a lease of length d.
func (o *Options) checkLease(d time.Duration) error {
	switch {
	case d <= 0:
		return fmt.Errorf("quorum: lease is %v; it must be more than 0", d)
	case d > o.MaxLease:
		return fmt.Errorf("quorum: lease of %v is longer than MaxLease, %v; "+
			"to use such leases, raise MaxLease in every program that shares these nodes", d, o.MaxLease)
	case d <= 2*drift(d, o.Drift):
		return fmt.Errorf("quorum: lease of %v is too short: the allowance for clock drift is %v", d, drift(d, o.Drift))
	}
	return nil
}

func kernelRandom() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, says its documentation
	return binary.LittleEndian.Uint64(b[:])
}

// An Option changes one acquisition.
type Option func(*settings)

// settings are what one acquisition was asked for.
type settings struct {
	claim   // without owner and token
	lease   time.Duration
	maxHold time.Duration
	minHold time.Duration // as it was asked for
	keep    time.Duration // how long the nodes keep the name at least; 0: as long as the lease lasts
	wait    time.Duration // < 0: no bound
	fixed   bool
	fair    bool
	reentry bool
	outer   []*hold // that the context belongs to, and that have or had any of the names
	err     error
}

// WithLease makes the lease last d between renewals instead of Options.Lease. It
// must be at most Options.MaxLease. An attempt takes at most a third of it, and has to make the connections
// if there are none yet.
func WithLease(d time.Duration) Option { return func(s *settings) { s.lease = d } }

// WithFixedLease makes the lease last d, at most Options.MaxLease, and never renews it,
// like an explicit leaseTime in Redisson.
func WithFixedLease(d time.Duration) Option {
	return func(s *settings) { s.lease, s.fixed = d, true }
}

// WithMaxHold bounds the renewal of this lease instead of Options.MaxHold.
func WithMaxHold(d time.Duration) Option {
	return func(s *settings) {
		s.maxHold = d
		if d <= 0 {
			s.err = fmt.Errorf("quorum: MaxHold is %v; it must be more than 0", d)
		}
	}
}

// WithWait bounds how long Lock and Do wait for the name. After it they return ErrHeld
// or ErrNoQuorum, depending on the last attempt. An attempt under way at that time may
// take up to Options.Timeout more. TryLock never waits.
func WithWait(d time.Duration) Option {
	return func(s *settings) {
		s.wait = d
		if d < 0 {
			s.err = fmt.Errorf("quorum: wait is %v; it must not be negative", d)
		}
	}
}

// WithReentry lets the acquisition share the lease that the context belongs to, if that is one
// of the name: it is granted at once and counted, and the name is released by the Unlock of
// the last of them. Nested leases share token, length and bounds of the outermost one. A lease
// of several names can nest some or all of them, and a writer's lease can nest readers.
//
// The context is the one of a lease, or what Do gives its function, or made from either.
// Without the option an acquisition with such a context fails at once, with ErrDeadlock: it
// would wait for its own lease. A goroutine that has to wait for that lease needs another
// context. With the option, goroutines that share the context do not exclude each other.
//
// The nodes know nothing of this: counts kept there would diverge.
func WithReentry() Option { return func(s *settings) { s.reentry = true } }

func (l *Locker) settings(ctx context.Context, name string, opts []Option) (settings, error) {
	s := settings{lease: l.opts.Lease, maxHold: l.opts.MaxHold, wait: -1}
	for _, o := range opts {
		if o != nil {
			o(&s)
		}
	}
	err := cmp.Or(s.err, s.setNames(name, l.checkName), l.opts.checkLease(s.lease), s.setKeep(&l.opts))
	switch {
	case err != nil:
	case s.fair && s.names != nil:
		err = errors.New("quorum: WithFair is for one name: with several names, later callers may take a free one first")
	case s.fair && s.mode != node.Exclusive:
		err = errors.New("quorum: WithFair cannot be combined with WithRead or WithWrite")
	}
	for name := range s.each() {
		if h, ok := ctx.Value(holdKey{l, name}).(*hold); ok {
			s.outer = append(s.outer, h)
		}
	}
	return s, err
}

// A holdKey is where a context has the hold of one name that it belongs to.
type holdKey struct {
	l    *Locker
	name string
}
