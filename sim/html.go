package sim

import (
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/faults"
)

//go:embed page/page.html
var pageHTML string

//go:embed page/page.css
var pageCSS string

//go:embed page/run.js
var runJS string

//go:embed page/view.js
var viewJS string

//go:embed page/controls.js
var controlsJS string

// The template package escapes all data where it stands. The script reads the
// run from JSON, in which < is escaped.
var page = template.Must(template.New("page").Parse(pageHTML))

// A picture is what the page shows.
type picture struct {
	Title    string
	Scenario *Scenario // nil if it is none
	Lock     string    // of a scenario
	Verdict  Verdict
	Words    string // the verdict's
	Broken   *pictureViolation
	Facts    []string
	Far      string // which nodes have it, if the run has that name
	Plan     string

	CSS     template.CSS
	Scripts []template.JS
	Run     pictureRun
}

type pictureViolation struct {
	At        time.Duration `json:"at"`
	Time      string        `json:"-"` // At, for the header
	Invariant string        `json:"invariant"`
	Name      string        `json:"name"`  // of the invariant, in a word or two
	Means     string        `json:"means"` // what it asks for
	What      string        `json:"what"`
	Outside   string        `json:"outside"`
	Worst     bool          `json:"worst"` // it decides the verdict
}

// A pictureRun is what the page's script reads.
type pictureRun struct {
	Nodes      int                `json:"nodes"`
	Clients    int                `json:"clients"`
	End        time.Duration      `json:"end"`
	Entries    []Entry            `json:"entries"`
	Faults     []pictureFault     `json:"faults"`
	Violations []pictureViolation `json:"violations"`
}

// A pictureFault is a fault and its extent.
type pictureFault struct {
	Entry int           `json:"entry"` // where it begins
	At    time.Duration `json:"at"`
	Verb  faults.Verb   `json:"verb"`
	Text  string        `json:"text"`
	Parts []picturePart `json:"parts"`
}

// A picturePart is what a fault does to one process, or to one link.
type picturePart struct {
	Client int           `json:"client"` // -1: none
	Node   int           `json:"node"`   // -1: none
	Until  time.Duration `json:"until"`  // when it began: it has no duration
}

// WriteHTML draws a traced run as one page, which needs nothing else: no server,
// no network. It shows each message, who has the lock on which node, what each
// client holds, the faults, and the instant at which an invariant broke.
func (r *Result) WriteHTML(out io.Writer) error { return r.writeHTML(out, nil) }

// WriteHTML draws a run of the scenario, as [Result.WriteHTML] does, with its story.
func (s *Scenario) WriteHTML(out io.Writer, r *Result) error { return r.writeHTML(out, s) }

func (r *Result) writeHTML(out io.Writer, s *Scenario) error {
	if r.Trace == nil {
		return errors.New("sim: the run has no trace: it needs the option WithTrace")
	}
	p := r.Plan
	pic := picture{
		Title:   fmt.Sprintf("redquorum run: %s, seed %d", r.Verdict, p.Seed),
		Verdict: r.Verdict,
		Words:   r.words(),
		Facts: []string{
			fmt.Sprintf("seed %d", p.Seed), count(p.Nodes, "node"), count(p.Clients, "client"), count(r.Grants, "grant"),
			count(len(r.Trace.Entries), "traced event"), r.Virtual.String() + " of virtual time",
		},
		Plan:    p.String(),
		CSS:     template.CSS(pageCSS),
		Scripts: []template.JS{template.JS(runJS), template.JS(viewJS), template.JS(controlsJS)},
		Run:     pictureRun{Nodes: p.Nodes, Clients: p.Clients, End: r.Virtual, Entries: r.Trace.Entries, Faults: r.extents()},
	}
	if s != nil {
		pic.Scenario, pic.Lock = s, lockWords(&p.Lock)
		pic.Title = fmt.Sprintf("redquorum scenario %s: %s with %s", s.ID, r.Verdict, p.Lock.Client)
	}
	if r.Lock != "" {
		pic.Lock = r.Lock
		pic.Title = fmt.Sprintf("%s: %s, seed %d", r.Lock, r.Verdict, p.Seed)
		if s != nil {
			pic.Title = fmt.Sprintf("scenario %s: %s with %s", s.ID, r.Verdict, r.Lock)
		}
	}
	if slices.Contains(r.Trace.keys, faults.Far) {
		pic.Far = p.FarWords()
	}
	for i := range r.Violations {
		v := &r.Violations[i]
		name, means, _ := strings.Cut(Invariants[v.Invariant], ": ")
		pic.Run.Violations = append(pic.Run.Violations, pictureViolation{At: v.At, Time: FormatTime(v.At), Invariant: v.Invariant, Name: name, Means: means,
			What: v.What, Outside: v.Outside, Worst: v == r.Worst()})
		if v == r.Worst() {
			pic.Broken = &pic.Run.Violations[i]
		}
	}
	return page.Execute(out, pic)
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// lockWords says which lock a run tries.
func lockWords(l *faults.Lock) string {
	switch {
	case l.Client == faults.Redquorum:
		return "redquorum"
	case l.Mistake != "":
		return "textbook Redlock with a known mistake: " + faults.Mistakes[l.Mistake]
	}
	return "textbook Redlock: the steps of the Redis page and nothing else"
}

// words says the verdict for people who do not know the word.
func (r *Result) words() string {
	plain := r.Plan.Lock.Client == faults.Plain
	switch {
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

// extents finds the extent of each fault. It ends by itself, by a later event
// that undoes it, or when its node is healed.
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

// event returns the event of the plan that an entry is about: of those with its words the nearest,
// as an observed run may be late.
func (r *Result) event(e *Entry) (nearest *faults.Event) {
	for i := range r.Plan.Events {
		o := &r.Plan.Events[i]
		if o.Words() == e.Text && (nearest == nil || (o.At-e.At).Abs() < (nearest.At-e.At).Abs()) {
			nearest = o
		}
	}
	return nearest
}

// parts are the links or processes that an event concerns.
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

// lasts reports whether an event is a state rather than an instant.
func lasts(e *faults.Event) bool {
	switch e.Verb {
	case faults.Release, faults.Heal, faults.Reset:
		return false
	case faults.Crash, faults.Demote, faults.Slow, faults.Full, faults.Starve, faults.Pause, faults.Suspend, faults.Kill:
		return true
	}
	return e.For > 0 || e.Verb.OnLinks()
}

// undoes reports whether an event ends a part of an earlier one.
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
