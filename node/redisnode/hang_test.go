package redisnode_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
)

// A server that hangs for longer than any timeout keeps no lock for a program that has ended meanwhile, and has
// released each attempt when it failed.
func TestAHangLeavesNoLockBehind(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	p := newServer(t)
	nodes, err := redisnode.Dial("redis://" + p.addr + "?client_name=hung")
	if err != nil {
		t.Fatal(err)
	}
	n := nodes[0]
	expect(t, "held", ask(t, n, acquire("held", "me", 1)), node.Granted)
	p.freeze()
	for token := node.Token(2); token < 10; token++ {
		cmd := acquire("a", "me", token)
		cmd.Deadline = after(500 * time.Millisecond)
		r := ask(t, n, cmd)
		if r.Err == nil {
			t.Fatal("it hangs, and has answered")
		}
		if r.Unsent && !errors.Is(r.Err, node.ErrTimeout) {
			break // the connection is given up
		}
		if !r.Unsent {
			cmd = release("a", "me", token)
			cmd.Deadline = after(500 * time.Millisecond)
			n.Submit(cmd, func(node.Reply) {})
		}
	}
	n.Close()
	p.thaw()
	eventually(t, "what it was sent is executed", func() bool {
		list, _ := p.do("client", "list").(string)
		return !strings.Contains(list, "name=hung")
	})
	if p.do("exists", "a") != int64(0) {
		t.Errorf("a is kept for %v", p.do("hgetall", "a"))
	}
	if p.do("exists", node.FenceKey("a")) != int64(1) {
		t.Error("nothing was executed")
	}
}
