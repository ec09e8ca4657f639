package live_test

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/live"
)

const ms = time.Millisecond

func has(at time.Duration, client int, name, mode string, token node.Token, until time.Duration) sim.Entry {
	return sim.Entry{At: at, Kind: sim.KindBelief, Client: client, Node: -1, Name: name, Owner: string(rune('a' + client)), Mode: mode, Token: token, Until: until}
}

func ends(at time.Duration, client int, name string) sim.Entry {
	return sim.Entry{At: at, Kind: sim.KindBeliefEnd, Client: client, Node: -1, Name: name, Owner: string(rune('a' + client))}
}

func writes(at time.Duration, client int, name string, token node.Token) sim.Entry {
	return sim.Entry{At: at, Kind: sim.KindAccess, Client: client, Node: -1, Name: name, Owner: string(rune('a' + client)), Token: token, Text: "writes"}
}

func key(at time.Duration, on int, name, owner string, until time.Duration) sim.Entry {
	return sim.Entry{At: at, Kind: sim.KindKey, Client: -1, Node: on, Name: name, Owner: owner, Until: until}
}

func fault(at time.Duration, text string) sim.Entry {
	return sim.Entry{At: at, Kind: sim.KindFault, Client: -1, Node: -1, Text: text}
}

func command(at time.Duration, client, on int) sim.Entry {
	return sim.Entry{At: at, Kind: sim.KindExecute, Client: client, Node: on, Text: "a command"}
}

func asks(at time.Duration, client int) sim.Entry {
	return sim.Entry{At: at, Kind: sim.KindStep, Client: client, Node: -1, Name: "x", Mode: "fair", Text: "lock c1 x fair"}
}

func gets(at time.Duration, client int) sim.Entry {
	return sim.Entry{At: at, Kind: sim.KindResult, Client: client, Node: -1, Name: "x", Text: "lock x: granted"}
}

func served() []sim.Entry {
	return []sim.Entry{
		{At: 3000 * ms, Kind: sim.KindCalm, Client: -1, Node: -1}, {At: 3000 * ms, Kind: sim.KindHealed, Client: -1, Node: 0},
		{At: 3001 * ms, Kind: sim.KindBelief, Client: 0, Node: -1, Name: "x,y", Owner: "last a", Token: 100, Until: 4 * time.Second},
		{At: 3002 * ms, Kind: sim.KindBeliefEnd, Client: 0, Node: -1, Name: "x,y", Owner: "last a"},
		{At: 3003 * ms, Kind: sim.KindBelief, Client: 1, Node: -1, Name: "x,y", Owner: "last b", Token: 101, Until: 4 * time.Second},
		{At: 3004 * ms, Kind: sim.KindBeliefEnd, Client: 1, Node: -1, Name: "x,y", Owner: "last b"},
		{At: 20 * time.Second, Kind: sim.KindResult, Client: 1, Node: -1},
	}
}

func TestJudge(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name, plan string
		entries    []sim.Entry
		want       string // the invariant, and "outside" if that is excused; "" for none
	}{
		{"one after the other", "", []sim.Entry{has(0, 0, "x", "", 1, s), ends(100*ms, 0, "x"), has(100*ms, 1, "x", "", 2, s), ends(200*ms, 1, "x")}, ""},
		{"both", "", []sim.Entry{has(0, 0, "x", "", 1, s), has(100*ms, 1, "x", "", 2, s), ends(200*ms, 0, "x"), ends(300*ms, 1, "x")}, "I1"},
		{"both for as long as the slack", "", []sim.Entry{has(0, 0, "x", "", 1, 101*ms), ends(101*ms, 0, "x"), has(100*ms, 1, "x", "", 2, s), ends(300*ms, 1, "x")}, ""},
		{"both, and one unlocks at once", "", []sim.Entry{has(0, 0, "x", "", 1, s), has(100*ms, 1, "x", "", 2, s), ends(100*ms, 1, "x"), ends(300*ms, 0, "x")}, "I1"},
		{"both read", "", []sim.Entry{has(0, 0, "x", "read", 1, s), has(100*ms, 1, "x", "read", 1, s), ends(200*ms, 0, "x"), ends(300*ms, 1, "x")}, ""},
		{"one writes", "", []sim.Entry{has(0, 0, "x", "read", 1, s), has(100*ms, 1, "x", "write", 2, s), ends(200*ms, 0, "x"), ends(300*ms, 1, "x")}, "I1"},
		{"other names", "", []sim.Entry{has(0, 0, "x", "", 1, s), has(100*ms, 1, "y", "", 2, s), ends(200*ms, 0, "x"), ends(300*ms, 1, "y")}, ""},
		{"one of several names", "", []sim.Entry{has(0, 0, "x,y", "", 1, s), has(100*ms, 1, "y", "", 2, s), ends(200*ms, 0, "x,y"), ends(300*ms, 1, "y")}, "I1"},
		{"renewed", "", []sim.Entry{has(0, 0, "x", "", 1, s), has(500*ms, 0, "x", "", 1, 1500*ms), has(1200*ms, 1, "x", "", 2, 2*s), ends(1300*ms, 0, "x"), ends(1400*ms, 1, "x")}, "I1"},
		{"shortened", "", []sim.Entry{has(0, 0, "x", "", 1, s), has(100*ms, 0, "x", "", 1, 200*ms), ends(200*ms, 0, "x"), has(300*ms, 1, "x", "", 2, s), ends(400*ms, 1, "x")}, ""},
		{"without a bound", "", []sim.Entry{has(0, 0, "x", "", 1, 0), has(2*s, 1, "x", "", 2, 2500*ms), ends(2100*ms, 0, "x"), ends(2200*ms, 1, "x")}, "I1"},
		{"the holder is dead", "at 50ms kill c1 for 1s", []sim.Entry{has(0, 0, "x", "", 1, s), fault(50*ms, "kill c1 for 1s"), has(100*ms, 1, "x", "", 2, s), ends(200*ms, 1, "x"),
			{At: 1050 * ms, Kind: sim.KindFaultEnd, Client: -1, Node: -1, Text: "kill c1 for 1s"}}, ""},
		{"both, as keys were evicted", "at 50ms evict n1", []sim.Entry{has(0, 0, "x", "", 1, s), has(100*ms, 1, "x", "", 2, s), ends(200*ms, 0, "x"), ends(300*ms, 1, "x")}, "I1 outside"},
		{"both, before keys are evicted", "at 500ms evict n1", []sim.Entry{has(0, 0, "x", "", 1, s), has(100*ms, 1, "x", "", 2, s), ends(200*ms, 0, "x"), ends(300*ms, 1, "x")}, "I1"},
		{"both, with a clock that jumps", "at 50ms step n1 1s", []sim.Entry{has(0, 0, "x", "", 1, s), has(100*ms, 1, "x", "", 2, s), ends(200*ms, 0, "x"), ends(300*ms, 1, "x")}, "I1 outside"},
		{"both, with a clock that is off", "at 0s skew n1 1s", []sim.Entry{has(0, 0, "x", "", 1, s), has(100*ms, 1, "x", "", 2, s), ends(200*ms, 0, "x"), ends(300*ms, 1, "x")}, "I1"},
		{"both, with a clock that is slow within the bound", "at 0s rate n1 0.5%", []sim.Entry{has(0, 0, "x", "", 1, s), has(100*ms, 1, "x", "", 2, s), ends(200*ms, 0, "x"), ends(300*ms, 1, "x")}, "I1"},
		{"both, with a clock that is fast beyond it", "at 0s rate n1 5%", []sim.Entry{has(0, 0, "x", "", 1, s), has(100*ms, 1, "x", "", 2, s), ends(200*ms, 0, "x"), ends(300*ms, 1, "x")}, "I1 outside"},
		{"both, by a replica that one has never met", "at 50ms crash n1 replica for 10ms", []sim.Entry{has(0, 0, "x", "", 1, s), fault(50*ms, "crash n1 replica for 10ms"), command(90*ms, 1, 0),
			has(100*ms, 1, "x", "", 2, s), ends(200*ms, 0, "x"), ends(300*ms, 1, "x")}, "I1 outside"},
		{"both, by a replica of a server that it knew", "at 50ms crash n1 replica for 10ms", []sim.Entry{command(0, 1, 0), has(0, 0, "x", "", 1, s), fault(50*ms, "crash n1 replica for 10ms"),
			command(90*ms, 1, 0), has(100*ms, 1, "x", "", 2, s), ends(200*ms, 0, "x"), ends(300*ms, 1, "x")}, "I1"},
		{"both, by a node that was a replica unseen", "at 50ms demote n1 empty for 10ms", []sim.Entry{has(0, 0, "x", "", 1, s), fault(50*ms, "demote n1 empty for 10ms"),
			{At: 60 * ms, Kind: sim.KindFaultEnd, Text: "demote n1 empty for 10ms"}, command(90*ms, 1, 0), has(100*ms, 1, "x", "", 2, s), ends(200*ms, 0, "x"), ends(300*ms, 1, "x")}, "I1 outside"},
		{"both, by a node that was seen as a replica", "at 50ms demote n1 empty for 10ms", []sim.Entry{has(0, 0, "x", "", 1, s), fault(50*ms, "demote n1 empty for 10ms"), command(55*ms, 1, 0),
			{At: 60 * ms, Kind: sim.KindFaultEnd, Text: "demote n1 empty for 10ms"}, command(90*ms, 1, 0), has(100*ms, 1, "x", "", 2, s), ends(200*ms, 0, "x"), ends(300*ms, 1, "x")}, "I1"},

		{"a token falls", "", []sim.Entry{has(0, 0, "x", "", 5, s), ends(100*ms, 0, "x"), has(200*ms, 1, "x", "", 4, s), ends(300*ms, 1, "x")}, "I4"},
		{"a token falls, and its holder comes too late", "", []sim.Entry{has(0, 0, "x", "", 5, s), ends(100*ms, 0, "x"), has(200*ms, 1, "x", "", 4, 150*ms), ends(200*ms, 1, "x")}, ""},
		{"a reader after a reader", "", []sim.Entry{has(0, 0, "x", "read", 5, s), ends(100*ms, 0, "x"), has(200*ms, 1, "x", "read", 4, s), ends(300*ms, 1, "x")}, ""},
		{"a writer after a reader", "", []sim.Entry{has(0, 0, "x", "read", 5, s), ends(100*ms, 0, "x"), has(200*ms, 1, "x", "write", 4, s), ends(300*ms, 1, "x")}, "I4"},

		{"a late write is refused", "", []sim.Entry{has(0, 0, "x", "", 1, s), ends(100*ms, 0, "x"), has(200*ms, 1, "x", "", 2, s), writes(250*ms, 1, "x", 2), writes(260*ms, 0, "x", 1), ends(300*ms, 1, "x")}, ""},
		{"a late write without a fence", "lock fence=off", []sim.Entry{has(0, 0, "x", "", 1, s), ends(100*ms, 0, "x"), has(200*ms, 1, "x", "", 2, s), writes(250*ms, 1, "x", 2), writes(260*ms, 0, "x", 1), ends(300*ms, 1, "x")}, "I5 outside"},
		{"a late write without a token", "", []sim.Entry{has(0, 0, "x", "", 0, s), ends(100*ms, 0, "x"), has(200*ms, 1, "x", "", 1, s), writes(250*ms, 1, "x", 1), writes(260*ms, 0, "x", 0), ends(300*ms, 1, "x")}, "I5 outside"},
		{"a holder is refused", "", []sim.Entry{has(0, 0, "x", "", 1, s), writes(10*ms, 1, "x", 9), writes(20*ms, 0, "x", 1), ends(30*ms, 0, "x")}, "I5"},

		{"a key is left", "", []sim.Entry{key(19*s, 0, "x", "a", 30*s)}, "I6"},
		{"a key was left", "", []sim.Entry{key(18*s, 0, "x", "a", 30*s), key(19*s, 0, "x", "", 0)}, ""},
		{"a key is left on a node that is not healed", "", []sim.Entry{key(19*s, 1, "x", "a", 30*s)}, ""},

		{"a notice in time", "", []sim.Entry{has(0, 0, "x", "", 1, 100*ms), ends(101*ms, 0, "x")}, ""},
		{"a notice too late", "", []sim.Entry{has(0, 0, "x", "", 1, 100*ms), ends(102*ms, 0, "x")}, "I8"},
		{"a notice too late for a client that was stopped", "at 50ms pause c1 for 100ms", []sim.Entry{has(0, 0, "x", "", 1, 100*ms), fault(50*ms, "pause c1 for 100ms"), ends(150*ms, 0, "x")}, ""},
		{"no notice for a dead client", "at 50ms kill c1 for 10ms", []sim.Entry{has(0, 0, "x", "", 1, 100*ms), fault(50*ms, "kill c1 for 10ms"),
			{At: 60 * ms, Kind: sim.KindFaultEnd, Client: -1, Node: -1, Text: "kill c1 for 10ms"}}, ""},
		{"renewed, and dead later", "at 2s kill c1 for 10ms", []sim.Entry{has(0, 0, "x", "", 1, s), has(500*ms, 0, "x", "", 1, 1500*ms), ends(600*ms, 0, "x"), fault(2*s, "kill c1 for 10ms"),
			{At: 2010 * ms, Kind: sim.KindFaultEnd, Client: -1, Node: -1, Text: "kill c1 for 10ms"}}, ""},
		{"no notice", "", []sim.Entry{has(0, 0, "x", "", 1, 100*ms)}, "I8"},

		{"its own key", "", []sim.Entry{key(0, 0, "z", "a", s), key(0, 1, "z", "a", s), has(ms, 0, "z", "", 1, s), command(5*ms, 0, 0), key(5*ms, 0, "z", "", 0), ends(9*ms, 0, "z")}, ""},
		{"another's key", "", []sim.Entry{key(0, 0, "z", "a", s), key(0, 1, "z", "a", s), has(ms, 0, "z", "", 1, s), command(5*ms, 1, 0), key(5*ms, 0, "z", "", 0), ends(9*ms, 0, "z")}, "I9"},
		{"a crash", "at 5ms crash n1 empty", []sim.Entry{key(0, 0, "z", "a", s), key(0, 1, "z", "a", s), has(ms, 0, "z", "", 1, s), command(4*ms, 1, 0), fault(5*ms, "crash n1 empty"), key(5*ms, 0, "z", "", 0), ends(9*ms, 0, "z")}, ""},

		{"it is killed and starts again", "at 50ms kill c1 for 10ms", []sim.Entry{has(0, 0, "x", "", 1, 100*ms), fault(50*ms, "kill c1 for 10ms"),
			{At: 60 * ms, Kind: sim.KindFaultEnd, Client: -1, Node: -1, Text: "kill c1 for 10ms"}}, ""},
		{"it goes on after its end", "", []sim.Entry{has(0, 0, "x", "", 1, 100*ms), ends(100*ms, 0, "x"), has(200*ms, 0, "x", "", 1, s), ends(300*ms, 0, "x")}, "I12"},

		{"in turn", "", []sim.Entry{asks(0, 0), asks(s, 1), gets(1100*ms, 0), gets(1200*ms, 1)}, ""},
		{"out of turn", "", []sim.Entry{asks(0, 0), asks(s, 1), gets(1100*ms, 1), gets(1200*ms, 0)}, "I13"},
		{"out of turn, at about the same time", "", []sim.Entry{asks(0, 0), asks(ms, 1), gets(1100*ms, 1), gets(1200*ms, 0)}, ""},
		{"out of turn during a fault", "at 500ms cut c1-n1", []sim.Entry{asks(0, 0), fault(500*ms, "cut c1-n1"), asks(s, 1), gets(1100*ms, 1), gets(1200*ms, 0)}, ""},

		{"a part goes on", "", []sim.Entry{{At: 0, Kind: sim.KindJoint, Client: 0, Name: "x,y", Owner: "a", More: []string{"b"}}, has(0, 0, "x", "", 1, s), ends(50*ms, 0, "x"),
			{At: 0, Kind: sim.KindBelief, Client: 0, Name: "y", Owner: "b", Token: 1, Until: s}, {At: 100 * ms, Kind: sim.KindBeliefEnd, Client: 0, Name: "y", Owner: "b"}}, "I14"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := faults.Parse("redquorum plan 1\nnodes 3\nclients 2\nlength 3s\nat 0s lock c1 x\nat 0s lock c2 y\n" + tt.plan + "\n")
			assert.Succeed(t, err)
			entries := slices.Concat(tt.entries, served())
			slices.Reverse(entries[len(tt.entries):]) // processes report when they do
			r := live.Judge{Lock: "a lock", Slack: ms}.Result(p, entries)
			got := ""
			if v := r.Worst(); v != nil {
				got = v.Invariant
				if v.Outside != "" {
					got += " outside"
				}
			}
			assert.That(t, got == tt.want, "have %q, want %q: %v", got, tt.want, r.Violations)
			var page bytes.Buffer
			err = r.WriteHTML(&page)
			assert.That(t, err == nil && strings.Contains(page.String(), "a lock"), "page: %v", err)
			if story := strings.Join(r.Story(30), "\n"); tt.want != "" && !strings.Contains(story, "VIOLATED "+strings.Fields(tt.want)[0]) {
				t.Errorf("the story has no violation:\n%s", story)
			}
		})
	}
}

func TestJudgeOfPromises(t *testing.T) {
	p := faults.New(3, 2)
	p.Length = 3 * time.Second
	p.Events = []faults.Event{{Verb: faults.DoLock, Name: "x", Procs: faults.Procs{Clients: faults.All}}}
	entries := append(served(), has(0, 0, "x", "", 5, time.Second), ends(100*ms, 0, "x"), has(200*ms, 1, "x", "", 4, time.Second), ends(300*ms, 1, "x"))
	for _, tt := range []struct {
		promised []string
		want     sim.Verdict
	}{{nil, sim.Unsafe}, {[]string{"I1", "I4"}, sim.Unsafe}, {[]string{"I1", "I7"}, sim.Sound}} {
		r := (live.Judge{Slack: ms, Promised: tt.promised}).Result(p, entries)
		assert.That(t, r.Verdict == tt.want, "%v: %s, want %s: %v", tt.promised, r.Verdict, tt.want, r.Violations)
	}
}

func TestJudgeOfErasedWrites(t *testing.T) {
	p := faults.New(3, 2)
	p.Length = 3 * time.Second
	p.Events = []faults.Event{{Verb: faults.DoLock, Name: "x", Procs: faults.Procs{Clients: faults.All}}}
	for erased, want := range map[int]sim.Verdict{0: sim.Sound, 1: sim.Unsafe} {
		r := (live.Judge{Slack: ms, Erased: erased}).Result(p, served())
		assert.That(t, r.Verdict == want, "%d lost writes: %s, want %s: %v", erased, r.Verdict, want, r.Violations)
	}
}

func TestJudgeOfLiveness(t *testing.T) {
	for _, tt := range []struct {
		name, plan string
		without    int
		want       sim.Verdict
	}{
		{"all are served", "", 7, sim.Sound},
		{"one is not", "", 4, sim.Stuck},
		{"one is dead", "at 1s kill c2\n", 4, sim.Sound},
		{"one was killed twice", "at 1s kill c2 for 1s\nat 1.5s kill c2\n", 4, sim.Sound},
		{"one was dead", "at 1s kill c2 for 1s\n", 4, sim.Stuck},
		{"one is not, and the machine is too slow", "# slow\n", 4, sim.Outside},
		{"one has closed its Locker", "at 1s close c2\n", 4, sim.Sound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := faults.Parse("redquorum plan 1\nnodes 3\nclients 2\nlength 3s\nat 0s lock c1 x\nat 0s lock c2 y\n" + tt.plan)
			assert.Succeed(t, err)
			entries := slices.Clone(served())
			if tt.without < 7 {
				entries = slices.Delete(entries, tt.without, tt.without+1)
			}
			if strings.Contains(tt.plan, "slow") {
				reply := sim.Entry{At: 3100 * ms, Kind: sim.KindReply, Client: 0, Node: 0, Message: 1, ToClient: true}
				entries = append(entries, sim.Entry{At: 3001 * ms, Kind: sim.KindExecute, Client: 0, Node: 0, Message: 1}, reply)
			}
			for _, e := range p.Events {
				if e.Verb == faults.Kill {
					entries = append(entries, fault(e.At, e.Words()))
				}
				if e.For > 0 {
					entries = append(entries, sim.Entry{At: e.At + e.For, Kind: sim.KindFaultEnd, Text: e.Words()})
				}
			}
			r := (live.Judge{Slack: ms}).Result(p, entries)
			assert.That(t, r.Verdict == tt.want, "%s, want %s: %v", r.Verdict, tt.want, r.Violations)
		})
	}
}

// A line of these runs is, at a time in milliseconds,
//
//	10 c1-n2 acquire a 1s     c1 sends an acquire for the owner a, whose lease is to last for 1s
//	12 n2 granted a           n2 grants it; young: 1s after its life began
//	10 c1-n2 extend a 1s
//	12 n2 kept a
//	10 c1-n2 release a
//	12 n2 handed a            it hands the lock to a's offer
//	20 c1 relies on a until 90
func run(t *testing.T, record *live.Record, text string) (entries []sim.Entry) {
	t.Helper()
	var commands live.Commands
	sent := make(map[string]*live.Command) // by node and owner: the latest
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		n, _ := strconv.Atoi(f[0])
		at := time.Duration(n) * time.Millisecond
		born := time.Duration(-1 << 60)
		client, on, sends := strings.Cut(f[1], "-")
		switch {
		case sends:
			length, _ := time.ParseDuration(f[len(f)-1])
			ttl := strconv.FormatInt((length + grace).Milliseconds(), 10)
			cmd := commands.Read(map[string][]string{
				"acquire": {"eval", "-- acquire_all: x", "4", "x", "", "", "", f[3], "7", ttl, "9", "", "1", "w", "5000", "0", "8"},
				"extend":  {"eval", "-- extend: x", "1", "x", ttl, f[3]},
				"release": {"eval", "-- release: x", "3", "x", "", "", f[3], "7", "9"},
			}[f[2]])
			sent[on+f[3]] = &cmd
			record.Sends(at, int(client[1]-'1'), int(on[1]-'1'), &cmd)
		case f[2] == "relies":
			until, _ := strconv.Atoi(f[6])
			entries = append(entries, sim.Entry{At: at, Kind: sim.KindBelief, Client: int(f[1][1] - '1'), Node: -1, Name: "x", Owner: f[4], Until: time.Duration(until) * time.Millisecond})
		case f[2] == "handed":
			record.Notifies(at, born, int(f[1][1]-'1'), []string{"message", "channel", "grant " + f[3] + ":offer 8 life proof x"})
		default:
			if f[len(f)-1] == "young" {
				born = at - time.Second
			}
			record.Answers(at, born, sent[f[1]+f[3]], []string{"1"})
		}
	}
	return entries
}

const grace = 100 * time.Millisecond

func TestSpecification(t *testing.T) {
	const won = `
		10 c1-n1 acquire a 1s
		10 c1-n2 acquire a 1s
		12 n1 granted a
		13 n2 granted a
		14 c1 relies on a until 900
	`
	for _, tt := range []struct {
		what, text, want string // "": it is allowed
		exact            bool
	}{
		{what: "a majority grants", text: won},
		{"one of three nodes grants", "10 c1-n1 acquire a 1s\n 12 n1 granted a\n 14 c1 relies on a until 900", "Win(c1#1): n1 voted for it, 2 needed", false},
		{"one of two is young", "10 c1-n1 acquire a 1s\n 10 c1-n2 acquire a 1s\n 12 n1 granted a\n 13 n2 granted a young\n 14 c1 relies on a until 900",
			"Win(c1#1): n1 voted for it, 2 needed; too soon after a restart: n2", false},
		{"the last grant comes late", "10 c1-n1 acquire a 1s\n 10 c1-n2 acquire a 1s\n 12 n1 granted a\n 600 n2 granted a\n 601 c1 relies on a until 900",
			"Win(c1#1): 591ms after its start the window of 500ms is over", false},
		{"it is not sent before", "14 c1 relies on a until 900", "Win(a): it is not asking", false},
		{"it is longer than was asked for", won + "15 c1 relies on a until 1100", "lease(c1#1): its client relies on it for 1.085s, and it is held, for 988ms", false},
		{"a majority keeps it", won + "100 c1-n1 extend a 1s\n 101 c1-n2 extend a 1s\n 102 n1 kept a\n 103 n2 kept a\n 104 c1 relies on a until 1080", "", false},
		{"one node keeps it", won + "100 c1-n1 extend a 1s\n 101 c1-n2 extend a 1s\n 102 n1 kept a\n 104 c1 relies on a until 1080",
			"Confirm(c1#1): the round counts n1, 2 needed", false},
		{"two rounds keep it, once each", won + "100 c1-n1 extend a 1s\n 102 n1 kept a\n 200 c1-n2 extend a 1s\n 202 n2 kept a\n 204 c1 relies on a until 1180",
			"Confirm(c1#1): the round counts n2, 2 needed", false},
		{"a young node keeps it", won + "100 c1-n1 extend a 1s\n 100 c1-n2 extend a 1s\n 102 n1 kept a\n 102 n2 kept a young\n 104 c1 relies on a until 1080", "", false},
		{"an attempt is extended", "10 c1-n1 acquire a 1s\n 12 n1 granted a\n 13 c1-n1 extend a 1s\n 14 n1 kept a", "Extend(c1#1): it is asking", false},
		{"it is handed over", won + "20 c2-n1 acquire b 1s\n 20 c2-n2 acquire b 1s\n 30 c1-n1 release a\n 30 c1-n2 release a\n 31 n1 handed b\n 32 n2 handed b\n 33 c2 relies on b:offer until 900", "", false},
		{"one node hands it over", won + "20 c2-n1 acquire b 1s\n 20 c2-n2 acquire b 1s\n 30 c1-n1 release a\n 31 n1 handed b\n 33 c2 relies on b:offer until 900",
			"Win(c2#2 in line): n1 voted for it, 2 needed", false},
		{"a node grants what another has", won + "20 c2-n1 acquire b 1s\n 21 n1 granted b", "Acquire(c2#2): n1 has the key of c1#1, for 1.091s", true},
		{"its order of answers is not known", won + "20 c2-n1 acquire b 1s\n 21 n1 granted b", "", false},
		{"it may have been released", won + "20 c1-n1 release a\n 21 c2-n1 acquire b 1s\n 22 n1 granted b", "", true},
		{"it has expired", won + "1112 c2-n1 acquire b 1s\n 1113 n1 granted b", "", true},
	} {
		t.Run(tt.what, func(t *testing.T) {
			p, err := faults.Parse("redquorum plan 1\nnodes 3\nclients 2\nlock drift=0.5% grace=100ms maxlease=1500ms lease=1s\nat 1ms lock c1 x\n")
			assert.Succeed(t, err)
			record := &live.Record{Exact: tt.exact}
			entries := run(t, record, tt.text)
			r := (live.Judge{Promised: []string{"I16"}, Record: record}).Result(p, entries)
			got := ""
			if v := r.Worst(); v != nil {
				got = v.What
			}
			want := strings.TrimSuffix(`"x": `+tt.want, `"x": `)
			assert.That(t, got == want, "it is %q, want %q", got, want)
		})
	}
}
