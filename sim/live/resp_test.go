package live_test

import (
	"crypto/sha1"
	"encoding/hex"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
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
		assert.Equal(t, c.Read(bySum).Kind, "", "a script that nobody has sent is")
		assert.Equal(t, c.Read([]string{"eval", text, "0"}).Kind, want, text)
		assert.Equal(t, c.Read(bySum).Kind, want, text)
	}
	for want, words := range map[string][]string{"acquire": {"SET", "x", "o", "NX"}, "": {"GET", "x"}} {
		assert.Equal(t, c.Read(words).Kind, want, words)
	}
}
