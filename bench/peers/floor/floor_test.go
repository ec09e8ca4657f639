package floor

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
)

// The floor sends the words that redquorum sends, so it is a measure of it.
func TestSendsWhatRedquorumSends(t *testing.T) {
	for _, name := range []string{"name", "a{b}c"} {
		var o op
		o.encode(name, 1<<63-1, 1234567, 30000)
		claim := []node.Claim{{Name: name, Owner: uuid + strconv.Itoa(1<<63-1), Token: 1234567}}
		for kind, got := range map[node.Kind][]byte{node.Acquire: o.command, node.Release: o.release} {
			redisnode.Execute(node.Command{Kind: kind, Claims: claim, TTL: 30 * time.Second, Retention: 24 * time.Hour},
				func(words []string) (any, error) {
					want := append([]string{"evalsha", sha(words[1])}, words[2:]...)
					if got := parse(t, string(got)); !slices.Equal(got, want) {
						t.Errorf("%v:\n got %q\nwant %q", kind, got, want)
					}
					return nil, nil
				})
		}
	}
}

// parse reads a command.
func parse(t *testing.T, b string) (words []string) {
	parts := strings.Split(strings.TrimSuffix(b, "\r\n"), "\r\n")
	if parts[0] != "*"+strconv.Itoa(len(parts)/2) {
		t.Errorf("%q words in %q", parts[0], b)
	}
	for pair := range slices.Chunk(parts[1:], 2) {
		if pair[0] != "$"+strconv.Itoa(len(pair[1])) {
			t.Errorf("length %q of %q", pair[0], pair[1])
		}
		words = append(words, pair[1])
	}
	return words
}
