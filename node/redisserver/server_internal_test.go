package redisserver

import (
	"errors"
	"os"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
)

func TestReady(t *testing.T) {
	for _, c := range []struct {
		reply string
		said  string
		want  bool
	}{
		{"", "", false},
		{"+PONG\r\n", "", false},
		{"+PONG\r\n$30\r\n# Server\r\nprocess_id:17\r\n", "", true},
		{"+PONG\r\n$30\r\n# Server\r\nprocess_id:171\r\n", "", false}, // somebody else's
		{"-LOADING Redis is loading\r\n$30\r\n# Server\r\nprocess_id:17\r\n", "", false},
		{"+OK\r\n+PONG\r\n$30\r\n# Server\r\nprocess_id:17\r\n", "", true},
		{"+OK\r\n-LOADING Redis is loading\r\n$30\r\n# Server\r\nprocess_id:17\r\n", "", false},
		{"-NOAUTH Authentication required.\r\n", "* Ready to accept connections\n", true},
		{"-NOAUTH Authentication required.\r\n", "# Server initialized\n", false}, // it may be somebody else's that wants a password
	} {
		assert.Equal(t, ready(c.reply, 17, []byte(c.said)), c.want, c.reply)
	}
}

// A port that a server cannot use is no reason to give up.
func TestFailed(t *testing.T) {
	for _, c := range []struct {
		said string
		want bool // whether another port is worth a try
	}{
		{"", false},
		{"# Bad directive or wrong number of arguments", false},
		{"# Warning: Could not create server TCP listening socket 127.0.0.1:41001: bind: Address already in use", true},
		{"# Redis port number too high. Cluster communication port is 10,000 port numbers higher", true},
		{"# Port number too high for cluster mode.", true},
	} {
		out := t.TempDir() + "/output"
		assert.Succeed(t, os.WriteFile(out, []byte(c.said), 0o600))
		assert.Equal(t, errors.Is(failed("it ended", out), errAddrInUse), c.want, c.said)
	}
}
