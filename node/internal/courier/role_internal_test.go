package courier

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
)

// A server may have become a replica that takes writes: it says so when it is asked, and nowhere else.
func TestAReplicaThatTakesWritesHasNoVote(t *testing.T) {
	role := func(s *wireServer, role string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.answer = func(command string, words []string) string {
			if command != "info" {
				return ""
			}
			text := infoText("abc", 1000) + "role:" + role + "\r\n"
			return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
		}
	}
	for _, rests := range []time.Duration{0, roleEvery, time.Minute} {
		rest(t, func(t *testing.T, s *wireServer, n node.Node) {
			role(s, "master")
			granted(t, n)
			role(s, "slave")
			time.Sleep(rests)
			began, conns := time.Now(), s.count("")
			for time.Since(began) < 3*time.Second {
				r := acquires(n)
				if r.Err == nil && time.Since(began) >= roleEvery-rests {
					t.Fatalf("after a rest of %v, %v later: %+v", rests, time.Since(began), r)
				}
				if r.Err != nil && !errors.Is(r.Err, node.ErrReadOnly) && !errors.Is(r.Err, node.ErrUnreachable) {
					t.Fatal(r.Err)
				}
				time.Sleep(time.Millisecond)
			}
			if n := s.count("") - conns; n > 20 {
				t.Errorf("%d connections in 3 s", n)
			}
			role(s, "master")
			began = time.Now()
			for r := acquires(n); r.Err != nil; r = acquires(n) {
				time.Sleep(time.Millisecond)
			}
			if time.Since(began) > maxPause {
				t.Errorf("it is a master for %v", time.Since(began))
			}
			if born := n.(*server).lives.Life().Born; n.(*server).clock.Now().Sub(born) > time.Since(began) {
				t.Errorf("its life goes back to before it was a replica")
			}
		})
	}
}
