package live

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
)

// A worker is one task of the plan's drawn work. It draws other numbers than the simulator does.
type worker struct {
	p      *Player
	random *rand.Rand
}

// Undrawn returns the shares of the work that a Player leaves out, by the names that the plan
// language has for them.
func Undrawn(w *faults.Work) (left []string) {
	for _, s := range []struct {
		name  string
		share faults.Ratio
	}{{"nest", w.Nest}, {"close", w.Close}, {"drop", w.Drop}, {"hand", w.Hand}, {"break", w.Break}, {"inspect", w.Inspect}, {"bound", w.Bound}, {"minhold", w.MinHold}, {"joint", w.Joint}} {
		if s.share != 0 {
			left = append(left, s.name)
		}
	}
	return left
}

func (k *worker) within(d faults.Range) time.Duration {
	return d.Min + time.Duration(k.random.Int64N(int64(d.Max-d.Min)+1))
}

func (k *worker) happens(share faults.Ratio) bool { return k.random.Int64N(1_000_000) < int64(share) }

// pause sleeps, but not when ctx has ended.
func (k *worker) pause(ctx context.Context, d time.Duration) { k.p.wait(ctx, k.p.now()+d) }

func (k *worker) work(ctx context.Context) {
	for ctx.Err() == nil {
		k.round(ctx)
		k.pause(ctx, k.within(k.p.Plan.Work.Think))
	}
}

// choose draws of what kind a lock is, of these names.
func (k *worker) choose(w *Wanted, names []string) {
	work := &k.p.Plan.Work
	if len(names) > 1 && k.happens(work.Several) {
		w.Names = slices.Clone(names)
		return
	}
	switch d := faults.Ratio(k.random.IntN(1_000_000)); {
	case d < work.Read:
		w.Mode = node.Read
	case d < work.Read+work.Write:
		w.Mode = node.Write
	default:
		w.Fair = k.happens(work.Fair)
	}
}

// round acquires a lock, works under it, and releases it.
func (k *worker) round(ctx context.Context) {
	p, work, l := k.p, &k.p.Plan.Work, &k.p.Plan.Lock
	w := Wanted{Names: []string{work.Name(k.random.IntN(work.Names))}, Lease: l.Lease, Fixed: !l.Renew || k.happens(work.Fixed), Wait: !k.happens(work.Try)}
	switch {
	case work.Short > 0 && k.happens(work.Short):
		w.Lease /= 10
	case k.happens(work.Long):
		w.Lease = k.within(faults.Range{Min: l.Lease, Max: l.MaxLease})
	}
	k.choose(&w, p.Plan.Names())
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	if k.happens(work.Cancel) {
		after := k.within(faults.Range{Max: 4 * p.Plan.Network.Delay.Max})
		if k.random.IntN(4) == 0 {
			after = k.within(faults.Range{Max: w.Lease})
		}
		p.Clock.Go(func() {
			k.p.wait(inner, p.now()+after)
			cancel()
		})
	}
	what := "lock"
	if !w.Wait {
		what = "try"
	}
	h, err := p.acquire(inner, what, w)
	cancel()
	if err == nil {
		k.use(ctx, h)
	}
}

// use works under a lock, and releases it.
func (k *worker) use(ctx context.Context, h *hold) {
	p, work := k.p, &k.p.Plan.Work
	hold := k.within(work.Hold)
	if k.happens(work.Expiring) { // around the end of the lease
		hold = k.within(faults.Range{Min: h.wants.Lease - h.wants.Lease/10, Max: h.wants.Lease + h.wants.Lease/10})
	}
	until := p.now() + hold
	if h.valid() {
		h.access("reads")
	}
	if k.happens(work.Extend) {
		p.wait(p.life, p.now()+k.within(faults.Range{Max: hold}))
		h.extend(k.within(faults.Range{Min: h.wants.Lease / 2, Max: p.Plan.Lock.MaxLease}))
	}
	if k.happens(work.Chain) {
		k.chain(ctx, h)
	}
	if h.wants.Mode == node.Write && k.happens(work.Down) {
		p.wait(p.life, p.now()+k.within(faults.Range{Max: hold}))
		if h.valid() {
			h.access("writes")
		}
		if h = h.downgrade(); h == nil {
			return
		}
		until = max(until, p.now()+k.within(work.Hold))
	}
	k.rest(h, until)
	if h.valid() {
		if k.happens(work.Late) { // the write arrives after the check
			p.wait(p.life, p.now()+k.within(faults.Range{Max: 2 * p.Plan.Lock.Lease}))
		}
		what := "writes"
		if h.wants.Mode == node.Read {
			what = "reads"
		}
		h.access(what)
	}
	h.unlock()
}

// rest holds a lock until then, or until it is lost.
func (k *worker) rest(h *hold, until time.Duration) {
	ctx := h.Context()
	if ctx == nil {
		ctx = k.p.life
	}
	k.p.wait(ctx, until)
}

// chain waits, while it holds h, for a lock of a later name than any of h's. All clients lock in this
// order, so nobody waits forever.
func (k *worker) chain(ctx context.Context, h *hold) {
	p := k.p
	later := p.Plan.Names()
	for _, name := range h.wants.Names {
		later = later[max(0, slices.Index(later, name)+1):]
	}
	if len(later) == 0 {
		return
	}
	w := Wanted{Names: []string{later[k.random.IntN(len(later))]}, Lease: p.Plan.Lock.Lease, Fixed: !p.Plan.Lock.Renew, Wait: true}
	inner, err := p.acquire(ctx, "lock", w)
	if err != nil {
		return
	}
	if inner.valid() {
		inner.access("writes")
	}
	inner.unlock()
}
