package main

import (
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/resp"
)

// sound is a primary's answer to a command, or "".
func sound(command []string) string {
	bulk := func(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }
	switch command[0] {
	case "ping":
		return "+PONG\r\n"
	case "info":
		return bulk("redis_version:7.2.0\r\nrun_id:" + strings.Repeat("a", 40) +
			"\r\nuptime_in_seconds:5000\r\nrole:master\r\n")
	case "client":
		return bulk("")
	case "eval", "evalsha": // as inspect says it of a name where nothing is
		return "*8\r\n$4\r\nnone\r\n:-2\r\n:0\r\n:0\r\n*0\r\n*0\r\n:0\r\n:0\r\n"
	}
	return ""
}

// hostile answers each command with say, repeated if more is true, perhaps after those
// that every program sends first.
func hostile(t *testing.T, say string, soundAtFirst, more bool) (addr string) {
	return serve(t, func(c net.Conn) {
		var p resp.Parser
		var came []byte
		room := make([]byte, 16<<10)
		for {
			n, err := c.Read(room)
			if err != nil {
				return
			}
			for came = append(came, room[:n]...); len(came) > 0; {
				words, n, _ := p.Parse(came)
				if n == 0 {
					break
				}
				came = came[n:]
				var command []string
				for _, word := range words.([]any) {
					command = append(command, strings.ToLower(word.(string)))
				}
				if answer := sound(command); soundAtFirst && answer != "" {
					fmt.Fprint(c, answer)
					continue
				}
				for _, err = fmt.Fprint(c, say); err == nil && more; {
					_, err = fmt.Fprint(c, say)
				}
			}
		}
	})
}

// A server may announce or send more than Redis ever does: no verb waits for that, or
// allocates it. It is not parallel, as it measures memory.
func TestNonsenseIsNotBelieved(t *testing.T) {
	for what, of := range map[string]struct {
		say  string
		more bool
	}{
		"a list of too many":   {"*100000000\r\n", false},
		"more than is counted": {"*9000000000000000000\r\n", false},
		"too long a text":      {"$2147483647\r\n", false},
		"a line without end":   {strings.Repeat("x", 1<<20), true},
		"lists without end":    {"*1\r\n", true},
	} {
		for _, soundAtFirst := range []bool{false, true} {
			for _, args := range [][]string{{"doctor"}, {"status", "x"}, {"list"}} {
				t.Run(fmt.Sprint(what, ", ", args[0], ", sound at first ", soundAtFirst), func(t *testing.T) {
					addr := hostile(t, of.say, soundAtFirst, of.more)
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					status, stdout, stderr := redquorum(t, slices.Concat(args,
						[]string{"--nodes", addr, "--no-guard"})...)
					runtime.ReadMemStats(&after)
					made := after.TotalAlloc - before.TotalAlloc
					assert.That(t, made < 64<<20, "%d MiB were allocated", made>>20)
					assert.That(t, status != exitOK || soundAtFirst && args[0] == "status", "exit status %d: %s%s",
						status, stdout, stderr)
				})
			}
		}
	}
}
