package live

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/sim/internal/program"
)

func undrawn(w *faults.Work) map[string]*faults.Ratio {
	return map[string]*faults.Ratio{"hand": &w.Hand, "handle": &w.Handle, "break": &w.Break}
}

// Undrawn returns the settings of the work that a Player leaves out, by their names in
// plans.
func Undrawn(w *faults.Work) (left []string) {
	for name, share := range undrawn(w) {
		if *share != 0 {
			left = append(left, name)
		}
	}
	if w.Step != 0 {
		left = append(left, "step")
	}
	return slices.Sorted(slices.Values(left))
}

// Reduce takes Undrawn out of the work.
func Reduce(w *faults.Work) {
	for _, share := range undrawn(w) {
		*share = 0
	}
	w.Step = 0
}

type actor struct {
	*Player
	work context.Context
}

func (a actor) Plan() *faults.Plan       { return a.Player.Plan }
func (a actor) Now() clock.Instant       { return a.Clock.Now() }
func (a actor) Context() context.Context { return a.work }

func (a actor) Rest(ctx context.Context, until clock.Instant) { a.Clock.NewSignal().Wait(ctx, until) }

func (a actor) Leaving() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.leaving
}

func (a actor) Acquire(ctx context.Context, w Wanted) (program.Lock, error) {
	what := "lock"
	if !w.Wait {
		what = "try"
	}
	return a.acquire(ctx, what, w)
}

func (a actor) After(d time.Duration, f func(now int64)) {
	until := a.Now().Add(d)
	a.Clock.Go(func() {
		a.Rest(a.life, until)
		f(int64(a.now()))
	})
}

func (a actor) Inspect(name string) { a.inspect(a.work, name) }

func (a actor) Break(name string) { a.outcome("break", name, errors.ErrUnsupported) }

func (a actor) Hand(_ *faults.Random, l program.Lock) bool {
	a.outcome("detach", l.Wants().Names[0], errors.ErrUnsupported)
	return false
}

func (a actor) Handle(_ *faults.Random, l program.Lock) {
	a.outcome("handle", l.Wants().Names[0], errors.ErrUnsupported)
}

func (a actor) Leave() bool {
	a.mu.Lock()
	if a.leaving || a.Open == nil || a.work.Err() != nil {
		a.mu.Unlock()
		return false
	}
	a.leaving = true
	a.mu.Unlock()
	a.outcome("close", "", a.Library.Close())
	a.mu.Lock()
	held := maps.Clone(a.holds)
	a.mu.Unlock()
	for h := range held {
		h.finish()
	}
	a.dies()
	return true
}

// last acquires each lock once more after the faults.
func (p *Player) last(k *program.Worker) {
	ctx, cancel := context.WithCancel(p.life)
	defer cancel()
	p.Clock.Go(func() {
		p.wait(ctx, p.Plan.Length+lastly(p.Plan))
		cancel()
	})
	k.Last(p.Plan.Names(), p.Plan.Scripted(p.Client), func(w Wanted) bool {
		h, err := p.acquire(ctx, "last lock", w)
		for err != nil && ctx.Err() == nil && !errors.Is(err, errors.ErrUnsupported) {
			p.wait(ctx, p.now()+p.Plan.Lock.Poll) // some libraries give up after a while
			h, err = p.acquire(ctx, "last lock", w)
		}
		if err != nil {
			return false
		}
		if w.Mode == node.Read {
			p.wait(p.life, p.now()+min(p.Plan.Work.Hold.Max, p.Plan.Lock.Lease)/2)
		}
		_ = h.Unlock()
		return true
	})
}
