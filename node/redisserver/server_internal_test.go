package redisserver

import "testing"

func TestReady(t *testing.T) {
	for _, c := range []struct {
		reply string
		want  bool
	}{
		{"", false},
		{"+PONG\r\n", false},
		{"+PONG\r\n$30\r\n# Server\r\nprocess_id:17\r\n", true},
		{"+PONG\r\n$30\r\n# Server\r\nprocess_id:171\r\n", false}, // somebody else's
		{"-LOADING Redis is loading\r\n$30\r\n# Server\r\nprocess_id:17\r\n", false},
		{"+OK\r\n+PONG\r\n$30\r\n# Server\r\nprocess_id:17\r\n", true},
		{"+OK\r\n-LOADING Redis is loading\r\n$30\r\n# Server\r\nprocess_id:17\r\n", false},
		{"-NOAUTH Authentication required.\r\n", true},
	} {
		if got := ready(c.reply, 17); got != c.want {
			t.Errorf("%q: ready %v, want %v", c.reply, got, c.want)
		}
	}
}
