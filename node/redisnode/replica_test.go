package redisnode_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A replica that takes writes refuses no command, and has only what its master has.
func TestAWritableReplicaHasNoVote(t *testing.T) {
	t.Parallel()
	master, replica := newReplicated(t), newServer(t, "--replica-read-only", "no")
	follow(replica, master)
	expectErr(t, "a replica, met as one", ask(t, connect(t, replica), acquire("a", "me", 1)), node.ErrReadOnly)

	// A master that becomes one is noticed by the next command that comes 100 ms later.
	p, n := serve(t, "--replica-read-only", "no")
	before := expect(t, "a master", ask(t, n, acquire("a", "me", 1)), node.Granted).Life
	follow(p, master)
	since := time.Now()
	for token := node.Token(2); time.Since(since) < 500*time.Millisecond; token++ {
		submitted := time.Since(since)
		switch r := ask(t, n, acquire("b", "me", token)); {
		case r.Err == nil && submitted > 100*time.Millisecond:
			t.Fatalf("%v after it became a replica: %v", submitted, r.Status)
		case r.Err != nil && !errors.Is(r.Err, node.ErrReadOnly) && !errors.Is(r.Err, node.ErrUnreachable):
			t.Fatal(r.Err)
		}
	}
	expectErr(t, "a replica", ask(t, n, acquire("b", "me", 1)), node.ErrReadOnly)
	promoted := clock.System().Now()
	p.do("replicaof", "no", "one")
	r := expect(t, "again a master", askMaster(t, n, acquire("c", "me", 1)), node.Granted)
	if r.Life.Born < promoted || r.Life.Born <= before.Born {
		t.Errorf("its life goes back to %v before its promotion", promoted.Sub(r.Life.Born))
	}
}
