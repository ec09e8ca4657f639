package live

import (
	"bufio"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/node"
)

// maxMessage bounds one message. The longest are scripts as text, and INFO.
const maxMessage = 16 << 20

// ReadMessage reads one message of the Redis protocol as its bytes. words are the strings
// and numbers of an array, or the only one; nil for anything else.
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
	case ':':
		return line, []string{strings.TrimSpace(string(line[1:]))}, nil
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

// A Command is what a command asks for each name, for the owner with its index. Only
// scripts of redquorum have more than a kind.
type Command struct {
	Kind   string // "acquire", "release", "extend", "break" or "downgrade"; "": it is about no lock
	Names  []string
	Owners []string

	reads bool
	ttl   time.Duration // of an acquire or extend
	place time.Duration // for how long a waiter keeps its place
	stays bool          // an acquire leaves an offer
	ends  bool          // a release gives its waiter's place up
	each  bool          // each name has an answer of its own

	// Where and when it was sent: see [Record].
	client, node int
	sent         time.Duration
}

// Commands knows what commands do to a lock. Like a server it knows a script once it has
// seen the text. The zero value is ready. It is safe for concurrent use.
type Commands struct{ known sync.Map } // what a script does, by its SHA1

// Read says what a command is.
func (c *Commands) Read(words []string) (cmd Command) {
	if len(words) < 2 {
		return cmd
	}
	script := ""
	switch strings.ToLower(words[0]) {
	case "set", "setnx":
		cmd.Kind = "acquire"
		if len(words) > 2 {
			cmd.Names, cmd.Owners = words[1:2], words[2:3]
		}
		return cmd
	case "eval":
		sum := sha1.Sum([]byte(words[1]))
		script = scriptOf(words[1])
		c.known.Store(hex.EncodeToString(sum[:]), script)
	case "evalsha":
		known, _ := c.known.Load(strings.ToLower(words[1]))
		script, _ = known.(string)
	}
	cmd.Kind, _, _ = strings.Cut(script, "_")
	if cmd.Kind == "" || len(words) < 3 {
		return cmd
	}
	if keys, err := strconv.Atoi(words[2]); err == nil && keys > 0 && len(words) > 3+keys {
		cmd.read(script, words[3:3+keys], words[3+keys:])
	}
	return cmd
}

// scripts says for each script how many keys it has for each name, whether the names come
// first, the first argument that is an owner, and how many later the next is.
var scripts = map[string]struct {
	keys         int
	first        bool
	owner, after int
}{
	"acquire": {keys: 2}, "acquire_all": {keys: 4}, "acquire_each": {keys: 2, first: true, owner: 2, after: 2},
	"release": {keys: 3}, "release_all": {keys: 4}, "release_each": {keys: 3, first: true, owner: 2, after: 4},
	"extend": {keys: 1, owner: 1, after: 1}, "extend_read": {keys: 2, owner: 1, after: 1}, "downgrade": {keys: 3},
}

func (c *Command) read(script string, keys, args []string) {
	at, known := scripts[script]
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	number := func(i int) time.Duration {
		n, _ := strconv.ParseInt(arg(i), 10, 64)
		return time.Duration(n) * time.Millisecond
	}
	switch c.each = at.first; {
	case !known:
		c.Names, c.Owners = keys[:1], args[:1]
		return
	case script == "acquire":
		c.ttl = number(2)
	case script == "acquire_all":
		c.ttl, c.reads = number(2), arg(4) == "read"
		if arg(5) == "0" && arg(4) == "" {
			at.keys = 2
		} else if arg(5) != "0" {
			c.place, c.stays = number(7), len(keys) == at.keys && arg(9) != "0"
		}
	case script == "release_all":
		c.ends = arg(4) != "0" && arg(6) == "0"
	case c.Kind == "acquire" || c.Kind == "extend":
		c.ttl = number(0)
	}
	for i := range len(keys) / at.keys {
		name := i
		if !at.first {
			name = i * at.keys
		}
		c.Names = append(c.Names, keys[name])
		c.Owners = append(c.Owners, strings.TrimSuffix(arg(at.owner+i*at.after), node.WriteSuffix))
	}
}

func (c *Command) done(answer []string, i int) bool {
	switch {
	case c.Kind == "extend":
		return len(answer) == 1 && i < len(answer[0]) && answer[0][i] == '1'
	case !c.each:
		i = 0
	}
	return i < len(answer) && (answer[i] == "1" || strings.HasPrefix(answer[i], "1 "))
}

var (
	scriptHead = regexp.MustCompile(`(?m)^-- ((?:acquire|release|extend|break|downgrade)(?:_\w+)?):`)
	scriptCall = regexp.MustCompile(`(?i)redis\.call\("(set|del|pexpire|pexpireat)"`)
)

// scriptOf is what a script calls itself, or else what the calls in it do. In other locks
// the owner is the first argument.
func scriptOf(text string) string {
	if m := scriptHead.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	calls := make(map[string]bool)
	for _, m := range scriptCall.FindAllStringSubmatch(text, -1) {
		calls[strings.ToLower(m[1])] = true
	}
	switch {
	case calls["del"]:
		return "release_others"
	case calls["pexpire"] || calls["pexpireat"]:
		return "extend_others"
	case calls["set"]:
		return "acquire_others"
	}
	return ""
}
