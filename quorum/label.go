package quorum

import (
	"context"
	"fmt"
	"log/slog"
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
	tokens *tokens
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
			if len(r.Kept) == 1 && !r.Kept[0] {
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
	n.Submit(c, func(node.Reply) {})
}

// maxLabels is how many labels a report has at most.
const maxLabels = 32

// labelsOf returns the labels of these owners and waiters, by process. It lacks those that no node
// tells by until.
func (l *Locker) labelsOf(ctx context.Context, of []string, until clock.Instant) map[string]string {
	if l.opts.Label == NoLabel || !l.life.enter() {
		return nil
	}
	defer l.life.leave()
	found, asked := make(map[string]string), make(map[string]*round)
	for _, name := range of {
		process := node.Process(name)
		if found[process] != "" || asked[process] != nil || node.Foreign(name) || len(asked) == maxLabels {
			continue
		}
		if label := l.labels.knows(process); label != "" {
			found[process] = label
			continue
		}
		r := l.rounds.begin(node.Inspect, claim{Claim: node.Claim{Name: node.LabelName(process)}}, 0, until.Sub(l.clock.Now()))
		r.ask(allNodes(len(l.nodes)))
		asked[process] = r
	}
	for process, r := range asked {
		r.awaitAll(ctx)
		if label := r.label(); label != "" {
			found[process] = label
			l.labels.learn(process, label)
		}
		r.done()
	}
	return found
}

// label returns what the first node that has a label answered.
func (r *round) label() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.ballots {
		if b.state != nil && len(b.state.Fields) == 1 {
			return b.state.Fields[0].Name
		}
	}
	return ""
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

// whoHolds returns the label of the holder of one of the names, or its owner if it has no label.
// It is "" if that is not found out by until: the nodes are not asked after ctx has ended, nor more
// often than lookEvery, nor for a writer, as thousands may read.
func (l *Locker) whoHolds(ctx context.Context, c *claim, until clock.Instant) string {
	now := l.clock.Now()
	if l.opts.Label == NoLabel || ctx.Err() != nil || c.mode == node.Write || now >= until || !due(&l.labels.lookAt, now, lookEvery) {
		return ""
	}
	for name := range c.each() {
		if r, err := l.inspect(ctx, name, until); err == nil && r.Verdict == "held" && node.Process(r.Owner) != l.uuid {
			if label := r.Label(r.Owner); label != "" {
				return label
			}
			return r.Owner
		}
	}
	return ""
}

// look finds out in a task who the holder is, if the wait has lasted for some time: when the
// context has ended it is too late to ask.
func (w *waiter) look() {
	l, s, seen := w.l, w.request, &w.found.holder
	if s.wait == 0 || l.opts.Label == NoLabel || l.clock.Now() < w.began.Add(l.opts.RetryEvery/2) {
		return
	}
	if *seen == nil {
		*seen = new(atomic.Pointer[string])
	}
	into := *seen
	l.clock.Go(func() {
		if holder := l.whoHolds(context.Background(), &s.claim, l.clock.Now().Add(l.opts.Timeout)); holder != "" {
			into.Store(&holder)
		}
	})
}

// nameHolder puts into an error who the holder is.
func (w *waiter) nameHolder(ctx context.Context, e *Error) {
	if e.Err != ErrHeld || e.Nodes == nil {
		return
	}
	if e.Holder = w.l.whoHolds(ctx, &w.request.claim, w.deadline.Add(w.l.opts.Timeout)); e.Holder == "" && w.found.holder != nil {
		if seen := w.found.holder.Load(); seen != nil {
			e.Holder = *seen
		}
	}
}

// logNextHolder logs who has the names of a lease that was lost to somebody.
func (h *hold) logNextHolder() {
	l := h.l
	if !l.opts.Logger.Enabled(context.Background(), slog.LevelWarn) {
		return
	}
	l.clock.Go(func() {
		if holder := l.whoHolds(context.Background(), &h.claim, l.clock.Now().Add(l.opts.Timeout)); holder != "" {
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
