package sim

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/sim/internal/program"
)

// A Trace is everything that happened in a run, in order, as Entries.
type Trace struct {
	Entries []Entry

	keys    []string          // the names of all keys that entries are about
	waiters map[string]Waiter // by what the nodes know them by
}

type Entry struct {
	At     time.Duration `json:"at"` // true time since the beginning
	Kind   Kind          `json:"kind"`
	Client int           `json:"client"` // from 0; -1: none
	Node   int           `json:"node"`   // from 0; -1: none

	// Of a message: its number, shared by all entries about it; when it will
	// arrive; and whether it goes to the client.
	Message  int           `json:"message,omitempty"`
	Until    time.Duration `json:"until,omitempty"`
	ToClient bool          `json:"to_client,omitempty"`

	// Of a command, a belief, or a key on a node.
	Name  string     `json:"name,omitempty"` // several have commas between
	Owner string     `json:"owner,omitempty"`
	Token node.Token `json:"token,omitempty"`
	Mode  string     `json:"mode,omitempty"` // of a belief or a key: "read" or "write"
	More  []string   `json:"more,omitempty"` // of a key: the other readers' owners, or those of the other names

	// of a belief in a run that is not simulated: when the lock was asked for
	Since time.Duration `json:"since,omitempty"`

	Waiting []Waiter `json:"waiting,omitempty"` // for a key, as the node knows: the first in line first

	Text string `json:"text"`
}

// A Waiter is one that a node knows to wait for a name.
type Waiter struct {
	Number int           `json:"number"` // its own, among all waiters of the run
	Client int           `json:"client"` // from 0
	Until  time.Duration `json:"until"`  // when the node forgets it, if it does not ask again
}

// A Kind is what an Entry is about.
type Kind string

const (
	KindSend      Kind = "send"        // a message leaves; it arrives at Until
	KindLost      Kind = "lost"        // a message is lost
	KindHeld      Kind = "held"        // a message is kept by a fault
	KindReleased  Kind = "released"    // it goes on
	KindExecute   Kind = "execute"     // a node executes a command; Text is its answer
	KindKey       Kind = "key"         // the node's key after a command, until Until, or 0
	KindReply     Kind = "reply"       // an engine gets an answer, or hears that there is none
	KindFault     Kind = "fault"       // a fault begins; it ends at Until if that is known
	KindFaultEnd  Kind = "fault end"   // a fault ends
	KindStep      Kind = "step"        // a client begins a step of the plan
	KindResult    Kind = "result"      // and what came of it
	KindEngine    Kind = "engine"      // what the engine tells its observer
	KindSteps     Kind = "engine step" // see WithSteps
	KindBelief    Kind = "belief"      // a client begins to believe that it holds a lock
	KindBeliefEnd Kind = "belief end"
	KindJoint     Kind = "joint"  // locks of several deployments become one
	KindAccess    Kind = "access" // the resource takes a read or a write
	KindCalm      Kind = "calm"   // the part with faults is over
	KindHealed    Kind = "healed" // for this node, and all links to it
	KindViolation Kind = "violation"
)

func (w *world) log(e Entry) {
	if w.trace != nil {
		e.At = time.Duration(w.now)
		w.trace.Entries = append(w.trace.Entries, e)
	}
}

func (w *world) logMessage(kind Kind, l *link, way int, m *message, until int64, r *node.Reply) {
	if w.trace == nil {
		return
	}
	if m.serial == 0 {
		w.serial++
		m.serial = w.serial
	}
	e := Entry{Kind: kind, Client: l.c.number, Node: l.n.number, Message: m.serial, Until: time.Duration(until),
		ToClient: way == toClient, Text: m.String()}
	switch {
	case r != nil:
		e.Text += ": " + answer(r)
	case way == toClient && m.question != nil:
		e.Text = m.question.answer()
	case way == toClient && m.isCommand():
		e.Text = answer(&m.result)
	case m.copy:
		e.Text += ", a second time"
	}
	if len(m.cmd.Claims) > 0 && !isLabel(&m.cmd) {
		claim := m.cmd.Claims[0]
		e.Name, e.Owner, e.Token = m.names(), claim.Owner, claim.Token
	}
	w.log(e)
}

func (w *world) executed(s *server, m *message) {
	if w.trace == nil {
		return
	}
	w.logMessage(KindExecute, m.link, toNode, m, 0, &m.result)
	if _, known := w.trace.waiters[m.cmd.Waiting().Waiter]; !known && m.cmd.Waiting().Waiter != "" {
		w.trace.waiters[m.cmd.Waiting().Waiter] = Waiter{Number: len(w.trace.waiters) + 1, Client: m.link.c.number}
	}
	if isLabel(&m.cmd) {
		return
	}
	for _, claim := range m.cmd.Claims {
		w.logKey(s, claim.Name)
	}
}

// logKey notes how long a node has a key, in true time as its clock runs now.
func (w *world) logKey(s *server, name string) {
	if w.trace == nil {
		return
	}
	if !slices.Contains(w.trace.keys, name) {
		w.trace.keys = append(w.trace.keys, name)
	}
	e := Entry{Kind: KindKey, Client: -1, Node: s.number, Name: name}
	if s.Down {
		w.log(e)
		return
	}
	for _, k := range s.mem.Dump(s.time()) {
		if k.Key == name && k.Type == "hash" {
			e.Owners(k.Fields)
			e.Until = time.Duration(w.now) + time.Duration(k.Expires-s.time())*time.Millisecond
		}
	}
	var state node.State
	s.inspect(s.time(), name, &state)
	for _, p := range state.Queue {
		waiter := w.trace.waiters[p.Waiter]
		waiter.Until = time.Duration(w.now) + p.TTL
		e.Waiting = append(e.Waiting, waiter)
	}
	w.log(e)
}

func (e *Entry) Owners(fields []node.Field) {
	if len(fields) == 0 {
		return
	}
	e.Owner = fields[0].Name
	i := slices.IndexFunc(fields, func(f node.Field) bool { return f.Name == node.ModeField })
	if i < 0 {
		return
	}
	e.Mode, e.Owner = fields[i].Value, ""
	if owners := ownersOf(fields); len(owners) > 0 {
		e.Owner, e.More = owners[0], append(e.More, owners[1:]...)
	}
}

func (w *world) logKeys(s *server) {
	if w.trace == nil {
		return
	}
	for _, name := range w.trace.keys {
		w.logKey(s, name)
	}
}

func answer(r *node.Reply) string {
	switch r.Status {
	case node.Unknown:
		if r.Err == nil {
			return "no script"
		}
		return r.Err.Error()
	case node.Refused:
		return fmt.Sprintf("refused for %v", r.TTL)
	case node.Done:
		if len(r.Kept) > 0 {
			for _, kept := range r.Kept {
				if !kept {
					return "gone"
				}
			}
			return "extended"
		}
	}
	return r.Status.String()
}

func (w *world) logEvent(c *Client, e *quorum.Event) {
	if w.trace == nil {
		return
	}
	entry := Entry{Kind: KindEngine, Client: c.number, Node: -1, Name: e.Name, Owner: e.Owner, Token: e.Token,
		Text: e.Kind.String()}
	if e.Err != nil {
		entry.Text += ": " + e.Err.Error()
	}
	for _, s := range w.nodes {
		if s.name == e.Node {
			entry.Node = s.number
		}
	}
	w.log(entry)
}

func (w *world) believes(h *holder, begins bool) {
	if w.trace == nil {
		return
	}
	what := map[node.Mode]string{node.Exclusive: "holds ", node.Read: "reads ", node.Write: "writes "}[h.mode] + h.name
	e := Entry{Kind: KindBelief, Client: h.c.number, Node: -1, Name: h.name, Owner: h.owner, Token: h.token,
		Mode: program.ModeName(h.mode), Text: what}
	if !begins {
		e.Kind, e.Text = KindBeliefEnd, "no longer "+what
	}
	w.log(e)
}

func (w *world) logJoint(c *Client, parts []part) {
	var names, owners []string
	for _, p := range parts {
		names, owners = append(names, p.name), append(owners, p.owner)
	}
	w.log(Entry{Kind: KindJoint, Client: c.number, Node: -1, Name: strings.Join(names, ","), Owner: owners[0],
		More: owners[1:],
		Text: "holds " + strings.Join(names, " and ") + " as one"})
}

func (w *world) logFault(e *faults.Event, end bool) {
	entry := Entry{Kind: KindFault, Client: -1, Node: -1, Text: e.Words()}
	if e.For > 0 {
		entry.Until = time.Duration(w.now) + e.For
	}
	if end {
		entry.Kind, entry.Until = KindFaultEnd, 0
	}
	w.log(entry)
}

func (w *world) logStep(c *Client, e *faults.Event) {
	w.log(Entry{Kind: KindStep, Client: c.number, Node: -1, Name: e.Name, Text: e.Words()})
}

func (w *world) logResult(c *Client, e *faults.Event, result string) {
	w.log(Entry{Kind: KindResult, Client: c.number, Node: -1, Name: e.Name,
		Text: string(e.Verb) + " " + e.Name + ": " + result})
}

func (w *world) logAccess(a *access) {
	if w.trace == nil {
		return
	}
	what := "reads"
	if a.write {
		what = "writes"
	}
	if !a.ok {
		what += ": refused, its token is old"
	}
	w.log(Entry{Kind: KindAccess, Client: a.c.number, Node: -1, Name: w.names[a.name], Token: a.token, Text: what})
}

func (t *Trace) differs(other *Trace) int {
	for i := range max(len(t.Entries), len(other.Entries)) {
		if i >= min(len(t.Entries), len(other.Entries)) || !reflect.DeepEqual(t.Entries[i], other.Entries[i]) {
			return i
		}
	}
	return -1
}

func (t *Trace) at(n int) string {
	if n >= len(t.Entries) {
		return "nothing"
	}
	return t.Entries[n].String()
}

func (e Entry) String() string {
	who := ""
	if e.Client >= 0 {
		who = procName('c', e.Client)
	}
	if e.Node >= 0 {
		switch {
		case who == "":
			who = procName('n', e.Node)
		case e.ToClient:
			who = procName('n', e.Node) + ">" + who
		default:
			who += ">" + procName('n', e.Node)
		}
	}
	return fmt.Sprintf("%s %s %s: %s", FormatTime(e.At), who, e.Kind, e.Text)
}

// FormatTime writes milliseconds with three decimals.
func FormatTime(d time.Duration) string {
	us := d.Microseconds()
	return fmt.Sprintf("%d.%03d", us/1000, us%1000)
}

// WriteText writes the trace for people: a line for each event that changes something,
// and a column for each node, which shows who has the key there.
func (t *Trace) WriteText(out io.Writer, p *faults.Plan) error {
	now := keysNow{make(map[string]int), make(map[place]Entry)}
	lines := [][]string{{"ms", "who"}}
	for i := range p.Nodes {
		lines[0] = append(lines[0], procName('n', i))
	}
	lines[0] = append(lines[0], "what")
	for i := range t.Entries {
		e := &t.Entries[i]
		if !now.see(e) {
			continue
		}
		line := []string{FormatTime(e.At), ""}
		if e.Client >= 0 {
			line[1] = procName('c', e.Client)
		}
		names := t.about(e)
		for i := range p.Nodes {
			line = append(line, now.column(e, i, names))
		}
		lines = append(lines, append(line, e.sentence()))
	}
	_, err := io.WriteString(out, align(lines))
	return err
}

type place struct {
	node int
	name string
}

type keysNow struct {
	owners map[string]int  // clients
	keys   map[place]Entry // the latest of each key
}

// see reports whether an entry is a line of its own.
func (n *keysNow) see(e *Entry) bool {
	if e.Owner != "" && e.Client >= 0 {
		n.owners[e.Owner] = e.Client
		n.owners[node.Offer(e.Owner)] = e.Client
	}
	switch e.Kind {
	case KindKey:
		n.keys[place{e.Node, e.Name}] = *e
		return false
	case KindSend:
		return false
	case KindReply:
		return strings.Contains(e.Text, "timeout")
	}
	return true
}

func (n *keysNow) column(e *Entry, on int, names []string) string {
	var have []string
	for _, name := range names {
		if key := n.keys[place{on, name}]; key.Owner != "" && key.Until > e.At {
			have = append(have, key.holders(n.owners))
		}
	}
	column := strings.Join(slices.Compact(have), ",")
	if column == "" && len(names) > 0 {
		column = "."
	}
	if on == e.Node {
		column = "*" + column
	}
	return column
}

func (t *Trace) about(e *Entry) (names []string) {
	switch {
	case len(t.keys) == 1:
		return t.keys
	case e.Name != "":
		return strings.Split(e.Name, ",")
	case e.Kind == KindViolation:
		for _, name := range t.keys {
			if strings.Contains(e.Text, strconv.Quote(name)) {
				names = append(names, name)
			}
		}
	}
	return names
}

func (e *Entry) holders(clients map[string]int) string {
	const most = 3 // more would make a column too wide
	var who []int
	for _, owner := range append([]string{e.Owner}, e.More...) {
		who = append(who, clients[owner])
	}
	slices.Sort(who)
	var list []string
	for _, c := range who[:min(len(who), most)] {
		list = append(list, procName('c', c))
	}
	if more := len(who) - most; more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	s := strings.Join(list, "+")
	if e.Mode != "" {
		s += ":" + e.Mode[:1]
	}
	return s
}

func (e *Entry) sentence() string {
	switch e.Kind {
	case KindFault:
		return "FAULT " + e.Text
	case KindFaultEnd:
		return "end of " + e.Text
	case KindLost:
		return e.Text + " is lost"
	case KindHeld:
		return e.Text + " is held back"
	case KindReleased:
		return e.Text + " goes on"
	case KindViolation:
		return "VIOLATION " + e.Text
	case KindBelief, KindEngine:
		if e.Token != 0 {
			return fmt.Sprintf("%s (token %d)", e.Text, e.Token)
		}
	case KindAccess:
		verb, _, _ := strings.Cut(e.Text, ":")
		return verb + " " + e.Name + strings.TrimPrefix(e.Text, verb)
	}
	return e.Text
}

// align leaves the last column without an end.
func align(lines [][]string) string {
	widths := []int{12, 5}
	for _, line := range lines {
		for i := 2; i < len(line)-1; i++ {
			if i == len(widths) {
				widths = append(widths, 4)
			}
			widths[i] = max(widths[i], len(line[i]))
		}
	}
	var b strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&b, "%*s ", widths[0], line[0])
		for i, cell := range line[1 : len(line)-1] {
			fmt.Fprintf(&b, " %-*s", widths[i+1], cell)
		}
		fmt.Fprintf(&b, " %s\n", line[len(line)-1])
	}
	return b.String()
}
