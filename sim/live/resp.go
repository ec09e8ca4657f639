package live

import (
	"bufio"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/sim"
)

// maxMessage bounds one message. The longest are scripts as text, and INFO.
const maxMessage = 16 << 20

// ReadMessage reads one message of the Redis protocol, a command or a reply, as its bytes. words
// are the strings of an array of these; nil for anything else.
func ReadMessage(from *bufio.Reader) (message []byte, words []string, err error) {
	line, err := from.ReadBytes('\n')
	if err != nil || len(line) < 3 {
		return line, nil, err
	}
	n := 0
	if strings.IndexByte("$*%~>=!", line[0]) >= 0 {
		if n, err = strconv.Atoi(strings.TrimSpace(string(line[1:]))); err != nil {
			return line, nil, fmt.Errorf("%q is no message of Redis", line)
		}
	}
	switch line[0] {
	case '$', '=', '!':
		if n < 0 {
			return line, nil, nil
		}
		if n > maxMessage {
			return line, nil, fmt.Errorf("a message of Redis has %d bytes", n)
		}
		message = append(line, make([]byte, n+2)...)
		_, err = io.ReadFull(from, message[len(line):])
		return message, []string{string(message[len(line) : len(message)-2])}, err
	case '%':
		n *= 2
	case '*', '~', '>':
	default:
		return line, nil, nil
	}
	message = line
	for range n {
		part, text, err := ReadMessage(from)
		message = append(message, part...)
		if err != nil || len(message) > maxMessage {
			return message, nil, err
		}
		words = append(words, strings.Join(text, " "))
	}
	return message, words, nil
}

// Commands knows what commands do to a lock. A server knows no script before it has seen the text, and
// neither does it. The zero value is ready. Any task may use it at any time.
type Commands struct{ known sync.Map } // what a script does, by its SHA1

// Kind returns "acquire", "release", "extend", "break" or "downgrade" for a command of a lock, and ""
// for any other.
func (c *Commands) Kind(words []string) string {
	if len(words) < 2 {
		return ""
	}
	switch strings.ToLower(words[0]) {
	case "set", "setnx":
		return "acquire"
	case "eval":
		sum := sha1.Sum([]byte(words[1]))
		kind := scriptKind(words[1])
		c.known.Store(hex.EncodeToString(sum[:]), kind)
		return kind
	case "evalsha":
		known, _ := c.known.Load(strings.ToLower(words[1]))
		kind, _ := known.(string)
		return kind
	}
	return ""
}

var (
	scriptHead = regexp.MustCompile(`(?m)^-- (acquire|release|extend|break|downgrade)(_\w+)?:`)
	scriptCall = regexp.MustCompile(`(?i)redis\.call\("(set|del|pexpire|pexpireat)"`)
)

// scriptKind goes by the head of a script, or else by the calls in it.
func scriptKind(text string) string {
	if m := scriptHead.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	calls := make(map[string]bool)
	for _, m := range scriptCall.FindAllStringSubmatch(text, -1) {
		calls[strings.ToLower(m[1])] = true
	}
	switch {
	case calls["del"]:
		return "release"
	case calls["pexpire"] || calls["pexpireat"]:
		return "extend"
	case calls["set"]:
		return "acquire"
	}
	return ""
}

// Owners notes the owners of a lock, and its mode, from the fields of its key.
func Owners(e *sim.Entry, fields map[string]string) {
	var owners []string
	for field, value := range fields {
		if field == node.ModeField {
			e.Mode = value
		} else {
			owners = append(owners, strings.TrimSuffix(field, node.WriteSuffix))
		}
	}
	slices.Sort(owners)
	owners = slices.Compact(owners)
	if len(owners) > 0 {
		e.Owner, e.More = owners[0], owners[1:]
	}
	if len(e.More) == 0 {
		e.More = nil
	}
}
