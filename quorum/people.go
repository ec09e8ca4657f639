package quorum

import (
	"context"
	"log/slog"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/backlog"
)

// people is what the engine asks of this package (core.Above): errors, events, the log, labels and notes.
type people struct{ l *Locker }

// explain makes the error of a failure.
func (p people) explain(f failure) error {
	e := &Error{Op: f.op, Name: f.name, Quorum: f.need, Err: f.err, Cause: f.cause, guarded: p.l.guarded}
	for i, b := range f.ballots {
		e.Nodes = append(e.Nodes, NodeVote{Node: p.l.core.nodes[i].Name(), Vote: Vote(b.Vote.String()), For: b.Wait, Err: b.Err})
	}
	return e
}

func (people) stopped(ctx context.Context) error { return stopped(ctx) }

func (p people) observes() bool { return p.l.events != nil || p.l.opts.Trace != nil }

func (p people) observe(x event) {
	l := p.l
	e := Event{Kind: EventKind(x.kind), Name: x.name, Owner: x.owner, Token: x.token, Node: x.node, Took: x.took, Held: x.held,
		Waited: x.waited, Err: x.err}
	if l.opts.Trace != nil {
		l.opts.Trace(e)
	}
	if l.events != nil {
		l.events.Add(e)
	}
}

func (p people) line(at time.Time, level slog.Level, text string, args ...any) (add func()) {
	if p.l.lines == nil {
		return nil
	}
	line := backlog.Line(at, level, text, args...)
	return func() { p.l.lines.Add(line) }
}

// active keeps the label.
func (p people) active(in within) { p.l.labels.keep(in) }

func (p people) admitted(in within, h *hold, note string) follower {
	if note == "" {
		return nil
	}
	c := p.l.companion(h)
	c.note.text = note
	c.extending(in)
	return c
}

func (p people) broken(in within, h *hold) { p.l.logNextHolder(in, h) }

// maxUnobserved is how many events wait at most for Options.Observe.
const maxUnobserved = 1 << 16

// beginReports begins to report what happens.
func (l *Locker) beginReports() {
	if logger := l.opts.Logger; logger != nil {
		l.lines = backlog.Lines(l.core.clock, logger)
	}
	if observe := l.opts.Observe; observe != nil {
		l.events = backlog.New(l.core.clock, maxUnobserved, observe, func(n int) {
			l.warn("events were left out: Options.Observe is too slow", "events", n)
			observe(Event{Kind: EventsLeftOut, Count: n})
		})
	}
}

// reported waits until everything was reported, or until an instant.
func (l *Locker) reported(until clock.Instant) {
	if l.events != nil {
		l.events.Finish(until)
	}
	if l.lines != nil {
		l.lines.Finish(until)
	}
}

// warn adds a warning to the log.
func (l *Locker) warn(text string, args ...any) {
	if l.lines != nil {
		l.lines.Add(backlog.Line(l.core.clock.Wall(), slog.LevelWarn, text, args...))
	}
}
