package courier

import "github.com/redquorum/redquorum/node"

// Execute is redisnode's.
func Execute(cmd node.Command, do func(words []string) (any, error)) node.Reply {
	r, err := check(&cmd)
	if err != nil {
		return node.Reply{Err: err, Unsent: true}
	}
	var c call
	c.fill(r, cmd, nil)
	var w words
	c.append(&w, true, "simulated")
	val, err := do(w.list())
	if err != nil {
		val = serverReply{err}
	}
	got := understand(val)
	reply, _ := c.outcome(got.val, got.err, nil)
	return reply
}
