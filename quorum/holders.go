// Methods of Locker: the holders of many names.

package quorum

import (
	"context"
	"fmt"
	"slices"

	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/core"
)

// holdersAtOnce is how many names are asked for together. They fit into the queue of a
// node, which has other commands as well.
const holdersAtOnce = 500

// Holders inspects many names, and changes nothing. 500 of them take two round trips: one
// for the holders, and one for their notes. The reports are those of [Locker.Inspect], in
// the order of the names, but a report has the note of its Owner alone, and no labels of
// waiters.
//
// An Owner may be on too few nodes, or on some that do not count. So look at Verdict
// before you send work to it: without VerdictHeld there is no Note.
//
// It takes at most twice Options.Timeout for each 500 names, and as long as that only if
// a node hangs. The error is not nil only for a bad name, a closed Locker or an ended
// ctx: nodes that fail are in the reports.
func (l *Locker) Holders(ctx context.Context, names ...string) (all []*Report, err error) {
	for _, name := range names {
		if err := l.checkName(name); err != nil {
			return nil, err
		}
	}
	for some := range slices.Chunk(names, holdersAtOnce) {
		reports, err := l.holders(ctx, some)
		if err != nil {
			return nil, err
		}
		all = append(all, reports...)
	}
	return all, nil
}

// holders is Holders of names that are asked for together.
func (l *Locker) holders(ctx context.Context, names []string) (reports []*Report, err error) {
	about := claim.Lock{Name: names[0]}
	if others := len(names) - 1; others > 0 {
		about.Name += fmt.Sprintf(" and %d more", others)
	}
	if err := l.core.Begin(ctx, "inspect", about.Name); err != nil {
		return nil, err
	}
	defer l.core.End()
	var rounds []*core.Round
	in := l.core.Step()
	in.NoteCall("inspect", &about)
	for _, name := range names {
		c := claim.Claim{Lock: claim.Lock{Name: name}}
		rounds = append(rounds, in.AskAll(node.Inspect, c, 0, l.opts.Timeout))
	}
	in.Leave()
	for i, r := range rounds {
		rounds[i] = l.awaitMost(ctx, r)
	}
	var owners []string
	for _, r := range rounds {
		r.AwaitAll(ctx)
		rep, _ := l.report(r)
		r.PutDown()
		if reports = append(reports, rep); len(rep.Owners) > 0 {
			owners = append(owners, rep.Owner)
		}
	}
	labels := l.labels.of(ctx, owners, nil, len(owners), l.core.Clock.Now().Add(l.opts.Timeout))
	if ctx.Err() != nil { // perhaps before all had answered
		return nil, fmt.Errorf("inspect %q: %w", about.Name, stopped(ctx))
	}
	for _, rep := range reports {
		rep.labels = labels
	}
	return reports, nil
}
