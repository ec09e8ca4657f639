package live_test

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/live"
)

func told(all []live.Operation) string {
	var b strings.Builder
	for _, o := range all {
		line, _ := json.Marshal([]any{o.Client, o.Op, o.Name, o.Mode, o.Token, o.Call / ms, o.Return / ms, o.Refused})
		b.WriteString(strings.NewReplacer(`"`, "", "[", "", "]", "", ",", " ").Replace(string(line)) + "\n")
	}
	return b.String()
}

func TestHistory(t *testing.T) {
	asked := func(e sim.Entry, since time.Duration) sim.Entry {
		e.Since = since
		return e
	}
	refusal := writes(170*ms, 0, "x", 1)
	refusal.Text += ": refused, its token is old"
	for what, c := range map[string]struct {
		entries []sim.Entry
		want    string
	}{
		"a renewal is no operation": {
			[]sim.Entry{asked(has(20*ms, 0, "x", "", 7, 90*ms), 10*ms), asked(has(80*ms, 0, "x", "", 7, 200*ms), 10*ms), writes(100*ms, 0, "x", 7), ends(150*ms, 0, "x")},
			"1 acquire x  7 10 20 false\n1 write x  7 100 100 false\n1 release x  7 150 150 false\n",
		},
		"its validity ends": {
			[]sim.Entry{has(20*ms, 0, "x", "write", 1, 90*ms), ends(150*ms, 0, "x"), refusal},
			"1 acquire x write 1 0 20 false\n1 release x write 1 90 90 false\n1 write x  1 170 170 true\n",
		},
		"the client dies": {
			[]sim.Entry{has(20*ms, 0, "x", "", 1, 900*ms), fault(500*ms, "kill c1")},
			"1 acquire x  1 0 20 false\n1 release x  1 500 500 false\n",
		},
		"it goes on after its end": {
			[]sim.Entry{has(20*ms, 0, "x", "", 1, 90*ms), asked(has(100*ms, 0, "x", "", 1, 200*ms), 95*ms)},
			"1 acquire x  1 0 20 false\n1 release x  1 90 90 false\n1 acquire x  1 95 100 false\n1 release x  1 200 200 false\n",
		},
		"several names": {
			[]sim.Entry{has(20*ms, 1, "x,y", "", 1, 90*ms)},
			"2 acquire x  1 0 20 false\n2 acquire y  1 0 20 false\n2 release x  1 90 90 false\n2 release y  1 90 90 false\n",
		},
		"it had ended":              {[]sim.Entry{has(20*ms, 0, "x", "", 1, 10*ms)}, ""},
		"it is held at the end":     {[]sim.Entry{has(20*ms, 0, "x", "", 1, 0)}, "1 acquire x  1 0 20 false\n"},
		"a reader becomes a writer": {[]sim.Entry{has(20*ms, 0, "x", "read", 1, 90*ms), has(50*ms, 0, "x", "write", 2, 90*ms)}, "1 acquire x read 1 0 20 false\n1 acquire x write 2 0 50 false\n1 release x read 1 50 50 false\n1 release x write 2 90 90 false\n"},
		"what nodes do is left out": {[]sim.Entry{key(20*ms, 0, "x", "a", 90*ms), command(30*ms, 0, 0)}, ""},
		"one that another overlaps": {[]sim.Entry{has(20*ms, 0, "x", "", 1, 90*ms), has(50*ms, 1, "x", "", 2, 99*ms)}, "1 acquire x  1 0 20 false\n2 acquire x  2 0 50 false\n1 release x  1 90 90 false\n2 release x  2 99 99 false\n"},
		"a read":                    {[]sim.Entry{{At: 5 * ms, Kind: sim.KindAccess, Client: 1, Node: -1, Name: "x", Text: "reads"}}, "2 read x  0 5 5 false\n"},
	} {
		p := assert.Got(faults.Parse("redquorum plan 1\nnodes 1\nclients 2\nat 500ms kill c1\n"))(t)
		assert.Equal(t, told(live.History(p, c.entries)), c.want, what)
	}
}

func TestCommandKinds(t *testing.T) {
	var c live.Commands
	for text, want := range map[string]string{
		"-- acquire_fair: the lock": "acquire", "-- release: x": "release", "-- extend_read: x": "extend", "return 'acquire:'": "",
		`return redis.call("GET", KEYS[1]) == ARGV[1] and redis.call("DEL", KEYS[1])`: "release", `redis.call("pexpire", KEYS[1], 1)`: "extend",
	} {
		sum := sha1.Sum([]byte(text))
		bySum := []string{"EVALSHA", hex.EncodeToString(sum[:]), "1", "x"}
		assert.Equal(t, c.Read(bySum).Kind, "", "a script that nobody has sent is")
		assert.Equal(t, c.Read([]string{"eval", text, "0"}).Kind, want, text)
		assert.Equal(t, c.Read(bySum).Kind, want, text)
	}
	for want, words := range map[string][]string{"acquire": {"SET", "x", "o", "NX"}, "": {"GET", "x"}} {
		assert.Equal(t, c.Read(words).Kind, want, words)
	}
}
