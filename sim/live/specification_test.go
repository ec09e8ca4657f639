package live_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/live"
)

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
			record.Notifies(at, born, int(f[1][1]-'1'), []string{"message", "channel", "grant " + f[3] + ":offer 8 life x"})
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
