// Methods of machine: its steps as text.

package core

import (
	"fmt"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
)

// This file writes the steps of an engine as text, for Options.Steps. It costs nothing
// when that is nil.

// byTime is the input of a step in which something is due.
const byTime = "time"

// because notes what came in: a call about a lock.
func (e *machine) because(call string, of *claim.Lock) {
	if e.world.steps != nil {
		e.input = call + " " + of.Title()
	}
}

// answers notes what came in: the reply of node i to a command.
func (e *machine) answers(i int, c *node.Command, r node.Reply) {
	if e.world.steps == nil {
		return
	}
	text := r.Status.String()
	if r.Err != nil {
		text = r.Err.Error()
	}
	e.heard(i, "answers %s: %s", commandText(c), text)
}

// heard notes what came in: something from node i, which the text says.
func (e *machine) heard(i int, format string, args ...any) {
	e.input = fmt.Sprintf("n%d %s", i+1, fmt.Sprintf(format, args...))
}

// told notes what came in: a turn from node i.
func (e *machine) told(i int, t node.Turn) {
	switch {
	case e.world.steps == nil:
	case t.Name == "":
		e.heard(i, "begins to tell of turns")
	case t.Owner == "":
		e.heard(i, "tells %s that it is first for %s", t.Waiter, t.Name)
	default:
		e.heard(i, "hands %s over to %s with %d", t.Name, t.Owner, t.Token)
	}
}

// write has a line written of what the step has brought about since it began, or since
// it was last interrupted. Steps in which nothing happens are left out.
func (e *machine) write() {
	if e.world.steps == nil {
		return
	}
	var texts []string
	for _, end := range e.ends {
		texts = append(texts, fmt.Sprintf("end a context: %v", end.why))
	}
	for i := range e.effects[e.written:] {
		texts = append(texts, e.text(&e.effects[e.written+i]))
	}
	if len(texts) == 0 && (e.input == "" || e.input == byTime) {
		return
	}
	line := fmt.Sprintf("%.6f %s", time.Duration(e.now).Seconds(), e.input)
	if len(texts) > 0 {
		line += " -> " + strings.Join(texts, "; ")
	}
	e.input = ""
	e.then("", func() { e.world.steps(line) })
	e.written = len(e.effects)
}

// text says what an effect is.
func (e *machine) text(x *effect) string {
	switch {
	case x.signal != nil && x.signal == e.alarm:
		return "set the alarm"
	case x.signal != nil:
		return "wake a caller"
	case x.event != nil:
		return "report " + x.event.Kind.String()
	case x.do != nil:
		return x.what
	}
	return fmt.Sprintf("send%s: %s", x.nodes, commandText(&x.command))
}

func commandText(c *node.Command) string {
	var b strings.Builder
	b.WriteString(c.Kind.String())
	for _, claim := range c.Claims {
		fmt.Fprintf(&b, " %s by %s", claim.Name, claim.Owner)
		if claim.Token != 0 {
			fmt.Fprintf(&b, " with %d", claim.Token)
		}
	}
	if c.TTL != 0 {
		fmt.Fprintf(&b, " for %v", c.TTL)
	}
	return b.String()
}
