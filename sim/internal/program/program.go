// Package program draws a client's work from the plan's seed, the same wherever the plan
// is played, and has a [Client] do it.
package program

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

type Want struct {
	Names   []string // more than one: all of them or none
	Joint   bool     // each of them a lock of its own, together with faults.Far
	Mode    node.Mode
	Fair    bool
	Lease   time.Duration
	Fixed   bool          // it is not renewed by itself
	Wait    bool          // until it is granted
	Bound   time.Duration // of the wait; 0: none
	Keep    time.Duration // the minimum hold; 0: none
	Nested  bool          // under a lock of the same name, with its context
	Chained bool          // under a lock of an earlier name

	// Ended is when the context ended before the faults were over; nil if it is another
	// lock's context.
	Ended *int64
}

// Length is the lease as an option of redquorum.
func (w *Want) Length() quorum.Option {
	if w.Fixed {
		return quorum.WithFixedLease(w.Lease)
	}
	return quorum.WithLease(w.Lease)
}

// Options are those of redquorum, whether or not it waits.
func (w *Want) Options() []quorum.Option {
	options := append(make([]quorum.Option, 0, 3), w.Length())
	if w.Nested {
		options = append(options, quorum.WithReentry())
	}
	if w.Bound > 0 {
		options = append(options, quorum.WithWait(w.Bound))
	}
	if w.Keep > 0 {
		options = append(options, quorum.WithMinHold(w.Keep))
	}
	switch {
	case len(w.Names) > 1 && !w.Joint:
		options = append(options, quorum.WithNames(w.Names[1:]...))
	case w.Mode == node.Read:
		options = append(options, quorum.WithRead())
	case w.Mode == node.Write:
		options = append(options, quorum.WithWrite())
	case w.Fair:
		options = append(options, quorum.WithFair())
	}
	return options
}

func ModeName(m node.Mode) string {
	if m == node.Exclusive {
		return ""
	}
	return m.String()
}

// A Client is one process of a plan, wherever the plan is played.
type Client interface {
	Plan() *faults.Plan
	Now() clock.Instant
	Rest(ctx context.Context, until clock.Instant) // or until ctx ends
	Context() context.Context                      // ends when the part with faults is over
	Leaving() bool                                 // the process is to end
	Acquire(ctx context.Context, w Want) (Lock, error)
	After(d time.Duration, f func(now int64)) // calls f when d has passed
	Break(name string)
	Inspect(name string)
	// Hand lets another client go on with a lock, or returns false.
	Hand(r *faults.Random, l Lock) bool
	// Handle lets another client go on with a lock next to this one.
	Handle(r *faults.Random, l Lock)
	// Leave restarts the process. It returns false if that cannot be had now.
	Leave() bool
}

type Lock interface {
	Wants() *Want
	Context() context.Context // ends when the lock is lost
	Valid() bool              // as a careful program asks before each use
	Read() (value int, ok bool)
	Write(value int, late time.Duration)
	Extend(d time.Duration)
	Nests() bool       // a lock of the same names may be acquired under it
	Upgrade(w Want)    // asks to write what it reads
	Unnest(inner Lock) // unlocks one that was acquired under it
	Downgrade() Lock   // from writing to reading; nil if the lock was lost
	Unlock() error
	Drop() // and not unlock
}

type Worker struct {
	Client
	Random faults.Random
	Names  []string // of the work's locks
}

// Work lasts until the part with faults is over.
func (k *Worker) Work() {
	for k.Context().Err() == nil && !k.Leaving() {
		k.round()
		k.Rest(k.Context(), k.Now().Add(k.Random.Within(k.Plan().Work.Think)))
	}
}

func (k *Worker) round() {
	r, p := &k.Random, k.Plan()
	work, lock := &p.Work, &p.Lock
	i := r.Below(work.Names)
	if r.Happens(work.Break) {
		k.Break(k.Names[i])
	}
	if r.Happens(work.Inspect) {
		k.Inspect(k.Names[i])
	}
	w := Want{Names: k.Names[i : i+1 : i+1], Wait: !r.Happens(work.Try), Fixed: r.Happens(work.Fixed) || !lock.Renew,
		Lease: lock.Lease, Ended: new(int64)}
	switch {
	case r.Happens(work.Short):
		w.Lease /= 10
	case r.Happens(work.Long):
		w.Lease += time.Duration(r.Below(int(lock.MaxLease-w.Lease) + 1))
	}
	k.choose(&w, k.Names)
	if w.Wait && (!w.Joint || r.Happens(work.Odd)) && r.Happens(work.Bound) {
		w.Bound = time.Duration(1 + r.Below(int(2*w.Lease)))
	}
	if longest := lock.MaxLease; w.Mode == node.Exclusive && !w.Joint && r.Happens(work.MinHold) {
		w.Keep = longest/10 + time.Duration(r.Below(int(longest*8/10)))
	}
	ctx := k.Context()
	if r.Happens(work.Cancel) {
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		// Mostly during the first round.
		after := time.Duration(r.Below(int(4*p.Network.Delay.Max) + 1))
		if r.Below(4) == 0 {
			after = time.Duration(r.Below(int(w.Lease)))
		}
		k.After(after, func(now int64) {
			cancel()
			*w.Ended = now
		})
		ctx = inner
	}
	if l, err := k.Acquire(ctx, w); err == nil {
		k.use(l)
	}
}

// use works under a lock, and releases it.
func (k *Worker) use(l Lock) {
	r, work := &k.Random, &k.Plan().Work
	w := l.Wants()
	hold := r.Within(work.Hold)
	if r.Happens(work.Expiring) {
		hold = Around(r, w.Lease)
	}
	begun := k.Now()
	until := begun.Add(hold)
	value, ok := 0, false
	if l.Valid() {
		value, ok = l.Read()
	}
	if ok && r.Happens(work.Extend) {
		until = max(until, k.extend(l, begun, hold))
	}
	if ok && r.Happens(work.Nest) && l.Nests() {
		l = k.nest(l, hold)
		w = l.Wants()
	}
	if ok && r.Happens(work.Chain) {
		k.chain(l)
	}
	if w.Mode == node.Write && r.Happens(work.Down) {
		k.Rest(l.Context(), begun.Add(time.Duration(r.Below(int(hold)+1))))
		if ok && l.Valid() {
			l.Write(value+1, 0)
		}
		if l = l.Downgrade(); l == nil {
			return
		}
		until = max(until, k.Now().Add(r.Within(work.Hold)))
	}
	if r.Happens(work.Hand) {
		k.Rest(l.Context(), begun.Add(time.Duration(r.Below(int(hold)+1))))
		if k.Hand(r, l) {
			return
		}
	}
	if r.Happens(work.Handle) {
		k.Rest(l.Context(), begun.Add(time.Duration(r.Below(int(hold)+1))))
		k.Handle(r, l)
		ok = false // it leaves the writing to others
	}
	k.Rest(l.Context(), until)
	if ok && l.Valid() {
		k.write(l, value+1)
	}
	k.release(l)
}

// extend extends a lease by hand, and returns until when to hold it.
func (k *Worker) extend(l Lock, begun clock.Instant, hold time.Duration) (until clock.Instant) {
	r, lock := &k.Random, &k.Plan().Lock
	k.Rest(l.Context(), begun.Add(time.Duration(r.Below(int(hold)+1))))
	d := lock.Lease/4 + time.Duration(r.Below(int(lock.MaxLease-lock.Lease/4)+1))
	l.Extend(d)
	if r.Below(2) == 0 { // to its end, or nearly
		until = k.Now().Add(Around(r, d))
	}
	return until
}

// nest acquires a lock again under itself, or some of its names. It returns the lock to
// go on with: the inner one outlives the other if that is unlocked first.
func (k *Worker) nest(l Lock, hold time.Duration) Lock {
	r := &k.Random
	k.Rest(l.Context(), k.Now().Add(time.Duration(r.Below(int(hold/2)+1))))
	inside := *l.Wants()
	inside.Wait, inside.Ended, inside.Nested, inside.Keep = true, nil, true, 0
	if inside.Mode == node.Write && r.Below(2) == 0 {
		inside.Mode = node.Read
	}
	if l.Wants().Mode == node.Read && r.Below(4) == 0 {
		l.Upgrade(inside)
		return l
	}
	odd := !inside.Joint && r.Happens(k.Plan().Work.Odd)
	if n := len(inside.Names); odd {
		inside.Names = inside.Names[:1+r.Below(n)]
	}
	inner, err := k.Acquire(l.Context(), inside)
	if err != nil {
		return l
	}
	k.Rest(k.Context(), k.Now().Add(hold/4))
	if odd && inside.Mode == l.Wants().Mode {
		_ = l.Unlock()
		return inner
	}
	l.Unnest(inner)
	return l
}

// write only reads under a reader's lock.
func (k *Worker) write(l Lock, value int) {
	if l.Wants().Mode == node.Read {
		l.Read()
		return
	}
	// The write arrives after the check of the lease, sometimes long after.
	var late time.Duration
	if p := k.Plan(); k.Random.Happens(p.Work.Late) {
		late = time.Duration(k.Random.Below(int(2 * p.Lock.Lease)))
	}
	l.Write(value, late)
}

// release unlocks, closes the Locker, or drops a lost lock.
func (k *Worker) release(l Lock) {
	r, work := &k.Random, &k.Plan().Work
	switch {
	case r.Happens(work.Close) && k.Leave():
	case errors.Is(context.Cause(l.Context()), quorum.ErrLost) && r.Happens(work.Drop) && !l.Wants().Joint: // whose other part goes on
		l.Drop()
	default:
		_ = l.Unlock()
	}
}

// chain waits for later names while it holds l. All clients lock in this order, so nobody
// waits forever. These waits do not end with the faults.
func (k *Worker) chain(l Lock) {
	r, p := &k.Random, k.Plan()
	later := k.Names
	for _, name := range l.Wants().Names {
		later = later[slices.Index(later, name)+1:]
	}
	if len(later) == 0 {
		return
	}
	i := r.Below(len(later))
	w := Want{Names: later[i : i+1 : i+1], Wait: true, Lease: p.Lock.Lease, Fixed: !p.Lock.Renew, Chained: true}
	k.choose(&w, later)
	if w.Joint {
		w.Joint, w.Names = false, w.Names[:1] // faults.Far is before all others
	}
	inner, err := k.Acquire(l.Context(), w)
	if err != nil {
		return
	}
	if value, ok := inner.Read(); ok && w.Mode != node.Read && inner.Valid() {
		inner.Write(value+1, 0)
	}
	if r.Happens(p.Work.Chain) {
		k.chain(inner)
	}
	_ = inner.Unlock()
}

func (k *Worker) choose(w *Want, names []string) {
	r, work := &k.Random, &k.Plan().Work
	switch {
	case r.Happens(work.Joint):
		w.Joint = true
		if i := r.Below(2 * len(names)); i < len(names) && names[i] != w.Names[0] {
			w.Names = append(w.Names, names[i])
		}
		if !r.Happens(work.Odd) {
			return
		}
	case len(names) > 1 && r.Happens(work.Several):
		out := len(names)
		if len(names) > 2 {
			out = r.Below(2 * len(names)) // is left out
		}
		for i, name := range names {
			if name != w.Names[0] && i != out {
				w.Names = append(w.Names, name)
			}
		}
		return
	}
	if work.Read+work.Write > 0 {
		switch d := faults.Ratio(r.Below(1_000_000)); {
		case d < work.Read:
			w.Mode = node.Read
			return
		case d < work.Read+work.Write:
			w.Mode = node.Write
			return
		}
	}
	w.Fair = r.Happens(work.Fair)
}

// Last acquires each lock once more after the faults, of any kind if the client has no
// steps, until acquire fails.
func (k *Worker) Last(names []string, scripted bool, acquire func(Want) bool) bool {
	lock := &k.Plan().Lock
	for i := range names {
		w := Want{Names: names[i : i+1 : i+1], Lease: lock.Lease, Fixed: !lock.Renew, Wait: true}
		if !scripted {
			k.choose(&w, names)
		}
		if w.Joint = false; w.Mode != node.Exclusive || w.Fair {
			w.Names = w.Names[:1]
		}
		if !acquire(w) {
			return false
		}
	}
	return true
}

func Around(r *faults.Random, d time.Duration) time.Duration {
	return d + time.Duration(r.Below(int(d/5))) - d/10
}

type Steps struct {
	Locks []Lock // that it has acquired, the latest last

	checked *bool // what a check found
}

// Do does a step about the lock that was acquired last. It returns false for other steps.
func (s *Steps) Do(e *faults.Event, value int) bool {
	var l Lock
	if n := len(s.Locks); n > 0 {
		l = s.Locks[n-1]
	}
	valid := (e.Verb == faults.DoCheck || e.Verb == faults.DoWrite) && l != nil && l.Valid()
	switch e.Verb {
	case faults.DoCheck:
		s.checked = &valid
	case faults.DoWrite:
		if s.checked != nil {
			valid, s.checked = *s.checked, nil
		}
		if valid && l != nil {
			l.Write(value, e.Range.Min)
		}
	case faults.DoUnlock, faults.DoExtend, faults.DoDowngrade:
		if l != nil {
			s.release(l, e)
		}
	default:
		return false
	}
	return true
}

func (s *Steps) release(l Lock, e *faults.Event) {
	switch e.Verb {
	case faults.DoExtend:
		l.Extend(e.Offset)
	case faults.DoUnlock:
		s.Locks = s.Locks[:len(s.Locks)-1]
		_ = l.Unlock()
	case faults.DoDowngrade:
		if l.Wants().Mode != node.Write {
			return
		}
		s.Locks = s.Locks[:len(s.Locks)-1]
		if inner := l.Downgrade(); inner != nil {
			s.Locks = append(s.Locks, inner)
		}
	}
}

// Step is what a step to lock or to try asks for.
func Step(e *faults.Event, lock *faults.Lock) Want {
	modes := map[faults.As]node.Mode{faults.ToRead: node.Read, faults.ToWrite: node.Write}
	return Want{Names: strings.Split(e.Name, ","), Mode: modes[e.As], Fair: e.As == faults.Fairly,
		Lease: cmp.Or(e.Lease, lock.Lease),
		Fixed: e.Fixed || !lock.Renew, Wait: e.Verb == faults.DoLock}
}
