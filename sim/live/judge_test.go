package live_test

import (
	"bytes"
	"fmt"
	"os"
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

// kinds are what a line of a run may say: see reported.
var kinds = map[string]sim.Kind{"has": sim.KindBelief, "ends": sim.KindBeliefEnd, "joins": sim.KindJoint,
	"writes": sim.KindAccess, "reads": sim.KindAccess, "key": sim.KindKey, "fault": sim.KindFault,
	"over": sim.KindFaultEnd, "command": sim.KindExecute, "reply": sim.KindReply, "asks": sim.KindStep,
	"gets": sim.KindResult, "calm": sim.KindCalm, "healed": sim.KindHealed}

// reported reads what processes report, a line for each entry:
//
//	0s c1 has x 7 until 1s            c1 believes that it has x, with token 7; perhaps to read, or
//	                                  since a time, or as an owner that is not a for c1 and b for c2
//	9ms c1 ends x
//	9ms c1 joins x,y a b              the locks of these owners are one
//	9ms c1 writes x 7 refused         or is not refused, or reads
//	9ms n1 key x a until 1s           n1 has x for a, or - for nobody
//	9ms c1-n1 command
//	9ms c1 asks                       for x, fairly, and gets it
//	9ms fault kill c1 for 1s          which is over later
func reported(t *testing.T, text string) (entries []sim.Entry) {
	t.Helper()
	for line := range strings.Lines(text) {
		f := append(strings.Fields(line), "", "", "")
		at, err := time.ParseDuration(f[0])
		assert.Succeed(t, err)
		e := sim.Entry{At: at, Client: -1, Node: -1}
		for who := range strings.SplitSeq(f[1], "-") {
			switch n := int(who[len(who)-1] - '1'); who {
			case "c1", "c2":
				e.Client, e.Owner = n, string(rune('a'+n))
			case "n1", "n2", "n3":
				e.Node = n
			default:
				f = slices.Insert(f, 1, "")
			}
		}
		e.Kind, e.Name = kinds[f[2]], f[3]
		rest := f[4:]
		switch f[2] {
		case "fault", "over":
			e.Name, e.Text, rest = "", strings.TrimSpace(strings.Join(f[3:], " ")), nil
		case "command", "reply":
			e.Message, e.Text, e.ToClient = 1, "a command", f[2] == "reply"
		case "asks":
			e.Name, e.Mode, e.Text = "x", "fair", "lock c1 x fair"
		case "gets":
			e.Name, e.Text = "x", "lock x: granted"
		case "joins":
			e.Owner, e.More, rest = f[4], f[5:6], nil
		case "key":
			e.Owner = strings.Trim(f[4], "-")
		case "reads", "writes":
			e.Text = f[2]
		}
		for i, word := range rest {
			next := append(rest[i:], "")[1]
			switch word {
			case "until":
				e.Until, err = time.ParseDuration(next)
			case "since":
				e.Since, err = time.ParseDuration(next)
			case "owner":
				e.Owner = next
			case "read", "write":
				e.Mode = word
			case "refused":
				e.Text += ": refused, its token is old"
			}
			assert.Succeed(t, err)
		}
		if token, err := strconv.ParseUint(f[4], 10, 64); err == nil {
			e.Token = node.Token(token)
		}
		entries = append(entries, e)
	}
	return entries
}

const served = `3s all calm
	3s n1 healed
	3.001s c1 has x,y 100 until 4s owner last-a
	3.002s c1 ends x,y owner last-a
	3.003s c2 has x,y 101 until 4s owner last-b
	3.004s c2 ends x,y owner last-b
	20s c2 gets
`

const falls = "0s c1 has x 5 until 1s\n100ms c1 ends x\n200ms c2 has x 4 until 1s\n300ms c2 ends x\n"

func TestJudge(t *testing.T) {
	text := string(assert.Got(os.ReadFile("testdata/judge.txt"))(t))
	cases := strings.Split(text, "\n\n")[1:] // after what it says itself
	assert.That(t, len(cases) >= 49, "%d cases", len(cases))
	for _, c := range cases {
		head, body, _ := strings.Cut(strings.TrimSpace(c), "\n")
		name, want, _ := strings.Cut(head, ": ")
		t.Run(name, func(t *testing.T) {
			plan := ""
			if first := strings.TrimSpace(body); strings.HasPrefix(first, "at ") || strings.HasPrefix(first, "lock ") {
				plan, body, _ = strings.Cut(first, "\n")
			}
			p, err := faults.Parse("redquorum plan 1\nnodes 3\nclients 2\nlength 3s\nat 0s lock c1 x\nat 0s lock c2 y\n" + plan + "\n")
			assert.Succeed(t, err)
			entries, last := reported(t, body), reported(t, served)
			slices.Reverse(last) // processes report when they do
			r := live.Judge{Lock: "a lock", Slack: ms}.Result(p, append(entries, last...))
			got := "sound"
			if v := r.Worst(); v != nil {
				got = v.Invariant
				if v.Outside != "" {
					got += " outside"
				}
			}
			assert.That(t, got == want, "have %q, want %q: %v", got, want, r.Violations)
			var page bytes.Buffer
			err = r.WriteHTML(&page)
			assert.That(t, err == nil && strings.Contains(page.String(), "a lock"), "page: %v", err)
			if story := strings.Join(r.Story(30), "\n"); want != "sound" && !strings.Contains(story, "VIOLATED "+strings.Fields(want)[0]) {
				t.Errorf("the story has no violation:\n%s", story)
			}
		})
	}
}

func TestJudgeOfPromises(t *testing.T) {
	p := faults.New(3, 2)
	p.Length = 3 * time.Second
	p.Events = []faults.Event{{Verb: faults.DoLock, Name: "x", Procs: faults.Procs{Clients: faults.All}}}
	entries := reported(t, served+falls)
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
		r := (live.Judge{Slack: ms, Erased: erased}).Result(p, reported(t, served))
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
			entries := reported(t, served)
			if tt.without < 7 {
				entries = slices.Delete(entries, tt.without, tt.without+1)
			}
			if strings.Contains(tt.plan, "slow") {
				entries = append(entries, reported(t, "3001ms c1-n1 command\n3100ms c1-n1 reply")...)
			}
			for _, e := range p.Events {
				if e.Verb == faults.Kill {
					entries = append(entries, reported(t, fmt.Sprint(e.At, " fault ", e.Words()))...)
				}
				if e.For > 0 {
					entries = append(entries, reported(t, fmt.Sprint(e.At+e.For, " over ", e.Words()))...)
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
