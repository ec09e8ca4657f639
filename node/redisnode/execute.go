package redisnode

import (
	"fmt"
	"strconv"

	"github.com/redquorum/redquorum/node"
)

// Execute carries out cmd as a Node does, with the same script, arguments and
// reading of the answer, but without a connection: do is the server. It takes
// the words of one Redis command, and returns an int64, a string, a list of
// these as []any, or the error that the server answers.
//
// It is for simulators. There is no Life in the reply, and Deadline is not
// looked at.
func Execute(cmd node.Command, do func(words []string) (any, error)) node.Reply {
	if err := check(cmd); err != nil {
		return node.Reply{Err: err, Unsent: true}
	}
	var c call
	c.fill(cmd, nil)
	c.prepare(true, true)
	words := make([]string, len(c.args))
	for i, arg := range c.args {
		words[i] = word(arg)
	}
	val, err := do(words)
	c.request.SetVal(val)
	if err != nil {
		c.request.SetErr(answer{err})
	}
	r, _ := c.outcome(nil, false)
	return r
}

// word is an argument as go-redis writes it.
func word(arg any) string {
	switch a := arg.(type) {
	case string:
		return a
	case int:
		return strconv.Itoa(a)
	case *string:
		return *a
	case *int64:
		return strconv.FormatInt(*a, 10)
	case *text:
		return string(*a)
	}
	panic(fmt.Sprintf("redisnode: an argument of type %T", arg))
}

// An answer is an error that a server sent: a redis.Error.
type answer struct{ error }

func (answer) RedisError() {}
