package redisnode

import (
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/internal/courier"
)

// Execute executes cmd as a Node does, with the same script, arguments and reading of the
// answer, but without a connection: do is the server. do takes the words of one Redis command,
// and returns an int64, a string, a list of these as []any, or the server's error.
//
// It is for tools that need the scripts without a server. The reply has no Life, the
// run_id that scripts get means nothing, and Deadline is ignored.
func Execute(cmd node.Command, do func(words []string) (any, error)) node.Reply {
	return courier.Execute(cmd, do)
}
