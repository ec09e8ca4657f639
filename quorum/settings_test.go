package quorum_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// A differing Locker keeps what it reports of others' settings.
type differing struct {
	events []quorum.Event
	lines  bytes.Buffer
}

// differs makes a Locker on nodes, and has it hold a lock of its own.
func (w *world) differs(o quorum.Options, nodes []node.Node) *differing {
	w.t.Helper()
	d := &differing{}
	o.Label = fmt.Sprint("program ", len(w.lockers))
	o.Logger = slog.New(slog.NewTextHandler(&d.lines, nil))
	o.Trace = func(e quorum.Event) {
		if e.Kind == quorum.EventSettingsDiffer {
			d.events = append(d.events, e)
		}
	}
	lock(w.t, w.open(o, nodes), o.Label)
	return d
}

// Programs find each other's settings, and report each text that differs once.
func TestSettingsThatDiffer(t *testing.T) {
	const usual = "nodes 5, replicas [], MaxLease 30s, Grace 0s"
	for other, c := range map[string]struct {
		o        quorum.Options
		nodes    int
		replicas int
	}{
		usual: {nodes: 5},
		"nodes 3, replicas [], MaxLease 30s, Grace 0s":          {nodes: 3},
		"nodes 5, replicas [], MaxLease 1m0s, Grace 0s":         {o: quorum.Options{MaxLease: time.Minute}, nodes: 5},
		"nodes 5, replicas [], MaxLease 30s, Grace 100ms":       {o: quorum.Options{Grace: 100 * time.Millisecond}, nodes: 5},
		"nodes 5, replicas [2 2 2 2 2], MaxLease 30s, Grace 0s": {nodes: 5, replicas: 2},
	} {
		for _, prefix := range []string{"", "shop/"} {
			inWorld(t, 5, func(w *world) {
				c.o.Prefix = prefix
				nodes := w.listed()[:c.nodes]
				for i, n := range nodes {
					nodes[i] = replicated{n, c.replicas}
				}
				a := w.differs(quorum.Options{Prefix: prefix}, w.listed())
				time.Sleep(time.Second)
				b := w.differs(c.o, nodes)
				time.Sleep(5 * time.Minute) // both still hold their locks
				synctest.Wait()             // for the race detector
				for of, d := range map[string]*differing{other: a, usual: b} {
					lines := strings.Count(d.lines.String(), "level=ERROR")
					if other == usual {
						ensure(t, len(d.events) == 0 && lines == 0, "equal settings: %v, %d lines", d.events, lines)
						continue
					}
					assert.Must(t, len(d.events) == 1 && lines == 1, "%s: %d events and %d lines; want one each", other, len(d.events), lines)
					if e := d.events[0]; !strings.Contains(e.Err.Error(), "other settings: "+of) || e.Node == "" {
						t.Errorf("the event names %q and says %q; want %q", e.Node, e.Err, of)
					}
				}
			})
		}
	}
}

// Settings of programs that are gone are forgotten.
func TestSettingsOfTheDead(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.differs(quorum.Options{MaxLease: time.Minute}, w.listed())
		_ = w.lockers[0].Close()
		time.Sleep(2*time.Minute + time.Second)
		b := w.differs(quorum.Options{}, w.listed())
		synctest.Wait()
		ensure(t, len(b.events) == 0, "%v", b.events)
	})
}

// Programs with another prefix share no locks, and a program without a label does not take part.
func TestSettingsThatMayDiffer(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		a := w.differs(quorum.Options{MaxLease: time.Minute}, w.listed())
		b := w.differs(quorum.Options{Prefix: "shop/"}, w.listed())
		lock(t, w.locker(quorum.Options{Grace: time.Millisecond}), "x")
		time.Sleep(time.Minute)
		synctest.Wait()
		all := slices.Concat(a.events, b.events)
		ensure(t, len(all) == 0, "%v", all)
	})
}

// A replicated node says that it has so many replicas.
type replicated struct {
	node.Node
	n int
}

func (r replicated) Replicas() int { return r.n }
