// Type people; methods of Locker: events and the log.

package quorum

import (
	"context"
	"log/slog"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/backlog"
	"github.com/redquorum/redquorum/quorum/internal/core"
	"github.com/redquorum/redquorum/quorum/internal/machine"
)

// people is what the engine asks of this package (core.Above): errors, events, the log,
// labels and notes.
type people struct{ l *Locker }

func (p people) Explain(f core.Failure) error {
	e := &Error{Op: f.Op, Name: f.Name, Quorum: f.Need, Err: f.Err, Cause: f.Cause, guarded: p.l.guarded}
	for i, b := range f.Ballots {
		e.Nodes = append(e.Nodes, NodeVote{Node: p.l.core.Nodes[i].Name(), Vote: Vote(b.Vote.String()), For: b.Wait,
			Err: b.Err})
	}
	return e
}

func (people) Stopped(ctx context.Context) error { return stopped(ctx) }

func (p people) Observes() bool { return p.l.events != nil || p.l.opts.Trace != nil }

func (p people) Observe(x machine.Event) {
	l := p.l
	e := Event{Kind: EventKind(x.Kind), Name: x.Name, Owner: x.Owner, Token: x.Token, Node: x.Node, Took: x.Took,
		Held:   x.Held,
		Waited: x.Waited, Err: x.Err}
	if l.opts.Trace != nil {
		l.opts.Trace(e)
	}
	if l.events != nil {
		l.events.Add(e)
	}
}

func (p people) Line(at time.Time, level slog.Level, text string, args ...any) (add func()) {
	if p.l.lines == nil {
		return nil
	}
	line := backlog.Line(at, level, text, args...)
	return func() { p.l.lines.Add(line) }
}

func (p people) Active(in core.Step) { p.l.labels.keep(in) }

func (p people) Admitted(in core.Step, h *core.Hold, note string) core.Follower {
	if note == "" {
		return nil
	}
	c := p.l.companion(h)
	c.note.text = note
	c.Extending(in)
	return c
}

func (p people) Broken(in core.Step, h *core.Hold) { p.l.logNextHolder(in, h) }

// maxUnobserved is how many events wait at most for Options.Observe.
const maxUnobserved = 1 << 16

func (l *Locker) beginReports() {
	if logger := l.opts.Logger; logger != nil {
		l.lines = backlog.Lines(l.core.Clock, logger)
	}
	if observe := l.opts.Observe; observe != nil {
		l.events = backlog.New(l.core.Clock, maxUnobserved, observe, func(n int) {
			l.warn("events were left out: Options.Observe is too slow", "events", n)
			observe(Event{Kind: EventsLeftOut, Count: n})
		})
	}
}

func (l *Locker) reported(until clock.Instant) {
	if l.events != nil {
		l.events.Finish(until)
	}
	if l.lines != nil {
		l.lines.Finish(until)
	}
}

func (l *Locker) warn(text string, args ...any) {
	if l.lines != nil {
		l.lines.Add(backlog.Line(l.core.Clock.Wall(), slog.LevelWarn, text, args...))
	}
}
