package live_test

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
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
	for what, c := range map[string]struct{ entries, want string }{
		"a renewal is no operation": {
			"20ms c1 has x 7 until 90ms since 10ms\n80ms c1 has x 7 until 200ms since 10ms\n100ms c1 writes x 7\n150ms c1 ends x",
			"1 acquire x  7 10 20 false\n1 write x  7 100 100 false\n1 release x  7 150 150 false\n",
		},
		"its validity ends": {
			"20ms c1 has x 1 until 90ms write\n150ms c1 ends x\n170ms c1 writes x 1 refused",
			"1 acquire x write 1 0 20 false\n1 release x write 1 90 90 false\n1 write x  1 170 170 true\n",
		},
		"the client dies": {
			"20ms c1 has x 1 until 900ms\n500ms fault kill c1",
			"1 acquire x  1 0 20 false\n1 release x  1 500 500 false\n",
		},
		"it goes on after its end": {
			"20ms c1 has x 1 until 90ms\n100ms c1 has x 1 until 200ms since 95ms",
			"1 acquire x  1 0 20 false\n1 release x  1 90 90 false\n1 acquire x  1 95 100 false\n1 release x  1 200 200 false\n",
		},
		"several names": {
			"20ms c2 has x,y 1 until 90ms",
			"2 acquire x  1 0 20 false\n2 acquire y  1 0 20 false\n2 release x  1 90 90 false\n2 release y  1 90 90 false\n",
		},
		"it had ended":          {"20ms c1 has x 1 until 10ms", ""},
		"it is held at the end": {"20ms c1 has x 1 until 0s", "1 acquire x  1 0 20 false\n"},
		"a reader becomes a writer": {"20ms c1 has x 1 until 90ms read\n50ms c1 has x 2 until 90ms write",
			"1 acquire x read 1 0 20 false\n1 acquire x write 2 0 50 false\n1 release x read 1 50 50 false\n1 release x write 2 90 90 false\n"},
		"what nodes do is left out": {"20ms n1 key x a until 90ms\n30ms c1-n1 command", ""},
		"one that another overlaps": {"20ms c1 has x 1 until 90ms\n50ms c2 has x 2 until 99ms",
			"1 acquire x  1 0 20 false\n2 acquire x  2 0 50 false\n1 release x  1 90 90 false\n2 release x  2 99 99 false\n"},
		"a read": {"5ms c2 reads x", "2 read x  0 5 5 false\n"},
	} {
		p := assert.Got(faults.Parse("redquorum plan 1\nnodes 1\nclients 2\nat 500ms kill c1\n"))(t)
		assert.Equal(t, told(live.History(p, reported(t, c.entries))), c.want, what)
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
