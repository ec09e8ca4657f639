package faults_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
)

func parsed(t *testing.T, text string) *faults.Plan {
	t.Helper()
	p := assert.Got(faults.Parse("redquorum plan 1\n" + text))(t)
	return p
}

func TestParseUndoesString(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := faults.Generate(rapid.Uint64().Draw(t, "seed"), faults.Profile{Outside: rapid.Bool().Draw(t, "outside"),
			Machines: rapid.Bool().Draw(t, "machines")})
		roundTrip(t, p)
	})
}

func roundTrip(t assert.T, p *faults.Plan) {
	t.Helper()
	text := p.String()
	again, err := faults.Parse(text)
	assert.Must(t, err == nil, "%v in\n%s", err, text)
	got := again.String()
	assert.Must(t, got == text, "written:\n%s\nread and written again:\n%s", text, got)
}

// Parse never panics, and what it accepts is valid and survives being written.
func FuzzParse(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(faults.Generate(seed, faults.Profile{Outside: true, Machines: true}).String())
	}
	f.Add("redquorum plan 1\n" + every)
	f.Add("redquorum plan 1\n" + kinds)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := faults.Parse(text)
		if err != nil {
			return
		}
		err = p.Check()
		assert.Must(t, err == nil, "accepted, though %v", err)
		roundTrip(t, p)
	})
}

// every has every verb, and the rarer ways to write it.
const every = `# a comment
seed 18446744073709551615
nodes 5
clients 3
length 1h30m
lock client=plain lease=1s maxlease=30s timeout=50ms poll=200ms grace=1.5s drift=0.25% guard=off renew=off maxhold=3s fence=off mistake=half need=0
work names=3 tasks=2 hold=1ms..2s expiring=5% late=3% think=0s try=12.5% fixed=100% long=20% extend=0% cancel=1% nest=1% close=2% drop=50%
network delay=200us..2ms
assume drift=2%
at 0s cut c1-n4,n5
at 1ms cut c*>n* for 10s   # and another
at 2ms delay c1<n1 5ms..20ms for 1s
at 3ms loss c1-n1 0.0001%
at 4ms duplicate c1>n1 100% 80ms..4s
at 5ms reorder c1-n1 30%
at 6ms hold c1>n1
at 7ms hold c1>n2 acquire
at 8ms hold c2<n3 release 2 for 1s
at 8500us hold c2>n3 2
at 9ms release c*>n*
at 10ms deafen c2-n1
at 10ms halfopen c1,c2-n* for 2s
at 10ms reset c*-n2
at 11ms heal
at 12ms heal c1-n1
at 13ms crash n1 empty for 10ms
at 14ms crash n2,n3 second
at 14ms crash n4 replica for 1s
at 15ms restart n2,n3
at 15ms demote n1,n2 second for 1s
at 15ms demote n3 empty
at 15ms demote n4 durable
at 15ms demote n1,n4 n5 for 2s
at 15ms promote n3,n4
at 16ms slow n1 1ms..2ms
at 17ms block n1 for 6s
at 17ms full n1,n2 disk
at 17ms full n3 memory for 1s
at 17ms starve n5 5% for 1s
at 17ms forge n1,n2 for 1s
at 17ms forge n*
at 18ms evict n*
at 19ms flush n1
at 20ms scriptflush n1
at 21ms pause c1 for 2s
at 22ms pause n1 for 2s
at 23ms suspend c1,c2 for 2s
at 24ms skew n1 -1h
at 25ms step c1 -1s
at 26ms rate n1 1.0001%
at 27ms strobe n1 500ms 10ms for 1s
at 28ms kill c1 for 1s
at 29ms kill c2
at 30ms start c2
at 0s view c2 n3,n4
at 0s clone c1,c2
at 0s alias n3,n4
at 31ms lock c1 x
at 32ms try c2 x lease=500ms
at 33ms lock c1,c2 y fixed=300ms
at 34ms unlock c1
at 35ms extend c1 500ms
at 36ms check c1
at 37ms write c1
at 37ms write c1 5s
at 38ms cancel c1
`

// kinds has every kind of lock.
const kinds = `nodes 5
clients 2
lock need=5
work names=2 read=30% write=20% down=10% fair=60% several=5% joint=2.5% chain=40% hand=15% handle=20% break=5% inspect=10%
at 1ms lock c1 x,y
at 2ms lock c1 x lease=500ms write
at 3ms try c2 x read
at 4ms lock c2 z fixed=300ms fair
at 5ms downgrade c1
at 6ms detach c1
at 7ms resume c2 y,x
at 8ms break c1 z
at 9ms inspect c* x
at 10ms close c2
at 11ms handle c1
`

func TestEveryKind(t *testing.T) {
	p := parsed(t, kinds)
	roundTrip(t, p)
	w, e := &p.Work, p.Events
	if p.Lock.Need != 5 || w.Read != faults.Percent(30) || w.Write != faults.Percent(20) ||
		w.Down != faults.Percent(10) ||
		w.Fair != faults.Percent(60) || w.Several != faults.Percent(5) || w.Joint != 25_000 ||
		w.Chain != faults.Percent(40) ||
		w.Hand != faults.Percent(15) || w.Handle != faults.Percent(20) || w.Break != faults.Percent(5) ||
		w.Inspect != faults.Percent(10) {
		t.Errorf("read as:\n%s", p)
	}
	if e[0].Name != "x,y" || e[1].As != faults.ToWrite || e[1].Lease != 500*time.Millisecond ||
		e[2].As != faults.ToRead ||
		e[3].As != faults.Fairly || !e[3].Fixed || e[4].Verb != faults.DoDowngrade ||
		e[5].Verb != faults.DoDetach || e[6].Name != "y,x" || e[7].Name != "z" || e[8].Verb != faults.DoInspect ||
		e[9].Verb != faults.DoClose || e[10].Verb != faults.DoHandle {
		t.Errorf("read as:\n%s", p)
	}
	names := p.Names()
	assert.That(t, slices.Equal(names, []string{"x", "y", "z"}), "its names are %q", names)
	_, events, _ := strings.Cut(kinds, "inspect=10%\n")
	for line, want := range map[string]string{
		"lock need=2": "more than half of 5", "lock need=6": "at most all",
		"work read=60% write=50%": "at most 100% together",
		"at 1ms lock c1 x,y read": "several names are not for read", "at 1ms lock c1 x,": "empty",
		"at 1ms lock c1 x shared": "want read, write or fair",
		"lock client=plain":       "one kind of lock", "at 1ms break c1 x,y": "want one name",
		"at 1ms resume c1":                  "want the name of a lock",
		"work joint=2.5%\nat 0s view c2 n1": "work joint is for clients that list the same nodes",
	} {
		assert.Says(t, assert.ErrorOf(faults.Parse("redquorum plan 1\nnodes 5\nclients 2\n"+events+line+"\n")), want,
			line)
	}
	// A plan without these is written as before.
	text := faults.New(3, 1).String()
	assert.That(t, !strings.Contains(text, "need") && !strings.Contains(text, "read="), "written:\n%s", text)
}

func TestEveryVerb(t *testing.T) {
	p := parsed(t, every)
	roundTrip(t, p)
	if len(p.Events) != 57 || p.Length != 90*time.Minute || p.Work.Try != 125_000 || p.Lock.Guard ||
		p.Lock.Client != faults.Plain {
		t.Errorf("read as:\n%s", p)
	}
	if e := p.Events[11]; e.Verb != faults.Hold || e.Kind != "release" || e.Count != 2 ||
		e.Links != (faults.Links{Clients: 2, Nodes: 4, Way: faults.From}) {
		t.Errorf("hold is read as %+v", e)
	}
	got := p.Names()
	assert.That(t, slices.Equal(got, []string{"x1", "x2", "x3", "x", "y"}), "names %q", got)
	assert.That(t, p.Scripted(0) && p.Scripted(1) && !p.Scripted(2), "which clients have steps is not known")
}

// No line of settings is wider than 80 columns.
func TestSettingsFit(t *testing.T) {
	widest := 0
	for seed := range uint64(500) {
		for line := range strings.Lines(faults.Generate(seed, faults.Profile{}).String()) {
			if !strings.HasPrefix(line, "at ") {
				widest = max(widest, len(line)-1)
			}
		}
	}
	assert.That(t, widest == 80, "the widest line has %d columns, want 80", widest)
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "it is empty"},
		{"plan 1", `line 1: want "redquorum plan 1", have "plan 1"`},
		{"redquorum plan 2", "reads format 1, not 2"},
		{"nodes", `line 2: want one value after "nodes"`},
		{"nodes many", `want a number, have "many"`},
		{"nodes 0", "nodes is 0; want 1 to 15"},
		{"nodes 16", "nodes is 16"},
		{"clients 65", "clients is 65"},
		{"length 0s", "length is 0s"},
		{"length 1d", `want a time such as 10ms`},
		{"length 999999h", "want a time such as 10ms, at most 240h"},
		{"seed -1", "want a number from 0 to 2^64-1"},
		{"colour red", `unknown word "colour"; the words are at, lock, work, network, assume, seed,`},
		{"lock lease", `lock: want word=value, have "lease"`},
		{"lock leash=1s", `lock: unknown setting "leash" (did you mean "lease"?); the settings are client, lease,`},
		{"lock lease=2s maxlease=1s", "want 0 < lease <= maxlease"},
		{"nodes 3\nclients 2\nnodes 5", "line 4: \"nodes\" is there already"},
		{"length 1s\nat 2s flush n1", "the part with faults is over by then: length is 1s"},
		{"lock guard=yes", `lock guard: want on or off, have "yes"`},
		{"lock drift=50%", "lock drift is 50%"},
		{"lock drift=1", `want a percentage such as 0.5%, have "1"`},
		{"work try=101%", `want 0% to 100%, have "101%"`},
		{"work drop=101%", `want 0% to 100%, have "101%"`},
		{"work tasks=0", "work tasks is 0; want 1 to 8"},
		{"work tasks=9", "work tasks is 9; want 1 to 8"},
		{"network delay=5ms..1ms", "want a range such as 1ms..5ms"},
		{"at 1s", "want at TIME VERB TARGET"},
		{"at soon crash n1 empty", `want a time such as 10ms, at most 240h, have "soon"`},
		{"at 1s explode n1", `unknown verb "explode"; the verbs are alias, block, break, cancel,`},
		{"at 1s partition c1-n1", `unknown verb "partition" (did you mean "cut"?); the verbs are alias,`},
		{"at 1s freeze n1 for 1s", `unknown verb "freeze" (did you mean "pause"?); the verbs are alias,`},
		{"at 1s crush n1", `unknown verb "crush" (did you mean "crash"?); the verbs are alias,`},
		{"at 1s unlcok c1", `did you mean "unlock"?`},
		{"at 1s stop c1", `did you mean "pause"?`},
		{"at 1s crash", "crash: want a target"},
		{"at 1s crash n1", "crash: want durable, second, empty or replica after the target"},
		{"at 1s crash n1 badly", `want durable, second, empty or replica, have "badly"`},
		{"at 1s crash n9 empty", "there is no n9"},
		{"at 1s demote n1", "demote: want durable, second, empty or a node after the target"},
		{"at 1s demote n1 replica", `want durable, second, empty or a node, have "replica"`},
		{"at 1s demote n1 n9", "there is no n9"},
		{"at 1s demote n1 n2,n3", "want one node that it copies"},
		{"at 1s demote n1,n2 n2", "no node is a replica of itself"},
		{"at 1s demote c1 empty", "want nodes"},
		{"at 1s promote n1 for 1s", "it does not last"},
		{"at 1s full n1", "full: want disk or memory after the target"},
		{"at 1s full n1 empty", `want disk or memory, have "empty"`},
		{"at 1s starve n1 0%", "want 1% or more, and less than 100%"},
		{"at 1s starve n1 100%", "want 1% or more, and less than 100%"},
		{"at 1s halfopen c1>n1", "a connection has both ways: want -"},
		{"at 1s reset c1-n1 for 1s", "it does not last"},
		{"at 1s crash c1 empty", "want nodes"},
		{"at 1s cut n1", `want links such as c1-n4,n5 or c*>n3, have "n1"`},
		{"at 1s cut c1-n0", `want n1, n2 and so on, or n*, have "n0"`},
		{"at 1s cut c7-n1", "there is no c7"},
		{"at 1s pause c1", `want "for" and a time`},
		{"at 1s pause c1 for", `want a time after "for"`},
		{"at 1s pause c1 for -1s", "more than 0"},
		{"at 1s view c1 n1", "its time must be 0s"},
		{"at 1s alias n1,n2", "its time must be 0s"},
		{"at 0s view c1", "view: want nodes"},
		{"at 1s evict n1 for 1s", "it does not last"},
		{"at 1s rate n1 60%", "off by 50% at most"},
		{"at 1s loss c1-n1 150%", "want 0% to 100%"},
		{"at 1s strobe n1 1s 0s for 1s", "want a period of more than 0"},
		{"at -1s flush n1", "its time is negative"},
		{"at 1s lock c1", "lock: want the name of a lock"},
		{"at 1s lock c1 x lease=0s", "want a lease of more than 0"},
		{"at 1s unlock c1 x", `unlock: nothing is known of "x"`},
		{"at 1s extend c1 0s", "want a lease of more than 0"},
		{"lock lease=2s lease=3s", `"lock lease" is there already`},
		{"lock lease=2s\nlock guard=off\nlock lease=3s", `line 4: "lock lease" is there already`},
		{"work names=200000000", "line 2: work names is 200000000; want 1 to 1000"},
		{"lock lease=3ms", "line 2: lock lease is 3ms, and the allowance for drift of clocks takes 2.03ms of it"},
		{"lock lease=5ms drift=40%", "line 2: lock lease is 5ms, and the allowance for drift of clocks takes 4ms of it"},
		{"work step=11ms", "line 2: work step is 11ms; want 0 to 10ms"},
		{"work short=10%\nlock lease=40ms", "line 3: lock lease is 40ms, and the allowance for drift of clocks takes 2.04ms of a tenth of it"},
		{"lock lease=240h grace=240h", "line 2: lock lease is 240h and maxlease 240h; want 0 < lease <= maxlease, and at most 24h"},
		{"nodes 3\nlock guard=off need=1\nclients 2", "line 3: lock need is 1"},
		{"# " + strings.Repeat("long ", 20_000) + "\nnodes 0", "line 3: nodes is 0"},
		{"at 2s flush n1\nat 1s flush n9", "line 3: at 1s flush n9: there is no n9"},
	} {
		text := c.text
		if text != "" && !strings.HasPrefix(text, "plan") && !strings.HasPrefix(text, "redquorum") {
			text = "redquorum plan 1\n" + text
		}
		assert.Says(t, assert.ErrorOf(faults.Parse(text)), c.want, c.text)
	}
}

// A seed always gives the same plan, and most seeds give different ones.
func TestGenerate(t *testing.T) {
	seen, short, steps := make(map[string]bool), 0, 0
	verbs, modes, tasks := make(map[faults.Verb]int), make(map[faults.Verb]map[faults.Mode]int), make(map[int]int)
	for _, v := range []faults.Verb{faults.Crash, faults.Demote} {
		modes[v] = make(map[faults.Mode]int)
	}
	for seed := range uint64(500) {
		p := faults.Generate(seed, faults.Profile{Outside: true})
		err := p.Check()
		assert.Must(t, err == nil, "seed %d: %v", seed, err)
		again := faults.Generate(seed, faults.Profile{Outside: true})
		assert.Must(t, again.String() == p.String(), "seed %d gives two plans", seed)
		seen[p.String()] = true
		tasks[p.Work.Tasks]++
		if p.Work.Short > 0 {
			short++
		}
		if p.Work.Step > 0 {
			steps++
		}
		for i, e := range p.Events {
			verbs[e.Verb]++
			if m := modes[e.Verb]; m != nil {
				m[e.Mode]++
			}
			assert.That(t, !slices.Contains(p.Events[:i], e), "seed %d draws %v twice", seed, e)
		}
	}
	assert.That(t, len(seen) == 500, "500 seeds give %d plans", len(seen))
	for _, v := range []faults.Verb{faults.Cut, faults.Delay, faults.Loss, faults.Duplicate, faults.Reorder,
		faults.Hold, faults.Deafen,
		faults.Crash, faults.Demote, faults.Slow, faults.Block, faults.Evict, faults.Flush, faults.ScriptFlush,
		faults.Forge, faults.Pause, faults.Suspend,
		faults.Skew, faults.Step, faults.Rate, faults.Strobe, faults.Kill} {
		assert.That(t, verbs[v] != 0, "%s is never drawn", v)
	}
	for _, m := range []faults.Mode{faults.Durable, faults.Second, faults.Empty, faults.Replica} {
		assert.That(t, modes[faults.Crash][m] != 0, "a crash is never %s", m)
	}
	for _, m := range []faults.Mode{faults.Durable, faults.Second, faults.Empty, ""} { // "": of a copy
		assert.That(t, modes[faults.Demote][m] != 0, "a demotion is never %q", m)
	}
	assert.That(t, tasks[1] != 0 && tasks[2] != 0 && tasks[3] != 0, "plans by the number of tasks: %v", tasks)
	assert.That(t, short != 0 && short <= 100, "of 500 plans %d have leases of different lengths", short)
	assert.That(t, steps >= 40 && steps <= 90, "of 500 plans %d have steps that take time, instead of one in eight",
		steps)
	p := faults.Generate(1, faults.Profile{Nodes: 7, Clients: 6, Length: time.Minute})
	assert.That(t, p.Nodes == 7 && p.Clients == 6 && p.Length == time.Minute, "the profile is ignored:\n%s", p)
}

func TestGenerateSizes(t *testing.T) {
	seeds := tests.Times(4, 40)
	for n := range faults.MaxClients {
		for _, profile := range []faults.Profile{{Clients: n + 1}, {Nodes: n + 1}, {Nodes: n + 1, Clients: 1}} {
			if profile.Nodes > faults.MaxNodes {
				continue
			}
			for _, kind := range []string{"plain", "outside", "machines", "replicas"} {
				profile.Outside, profile.Machines, profile.Replicas = kind == "outside", kind == "machines",
					kind == "replicas"
				for seed := range uint64(seeds) {
					err := faults.Generate(seed, profile).Check()
					assert.Must(t, err == nil, "seed %d, %+v: %v", seed, profile, err)
				}
			}
		}
	}
}

// The rest of a plan is about the others.
func TestDrop(t *testing.T) {
	p := parsed(t, "nodes 3\nclients 3\nat 0s cut c1,c3-n2,n3\nat 1s crash n2 empty\nat 1s demote n1 n2\nat 1s demote n1 n3\nat 2s pause c3 for 1s\nat 3s cut c*-n*")
	p.DropNode(1)
	p.DropClient(0)
	var got []string
	for _, e := range p.Events {
		got = append(got, e.String())
	}
	want := []string{"0s cut c2-n2", "1s demote n1 n2", "2s pause c2 for 1s", "3s cut c*-n*"}
	assert.That(t, slices.Equal(got, want) && p.Check() == nil, "got %q, want %q; %v", got, want, p.Check())
}

func TestMaxLeaseIsNoShorterThanTheLease(t *testing.T) {
	for lock, want := range map[string]time.Duration{"": time.Second, "lock lease=2s": 2 * time.Second,
		"lock lease=100ms": time.Second,
		"lock maxlease=9s": 9 * time.Second} {
		p, err := faults.Parse("redquorum plan 1\n" + lock)
		assert.That(t, err == nil && p.Lock.MaxLease == want, "%q: %v, %v; want %v", lock, p, err, want)
	}
}

// Check refuses what Parse would not read, in the same words, and Parse adds the line.
func TestCheckIsNoLaxerThanParse(t *testing.T) {
	second := time.Second
	event := func(e faults.Event) func(*faults.Plan) {
		return func(p *faults.Plan) { p.Events = []faults.Event{e} }
	}
	node, client := faults.Procs{Nodes: 1}, faults.Procs{Clients: 1}
	for what, change := range map[string]func(*faults.Plan){
		"negative delay":    func(p *faults.Plan) { p.Network.Delay = faults.Range{Min: -second, Max: -second} },
		"inverted delay":    func(p *faults.Plan) { p.Network.Delay = faults.Range{Min: second} },
		"inverted hold":     func(p *faults.Plan) { p.Work.Hold = faults.Range{Min: second} },
		"unknown client":    func(p *faults.Plan) { p.Lock.Client = "redlock" },
		"unknown mistake":   func(p *faults.Plan) { p.Lock.Mistake = "haste" },
		"long length":       func(p *faults.Plan) { p.Length = 1000 * time.Hour },
		"negative need":     func(p *faults.Plan) { p.Lock.Need = -1 },
		"share":             func(p *faults.Plan) { p.Work.Try = faults.Percent(101) },
		"many names":        func(p *faults.Plan) { p.Work.Names = 1001 },
		"lease":             func(p *faults.Plan) { p.Lock.Lease = time.Millisecond },
		"nothing to have":   event(faults.Event{At: 1, Verb: faults.Demote, Procs: node}),
		"copy of itself":    event(faults.Event{At: 1, Verb: faults.Demote, Source: 1, Procs: node}),
		"no mode":           event(faults.Event{At: 1, Verb: faults.Crash, Procs: node}),
		"unknown mode":      event(faults.Event{At: 1, Verb: faults.Crash, Mode: "amnesia", Procs: node}),
		"lock without name": event(faults.Event{At: 1, Verb: faults.DoLock, Procs: client}),
		"negative lease":    event(faults.Event{At: 1, Verb: faults.DoTry, Name: "x", Lease: -second, Procs: client}),
		"unknown kind":      event(faults.Event{At: 1, Verb: faults.DoTry, Name: "x", As: "rw", Procs: client}),
		"negative count": event(faults.Event{At: 1, Verb: faults.Hold, Count: -1,
			Links: faults.Links{Clients: 1, Nodes: 1, Way: faults.To}}),
		"unknown verb": event(faults.Event{At: 1, Verb: "explode", Procs: node}),
		"long fault":   event(faults.Event{At: 1, Verb: faults.Pause, For: 1000 * time.Hour, Procs: node}),
		"inverted slowness": event(faults.Event{At: 1, Verb: faults.Slow, Range: faults.Range{Min: second},
			Procs: node}),
		"event without node": event(faults.Event{At: 1, Verb: faults.Flush, Procs: faults.Procs{Nodes: 1 << 9}}),
	} {
		p := faults.New(3, 2)
		change(p)
		checked := p.Check()
		_, parsed := faults.Parse(p.String())
		if checked == nil || parsed == nil {
			t.Errorf("%s: Check says %v, and Parse %v", what, checked, parsed)
			continue
		}
		where, words, _ := strings.Cut(strings.TrimPrefix(parsed.Error(), "plan, line "), ": ")
		if _, err := strconv.Atoi(where); err != nil || "plan: "+words != checked.Error() {
			t.Errorf("%s: Check says %v, and Parse %v", what, checked, parsed)
		}
	}
	assert.That(t, (*faults.Plan)(nil).Check() != nil, "no plan at all is valid")
}

const replicated = `nodes 6
clients 2
lock replicas=2
at 1ms sever n1 n2,n3 for 1s
at 2ms promote n2
at 3ms demote n1,n3 n2
at 4ms lead c* n2
at 5ms crash n4 empty for 10ms
`

func TestReplicas(t *testing.T) {
	p := parsed(t, replicated)
	roundTrip(t, p)
	e := p.Events
	if p.Lock.Replicas != 2 || p.Sites() != 2 || p.Need() != 2 || p.Members(4) != faults.Of(3, 4, 5) ||
		e[0].Source != faults.Of(1, 2) || e[0].For != time.Second || e[2].Source != faults.Of(1) ||
		e[3].Source != faults.Of(1) {
		t.Errorf("read as:\n%s", p)
	}
	for line, want := range map[string]string{
		"at 1ms sever n1":            "want the servers at the other end",
		"at 1ms sever n1 n4":         "n1 is with n2,n3",
		"at 1ms sever n1 n1,n2":      "severed from itself",
		"at 1ms demote n1 n4":        "n1 is with n2,n3",
		"at 1ms demote n1 empty":     "want another server of the same node",
		"at 1ms lead c1 n1,n2":       "want one server",
		"at 1ms lead c1 n9":          "there is no n9",
		"at 1ms crash n1 replica":    "promote another one",
		"at 0s view c1 n1":           "about nodes that are one server",
		"at 0s alias n1,n2":          "about nodes that are one server",
		"at 1ms break c1 x":          "about nodes that are one server",
		"work joint=1%":              "for nodes that are one server",
		"lock need=3":                "more than half of 2 nodes",
		"at 1ms promote n1 for 10ms": "cannot have \"for\"",
	} {
		assert.Says(t, assert.ErrorOf(faults.Parse("redquorum plan 1\n"+replicated+line+"\n")), want, line)
	}
	for line, want := range map[string]string{
		"lock replicas=3":    "nodes is 5, and lock replicas 3; want a multiple of 4 nodes",
		"at 1ms sever n1 n2": "want lock replicas=2, say",
		"at 1ms lead c1 n2":  "want lock replicas=2, say",
	} {
		assert.Says(t, assert.ErrorOf(faults.Parse("redquorum plan 1\n"+line+"\n")), want, line)
	}
	// A plan without these is written as before.
	text := faults.New(3, 1).String()
	assert.That(t, !strings.Contains(text, "replicas"), "written:\n%s", text)
}

// Drawn plans with failovers are valid. Those without are unchanged.
func TestGenerateReplicas(t *testing.T) {
	failovers := 0
	for seed := range uint64(300) {
		p := faults.Generate(seed, faults.Profile{Replicas: true, Machines: seed%2 == 0})
		err := p.Check()
		assert.That(t, err == nil, "seed %d: %v\n%s", seed, err, p)
		for _, e := range p.Events {
			if e.Verb == faults.Promote {
				failovers++
			}
		}
	}
	assert.That(t, failovers >= 300, "%d failovers", failovers)
}

// Drawn plans have only lists of nodes that may be used together by docs/operations.md.
func TestLists(t *testing.T) {
	for lists, forget := range map[string]int{
		"nodes 3":                            0,
		"nodes 4":                            1,
		"nodes 5\nlock need=4":               2,
		"nodes 5\nlock need=5":               4,
		"nodes 4\nat 0s view c1 n1,n2,n3":    0,
		"nodes 5\nat 0s view c1 n1,n2,n3,n4": 0,
		"nodes 5\nat 0s view c1 n1,n2,n3":    -1,
		"nodes 4\nat 0s view c1 n1,n2,n3\nat 0s view c2,c3 n2,n3,n4":                          -1,
		"nodes 4\nlock need=3\nat 0s view c1 n1,n2,n3\nat 0s view c2,c3 n2,n3,n4":             1,
		"nodes 7\nlock need=4\nat 0s view c1,c2 n1,n2,n3,n4,n5\nat 0s view c3 n3,n4,n5,n6,n7": 0,
		"nodes 7\nlock need=5\nat 0s view c1,c2 n1,n2,n3,n4\nat 0s view c3 n4,n5,n6,n7":       0,
		"nodes 5\nlock need=5\nwork joint=10%":                                                0,
		"nodes 6\nlock need=3 replicas=1":                                                     2,
	} {
		p := parsed(t, "clients 3\nlength 1s\n"+lists+"\n")
		assert.That(t, p.MayForget() == forget, "%d may forget, want %d, of %s", p.MayForget(), forget, lists)
	}
	lists, forget := 0, 0
	for seed := range uint64(1000) {
		p := faults.Generate(seed, faults.Profile{})
		assert.That(t, p.MayForget() >= 0 && !p.TooForgetful(), "seed %d: two quorums share no node that remembers",
			seed)
		for _, e := range p.Events {
			switch e.Verb {
			case faults.View:
				lists++
			case faults.Evict, faults.Flush:
				forget++
			}
		}
	}
	assert.That(t, lists > 60 && forget > 60, "1000 plans have %d lists, and nodes forget %d times", lists, forget)
	p := parsed(t, "nodes 5\nclients 2\nlength 1s\nlock need=4\nat 1ms evict n1\nat 2ms flush n1,n2\n")
	assert.That(t, !p.TooForgetful(), "two of five may forget")
	p.Events[0].Procs.Nodes = faults.Of(2)
	assert.That(t, p.TooForgetful(), "three of five may forget")
}
