package onminiredis_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/onminiredis"
)

func TestRunsAreTheSameAsOnTheModel(t *testing.T) {
	tests.NeedSeconds(t)
	seeds := uint64(tests.Times(5, 20))
	for seed := range seeds {
		same(t, faults.Generate(seed, faults.Profile{}))
	}
	for seed := range seeds / 5 {
		same(t, faults.Generate(seed, faults.Profile{Outside: true}))
		same(t, faults.Generate(seed, faults.Profile{Machines: true}))
		p := faults.Generate(seed, faults.Profile{Nodes: 3, Clients: 3})
		p.MakePlain()
		same(t, p)
	}
}

func same(t *testing.T, p *faults.Plan) {
	t.Helper()
	a, b := sim.Run(p, nil), sim.Run(p, nil, sim.WithMemory(onminiredis.New))
	if a.Hash != b.Hash || a.Events != b.Events || a.Verdict != b.Verdict {
		t.Errorf("seed %d, on the model and on miniredis: %s and %s, %d and %d events, trace %016x and %016x",
			p.Seed, a.Verdict, b.Verdict, a.Events, b.Events, a.Hash, b.Hash)
	}
}

// A check that fails on the model fails on miniredis, too: the scripts do run.
func TestABugIsABugOnBoth(t *testing.T) {
	profile := faults.Profile{Nodes: 5, Clients: 3}
	unguarded := func(p *faults.Plan) { p.Lock.Guard = false }
	r := sim.Explore(t.Context(), sim.Campaign{To: 2000, Jobs: 2, Profile: profile, Adjust: unguarded})
	if len(r.Found) == 0 {
		t.Fatalf("nothing in %d seeds", r.Seeds)
	}
	seed := r.Found[0].Seed
	again := sim.Explore(t.Context(), sim.Campaign{From: seed, To: seed, Profile: profile, Adjust: unguarded,
		Options: []sim.Option{sim.WithMemory(onminiredis.New)}})
	if !reflect.DeepEqual(again.Found, r.Found[:1]) {
		t.Errorf("on the model %v, on miniredis %v", r.Found, again.Found)
	}
}

// ears are of waiters that listen, and names that nobody watches.
type ears struct{}

func (ears) Watched(string, node.Mode) bool { return false }
func (ears) Listens(string) bool            { return true }

// A memory behaves as the model does, method by method, as long as time does not
// go back.
func TestMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := model.Server{Ears: ears{}}
		got := onminiredis.New(ears{})
		now := model.Time(1_700_000_000_000)
		names, owners := []string{"n", "{n}"}, []string{"a", "b"}
		draw := func(from []string, what string) string { return rapid.SampledFrom(from).Draw(t, what) }
		ms := func(least int, what string) time.Duration {
			return time.Duration(rapid.IntRange(least, 8).Draw(t, what)) * time.Millisecond
		}
		each := func(f func(sim.Memory)) { f(&want); f(got) }
		apply := func(t *rapid.T) {
			cmd := node.Command{
				Kind: rapid.SampledFrom([]node.Kind{node.Acquire, node.Release, node.Extend, node.Inspect, node.Break, node.Downgrade}).Draw(t, "kind"),
				Claims: []node.Claim{{Name: draw(names, "name"), Owner: draw(owners, "owner"),
					Token: node.Token(rapid.IntRange(1, 12).Draw(t, "token"))}},
				TTL: ms(1, "ttl"), Retention: ms(1, "retention"),
			}
			if cmd.Kind == node.Acquire || cmd.Kind == node.Release {
				cmd.Mode = rapid.SampledFrom([]node.Mode{node.Exclusive, node.Read, node.Write}).Draw(t, "mode")
				switch special := rapid.IntRange(0, 2).Draw(t, "special"); {
				case special == 1:
					waiter := node.NewWaiter(draw(owners, "waiter"), 1, cmd.Mode)
					cmd.Wait = &node.Wait{Waiter: waiter, PlaceTTL: ms(0, "patience"), Ticket: node.Token(rapid.IntRange(1, 3).Draw(t, "ticket"))}
					if cmd.Kind == node.Acquire && cmd.Wait.Stays() {
						cmd.Wait.Standby = node.Token(rapid.IntRange(0, 12).Draw(t, "standby"))
					}
				case special == 2 && cmd.Mode == node.Exclusive:
					more := cmd.Claims[0]
					more.Name = "m"
					cmd.Claims = append(cmd.Claims, more)
				}
			}
			if cmd.Kind == node.Release {
				cmd.Handoff = node.Token(rapid.IntRange(0, 16).Draw(t, "handoff"))
			}
			refusal := rapid.SampledFrom([]error{nil, nil, nil, node.ErrReadOnly, node.ErrMisconf, node.ErrOutOfMemory}).Draw(t, "refusal")
			each(func(m sim.Memory) { m.Refuse(refusal) })
			a, published := want.Apply(now, cmd)
			b, heard := got.Apply(now, cmd)
			each(func(m sim.Memory) { m.Refuse(nil) })
			if refusal != nil && errors.Is(b.Err, a.Err) {
				b.Err = a.Err
			}
			if !reflect.DeepEqual(a, b) || !slices.Equal(published, heard) {
				t.Fatalf("%v: %+v, published %v; want %+v, published %v", cmd, b, heard, a, published)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"apply": apply, "apply too": apply, "and again": apply, // most of the time
			"wait": func(t *rapid.T) { now += model.Time(ms(0, "time").Milliseconds()) },
			"set": func(t *rapid.T) {
				name, owner := draw(names, "name"), draw(owners, "owner")
				if a, b := want.HSet(now, name, owner, "1"), got.HSet(now, name, owner, "1"); !errors.Is(b, a) {
					t.Fatalf("HSet: %v, want %v", b, a)
				}
			},
			"life": func(t *rapid.T) {
				name, ttl := draw(names, "name"), ms(0, "ttl")
				each(func(m sim.Memory) { m.PExpire(now, name, ttl) })
			},
			"delete": func(t *rapid.T) {
				key := draw([]string{"n", "{n}", node.FenceKey("n")}, "key")
				each(func(m sim.Memory) { m.Del(key) })
			},
			"flush":  func(*rapid.T) { each(sim.Memory.FlushAll) },
			"expire": func(*rapid.T) { each(func(m sim.Memory) { m.Expire(now) }) },
			"sync":   func(*rapid.T) { each(sim.Memory.Sync) },
			"restart": func(t *rapid.T) {
				loss := rapid.SampledFrom([]model.Loss{model.LoseNothing, model.LoseUnsynced, model.LoseEverything}).Draw(t, "loss")
				each(func(m sim.Memory) { m.Restart(loss) })
			},
			"load": func(t *rapid.T) {
				if rapid.Bool().Draw(t, "what another has") {
					var other model.Server
					other.Apply(now-2, node.Command{Kind: node.Acquire, Mode: node.Read, TTL: ms(1, "ttl"), Retention: ms(1, "retention"),
						Claims: []node.Claim{{Name: draw(names, "name"), Owner: draw(owners, "owner"), Token: 3}}})
					each(func(m sim.Memory) { m.Load(other.Dump(now)) })
					return
				}
				each(func(m sim.Memory) { m.Load(want.Dump(now)) })
			},
			"": func(t *rapid.T) {
				if a, b := want.Dump(now), got.Dump(now); !reflect.DeepEqual(a, b) {
					t.Fatalf("keys %+v, want %+v", b, a)
				}
				for _, name := range names {
					for _, mode := range []node.Mode{node.Exclusive, node.Read, node.Write} {
						until, ok := want.Keeps(now, name, "a", mode)
						if b, keeps := got.Keeps(now, name, "a", mode); b != until || keeps != ok {
							t.Fatalf("%q: kept until %v (%v), want %v (%v), as %v", name, b, keeps, until, ok, mode)
						}
					}
				}
			},
		})
	})
}
