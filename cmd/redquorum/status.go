package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

const statusManual = `
usage: redquorum status NAME [--nodes URL,...] [--prefix TEXT] [--json]

Asks every node who holds the lock NAME, and changes nothing. The verdict is
held (one owner has a majority, or each of several readers has), free (nobody has
it on a majority), contended (neither: owners compete, or something is left over)
or no-quorum (too few nodes answered). FENCE is the highest fencing token that a node
has seen, also of attempts that failed: the holder's is not above it. An owner
begins with what its process is known by; a command under redquorum run has its own
in REDQUORUM_OWNER.

A plain string at the name is a lock as redsync and others make it by SET NX. It
is shown, with what it has in it, and is none of redquorum's, which neither takes
nor breaks such a name.

Exit status: 0 with a verdict, whichever it is, 1 without a quorum, 2 usage.
Scripts find the verdict in the output of --json.

example:
  redquorum status orders/42 --nodes redis://a:6379,redis://b:6379,redis://c:6379
`

func statusVerb(ctx context.Context, c *command) int {
	fs := c.flags("status", statusManual)
	var nodes nodeFlags
	nodes.register(fs)
	nodes.registerPrefix(fs)
	asJSON := fs.Bool("json", false, "print one JSON object")
	name, status, ok := c.parseName(fs)
	if !ok {
		return status
	}
	l, done, err := nodes.locker(quorum.Options{Timeout: 2 * time.Second, Quorum: quorumMost})
	if err != nil {
		return c.fail("status", err)
	}
	defer done()
	report, err := l.Inspect(ctx, name)
	if err != nil {
		return c.fail("status", err)
	}
	if *asJSON {
		err = json.NewEncoder(c.stdout).Encode(newStatus(report))
	} else {
		err = printReport(c.stdout, report)
	}
	if err != nil {
		return c.fail("status", err)
	}
	if report.Verdict == "no-quorum" {
		return exitError
	}
	return exitOK
}

// heldHow says in a word what the owner does.
var heldHow = map[node.Mode]string{node.Exclusive: "held", node.Read: "held for reading", node.Write: "held for writing"}

// A statusJSON is what status --json prints.
type statusJSON struct {
	Name    string           `json:"name"`
	Verdict string           `json:"verdict"`
	Owner   string           `json:"owner"`
	Owners  []string         `json:"owners"`  // those with a majority: several only if they read
	Mode    string           `json:"mode"`    // exclusive, read or write: of the owner
	Waiting []string         `json:"waiting"` // who is known to wait: in line, or to write; "readers" for all who wait to read
	HeldBy  int              `json:"held_by"`
	Quorum  int              `json:"quorum"`
	Nodes   []nodeStatusJSON `json:"nodes"`
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
}

func newStatus(r *quorum.Report) statusJSON {
	s := statusJSON{Name: r.Name, Verdict: r.Verdict, Owner: r.Owner, Owners: list(r.Owners), Mode: r.Mode.String(),
		Waiting: list(r.Waiting), HeldBy: r.HeldBy, Quorum: r.Quorum}
	for _, n := range r.Nodes {
		j := nodeStatusJSON{Node: n.Node, State: n.State, Owner: strings.Join(n.Owners, ","), Owners: list(n.Owners),
			Mode: n.Mode.String(), Waiting: list(n.Waiting), TTL: n.TTL.Milliseconds(),
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

// list makes sure that no list is null in JSON.
func list(s []string) []string { return append([]string{}, s...) }

// headline returns a report in one line.
func headline(r *quorum.Report) string {
	name := printable(r.Name)
	switch r.Verdict {
	case "held":
		return fmt.Sprintf("%s is %s by %s, on %d of %d nodes", name, heldHow[r.Mode], printable(r.Owner), r.HeldBy, len(r.Nodes))
	case "free":
		return name + " is free"
	case "contended":
		return fmt.Sprintf("%s is contended: nobody has the %d of %d nodes that are needed", name, r.Quorum, len(r.Nodes))
	default:
		usable, ignored := 0, time.Duration(0)
		for _, n := range r.Nodes {
			if len(n.Owners) > 0 || n.State == "free" { // one that abstains can tell of a lock, but not that there is none
				usable++
			}
			ignored = max(ignored, n.Abstains)
		}
		line := fmt.Sprintf("%s: %d of %d nodes are usable, %d needed", name, usable, len(r.Nodes), r.Quorum)
		if ignored > 0 {
			line += fmt.Sprintf("; servers that started recently are ignored, for up to %v more", ignored.Round(time.Second))
		}
		return line
	}
}

// printReport prints a report for people.
func printReport(w io.Writer, r *quorum.Report) error {
	fmt.Fprintln(w, headline(r))
	if r.Verdict == "held" {
		printOthers(w, r)
	}
	for _, waiter := range r.Waiting {
		if waiter == node.ReadersNext {
			fmt.Fprintln(w, "readers wait, and come next")
			continue
		}
		fmt.Fprintf(w, "%s waits, in line or to write\n", printable(waiter))
	}
	if value, nodes := foreign(r); nodes > 0 {
		fmt.Fprintf(w, "%d of %d nodes have the string %s there: a lock as redsync and others make it by SET NX.\n"+
			"redquorum neither takes nor breaks it: as long as it is there the name is refused, as of the wrong type.\n",
			nodes, len(r.Nodes), printable(value))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nNODE\tSTATE\tTTL\tFENCE\tOWNER")
	for _, n := range r.Nodes {
		ttl, fence, detail := "-", "-", ""
		if len(n.Owners) > 0 {
			detail = printable(n.Owners[0])
		}
		if more := len(n.Owners) - 1; more > 0 {
			detail += fmt.Sprintf(" and %d more", more)
		}
		if n.Mode != node.Exclusive {
			detail += fmt.Sprintf(" (%v)", n.Mode)
		}
		switch {
		case n.TTL == node.NoExpiry:
			ttl = "none"
		case n.TTL > 0:
			ttl = n.TTL.Round(10 * time.Millisecond).String()
		}
		if n.Fence > 0 {
			fence = fmt.Sprint(n.Fence)
		}
		if n.Abstains > 0 {
			detail += fmt.Sprintf(" (new, restarted or was a replica: no vote for %v)", n.Abstains.Round(100*time.Millisecond))
		}
		if n.Err != nil {
			detail = printable(n.Err.Error())
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", n.Node, n.State, ttl, fence, detail)
	}
	return t.Flush()
}

// printOthers prints the readers beside the first.
func printOthers(w io.Writer, r *quorum.Report) {
	const most = 10
	for i, owner := range slices.DeleteFunc(slices.Clone(r.Owners), func(o string) bool { return o == r.Owner }) {
		if i == most {
			fmt.Fprintf(w, "and by %d more: --json has all\n", len(r.Owners)-1-most)
			return
		}
		fmt.Fprintf(w, "and by %s\n", printable(owner))
	}
}

// foreign returns the string that most nodes have at the name, and how many have
// it.
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
