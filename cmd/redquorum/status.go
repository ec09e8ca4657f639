package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/internal/replicas"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

const statusManual = `Asks every node for the holder of the lock NAME, and changes nothing. The
verdict is held (one owner has a majority, or each of several readers has), free
(nobody has it on a majority), contended (neither: owners compete, or a dead
one's keys are left) or no-quorum (too few nodes answered that count). A node
that restarted recently does not count: what it has is only shown. So if servers
restart faster than doctor says, status cannot tell the holder for a while.
Waiters are listed with their positions in the wait queue.

MAX TOKEN is the highest fencing token that a node has seen. Each failed attempt
of others raises it, so it tells neither the holder's token nor since when it
holds the lock: nodes store neither. The holder knows them ('redquorum run
--verbose', the library's events).

A node may answer and refuse writes, when it is out of memory for example. So
status tries a write that changes nothing, SET with XX of a key that does not
exist. It says which nodes refuse it, and whether programs use the nodes with
different settings: two of them may hold one lock at the same time.

Owners and waiters are shown with the labels of their programs: the host, the
process ID and the program, or what the program has chosen (--label,
Options.Label). An owner's note follows, if it has one (--note, WithNote). An
owner name begins with the UUID of its process; a command under redquorum run
finds its own in REDQUORUM_OWNER.

A plain string at the name is a lock of redsync or another library, made by SET
NX. Its value is shown. On a majority of the nodes it holds the name. redquorum
waits for it, and does not remove it.

Exit status: 0 with a verdict, whichever it is, 1 without a quorum, 2 usage.
Scripts find the verdict in the output of --json.

example:
  redquorum status orders/42 --nodes redis://a,redis://b,redis://c`

func statusVerb() *cobra.Command {
	cmd, fs := newVerb("status NAME", "show the holder of a lock, its nodes and the time left", statusManual)
	asJSON := fs.Bool("json", false, "print one JSON object")
	return asksAbout(cmd, func(ctx context.Context, c *command, nodes *nodeFlags, l *quorum.Locker, name string) error {
		report, err := l.Inspect(ctx, name)
		if err != nil {
			return err
		}
		refused, settings := nodes.probe(ctx, report)
		err = c.print(*asJSON, newStatus(report, refused, settings),
			func(w io.Writer) string { return reportText(w, report, refused, settings) })
		if err == nil && report.Verdict == quorum.VerdictNoQuorum {
			err = cli.Exit(cli.Failed)
		}
		return err
	})
}

var heldHow = map[node.Mode]string{node.Exclusive: "held", node.Read: "held for reading",
	node.Write: "held for writing"}

type statusJSON struct {
	Name    string            `json:"name"`
	Verdict string            `json:"verdict"`
	Owner   string            `json:"owner"`
	Owners  []string          `json:"owners"`  // those with a majority: several only if they read; of more than 60 some
	Mode    string            `json:"mode"`    // exclusive, read or write: of the owner; "" without one
	Waiting []string          `json:"waiting"` // in the order of the wait queue: of each node the first 64
	More    moreJSON          `json:"more"`    // that are not listed: a node does not tell of all if they are many
	Labels  map[string]string `json:"labels"`  // of owners and waiters, where they are known
	Notes   map[string]string `json:"notes"`   // of owners that have one
	HeldBy  int               `json:"held_by"`
	Quorum  int               `json:"quorum"`
	Nodes   []nodeStatusJSON  `json:"nodes"`

	Settings []string `json:"settings"` // of programs: those with different ones may not exclude each other
}

// A moreJSON counts those that are not listed. Some may be dead.
type moreJSON struct {
	Owners  int `json:"owners"`
	Waiting int `json:"waiting"`
}

type nodeStatusJSON struct {
	Node       string     `json:"node"`
	State      string     `json:"state"`
	Owner      string     `json:"owner"` // several with commas between
	Owners     []string   `json:"owners"`
	Mode       string     `json:"mode"`
	Waiting    []string   `json:"waiting"`
	TTL        int64      `json:"ttl_ms"` // -1: the key never expires
	Fence      node.Token `json:"fence"`
	String     string     `json:"string,omitempty"`
	Abstaining int64      `json:"abstains_ms,omitempty"`
	Error      string     `json:"error"`
	Refused    string     `json:"refuses_writes,omitempty"`
}

// probe asks for what is not in the report: why each node refuses writes, "" if it does
// not or cannot be asked; and the settings of programs.
func (n *nodeFlags) probe(ctx context.Context, r *quorum.Report) (refused, settings []string) {
	refused = make([]string, len(r.Nodes))
	options, err := n.clients()
	if err != nil || len(options) != len(r.Nodes) {
		return refused, nil
	}
	key := n.prefix + node.FenceKey(r.Name+":"+rand.Text())
	found := make([][]string, len(r.Nodes))
	var g errgroup.Group
	for i, o := range options {
		if r.Nodes[i].Err != nil {
			continue
		}
		g.Go(func() error {
			client := newClient(o.Options)
			defer client.Close()
			err := client.SetXX(ctx, key, "", time.Second).Err()
			said := redis.Error(nil)
			if errors.As(err, &said) && err != redis.Nil && !slices.ContainsFunc([]string{"NOPERM ", "MOVED ", "ASK "}, func(word string) bool { return strings.HasPrefix(err.Error(), word) }) {
				refused[i] = err.Error()
			} else if of := replicas.Count(o.Replicas); of > 0 {
				if have, err := confirm(ctx, client, of); err == nil && have < of.Needed() {
					refused[i] = fmt.Sprintf("%d of %d replicas confirm them; it needs %d", have, of, of.Needed())
				}
			}
			found[i], _ = settingsOn(ctx, client, n.prefix) // without the right to labels, none
			return nil
		})
	}
	_ = g.Wait() // what fails is in refused
	settings = slices.Concat(found...)
	slices.Sort(settings)
	return refused, slices.Compact(settings)
}

func newStatus(r *quorum.Report, refused, settings []string) statusJSON {
	s := statusJSON{Name: r.Name, Verdict: string(r.Verdict), Owner: r.Owner, Owners: list(r.Owners),
		Mode:    modeOf(r.Mode, r.HeldBy),
		Waiting: list(r.Waiting), Labels: make(map[string]string), Notes: make(map[string]string), HeldBy: r.HeldBy,
		Quorum: r.Quorum, Settings: list(settings),
		More: moreJSON{r.MoreOwners, r.MoreWaiting}}
	for _, of := range slices.Concat(r.Owners, r.Waiting) {
		if label := r.Label(of); label != "" {
			s.Labels[of] = label
		}
		if note := r.Note(of); note != "" {
			s.Notes[of] = note
		}
	}
	for i, n := range r.Nodes {
		j := nodeStatusJSON{Refused: refused[i], Node: n.Node, State: string(n.State),
			Owner: strings.Join(n.Owners, ","), Owners: list(n.Owners),
			Mode: modeOf(n.Mode, len(n.Owners)), Waiting: list(n.Waiting), TTL: n.TTL.Milliseconds(),
			Fence: n.Fence, String: n.Value, Abstaining: n.Abstains.Milliseconds()}
		if n.TTL == node.NoExpiry {
			j.TTL = -1
		}
		if n.Err != nil {
			j.Error = n.Err.Error()
		}
		s.Nodes = append(s.Nodes, j)
	}
	return s
}

func modeOf(m node.Mode, owners int) string {
	if owners == 0 {
		return ""
	}
	return m.String()
}

// list makes null an empty list in JSON.
func list(s []string) []string { return append([]string{}, s...) }

func headline(r *quorum.Report) string {
	name := shown(r.Name)
	switch r.Verdict {
	case quorum.VerdictHeld:
		by := "another library"
		if r.Owner != "" {
			by = who(r, r.Owner)
		}
		return fmt.Sprintf("%s is %s by %s, on %d of %d nodes", name, heldHow[r.Mode], by, r.HeldBy, len(r.Nodes))
	case quorum.VerdictFree:
		return name + " is free"
	case quorum.VerdictContended:
		return fmt.Sprintf("%s is contended: nobody has the %d of %d nodes that are needed", name, r.Quorum,
			len(r.Nodes))
	default:
		if other := otherKeys(r); other > len(r.Nodes)-r.Quorum {
			return fmt.Sprintf("%s cannot be locked: %d of %d nodes have a key there that is not a lock", name, other,
				len(r.Nodes))
		}
		usable, ignored := 0, time.Duration(0)
		for _, n := range r.Nodes {
			if n.State == quorum.NodeHeld || n.State == quorum.NodeFree {
				usable++
			}
			ignored = max(ignored, n.Abstains)
		}
		line := fmt.Sprintf("%s: %d of %d nodes are usable, %d needed", name, usable, len(r.Nodes), r.Quorum)
		if ignored > 0 {
			line += fmt.Sprintf("; servers that started recently are ignored, for up to %v more",
				ignored.Round(time.Second))
		}
		return line
	}
}

// otherKeys counts nodes with a key of another type at the name.
func otherKeys(r *quorum.Report) (nodes int) {
	for _, n := range r.Nodes {
		if errors.Is(n.Err, node.ErrWrongType) {
			nodes++
		}
	}
	return nodes
}

// who adds the label and note of an owner or a waiter.
func who(r *quorum.Report, of string) string {
	text := printable(of)
	if label := r.Label(of); label != "" {
		text = printable(label) + ", " + text
	}
	if note := r.Note(of); note != "" {
		text += ": " + printable(note)
	}
	return text
}

func reportText(w io.Writer, r *quorum.Report, refused, settings []string) string {
	var b strings.Builder
	p := newPainter(w)
	color, first := verdictColors[r.Verdict], summary(r)
	writable := 0
	for i, n := range r.Nodes {
		if n.Err == nil && refused[i] == "" {
			writable++
		}
	}
	if r.Verdict != quorum.VerdictNoQuorum && writable < r.Quorum {
		color, first = red, first+fmt.Sprintf("; nobody can get it now: only %d of %d nodes accept writes, %d needed",
			writable, len(r.Nodes), r.Quorum)
	}
	b.WriteString(p.paint(color, wrapped(first, "")) + "\n")
	if r.Verdict == quorum.VerdictHeld && r.Owner != "" {
		owners := slices.DeleteFunc(slices.Clone(r.Owners), func(o string) bool { return o == r.Owner })
		writeSome(&b, append([]string{r.Owner}, owners...), r.MoreOwners,
			func(_ int, owner string) string { return "  by " + wrapped(who(r, owner), "     ") })
	}
	writeQueue(&b, r)
	if value, nodes := foreign(r); nodes > 0 {
		text := "While it exists, nobody else gets this name."
		if nodes <= len(r.Nodes)-r.Quorum {
			text = "The other nodes can still grant this name."
		}
		b.WriteString(wrapped(fmt.Sprintf("%d of %d nodes have the string %s there: a lock of redsync or another library, made by SET NX. "+
			"%s redquorum does not remove it.", nodes, len(r.Nodes), printable(value), text), "") + "\n")
	}
	rows := [][]string{{"NODE", "STATE", "TTL", "MAX TOKEN"}}
	for _, n := range r.Nodes {
		rows = append(rows, nodeRow(n))
	}
	for i, line := range table(rows) {
		if i == 0 {
			b.WriteString("\n" + line + "\n")
			continue
		}
		b.WriteString(p.paint(stateColors[r.Nodes[i-1].State], line) + "\n")
	}
	writeDetails(&b, r, refused)
	if len(settings) > 1 {
		b.WriteString("\n" + p.paint(red, wrapped("programs use these nodes with different settings: "+
			printable(strings.Join(settings, "; "))+
			". Two of them may hold one lock at the same time.", "  ")) + "\n")
	}
	return b.String()
}

var (
	verdictColors = map[quorum.Verdict]string{quorum.VerdictHeld: green, quorum.VerdictFree: green,
		quorum.VerdictContended: yellow, quorum.VerdictNoQuorum: red}
	stateColors = map[quorum.NodeState]string{quorum.NodeHeld: green, quorum.NodeFree: green,
		quorum.NodeAbstaining: yellow, quorum.NodeError: red}
)

// summary leaves the owners to the lines after it.
func summary(r *quorum.Report) string {
	if r.Verdict != quorum.VerdictHeld {
		return headline(r)
	}
	text := fmt.Sprintf("%s is %s on %d of %d nodes", shown(r.Name), heldHow[r.Mode], r.HeldBy, len(r.Nodes))
	if left := left(r); left != node.NoExpiry {
		text += fmt.Sprintf(", for %v more unless it is renewed", left.Round(100*time.Millisecond))
	}
	return text
}

// writeSome writes the first names, and counts the others, also the unknown ones.
func writeSome(b *strings.Builder, names []string, unknown int, line func(i int, name string) string) {
	some := names[:min(len(names), 10)]
	for i, name := range some {
		b.WriteString(line(i, name) + "\n")
	}
	switch more := len(names) - len(some); {
	case unknown > 0:
		fmt.Fprintf(b, "  and %d more\n", more+unknown)
	case more > 0:
		fmt.Fprintf(b, "  and %d more: --json has all\n", more)
	}
}

func writeQueue(b *strings.Builder, r *quorum.Report) {
	if len(r.Waiting) > 0 {
		b.WriteString("waiting, in this order:\n")
	}
	writeSome(b, r.Waiting, r.MoreWaiting, func(i int, waiter string) string {
		on := 0
		for _, n := range r.Nodes {
			if slices.Contains(n.Waiting, waiter) {
				on++
			}
		}
		line := who(r, waiter)
		if on < len(r.Nodes) {
			line += fmt.Sprintf(" (%d nodes)", on)
		}
		return fmt.Sprintf("  %d  %s", i+1, wrapped(line, "     "))
	})
}

func nodeRow(n quorum.NodeReport) []string {
	ttl, fence := "-", "-"
	switch {
	case n.TTL == node.NoExpiry:
		ttl = "none"
	case n.TTL > 0:
		ttl = n.TTL.Round(10 * time.Millisecond).String()
	}
	if n.Fence > 0 {
		fence = fmt.Sprint(n.Fence)
	}
	state := string(n.State)
	if errors.Is(n.Err, node.ErrWrongType) {
		state = "not a lock"
	}
	return []string{n.Node, state, ttl, fence}
}

// writeDetails writes what nodes have in common once.
func writeDetails(b *strings.Builder, r *quorum.Report, refused []string) {
	var details []string
	nodes := make(map[string][]string)
	for i, n := range r.Nodes {
		detail := nodeDetail(n, r, refused[i])
		if detail != "" && nodes[detail] == nil {
			details = append(details, detail)
		}
		nodes[detail] = append(nodes[detail], n.Node)
	}
	if len(details) > 0 {
		b.WriteByte('\n')
	}
	for _, detail := range details {
		b.WriteString(wrapped(about(nodes[detail], len(r.Nodes))+detail, "  ") + "\n")
	}
}

func nodeDetail(n quorum.NodeReport, r *quorum.Report, refused string) string {
	var details []string
	if len(n.Owners) > 0 && (r.Verdict != quorum.VerdictHeld || !slices.Contains(n.Owners, r.Owner)) {
		detail := heldHow[n.Mode] + " by " + printable(n.Owners[0])
		if more := len(n.Owners) + n.MoreOwners - 1; more > 0 {
			detail += fmt.Sprintf(" and %d more", more)
		}
		details = append(details, detail)
	}
	if n.Abstains > 0 {
		details = append(details, fmt.Sprintf("ignored for %v: recently (re)started or was a replica",
			n.Abstains.Round(100*time.Millisecond)))
	}
	if n.Err != nil {
		details = append(details, printable(n.Err.Error()))
	}
	if refused != "" {
		details = append(details, "refuses writes: "+printable(refused))
	}
	return strings.Join(details, "; ")
}

// foreign returns the string that most nodes have at the name, and how many.
func foreign(r *quorum.Report) (value string, nodes int) {
	counts := make(map[string]int)
	for _, n := range r.Nodes {
		if n.Value == "" {
			continue
		}
		counts[n.Value]++
		if counts[n.Value] > nodes {
			value, nodes = n.Value, counts[n.Value]
		}
	}
	return value, nodes
}
