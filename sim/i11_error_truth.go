package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

const i11 = "error truth: an error, or a report, says what the nodes answered, and can name the holder"

func (c *Client) failed(name, owner string, err error) {
	w := c.w
	e, ok := errors.AsType[*quorum.Error](err)
	o := c.callOf(owner)
	if !ok || o == nil || len(c.listed) < len(c.links) {
		return
	}
	votes := make(map[quorum.Vote]int)
	for i, v := range e.Nodes {
		votes[v.Vote]++
		if heard := o.heard[i]; o.told.Has(i) && !c.links[i].honest(v.Vote, heard) {
			w.fail("I11", "%s: the error gives the vote of %s as %s; its answer was %s", c.name, c.links[i].n.name,
				v.Vote, heard)
		}
	}
	need := c.needs(name)
	granted, refused := votes[quorum.VoteGranted], votes[quorum.VoteRefused]
	held := e.Err == quorum.ErrHeld
	if held && granted+refused < need {
		w.fail("I11", "%s: the error is that the lock is held; only %d nodes answered", c.name, granted+refused)
	}
	if !held && granted < need && granted+refused >= need {
		w.fail("I11", "%s: the error is not that the lock is held; %d nodes answered", c.name, granted+refused)
	}
	if e.Err == quorum.ErrNoQuorum {
		w.sometimes(NoQuorum)
		if granted >= need {
			w.sometimes(GrantedTooLate)
		}
	}
	if votes[quorum.VoteAbstaining] > 0 {
		w.sometimes(GuardRefusal)
	}
	if votes[quorum.VoteUnknown] > 0 && granted > 0 {
		w.sometimes(UnknownVote)
	}
	if granted > 0 && refused > 0 {
		w.sometimes(SplitVote)
	}
}

func (l *link) honest(vote quorum.Vote, heard node.Status) bool {
	switch vote {
	case quorum.VoteGranted:
		return heard == node.Granted
	case quorum.VoteRefused:
		return no(heard)
	case quorum.VoteUnknown:
		return heard == node.Unknown || l.n.shared // a second name of one server is ignored
	case quorum.VoteAbstaining:
		switch {
		case l.refusedWrite >= l.n.born:
			l.w.sometimes(DemotedAbstains)
		case l.first == l.n.life:
			l.w.sometimes(NewcomerWary)
		}
		return heard == node.Granted && l.w.p.Lock.Guard && (l.n.since >= 0 || l.refusedWrite >= 0)
	}
	return true
}

func (k *checker) confirmed(c *Client, e *quorum.Event) {
	g := k.released(c, e.Owner)
	if g == nil || len(c.listed) < len(c.links) {
		return
	}
	if k.kept[e.Owner] {
		return // its minimum hold may have ended while nodes confirmed that they keep the name
	}
	n, need := g.gone.Len(), c.needs(g.name)
	told := ""
	switch {
	case e.Err == nil && (n < need || !g.removed):
		told = "is released"
	case errors.Is(e.Err, quorum.ErrNotHeld) && (n < need || g.removed && !g.twice):
		told = "was gone"
	case errors.Is(e.Err, quorum.ErrNoQuorum) && n >= need && c.stops == g.stops && !g.twice:
		told = "was not confirmed to be released"
	}
	if told != "" {
		k.w.fail("I11", "%s: Unlock reports that %q %s; %d nodes confirmed it", c.name, e.Name, told, n)
	}
	k.awaited(c, e)
}

func (k *checker) awaited(c *Client, e *quorum.Event) {
	err, ok := errors.AsType[*quorum.Error](e.Err)
	if !ok || err.Err != quorum.ErrNoQuorum {
		return
	}
	may := 0
	for _, v := range err.Nodes {
		if v.Vote == "granted" || v.Vote == "pending" {
			may++
		}
	}
	if may >= err.Quorum {
		k.w.fail("I11", "%s: Unlock reports that too few nodes have confirmed the end of %q, and has not waited for them", c.name, e.Name)
	}
}

// closed checks a lease of a closed Locker. One with a minimum hold may have been
// unlocked before, which is not reported yet.
func (k *checker) closed(h *holder, err error) {
	if k.holder(h.owner) == h && (!h.stays() || h.believed()) {
		k.closesLease(h)
	} else if err == nil {
		k.closedTruly(h)
	}
}

func (k *checker) closedTruly(h *holder) {
	g := k.released(h.c, h.owner)
	if g == nil || h.stays() || !h.endedBy(quorum.ErrClosed) {
		return // or its minimum hold may have ended while nodes confirmed that they keep the name
	}
	need := h.c.needs(g.name)
	if len(h.c.listed) < len(h.c.links) {
		need = len(h.c.listed)/2 + 1
	}
	if g.gone.Len() < need {
		k.w.fail("I11", "%s: Close reports that all leases are released; %q is not", h.c.name, h.name)
	}
}

// givesUpInTime checks that a waiting call for a lock that others hold, or that too few
// nodes grant, waits for the end of its context or of its bound.
func (c *Client) givesUpInTime(ctx context.Context, q *request, over bool, err error) {
	switch {
	case over && !errors.Is(err, quorum.ErrDeadlock):
		c.w.sometimes(WaitedInVain)
	case !q.Wait || ctx.Err() != nil || !errors.Is(err, quorum.ErrHeld) && !errors.Is(err, quorum.ErrNoQuorum) ||
		errors.Is(err, quorum.ErrDeadlock):
	case errors.Is(err, quorum.ErrHeld) || !c.tooLongDown():
		c.w.fail("I11", "%s no longer waits for %q, though nothing has ended the wait: %v", c.name, q.Names[0], err)
	default:
		c.w.sometimes(TooLongDown)
	}
}

// hearsOfClose checks that a waiting call that Close ends returns ErrClosed.
func (c *Client) hearsOfClose(ctx context.Context, q *request, from start, err error) {
	switch {
	case !c.leaving || c.w.now == c.shutAt || !q.Wait:
	case errors.Is(err, quorum.ErrClosed):
		c.w.sometimes(ClosedWaiting)
	case errors.Is(err, quorum.ErrNoQuorum) && c.tooLongDown(): // it had ended before
	case ctx.Err() == nil && c.stops == from.stops && !errors.Is(err, quorum.ErrDeadlock):
		c.w.fail("I11", "%s waits for %q, closes its Locker, and the error is: %v", c.name, q.Names[0], err)
	}
}

func (k *checker) forcedTruly(f *forcing, removed bool, err error, awake bool) {
	c := f.c
	told, majority := "", len(c.listed)/2+1
	n := f.confirmed.Len()
	switch {
	case c.ctx.Err() != nil || errors.Is(err, quorum.ErrClosed) || f.shares:
	case err == nil && n < majority:
		told = fmt.Sprintf("is broken; %d nodes confirmed it", n)
	case err != nil && (n >= majority && awake || !errors.Is(err, quorum.ErrNoQuorum)):
		told = fmt.Sprintf("was not confirmed to be broken by %d nodes: %v", n, err)
	case removed != f.removed && awake:
		told = fmt.Sprintf("was there: %v, and the nodes say %v", removed, f.removed)
	}
	if told != "" {
		k.w.fail("I11", "%s: Break reports that %q %s", c.name, f.name, told)
	}
}

// detachedTruly checks the error of Detach. valid is from before the call.
func (k *checker) detachedTruly(l *lock, h *holder, valid bool, err error) bool {
	c, w := l.c, k.w
	switch {
	case err != nil && (valid || !errors.Is(err, quorum.ErrNotHeld)):
		w.fail("I11", "%s cannot detach %q: %v", c.name, l.wants.Names[0], err)
	case err == nil && h == nil:
		w.fail("I11", "%s detaches %q, and does not hold it", c.name, l.wants.Names[0])
		return false
	}
	return err == nil
}

func (k *checker) saysDetached(c *Client, name string, err error) {
	if !errors.Is(err, quorum.ErrNotHeld) {
		k.w.fail("I11", "%s has detached %q, and unlocks it: %v", c.name, name, err)
	}
}

// resumeFails checks the error of Resume. passed is how much of the lease's bounds has
// passed.
func (k *checker) resumeFails(c *Client, b *passing, passed time.Duration, from start, err error) {
	w, h := k.w, b.h
	nodes, _ := w.site(h.name)
	need := c.needs(h.name)
	over := b.left > 0 && passed+w.p.Lock.Timeout >= b.left || b.fixedLeft > 0 && passed+w.p.Lock.Timeout >= b.fixedLeft
	var steady faults.Set // nodes that have never forgotten anything, or seemed to
	for i, s := range nodes {
		if s.since < 0 && c.links[i].refusedWrite < 0 {
			steady |= faults.Of(i)
		}
	}
	told := ""
	switch {
	case len(c.listed) < len(c.links) || c.ctx.Err() != nil || errors.Is(err, quorum.ErrClosed):
	case errors.Is(err, quorum.ErrNotHeld):
		w.sometimes(ResumedTooLate)
		if missing := b.lacks.Len(); !over && missing <= len(nodes)-need {
			told = fmt.Sprintf("is gone; %d nodes lack it", missing)
		}
	case !errors.Is(err, quorum.ErrNoQuorum):
		told = "fails"
	case (b.kept&^b.lacks&steady).Len() >= need && c.stops == from.stops && !over:
		told = "has no quorum; it has one"
	}
	if told != "" {
		w.fail("I11", "%s: Resume reports that %q %s: %v", c.name, h.name, told, err)
	}
}

// tells checks a report. through are the holders from before the call.
func (i *inspection) tells(report *quorum.Report, err error, through []*holder) {
	c, w := i.c, i.c.w
	if err != nil {
		if c.ctx.Err() == nil && !errors.Is(err, quorum.ErrClosed) {
			w.fail("I11", "%s inspects %q: %v", c.name, i.name, err)
		}
		return
	}
	if told := i.wrong(report); told != "" {
		w.fail("I11", "%s inspects %q: %s", c.name, i.name, told)
	}
	for _, h := range w.check.still(through) {
		i.sees(h, report)
	}
}

// still returns those that have held their lock all the while.
func (k *checker) still(through []*holder) []*holder {
	return slices.DeleteFunc(slices.Clone(through),
		func(h *holder) bool { return k.holder(h.owner) != h || !h.believed() || k.broken[h.owner] != nil })
}

// asks checks the error of an Ask. through are holders that had the name before.
func (i *inspection) asks(err error, through []*holder) {
	k := &i.c.w.check
	if err == nil {
		k.w.sometimes(Asked)
	} else if through = k.still(through); errors.Is(err, quorum.ErrNotHeld) && len(through) > 0 && k.w.broken == "" &&
		!slices.ContainsFunc(k.w.nodes, (*server).silent) {
		k.w.fail("I11", "%s asks the holder of %q, which %s is, to finish: %v", i.c.name, i.name, through[0].c.name,
			err)
	}
}

// sees checks that a name that was held during the whole call is not reported as free,
// unless a node may have forgotten it.
func (i *inspection) sees(h *holder, report *quorum.Report) {
	c, w := i.c, i.c.w
	forgot := slices.ContainsFunc(i.looks, func(l look) bool { return l.free && l.forgot })
	if report.Verdict == "free" && !forgot && w.broken == "" && len(c.listed) == len(c.links) {
		w.fail("I11", "%s: Inspect reports that %q is free, which %s has held all the while", c.name, report.Name,
			h.c.name)
	}
}

func (i *inspection) wrong(report *quorum.Report) string {
	answered, free, most := 0, 0, 0
	counts := make(map[string]int)
	for n, at := range report.Nodes {
		if at.State == quorum.NodeError {
			continue
		}
		number := i.c.listed[n].n.number
		if !slices.ContainsFunc(i.looks, func(l look) bool {
			return l.node == number && l.fence == at.Fence && slices.Equal(l.owners, at.Owners) &&
				(l.free || at.State != "free")
		}) {
			return fmt.Sprintf("%s is said to be %s, of %v, with fence %d; it never was", at.Node, at.State, at.Owners,
				at.Fence)
		}
		if at.State == quorum.NodeAbstaining {
			continue // what it has may be over
		}
		answered++
		if at.State == quorum.NodeFree {
			free++
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
		return fmt.Sprintf("the verdict is %s, by %d; it has to be %s, by %d", report.Verdict, report.HeldBy, want,
			most)
	}
	return ""
}

// outlasts checks that a holder's label stays on the nodes as long as the lease.
func (k *checker) outlasts(h *holder) {
	if h.c.label == "" {
		return
	}
	l := k.labels.kept[node.LabelName(node.Process(h.owner))]
	switch {
	case l == nil && (h.handed || h.passedOn), l != nil && l.c != h.c: // it is that of another process
	case l == nil || l.until < h.until:
		k.w.fail("I11", "%s has %q, and its label expires before the lease: nobody can tell who the holder is",
			h.c.name, h.name)
	}
}

func (k *checker) namesHolder(c *Client, q *request, err error) {
	e, ok := errors.AsType[*quorum.Error](err)
	if !ok || e.Holder == "" {
		return
	}
	k.w.sometimes(HolderNamed)
	wrong := ""
	switch d := k.w.withLabel(e.Holder); {
	case c.label == "":
		wrong = "which has no label, and looks for none"
	case d == nil: // it is an owner, whose process has none
	case d == c:
		wrong = "which is its own label"
	case !d.hasAskedFor(q.Names):
		wrong = "which has not asked for it"
	}
	if wrong != "" {
		k.w.fail("I11", "%s was refused %q, and the error names the holder %s, %s", c.name, q.Names[0], e.Holder, wrong)
	}
}
