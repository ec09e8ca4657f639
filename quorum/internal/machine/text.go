// Methods of Machine: its steps as text.

package machine

import (
	"fmt"
	"strings"
	"time"

	"github.com/redquorum/redquorum/node"
)

// This file writes the steps of an engine as text, for Options.Steps. It costs nothing
// when that is nil.

const byTime = "time"

// A titled thing has a name for people.
type titled interface{ Title() string }

func (m *Machine) NoteCall(call string, of titled) {
	if m.world.Steps != nil {
		m.input = call + " " + of.Title()
	}
}

func (m *Machine) NoteAnswer(i int, c *node.Command, r node.Reply) {
	if m.world.Steps == nil {
		return
	}
	text := r.Status.String()
	if r.Err != nil {
		text = r.Err.Error()
	}
	m.NoteNews(i, "answers %s: %s", commandText(c), text)
}

func (m *Machine) NoteNews(i int, format string, args ...any) {
	if m.world.Steps != nil {
		m.input = fmt.Sprintf("n%d %s", i+1, fmt.Sprintf(format, args...))
	}
}

func (m *Machine) NoteTurn(i int, t node.Turn) {
	switch {
	case t.Name == "":
		m.NoteNews(i, "begins to tell of turns")
	case t.Owner == "":
		m.NoteNews(i, "tells %s that it is first for %s", t.Waiter, t.Name)
	default:
		m.NoteNews(i, "hands %s over to %s with %d", t.Name, t.Owner, t.Token)
	}
}

// write has a line written of what the step has brought about since it began, or was last
// interrupted. Steps in which nothing happens are left out.
func (m *Machine) write() {
	if m.world.Steps == nil {
		return
	}
	var texts []string
	for _, end := range m.ends {
		texts = append(texts, fmt.Sprintf("end a context: %v", end.why))
	}
	texts = append(texts, m.Effects(m.written)...)
	if len(texts) == 0 && (m.input == "" || m.input == byTime) {
		return
	}
	line := fmt.Sprintf("%.6f %s", time.Duration(m.Now).Seconds(), m.input)
	if len(texts) > 0 {
		line += " -> " + strings.Join(texts, "; ")
	}
	m.input = ""
	m.Then("", func() { m.world.Steps(line) })
	m.written = len(m.effects)
}

// Effects says what the step has brought about, and earlier ones that is not carried out
// yet, but for the first of these.
func (m *Machine) Effects(first int) (texts []string) {
	for i := range m.effects[first:] {
		texts = append(texts, m.text(&m.effects[first+i]))
	}
	return texts
}

func (m *Machine) text(x *effect) string {
	switch {
	case x.signal != nil && x.signal == m.alarm:
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
