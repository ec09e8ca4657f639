package live_test

import (
	"crypto/sha1"
	"encoding/hex"
	"testing"

	"github.com/redquorum/redquorum/sim/live"
)

func TestCommandKinds(t *testing.T) {
	var c live.Commands
	for text, want := range map[string]string{
		"-- acquire_fair: the lock": "acquire", "-- release: x": "release", "-- extend_read: x": "extend", "return 'acquire:'": "",
		`return redis.call("GET", KEYS[1]) == ARGV[1] and redis.call("DEL", KEYS[1])`: "release", `redis.call("pexpire", KEYS[1], 1)`: "extend",
	} {
		sum := sha1.Sum([]byte(text))
		bySum := []string{"EVALSHA", hex.EncodeToString(sum[:]), "1", "x"}
		if got := c.Read(bySum).Kind; got != "" {
			t.Errorf("a script that nobody has sent is %q", got)
		}
		if got := c.Read([]string{"eval", text, "0"}).Kind; got != want {
			t.Errorf("%q is %q", text, got)
		}
		if got := c.Read(bySum).Kind; got != want {
			t.Errorf("%q is %q by its sum", text, got)
		}
	}
	for want, words := range map[string][]string{"acquire": {"SET", "x", "o", "NX"}, "": {"GET", "x"}} {
		if got := c.Read(words).Kind; got != want {
			t.Errorf("%q is %q", words, got)
		}
	}
}
