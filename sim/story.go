package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/faults"
)

// Story tells in at most so many lines how a traced run came to its verdict.
//
// Of a violation it tells the grants that it is about, what took their keys from nodes,
// and which faults were in effect. If nothing was violated it tells what clients did, who
// held what, the faults, and which keys were left to nobody.
func (r *Result) Story(lines int) []string {
	var text []string
	for _, l := range r.story(lines) {
		at := strings.Repeat(" ", 13)
		if l.text != leftOut {
			at = fmt.Sprintf("%10s ms", FormatTime(l.at))
		}
		text = append(text, at+"  "+l.text+strings.Join(l.nodes, ", "))
	}
	return text
}

const leftOut = "..."

func (r *Result) story(lines int) (story []line) {
	if r.Trace == nil {
		return nil
	}
	if v := r.Worst(); v != nil {
		end := slices.IndexFunc(r.Trace.Entries,
			func(e Entry) bool { return e.Kind == KindViolation && e.Text == v.said() })
		story = r.explain(v, r.Trace.Entries[:end])
	} else {
		story = r.retell()
	}
	if over := len(story) - lines; over > 0 {
		story = append([]line{{text: leftOut}}, shortened(story, over+1)...)
	}
	return story
}

type line struct {
	at    time.Duration
	entry int // of the trace
	text  string
	nodes []string // at the end of the text
	rank  int      // where there is too much to tell, lines of a high rank are left out first
}

// shortened leaves out so many lines, of each rank the earliest first.
func shortened(story []line, over int) []line {
	for rank := 3; rank >= 0; rank-- {
		story = slices.DeleteFunc(story, func(l line) bool {
			out := l.rank == rank && over > 0
			if out {
				over--
			}
			return out
		})
	}
	return story
}

func (r *Result) retell() (story []line) {
	entries := r.Trace.Entries
	if calm := slices.IndexFunc(entries, func(e Entry) bool { return e.Kind == KindCalm }); calm >= 0 {
		entries = entries[:calm+1] // what follows is the same in all such runs
	}
	orphans := r.orphans()
	for i, e := range entries {
		text := e.told(r)
		if orphan, ok := orphans[i]; ok {
			text = orphan
		}
		if text != "" && (len(story) == 0 || text != story[len(story)-1].text) {
			story = append(story, line{at: e.At, text: text})
		}
	}
	return story
}

func (e *Entry) told(r *Result) string {
	c := procName('c', e.Client)
	switch e.Kind {
	case KindFault:
		return e.Text + " (a fault)"
	case KindFaultEnd:
		return e.Text + " is over"
	case KindStep:
		return e.Text + " (a step)"
	case KindResult:
		const most = 90
		text := []rune(e.Text)
		switch {
		case strings.HasSuffix(e.Text, ": granted"):
			return "" // the belief is in the story
		case len(text) > most:
			text = append(text[:most], '…')
		}
		return c + " is done with " + string(text)
	case KindBelief:
		text := fmt.Sprintf("%s is granted %s", c, e.Name)
		if e.Mode != "" {
			text += " to " + e.Mode
		}
		if e.Name == faults.Far {
			text += " (a name on " + r.Plan.FarWords() + " only)"
		}
		if e.Token != 0 {
			text += fmt.Sprintf(", token %d", e.Token)
		}
		return text
	case KindBeliefEnd:
		return c + " " + e.Text
	case KindAccess:
		return c + " " + e.sentence()
	case KindCalm:
		return e.Text
	case KindViolation:
		return "VIOLATED " + e.Text
	}
	return ""
}

// orphans tells of keys that nodes kept to their end for a client that never had the
// lock, by the entry that began the last of them. Runs without steps have too many, and
// report none.
func (r *Result) orphans() map[int]string {
	type life struct { // of a key on a node, for one owner
		first int           // entry
		last  *Entry        // the latest about it
		end   time.Duration // when another owner had it
	}
	var lives []*life
	now := make(map[place]*life)
	clients, holders, steps := make(map[string]int), make(map[string]bool), false
	for i := range r.Trace.Entries {
		e := &r.Trace.Entries[i]
		steps = steps || e.Kind == KindStep
		if e.Owner != "" && e.Client >= 0 {
			clients[e.Owner] = e.Client
		}
		switch e.Kind {
		case KindBelief:
			holders[e.Owner] = true
		case KindKey:
			l := now[place{e.Node, e.Name}]
			if l == nil || l.last.Owner != e.Owner {
				if l != nil {
					l.end = e.At
				}
				l = &life{first: i, end: r.Virtual}
				now[place{e.Node, e.Name}] = l
				lives = append(lives, l)
			}
			l.last = e
		}
	}
	if !steps {
		return nil
	}
	nodes, until := make(map[string][]string), make(map[string]time.Duration)
	told := make(map[int]string)
	last := make(map[string]int)
	for _, l := range lives {
		e := l.last
		client, known := clients[e.Owner]
		if !known || holders[e.Owner] || e.Until > l.end {
			continue
		}
		what := e.Owner + " " + e.Name
		delete(told, last[what])
		last[what] = l.first
		nodes[what] = append(nodes[what], procName('n', e.Node))
		until[what] = max(until[what], e.Until)
		told[l.first] = fmt.Sprintf("%s: %s kept for %s, which does not have it, until %s ms",
			strings.Join(nodes[what], ", "), e.Name,
			procName('c', client), FormatTime(until[what]))
	}
	return told
}

// Years writes a virtual time with years.
func Years(d time.Duration) string {
	switch {
	case d < 2*time.Hour:
		return d.Round(time.Second).String()
	case d < 72*time.Hour:
		return fmt.Sprintf("%.1f hours", d.Hours())
	case d < 365*24*time.Hour:
		return fmt.Sprintf("%.1f days", d.Hours()/24)
	}
	return fmt.Sprintf("%.2f years", d.Hours()/24/365)
}
