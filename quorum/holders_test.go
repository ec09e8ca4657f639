package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

func holders(t *testing.T, l *quorum.Locker, names ...string) []*quorum.Report {
	t.Helper()
	return must[[]*quorum.Report](t)(l.Holders(background, names...))
}

// sentTo is how many commands each node was sent.
func (w *world) sentTo() (n int64) { return w.sent[0].Load() }

func TestHolders(t *testing.T) {
	rules{
		{"each report is that of Inspect, whatever the nodes have", 5, func(t *testing.T, w *world) {
			seen := make(map[quorum.Verdict]int)
			for seed := range uint64(50) {
				draw := rand.New(rand.NewPCG(seed, 0))
				w.nodes.Do(func(s *model.Server, _ model.Time) { s.FlushAll() })
				l, other := w.locker(quorum.Options{}), w.locker(quorum.Options{Label: "other"})
				var names []string
				for i := range 20 {
					name := fmt.Sprint("n", i)
					names = append(names, name)
					switch draw.IntN(4) {
					case 0:
						must[*quorum.Lease](t)(other.TryLock(background, name, quorum.WithNote("at "+name)))
					case 1:
						must[*quorum.Lease](t)(other.TryLock(background, name, quorum.WithRead(), quorum.WithNote("reads")))
						must[*quorum.Lease](t)(l.TryLock(background, name, quorum.WithRead()))
					}
					for _, n := range w.nodes {
						n.Do(func(s *model.Server, now model.Time) { litter(draw, s, now, name) })
					}
				}
				sick := w.nodes[draw.IntN(5)]
				switch draw.IntN(5) {
				case 0:
					sick.Restart(draw.IntN(2) == 0)
				case 1:
					sick.Down(true)
				case 2:
					w.nodes[0].Restart(false)
					sick.Down(true)
				case 3:
					w.nodes[:3].Down(true)
				}
				labeled := w.locker(quorum.Options{Label: "asks"})
				for i, got := range holders(t, labeled, names...) {
					want := inspect(t, labeled, names[i])
					seen[want.Verdict]++
					if got.Name != names[i] || got.Verdict != want.Verdict || got.Owner != want.Owner || got.HeldBy != want.HeldBy ||
						!slices.Equal(got.Owners, want.Owners) || got.Note(got.Owner) != want.Note(want.Owner) ||
						len(want.Owners) > 0 && got.Label(got.Owner) != want.Label(want.Owner) {
						t.Errorf("seed %d: %s by %q on %d nodes, %q; Inspect says: %s by %q on %d nodes, %q", seed, got.Verdict,
							got.Owner, got.HeldBy, got.Note(got.Owner), want.Verdict, want.Owner, want.HeldBy, want.Note(want.Owner))
					}
				}
				for _, l := range []*quorum.Locker{l, other, labeled} {
					_ = l.Close() // what was littered is in its way
				}
				w.nodes.Down(false)
				time.Sleep(time.Minute) // until restarted nodes count
			}
			for _, v := range []quorum.Verdict{quorum.VerdictHeld, quorum.VerdictFree, quorum.VerdictContended, quorum.VerdictNoQuorum} {
				more(t, seen[v], 10, string(v))
			}
		}},
		{"a note is that of a holder whom a majority has", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{Label: "asks"})
			for _, name := range []string{"a", "b"} {
				must[*quorum.Lease](t)(l.Lock(background, name, quorum.WithNote("here")))
			}
			for _, n := range w.nodes[1:] {
				n.Do(func(s *model.Server, _ model.Time) { s.Del("b") })
			}
			all := holders(t, l, "a", "b")
			equal(t, all[0].Note(all[0].Owner), "here")
			ensure(t, all[1].Verdict == quorum.VerdictFree && all[1].Owner != "" && all[1].Note(all[1].Owner) == "", "%+v", all[1])
		}},
		{"500 names and their notes take two round trips, and no more commands than Inspect", 3, func(t *testing.T, w *world) {
			const n, trip = 1200, 10 * time.Millisecond
			l := w.locker(quorum.Options{Label: "asks"})
			var names []string
			for i := range n {
				names = append(names, fmt.Sprint(i))
				must[*quorum.Lease](t)(l.Lock(background, names[i], quorum.WithFixedLease(30*time.Second), quorum.WithNote("here")))
			}
			w.delay(trip, 0)
			sent, began := w.sentTo(), time.Now()
			all := holders(t, l, names...)
			equal(t, time.Since(began), 3*2*trip)
			equal(t, w.sentTo()-sent, 2*n)
			for i, r := range all {
				ensure(t, r.Name == names[i] && r.Note(r.Owner) == "here", "%+v", r)
			}
		}},
		{"a node that hangs costs one Timeout for all names together", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{Label: "asks"})
			must[*quorum.Lease](t)(l.Lock(background, "held", quorum.WithNote("here")))
			w.nodes[0].Hang(true)
			began := time.Now()
			for _, r := range holders(t, l, "held", "free") {
				ensure(t, string(r.Verdict) == r.Name && errors.Is(r.Nodes[0].Err, node.ErrTimeout), "%+v", r)
				equal(t, r.Note(r.Owner), map[string]string{"held": "here"}[r.Name])
			}
			atMost(t, time.Since(began), 510*time.Millisecond)
		}},
		{"nodes that fail are in the reports, and a call that ends early has none", 3, func(t *testing.T, w *world) {
			l := w.locker(quorum.Options{})
			for _, i := range []int{0, 1} {
				w.nodes[i].Down(true)
			}
			r := holders(t, l, "a", "b")[1]
			ensure(t, r.Verdict == quorum.VerdictNoQuorum && errors.Is(r.Nodes[1].Err, node.ErrUnreachable), "%+v", r)
			ended, cancel := context.WithCancel(background)
			cancel()
			matches(t, errorOf(l.Holders(ended, "a", "b", "c")), context.Canceled, "a and 2 more")
			w.nodes.Hang(true)
			soon, cancel := context.WithTimeout(background, time.Millisecond)
			defer cancel()
			matches(t, errorOf(l.Holders(soon, "a")), context.DeadlineExceeded, `"a"`)
			says(t, errorOf(l.Holders(background, "a", "")), "empty")
			equal(t, len(holders(t, l)), 0)
			succeed(t, l.Close())
			expect(t, errorOf(l.Holders(background, "a")), quorum.ErrClosed)
		}},
	}.hold(t)
}

// litter leaves something at a name on one node, or takes something away.
func litter(draw *rand.Rand, s *model.Server, now model.Time, name string) {
	switch draw.IntN(12) {
	case 0:
		s.Del(name)
	case 1, 2:
		_ = s.HSet(now, name, fmt.Sprint("java:", draw.IntN(2)), "1") // fails at a string
	case 3:
		s.Set(name, "another library's")
	case 4:
		s.PExpire(now, name, time.Second)
	}
}
