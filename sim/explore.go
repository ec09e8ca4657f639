package sim

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/faults"
)

// A Campaign is many runs, each of a plan drawn from a seed.
type Campaign struct {
	Profile faults.Profile
	Adjust  func(*faults.Plan) // changes each plan before it runs; may be nil
	From    uint64             // the first seed
	To      uint64             // the last
	Jobs    int                // runs at the same time; 0 means 1
	Bugs    int                // it stops at so many violations that are bugs; 0 means 1
	Options []Option           // of each run: see WithProgram

	// Progress may be nil. It is called four times a second, and at the end.
	Progress func(*Report)
}

// A Report is the result of a campaign so far.
type Report struct {
	Seeds   uint64        `json:"seeds"`
	Events  uint64        `json:"events"`
	Grants  uint64        `json:"grants"`
	Virtual time.Duration `json:"-"`
	Wall    time.Duration `json:"-"`
	Found   []Found       `json:"violations"` // bugs, in the order of their seeds
	Outside uint64        `json:"outside"`    // runs that went wrong after they had broken an assumption
	Reached Sometimes     `json:"-"`
}

type Found struct {
	Seed      uint64 `json:"seed"`
	Invariant string `json:"invariant"`
	What      string `json:"what"`
	Plan      string `json:"plan"`

	Verdict Verdict `json:"verdict"`
}

func (r *Report) Missed() (missed []Mark) {
	for m, n := range r.Reached {
		if n == 0 {
			missed = append(missed, Mark(m))
		}
	}
	return missed
}

// Explore returns when all seeds have run, when enough bugs are found, or when ctx ends.
func Explore(ctx context.Context, c Campaign) *Report {
	begun := time.Now()
	var (
		next  atomic.Uint64
		tasks sync.WaitGroup
		mu    sync.Mutex
		r     = Report{Reached: newSometimes()}
		shown = begun
	)
	next.Store(c.From)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range max(1, c.Jobs) {
		tasks.Go(func() {
			for ctx.Err() == nil {
				seed := next.Add(1) - 1
				if seed > c.To || seed < c.From {
					return
				}
				p := faults.Generate(seed, c.Profile)
				if c.Adjust != nil {
					c.Adjust(p)
				}
				result := Run(p, nil, c.Options...)
				mu.Lock()
				r.add(seed, result)
				if len(r.Found) >= max(1, c.Bugs) {
					cancel()
				}
				if now := time.Now(); c.Progress != nil && now.Sub(shown) > time.Second/4 {
					shown, r.Wall = now, now.Sub(begun)
					c.Progress(&r)
				}
				mu.Unlock()
			}
		})
	}
	tasks.Wait()
	r.Wall = time.Since(begun)
	if c.Progress != nil {
		c.Progress(&r)
	}
	return &r
}

func (r *Report) add(seed uint64, result *Result) {
	r.Seeds++
	r.Events += result.Events
	r.Grants += uint64(result.Grants)
	r.Virtual += result.Virtual
	r.Reached.Add(result.Sometimes)
	switch result.Verdict {
	case Outside:
		r.Outside++
	case Unsafe, Stuck:
		v := result.Worst()
		r.Found = append(r.Found, Found{Seed: seed, Invariant: v.Invariant, What: v.What, Plan: result.Plan.String(),
			Verdict: result.Verdict})
		slices.SortFunc(r.Found, func(a, b Found) int { return cmp.Compare(a.Seed, b.Seed) })
	}
}
