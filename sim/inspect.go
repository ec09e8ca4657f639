package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// This file asks who holds a name, and compares what is said with what the nodes had.

// A look is what a node had of a name when it was asked by an Inspect.
type look struct {
	node   int
	owners []string
	free   bool
	forgot bool // it may have forgotten what it had
	fence  node.Token
}

// An inspection is a call of Inspect.
type inspection struct {
	c     *Client
	name  string
	looks []look
}

// inspects asks who holds a name, and holds Inspect to what it promises. It returns the
// verdict, or "" if there was none.
func (c *Client) inspects(name string) quorum.Verdict {
	w := c.w
	var through []*holder // that have the name now
	for _, h := range w.check.holders {
		if h.has(name) && h.believed() {
			through = append(through, h)
		}
	}
	i := &inspection{c: c, name: name}
	w.check.inspections = append(w.check.inspections, i)
	start, stops := w.now, c.stops
	report, err := c.locker.Inspect(c.ctx, name)
	w.check.inspections = without(w.check.inspections, slices.Index(w.check.inspections, i))
	if c.stops == stops {
		c.bounded("Inspect", start, w.p.Lock.Timeout)
	}
	i.tells(report, err, through)
	if err != nil {
		return ""
	}
	w.sometimes(Inspected)
	return report.Verdict
}

// tells checks what Inspect says, where some have held the name all the while.
func (i *inspection) tells(report *quorum.Report, err error, through []*holder) {
	c, w := i.c, i.c.w
	if err != nil {
		if c.ctx.Err() == nil && !errors.Is(err, quorum.ErrClosed) {
			w.fail("I11", fmt.Sprintf("%s inspects %q: %v", c.name, i.name, err))
		}
		return
	}
	if told := i.wrong(report); told != "" {
		w.fail("I11", fmt.Sprintf("%s inspects %q: %s", c.name, i.name, told))
	}
	for _, h := range through {
		if w.check.holder(h.owner) == h && h.believed() && w.check.broken[h.owner] == nil {
			i.sees(h, report)
		}
	}
}

// sees checks that a name that somebody has held all the while is not said to be free, unless
// nodes say so that may have forgotten it.
func (i *inspection) sees(h *holder, report *quorum.Report) {
	c, w := i.c, i.c.w
	forgot := slices.ContainsFunc(i.looks, func(l look) bool { return l.free && l.forgot })
	if report.Verdict == quorum.VerdictFree && !forgot && w.broken == "" && len(c.listed) == len(c.links) {
		w.fail("I11", fmt.Sprintf("%s is told that %q is free, which %s has held all the while", c.name, report.Name, h.c.name))
	}
}

// wrong says what in a report is not what the nodes had.
func (i *inspection) wrong(report *quorum.Report) string {
	answered, free, most := 0, 0, 0
	counts := make(map[string]int)
	for n, at := range report.Nodes {
		if at.State == "error" {
			continue
		}
		number := i.c.listed[n].n.number
		if !slices.ContainsFunc(i.looks, func(l look) bool {
			return l.node == number && l.fence == at.Fence && slices.Equal(l.owners, at.Owners) && (l.free || at.State != "free")
		}) {
			return fmt.Sprintf("%s is said to be %s, of %v, with fence %d; it never was", at.Node, at.State, at.Owners, at.Fence)
		}
		if at.State == "free" {
			free++
		}
		if at.State == "free" || len(at.Owners) > 0 {
			answered++
		}
		for _, owner := range at.Owners {
			counts[owner]++
			most = max(most, counts[owner])
		}
	}
	majority, want := len(report.Nodes)/2+1, quorum.VerdictNoQuorum
	switch {
	case most >= majority:
		want = quorum.VerdictHeld
	case free >= majority:
		want = quorum.VerdictFree
	case answered >= majority:
		want = quorum.VerdictContended
	}
	if report.Verdict != want || report.HeldBy != most || most > 0 && counts[report.Owner] != most {
		return fmt.Sprintf("the verdict is %s, by %d; it has to be %s, by %d", report.Verdict, report.HeldBy, want, most)
	}
	return ""
}

// looks notes what a node has when an Inspect comes to it.
func (k *checker) looks(s *server, m *message) {
	state := s.inspect(s.time(), m.cmd.Claims[0].Name, &k.seen)
	l := look{node: s.number, free: state.Type == "none", forgot: s.silent() || k.w.now < s.since+int64(k.w.p.Lock.MaxLease+k.w.p.Lock.Grace), fence: state.Fence}
	for _, f := range state.Fields {
		if f.Name != node.ModeField {
			l.owners = append(l.owners, strings.TrimSuffix(f.Name, node.WriteSuffix))
		}
	}
	l.owners = slices.Compact(l.owners)
	for _, i := range k.inspections {
		if i.c == m.link.c && i.name == m.cmd.Claims[0].Name {
			i.looks = append(i.looks, l)
		}
	}
}
