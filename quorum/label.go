package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// NoLabel as Options.Label leaves no label on the nodes, and the Locker does not read those of
// others.
const NoLabel = "-"

// maxLabel is the length of the longest label, in bytes.
const maxLabel = 100

// labels has the label of a Locker and those that it knows of others. Any task may use it at
// any time.
//
// On the nodes a label is a lock of a name of its own, with the label as its owner. So it needs
// no command of its own, and expires as locks do. Nothing depends on it: a label that cannot be
// written or read is left out.
type labels struct {
	*config
	life   *lifecycle
	tokens *tokens
	rounds *rounds
	keepAt atomic.Int64 // clock.Instant
	lookAt atomic.Int64 // clock.Instant

	mu    sync.Mutex
	known map[string]string // by process
}

// lookEvery bounds how often a Locker finds out who the holder is: an error is not worth more.
const lookEvery = 100 * time.Millisecond

// due reports whether something is due at now, and puts it off.
func due(at *atomic.Int64, now clock.Instant, every time.Duration) bool {
	next := at.Load()
	return int64(now) >= next && at.CompareAndSwap(next, int64(now.Add(every)))
}

// keepAgain is how soon a label is written again if a node was too slow to take it.
const keepAgain = time.Second

// keep keeps the label of the Locker on the nodes. It is called at each grant and renewal, and
// by waiters. The label outlasts every lease that is granted or renewed until the next time.
func (x *labels) keep(now clock.Instant) {
	if x.opts.Label == NoLabel || !due(&x.keepAt, now, x.opts.MaxLease/2) {
		return
	}
	c := node.Command{Kind: node.Extend, Claims: []node.Claim{{Name: node.LabelName(x.uuid), Owner: x.opts.Label}},
		TTL: 2*x.opts.MaxLease + x.opts.Grace, Deadline: now.Add(x.opts.Timeout)}
	for _, n := range x.nodes {
		n.Submit(c, func(r node.Reply) {
			if errors.Is(r.Err, node.ErrTimeout) {
				x.keepAt.Store(int64(now.Add(keepAgain)))
			} else if len(r.Kept) == 1 && !r.Kept[0] {
				x.create(n, c)
			}
		})
	}
}

// create puts the label on a node that does not have it. No token has to be remembered.
func (x *labels) create(n node.Node, c node.Command) {
	token, ok := x.tokens.next(0)
	if !ok {
		return
	}
	c.Kind, c.Retention = node.Acquire, time.Millisecond
	c.Claims = []node.Claim{{Name: c.Claims[0].Name, Owner: c.Claims[0].Owner, Token: token}}
	n.Submit(c, func(r node.Reply) {
		if errors.Is(r.Err, node.ErrTimeout) {
			x.keepAt.Store(int64(c.Deadline.Add(keepAgain)))
		}
	})
}

// maxLabels is how many labels a report has at most.
const maxLabels = 32

// A lookup asks all nodes for labels. It is no round: what comes of it says nothing about a node, as
// the user may lack the right to labels alone.
type lookup struct {
	signal clock.Signal // set at each answer

	mu    sync.Mutex
	found map[string]string // by process
	open  map[string]int    // how many nodes have not answered, by process
}

// of returns the labels of these owners and waiters, by process. It lacks those that no node
// tells by until. One node's answer is enough for a label.
func (x *labels) of(ctx context.Context, owners []string, until clock.Instant) map[string]string {
	if x.opts.Label == NoLabel || !x.life.enter() {
		return nil
	}
	defer x.life.leave()
	known, asked := make(map[string]string), []string(nil)
	at := &lookup{signal: x.clock.NewSignal(), found: make(map[string]string), open: make(map[string]int)}
	for _, name := range owners {
		process := node.Process(name)
		if label := x.knows(process); label != "" {
			known[process] = label
		} else if at.open[process] == 0 && !node.Foreign(name) && len(asked) < maxLabels {
			at.open[process] = len(x.nodes)
			asked = append(asked, process)
		}
	}
	for _, process := range asked {
		c := node.Command{Kind: node.Inspect, Claims: []node.Claim{{Name: node.LabelName(process)}}, Deadline: until}
		for _, n := range x.nodes {
			n.Submit(c, func(r node.Reply) { at.take(process, r.State) })
		}
	}
	for at.awaitsMore() && at.signal.Wait(ctx, until) == clock.WakeSet {
	}
	for process, label := range at.answers() {
		known[process] = label
		x.learn(process, label)
	}
	return known
}

// take takes what a node has for a process: the state of the label's lock, or nil. Another program
// wrote the label.
func (x *lookup) take(process string, state *node.State) {
	x.mu.Lock()
	left := x.open[process] - 1
	if left >= 0 && state != nil && len(state.Fields) == 1 {
		x.found[process], left = shortLabel(state.Fields[0].Name), 0
	}
	if x.open[process] = left; left <= 0 {
		delete(x.open, process)
	}
	x.mu.Unlock()
	x.signal.Set()
}

// answers returns the labels that have come until now.
func (x *lookup) answers() map[string]string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.found)
}

func (x *lookup) awaitsMore() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.open) > 0
}

// knows returns the label of a process, if it is known here.
func (x *labels) knows(process string) string {
	if process == x.uuid && x.opts.Label != NoLabel {
		return x.opts.Label
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.known[process]
}

// learn remembers a label, which never changes.
func (x *labels) learn(process, label string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.known == nil || len(x.known) >= 1000 {
		x.known = make(map[string]string)
	}
	x.known[process] = label
}

// maxLooked is about how many names of one lease a Locker finds out who the holder is.
const maxLooked = 10

// whoHolds returns the label of the holder of one of the names, or its owner if it has no label.
// It is "" if that is not found out by until: the nodes are not asked after ctx has ended, nor more
// often than lookEvery.
func (x *labels) whoHolds(ctx context.Context, c *claim, until clock.Instant) string {
	now := x.clock.Now()
	if x.opts.Label == NoLabel || ctx.Err() != nil || now >= until || !due(&x.lookAt, now, lookEvery) {
		return ""
	}
	looked := 0
	for name := range c.each() {
		if looked++; looked > maxLooked || x.clock.Now() >= until {
			break
		}
		if holder := x.holderOf(ctx, name, until); holder != "" {
			return holder
		}
	}
	return ""
}

// holderOf returns what a majority of the nodes says of one name. It does not wait for nodes that hang.
func (x *labels) holderOf(ctx context.Context, name string, until clock.Instant) string {
	if !x.life.enter() {
		return ""
	}
	defer x.life.leave()
	r := x.rounds.askAll(node.Inspect, claim{Claim: node.Claim{Name: name}}, until)
	defer r.done()
	r.awaitMost(ctx)
	rep, _ := r.report()
	if rep.Verdict != "held" || node.Process(rep.Owner) == x.uuid {
		return ""
	}
	rep.labels = x.of(ctx, []string{rep.Owner}, until)
	return cmp.Or(rep.Label(rep.Owner), shortLabel(rep.Owner))
}

// look finds out in a task who the holder is, if the wait has lasted for some time: when the
// context has ended it is too late to ask. It does not for a writer: a node tells of all readers, and
// there may be thousands.
func (w *waiter) look() {
	l, s, seen := w.l, w.request, &w.found.holder
	now := l.clock.Now()
	if l.opts.Label == NoLabel || s.mode == node.Write || now < w.began.Add(l.opts.RetryEvery/2) || int64(now) < l.labels.lookAt.Load() {
		return // it is too much, or whoHolds would not ask
	}
	if *seen == nil {
		*seen = new(atomic.Pointer[string])
	}
	into := *seen
	l.life.inTask(func() {
		if holder := l.labels.whoHolds(context.Background(), &s.claim, l.clock.Now().Add(l.opts.Timeout)); holder != "" {
			into.Store(&holder)
		}
	})
}

// nameHolder puts into an error who the holder is. A writer asks only after a long wait, which is
// rare enough for thousands of readers.
func (w *waiter) nameHolder(ctx context.Context, e *Error) {
	if e.Err != ErrHeld || e.Nodes == nil || w.request.mode == node.Write && e.Waited < w.l.opts.RetryEvery/2 {
		return
	}
	if e.Holder = w.l.labels.whoHolds(ctx, &w.request.claim, w.deadline.Add(w.l.timeout(w.request.lease))); e.Holder == "" && w.found.holder != nil {
		if seen := w.found.holder.Load(); seen != nil {
			e.Holder = *seen
		}
	}
}

// logNextHolder logs the holder of a name whose lease was lost here.
func (h *hold) logNextHolder() {
	l := h.l
	if !l.opts.Logger.Enabled(context.Background(), slog.LevelWarn) {
		return
	}
	l.life.inTask(func() {
		if holder := l.labels.whoHolds(context.Background(), &h.claim, l.clock.Now().Add(l.opts.Timeout)); holder != "" {
			l.opts.Logger.Warn("lost lease has another holder", "name", h.claim.title(), "holder", holder)
		}
	})
}

// defaultLabel names the host, the process and the program.
var defaultLabel = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	program := "unknown program"
	if len(os.Args) > 0 {
		program = filepath.Base(os.Args[0])
	}
	return shortLabel(fmt.Sprintf("%s pid %d %s", host, os.Getpid(), program))
})

// shortLabel makes a label of a text: what cannot be printed becomes ?, and the end of a long
// text is left out.
func shortLabel(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	for len(text) > maxLabel {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}
