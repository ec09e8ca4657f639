package sim

import (
	"cmp"
	"errors"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim/internal/page"
)

// A picture is JSON for the script of the viewer.
type picture struct {
	Title    string         `json:"title"`
	Lock     string         `json:"lock"`
	Verdict  Verdict        `json:"verdict"`
	Words    string         `json:"words"` // the verdict's
	Facts    []string       `json:"facts"`
	Far      string         `json:"far,omitempty"` // which nodes have it, if the run has that name
	Plan     string         `json:"plan"`
	Story    []pictureLine  `json:"story"`
	Scenario *pictureStory  `json:"scenario,omitempty"`
	Nodes    int            `json:"nodes"`
	Clients  int            `json:"clients"`
	End      time.Duration  `json:"end"`
	Entries  []Entry        `json:"entries"`
	Faults   []pictureFault `json:"faults"`

	Violations []pictureViolation `json:"violations"`
}

type pictureStory struct {
	Story    string `json:"story"`
	Protects string `json:"protects"`
}

type pictureLine struct {
	At   time.Duration `json:"at"`
	Text string        `json:"text"`
}

type pictureViolation struct {
	At        time.Duration `json:"at"`
	Invariant string        `json:"invariant"`
	Name      string        `json:"name"`  // of the invariant, in a word or two
	Means     string        `json:"means"` // what it asks for
	What      string        `json:"what"`
	Outside   string        `json:"outside"`
	Worst     bool          `json:"worst"` // it decides the verdict
}

type pictureFault struct {
	Entry int           `json:"entry"` // where it begins
	At    time.Duration `json:"at"`
	Verb  faults.Verb   `json:"verb"`
	Text  string        `json:"text"`
	Parts []picturePart `json:"parts"`
}

type picturePart struct {
	Client int           `json:"client"` // -1: none
	Node   int           `json:"node"`   // -1: none
	Until  time.Duration `json:"until"`  // when it began: it has no duration
}

const storyLines = 24

// WriteHTML draws a traced run as one page, which needs no server and no network.
func (r *Result) WriteHTML(out io.Writer) error { return r.writeHTML(out, nil) }

// WriteHTML draws a run of the scenario as [Result.WriteHTML] does, with its story.
func (s *Scenario) WriteHTML(out io.Writer, r *Result) error { return r.writeHTML(out, s) }

func (r *Result) writeHTML(out io.Writer, s *Scenario) error {
	pic, err := r.picture(s)
	if err != nil {
		return err
	}
	p := page.Page{Title: pic.Title, Data: map[string]any{"runs": []*picture{pic}}, Script: "start();\n",
		Still: fmt.Sprintf("<p><b>%s.</b> %s The picture needs JavaScript.</p>\n<pre>%s</pre>", r.Verdict,
			html.EscapeString(pic.Words), html.EscapeString(pic.Plan))}
	return p.Write(out)
}

// Picture is what the viewer shows of a traced run, for JSON.
func (r *Result) Picture() (any, error) { return r.picture(nil) }

func (r *Result) picture(s *Scenario) (*picture, error) {
	if r.Trace == nil {
		return nil, errors.New("sim: the run has no trace: it needs the option WithTrace")
	}
	p := r.Plan
	pic := &picture{
		Title:   fmt.Sprintf("redquorum run, seed %d: %s", p.Seed, r.Verdict),
		Lock:    cmp.Or(r.Lock, lockWords(&p.Lock)),
		Verdict: r.Verdict,
		Words:   r.words(),
		Facts: []string{
			fmt.Sprintf("seed %d", p.Seed), count(p.Nodes, "node"), count(p.Clients, "client"),
			count(r.Grants, "grant"),
			count(len(r.Trace.Entries), "traced event"), r.Virtual.Round(time.Millisecond).String() + " of virtual time",
		},
		Plan: p.String(), Nodes: p.Nodes, Clients: p.Clients, End: r.Virtual, Entries: r.Trace.Entries,
		Faults: r.extents(),
	}
	switch {
	case s != nil:
		pic.Title = fmt.Sprintf("Scenario %s: %s", s.ID, s.Title)
		pic.Scenario = &pictureStory{strings.Join(s.Story, " "), s.Protects}
	case r.Lock != "":
		pic.Title = fmt.Sprintf("%s, seed %d: %s", r.Lock, p.Seed, r.Verdict)
	}
	if slices.Contains(r.Trace.keys, faults.Far) {
		pic.Far = p.FarWords()
	}
	for _, line := range r.story(storyLines) {
		pic.Story = append(pic.Story, pictureLine{line.at, line.text + strings.Join(line.nodes, ", ")})
	}
	for i := range r.Violations {
		v := &r.Violations[i]
		name, means, _ := strings.Cut(Invariants[v.Invariant], ": ")
		pic.Violations = append(pic.Violations, pictureViolation{At: v.At, Invariant: v.Invariant, Name: name,
			Means: means,
			What:  v.What, Outside: v.Outside, Worst: v == r.Worst()})
	}
	return pic, nil
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func lockWords(l *faults.Lock) string {
	switch {
	case l.Client == faults.Redquorum:
		return "redquorum"
	case l.Mistake != "":
		return "textbook Redlock with a known mistake: " + faults.Mistakes[l.Mistake]
	}
	return "textbook Redlock: the steps of the Redis page and nothing else"
}

func (r *Result) words() string {
	plain := r.Plan.Lock.Client == faults.Plain
	switch {
	case r.Verdict == Sound && r.Waited >= 100*time.Millisecond:
		return fmt.Sprintf("Every invariant held. The longest wait for the lock was %.1f s.", r.Waited.Seconds())
	case r.Verdict == Sound:
		return "Every invariant held."
	case r.Verdict == Outside:
		return "An invariant was broken, but only after the plan had left what a lock with a lease can stand: no bug."
	case r.Lock != "":
		return "An invariant was broken, and nothing in the plan excuses it."
	case plain && r.Plan.Lock.Mistake != "":
		return "Textbook Redlock with a known mistake fails here, as expected."
	case plain:
		return "Textbook Redlock fails here, as expected."
	}
	what, why := "An invariant was broken", ", and nothing in the plan excuses it: a bug."
	if r.Verdict == Stuck {
		what, why = "The faults were over, and a waiter still did not get the lock", ": a bug."
	}
	if cause := r.Cause(); cause != "" {
		why = ". The cause: " + cause + "."
	}
	return what + why
}

// open is how long a part of a fault lasts whose end is not known yet.
const open = -1

// extents finds the extent of each fault, which ends by itself, by a later event that
// undoes it, or when its node is healed.
func (r *Result) extents() []pictureFault {
	var list []pictureFault
	for i, e := range r.Trace.Entries {
		end := func(which func(*pictureFault, *picturePart) bool) {
			for f := range list {
				for p := range list[f].Parts {
					if part := &list[f].Parts[p]; part.Until == open && which(&list[f], part) {
						part.Until = e.At
					}
				}
			}
		}
		switch e.Kind {
		case KindFault:
			event := r.event(&e)
			end(func(f *pictureFault, p *picturePart) bool { return undoes(event, f.Verb, p) })
			list = append(list, pictureFault{Entry: i, At: e.At, Verb: event.Verb, Text: e.Text, Parts: r.parts(event)})
		case KindFaultEnd:
			end(func(f *pictureFault, _ *picturePart) bool { return f.Text == e.Text })
		case KindHealed:
			end(func(_ *pictureFault, p *picturePart) bool { return p.Node == e.Node })
		case KindCalm:
			end(func(f *pictureFault, p *picturePart) bool { return p.Node < 0 && f.Verb != faults.Kill })
		}
	}
	for _, f := range list {
		for p := range f.Parts {
			if f.Parts[p].Until == open {
				f.Parts[p].Until = r.Virtual
			}
		}
	}
	return list
}

// event returns the nearest event of the plan with the entry's words: an observed run may
// be late.
func (r *Result) event(e *Entry) (nearest *faults.Event) {
	for i := range r.Plan.Events {
		o := &r.Plan.Events[i]
		if o.Words() == e.Text && (nearest == nil || (o.At-e.At).Abs() < (nearest.At-e.At).Abs()) {
			nearest = o
		}
	}
	return nearest
}

func (r *Result) parts(e *faults.Event) (list []picturePart) {
	until := e.At
	if lasts(e) {
		until = open
	}
	for n := range r.Plan.Nodes {
		if e.Procs.Nodes.Has(n) {
			list = append(list, picturePart{-1, n, until})
		}
	}
	for c := range r.Plan.Clients {
		if e.Procs.Clients.Has(c) {
			list = append(list, picturePart{c, -1, until})
		}
		for n := range r.Plan.Nodes {
			if e.Links.Clients.Has(c) && e.Links.Nodes.Has(n) {
				list = append(list, picturePart{c, n, until})
			}
		}
	}
	return list
}

func lasts(e *faults.Event) bool {
	return e.For > 0 || e.Verb.Stays() && e.Verb != faults.Rate && e.Verb != faults.Sever
}

func undoes(e *faults.Event, verb faults.Verb, p *picturePart) bool {
	switch e.Verb {
	case faults.Heal, faults.Release:
		return verb.OnLinks() && (e.Verb == faults.Heal || verb == faults.Hold) &&
			e.Links.Clients.Has(p.Client) && e.Links.Nodes.Has(p.Node)
	case faults.Crash, faults.Demote, faults.Promote:
		return verb == faults.Demote && e.Procs.Nodes.Has(p.Node)
	case faults.Restart:
		return (verb == faults.Crash || verb == faults.Demote) && e.Procs.Nodes.Has(p.Node)
	case faults.Start:
		return verb == faults.Kill && e.Procs.Clients.Has(p.Client)
	}
	return false
}
