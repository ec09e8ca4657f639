package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
)

func (w *world) site(name string) (nodes []*server, need int) {
	n, need := w.p.Site(name)
	return w.nodes[:n], need
}

// inspect overwrites state and reuses its memory.
func (s *server) inspect(now model.Time, name string, state *node.State) *node.State {
	if err := s.mem.State(now, name, state); err != nil {
		*state = node.State{}
	}
	return state
}

func (s *server) keepsAny(names []string, owner string, mode node.Mode) bool {
	return slices.ContainsFunc(names, func(name string) bool { _, ok := s.mem.Keeps(s.time(), name, owner, mode); return ok })
}

func (s *server) keepsAll(names []string, owner string, mode node.Mode) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return !s.keepsAny([]string{name}, owner, mode) })
}

func countNodes(nodes []*server, is func(*server) bool) (n int) {
	for _, s := range nodes {
		if is(s) {
			n++
		}
	}
	return n
}

func (s *server) has(h *holder, name string) bool {
	_, has := s.keeps(name, h)
	return has
}

// keeps returns until when a node has the key, by any owner of the lease.
func (s *server) keeps(name string, h *holder) (until model.Time, has bool) {
	until, has = s.mem.Keeps(s.time(), name, h.owner, h.mode)
	for _, owners := range [...][]string{h.renamed, h.passed} {
		for i := 0; !has && i < len(owners); i++ {
			until, has = s.mem.Keeps(s.time(), name, owners[i], h.mode)
		}
	}
	return until, has
}

func (s *server) hasAll(h *holder) bool {
	return !slices.ContainsFunc(h.names, func(name string) bool { return !s.has(h, name) })
}

// copied reports whether the data, as of a command sent at that instant, may come from
// another server or from before, or lack what was forgotten since.
func (s *server) copied(asked int64) bool { return s.forgot || s.copy > 0 && s.copy >= asked }

func ownersOf(fields []node.Field) (owners []string) {
	for _, f := range fields {
		if f.Name != node.ModeField {
			owners = append(owners, strings.TrimSuffix(f.Name, node.WriteSuffix))
		}
	}
	return owners
}

// silent reports whether the server grants nothing.
func (s *server) silent() bool { return s.Down || s.Demoted }

// guarded reports whether the server has restarted, or was demoted, so recently that the
// restart guard ignores it.
func (s *server) guarded() bool {
	return s.w.p.Lock.Guard && s.w.now < s.since+int64(s.w.p.Lock.MaxLease+s.w.p.Lock.Grace)
}

func (w *world) votes(s *server) bool {
	return !s.silent() && s.refusal() == nil && !s.guarded() && (!w.calm || w.core.Has(s.number))
}

func (w *world) tranquil(since int64) bool {
	return (w.calm || w.striking == 0) && w.troubled < since
}

// clear reports whether commands reach the node, which executes them at once, and answers
// come back: a node may have to ask for a script. The connection must not be that to a
// replica, which would hold commands back.
func (l *link) clear() bool {
	s := l.n
	return l.phase == warm && !l.demoted && l.conn != l.gone && l.Cut == [2]bool{} && l.Loss == [2]faults.Ratio{} &&
		l.Reorder == [2]faults.Ratio{} &&
		l.Delay[toNode].Max == 0 && l.Delay[toClient].Max == 0 && !l.Holds() &&
		max(l.arrive, l.answer) <= l.w.now+int64(l.w.p.Network.Delay.Max) && !s.silent() && s.refusal() == nil &&
		s.idle() && s.Starved == nil
}

// disturbs reports whether faults of the link or its ends began or ended since then.
func (w *world) disturbs(l *link, since int64) bool {
	return w.calm && since <= w.troubled || slices.ContainsFunc(w.p.Events, func(e faults.Event) bool {
		at := int64(e.At)
		if e.For > 0 && at+int64(e.For) <= w.now {
			at += int64(e.For)
		}
		links := e.Links.Clients.Has(l.c.number) && e.Links.Nodes.Has(l.n.number)
		return at >= since && at <= w.now && !e.Verb.IsStep() &&
			(links || e.Procs.Clients.Has(l.c.number) || w.sharingServers(e.Procs.Nodes).Has(l.n.number))
	})
}

// reaches reports whether a client reaches all voting nodes, and since when.
func (c *Client) reaches(nodes []*server) (since int64, ok bool) {
	for _, s := range nodes {
		if l := c.links[s.number]; c.w.votes(s) {
			if c.waits() || !l.clear() {
				return 0, false
			}
			since = max(since, l.warmed)
		}
	}
	return since, true
}

// disturbed is until when faults delay commands. A long script may last into the calm.
func (s *server) disturbed() int64 { return max(s.w.troubled, s.busy) }

// quick bounds a command without faults. The node may have to ask for its script.
func (w *world) quick() time.Duration {
	return 3*w.p.Network.Delay.Max + time.Millisecond + maxOverdue*w.p.Work.Step
}

func (k *checker) someFree(s *server, m *message, now model.Time) bool {
	return slices.ContainsFunc(m.cmd.Claims, func(c node.Claim) bool { return s.inspect(now, c.Name, &k.seen).Type == "none" })
}
