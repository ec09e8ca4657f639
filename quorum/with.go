// Options of an acquisition; type call, which they change, and the method of Locker that makes it.

package quorum

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// An Option changes one acquisition.
type Option func(*claim.Want)

// WithLease makes the lease last d between renewals instead of Options.Lease. It must be
// at most Options.MaxLease. An attempt takes at most a third of it, and has to make the
// connections if there are none yet.
func WithLease(d time.Duration) Option { return func(w *claim.Want) { w.Lease = d } }

// WithFixedLease makes the lease last d, at most Options.MaxLease, and never renews it,
// like an explicit leaseTime in Redisson.
func WithFixedLease(d time.Duration) Option {
	return func(w *claim.Want) { w.Lease, w.Fixed = d, true }
}

// WithMaxHold bounds the renewal of this lease instead of Options.MaxHold.
func WithMaxHold(d time.Duration) Option {
	return func(w *claim.Want) {
		w.MaxHold = d
		if d <= 0 {
			w.Err = fmt.Errorf("quorum: MaxHold is %v; it must be more than 0", d)
		}
	}
}

// WithWait bounds how long Lock and Do wait for the name. After it they return ErrHeld
// or ErrNoQuorum, depending on the last attempt. An attempt under way at that time may
// take up to Options.Timeout more. TryLock never waits,
// and nor does a wait of 0. A negative one is refused.
func WithWait(d time.Duration) Option {
	return func(w *claim.Want) {
		w.Wait = d
		if d < 0 {
			w.Err = fmt.Errorf("quorum: wait is %v; it must not be negative", d)
		}
	}
}

// WithFair serves waiters first come, first served, among all programs that use it. The
// order is as exact as the programs' wall clocks, and as the order in which nodes hear of
// waiters. With TryLock the name is granted only if nobody waits for it.
//
// Acquisitions without WithFair wait in the same queue, but take the name whenever they
// find it free. Redisson's fair locks have queues of their own: do not mix the two.
//
// Each waiter draws a ticket once, and every node serves waiters in the order of their
// tickets. A waiter that gets too few nodes returns them at once and keeps its place. A
// place expires if its waiter has not asked for Options.RetryEvery and three times
// Options.Timeout, so a dead waiter blocks the others for that long at most. Only the
// first waiter of a Locker asks for a place. So if the name is held for less than a round
// trip, waiters of other Lockers may pass the others.
func WithFair() Option { return func(w *claim.Want) { w.Fair = true } }

// WithReentry lets the acquisition share the lease that the context belongs to, if that
// is one of the name: it is granted at once and counted, and the name is released by the
// Unlock of the last of them, also if the outermost one is that of Do. Nested leases
// share token, length and bounds of the outermost one. A lease of several names can nest
// some or all of them, and a writer's lease can nest readers.
//
// The context is the one of a lease, or what Do gives its function, or made from either.
// Without the option an acquisition with such a context fails at once, with ErrDeadlock:
// it would wait for its own lease. A goroutine that has to wait for that lease needs
// another context. With the option, goroutines that share the context do not exclude each
// other.
//
// The nodes know nothing of this: counts kept there would diverge.
func WithReentry() Option { return func(w *claim.Want) { w.Reentry = true } }

// WithNames makes one lock of several names: the given one and more. It is all or nothing
// on every node, in one round trip, with one lease and one fencing token, which is above
// those of all earlier holders of each name. It excludes all others that have or want any
// of them. Duplicates count once, and the order does not matter. There may be 5,000
// names, of 1 MiB together. While a server locks so many, up to a tenth of a second, it
// executes no other command.
//
// A waiter is queued on each of its names, and is served when it is first for each and
// all are free. While one name stays locked, callers behind it may take the others. If
// the names come and go but are never free together, it reserves them in sorted order. A
// reservation lasts as long as the waiter has waited, times the number of names less one,
// and at most twice the longer of Options.RetryEvery and Options.Timeout; if the waiter
// dies meanwhile, three Options.Timeout more. Under contention it gets about as many
// turns as a waiter for one name. Of the waiters of one Locker that have the same first
// name, one at a time asks the nodes.
//
// Acquire locks in sorted order if you take them one after the other. Otherwise two
// callers may wait for each other until one of them gives up: one holds a name and waits
// for several, and one of these sorts before the name it holds.
func WithNames(more ...string) Option {
	return func(w *claim.Want) { w.Names = append(w.Names, more...) }
}

// WithMinHold keeps the name taken for at least d from the start of the attempt that
// acquired it, even if the work is done earlier. So a job that ten hosts start at about
// the same time, each by its own clock, runs once.
//
// If Unlock comes before d is over, the lease ends as usual, but the name stays taken:
// Unlock confirms that on a quorum, and returns the errors that it always returns. The
// name is released when d is over and Options.Drift of it more, and a waiter then gets it
// as after any release. Close, a crash and a lost lease do not release it earlier either;
// [Locker.Break] does.
//
// The nodes have the name for d from the start, so d and its drift must be at most
// Options.MaxLease. If the process ends while the name is kept, it expires on the nodes:
// when d is over, or a lease after the last renewal if that is later.
//
// It is for plain locks, of one or several names, and cannot be combined with WithRead,
// WithWrite or LockAll. A nested lease shares the time of the outermost one, and must not
// ask for more. A [Handle] carries the time that is left; do not resume one after Unlock.
// Waiters that ask for it are notified of a release, but the lock is not handed over to
// them, which takes one more round trip.
func WithMinHold(d time.Duration) Option {
	return func(w *claim.Want) {
		w.MinHold = max(w.MinHold, d)
		if d <= 0 || d > longest {
			w.Err = fmt.Errorf("quorum: MinHold is %v; it must be more than 0, and at most %v", d, longest)
		}
	}
}

// WithNote says for people what the lease is for: a job, a URL, a trace. It is shown with
// the holder's label to those who ask: by Inspect, in errors that match ErrHeld, and by
// the commands status and list. It must be printable, in UTF-8, and have at most 256
// bytes. Everybody who may use the nodes can read it: keep secrets out of it.
//
// [Lease.SetNote] changes it. Each node keeps it in one key, until Unlock, or twice
// Options.MaxLease after the last renewal. Nothing waits until it is written, and a node
// that misses a change may show the old text for half of Options.MaxLease. A nested lease
// has the note of the outermost. A [Handle] does not carry it; give it to Resume again.
func WithNote(text string) Option {
	return func(w *claim.Want) {
		w.Note = text
		if err := checkNote(text); err != nil {
			w.Err = err
		}
	}
}

// WithRead makes the acquisition a reader's: it shares the name with other readers, and
// excludes writers and plain acquisitions.
//
// A reader's fencing token is above those of all earlier writers, and below those of all
// later ones. So a resource that refuses tokens below the highest writer's also refuses a
// reader whose lease ended before that writer came. Tokens of different readers have no
// order.
//
// Readers and writers wait in one queue. A release hands the lock to its first waiter or,
// if that reads, to all readers up to the next writer, with one token. So a reader that
// comes while a writer waits is served after that writer, even with TryLock; re-entry
// does not wait.
func WithRead() Option { return withMode(node.Read) }

// WithWrite makes the acquisition a writer's: it excludes readers, writers and plain
// acquisitions. Use a name in one way only, as readers and writers or as a plain lock:
// tokens do not always rise from a reader to a plain acquisition.
//
// Readers that renew their leases for long block writers, and every waiter behind these.
// Options.MaxHold bounds that.
//
// The holder of a write lease can also read, by an acquisition with the lease's context,
// WithRead and WithReentry. If the write leases are unlocked first, the read leases go on
// as ordinary ones, with the same token. A reader cannot become a writer: that fails at
// once with ErrDeadlock, since it would wait for itself, or two readers for each other.
func WithWrite() Option { return withMode(node.Write) }

func withMode(mode node.Mode) Option {
	return func(w *claim.Want) {
		if w.Mode != node.Exclusive && w.Mode != mode {
			w.Err = errors.New("quorum: WithRead and WithWrite exclude each other")
		}
		w.Mode = mode
	}
}

// A call is one acquisition: what it asks for, and what is found out for its error.
type call struct {
	claim.Want
	l      *Locker
	holder *holder // of the name, once a task has found it; nil before the first
}

// setNames makes the sorted list of names; first is the one given to Lock.
func (s *call) setNames(first string, check func(string) error) error {
	s.Name = first
	if len(s.Names) > 0 {
		names := append(s.Names, first)
		slices.Sort(names)
		names = slices.Compact(names)
		s.Name, s.Names = names[0], names
		if len(names) == 1 {
			s.Names = nil
		}
	}
	if s.Names != nil && s.Mode != node.Exclusive {
		return errors.New("quorum: WithNames cannot be combined with WithRead or WithWrite: readers and writers have one name")
	}
	if n := len(s.Names); n > maxNames {
		return fmt.Errorf("quorum: one lock has %d names, at most %d are supported", n, maxNames)
	}
	sum := 0
	for name := range s.Each() {
		if err := check(name); err != nil {
			return err
		}
		sum += len(name)
	}
	if sum > maxNamesBytes {
		return fmt.Errorf("quorum: the names of one lock have %d bytes together, at most %d are supported", sum,
			maxNamesBytes)
	}
	return nil
}

// These bound the names of one lock: a server executes no other command meanwhile.
// Redis 7.0 takes 60 ms for 5,000 names that are free, and 80 to 100 ms if there are
// waiters; for twice as many about three times as long.
const (
	maxNames      = 5000
	maxNamesBytes = 1 << 20
)

// setKeep decides how long nodes keep the name at least, whatever the pace of their
// clocks.
func (s *call) setKeep(o *Options) error {
	if s.MinHold > 0 {
		s.Keep = max(s.Keep, s.MinHold+vote.Drift(s.MinHold, o.Drift))
	}
	switch {
	case s.Keep == 0:
	case s.Mode != node.Exclusive:
		return errors.New("quorum: WithMinHold cannot be combined with WithRead or WithWrite: only a plain lock is kept after Unlock")
	case s.Keep > o.MaxLease:
		return fmt.Errorf("quorum: MinHold and its drift are %v, longer than MaxLease, %v; "+
			"raise MaxLease in every program that uses this name", s.Keep, o.MaxLease)
	}
	return nil
}

// call makes a call, or says what is wrong with it.
func (l *Locker) call(name string, options []Option) (*call, error) {
	s := &call{l: l, Want: claim.Want{Lease: l.opts.Lease, MaxHold: l.opts.MaxHold, Wait: -1}}
	claim.Change(&s.Want, options)
	err := cmp.Or(s.Err, s.setNames(name, l.checkName), l.opts.checkLease(s.Lease), s.setKeep(&l.opts))
	switch {
	case err != nil:
	case s.Fair && s.Names != nil:
		err = errors.New("quorum: WithFair is for one name: with several names, later callers may take a free one first")
	case s.Fair && s.Mode != node.Exclusive:
		err = errors.New("quorum: WithFair cannot be combined with WithRead or WithWrite")
	}
	return s, err
}
