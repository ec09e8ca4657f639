package courier

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
)

// A server may have become a replica that takes writes: it says so when it is asked, and nowhere else.
func TestAReplicaThatTakesWritesHasNoVote(t *testing.T) {
	role := func(s *wireServer, role string) {
		s.answers(func(command string, words []string) string {
			if command != "info" {
				return ""
			}
			return bulk(infoText("abc", 1000) + "role:" + role + "\r\n")
		})
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

// A server that took over while its connection was open may lack the newest locks. It is as young as the last
// answer of the server before it.
func TestEachAnswerIsTheLastWordOfALife(t *testing.T) {
	rest(t, func(t *testing.T, s *wireServer, n node.Node) {
		granted(t, n)
		time.Sleep(time.Hour)
		granted(t, n)
		answered := n.(*server).clock.Now()
		once := true
		s.answers(func(command string, words []string) string {
			switch {
			case command == "info":
				return bulk(infoText("def", 1800)) // younger than the connection
			case once:
				once = false
				return nonsense // which ends the connection
			}
			return ""
		})
		acquires(n)
		time.Sleep(time.Second)
		if r := acquires(n); r.Err != nil || r.Life.ID != "def" || r.Life.Born < answered {
			t.Errorf("%+v", r)
		}
	})
}

// A full queue refuses what adds to it. Leases are kept and given back all the same.
func TestAFullQueueTakesRenewalsAndReleases(t *testing.T) {
	rest(t, func(t *testing.T, s *wireServer, n node.Node) {
		granted(t, n)
		s.late.Store(int64(time.Second))
		var open atomic.Int64
		submit := func(kind node.Kind) bool {
			cmd := plain(kind, "me", 1)
			cmd.Deadline = n.(*server).clock.Now().Add(time.Minute)
			open.Add(1)
			var refused atomic.Bool
			n.Submit(cmd, func(r node.Reply) { open.Add(-1); refused.Store(errors.Is(r.Err, node.ErrOverloaded)) })
			return refused.Load()
		}
		for range n.(*server).limit {
			if submit(node.Inspect) {
				t.Fatal("it is not full yet")
			}
		}
		for kind, refused := range map[node.Kind]bool{node.Acquire: true, node.Inspect: true, node.Break: true,
			node.Extend: false, node.Release: false, node.Downgrade: false} {
			if got := submit(kind); got != refused {
				t.Errorf("%v: refused %v", kind, got)
			}
		}
		time.Sleep(time.Minute)
		if n := open.Load(); n > 0 {
			t.Errorf("%d are open", n)
		}
	})
}
