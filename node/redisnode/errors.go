package redisnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/node"
)

// codes are the words with which a server begins an error, and what they mean
// to a lock. When a script fails on READONLY, OOM or MISCONF it has changed
// nothing: its first write is refused like all later ones, or is one that changes
// nothing and after which Redis refuses none for want of memory.
var codes = []struct {
	word string
	err  error
}{
	{"WRONGTYPE", node.ErrWrongType},
	{"LOADING", node.ErrLoading},
	{"BUSY", node.ErrBusy},
	{"READONLY", node.ErrReadOnly},
	{"MISCONF", node.ErrMisconf},
	{"OOM", node.ErrOutOfMemory},
	{"NOAUTH", node.ErrAuth},
	{"WRONGPASS", node.ErrAuth},
	{"NOPERM", node.ErrAuth},
}

// phrases are for errors that have no word of their own.
var phrases = []struct {
	text string
	err  error
}{
	{"The user executing the script", node.ErrAuth}, // Redis 7.0: NOPERM inside a script
	{"ACL failure in script", node.ErrAuth},         // Redis 7.2, Valkey: the same, where the script goes on
	{"invalid password", node.ErrAuth},              // Redis 5: AUTH
	{"unknown command", node.ErrUnsupported},
	{"Unknown Redis command", node.ErrUnsupported}, // inside a script
	{"unknown subcommand", node.ErrUnsupported},
	{"is not supported", node.ErrUnsupported}, // miniredis: INFO server
}

// fromServer reports whether the server sent err.
func fromServer(err error) bool {
	var e redis.Error
	return errors.As(err, &e)
}

// inScript is what servers add to what a command inside a script raised: Redis 7 and newer
// after it, Redis 6 before it, and only a part of that if the script goes on. Where in our
// own script it was helps nobody.
var inScript = regexp.MustCompile(
	` script: [0-9a-f]+(, on @user_script:\d+\.)?$|` +
		`^(ERR Error running script \(call to \w+\): )?(@user_script: ?\d+: )+-?|\s+$`)

// noNumber is what Lua says of what a script has read from a fence that is no number.
var noNumber = regexp.MustCompile(`compare (nil with number|number with nil)|arithmetic on a nil value|between nil and number|number expected, got nil`)

var errDemoted = fmt.Errorf("%w: it was a replica a moment ago", node.ErrUnreachable)

var errNoToken = fmt.Errorf("%w: its fence, at redquorum_fence:{NAME} or redquorum_readers:{NAME}, is not a token", node.ErrWrongType)

// serverError says what an error that the server sent means.
func serverError(err error) error {
	text := inScript.ReplaceAllString(err.Error(), "")
	text, _, _ = strings.Cut(text, ", with args beginning with") // a password, where AUTH is unknown
	if noNumber.MatchString(text) {
		return errNoToken
	}
	if strings.HasPrefix(text, "CROSSSLOT") {
		return fmt.Errorf("%w: %s: on a cluster the names of one lock, and a name with a brace, need one whole hash tag, such as {a}b", node.ErrUnsupported, text)
	}
	return fmt.Errorf("%w: %s", meaning(text), text)
}

func meaning(text string) error {
	words := strings.Fields(text)
	if len(words) > 0 && words[0] != "ERR" {
		words = words[:1]
	}
	// miniredis wraps what a command inside a script raised in words of its own.
	for _, word := range words {
		for _, c := range codes {
			if word == c.word {
				return c.err
			}
		}
	}
	for _, p := range phrases {
		if strings.Contains(text, p.text) {
			return p.err
		}
	}
	return node.ErrServer
}

// networkError says what an error that did not come from the server means.
func networkError(err error) error {
	var timeout net.Error
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%w: %w", node.ErrTimeout, err)
	default:
		return fmt.Errorf("%w: %w", node.ErrUnreachable, err)
	}
}

// connectError is why a node is down: what the server said, if it said
// something. It is nil if err is.
func connectError(err error) error {
	if err == nil {
		return nil
	}
	if fromServer(err) {
		return serverError(err)
	}
	return fmt.Errorf("%w: %w", node.ErrUnreachable, err)
}
