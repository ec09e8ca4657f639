package redisnode

import "github.com/redquorum/redquorum/node"

// Execute carries out cmd as a Node does, with the same script, arguments and
// reading of the answer, but without a connection: do is the server. It takes
// the words of one Redis command, and returns an int64, a string, a list of
// these as []any, or the error that the server answers.
//
// It is for simulators. There is no Life in the reply, and Deadline is not
// looked at.
func Execute(cmd node.Command, do func(words []string) (any, error)) node.Reply {
	r, err := check(&cmd)
	if err != nil {
		return node.Reply{Err: err, Unsent: true}
	}
	var c call
	c.fill(r, cmd, nil)
	var w words
	c.append(&w, true, "")
	val, err := do(w.list())
	if err != nil {
		val = serverReply{err}
	}
	got := understand(val)
	reply, _ := c.outcome(got.val, got.err, nil)
	return reply
}
