package chaos

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
)

// maxFrame bounds one message. The longest are scripts as text, and INFO.
const maxFrame = 16 << 20

// readFrame reads one message of the Redis protocol, a command or a reply, as its bytes. words
// are the strings of an array of these; nil for anything else.
func readFrame(from *bufio.Reader) (frame []byte, words []string, err error) {
	line, err := from.ReadBytes('\n')
	if err != nil || len(line) < 3 {
		return line, nil, err
	}
	n := 0
	if strings.IndexByte("$*%~>=!", line[0]) >= 0 {
		if n, err = strconv.Atoi(strings.TrimSpace(string(line[1:]))); err != nil {
			return line, nil, fmt.Errorf("chaos: %q is no message of Redis", line)
		}
	}
	switch line[0] {
	case '$', '=', '!':
		if n < 0 {
			return line, nil, nil
		}
		if n > maxFrame {
			return line, nil, fmt.Errorf("chaos: a message of %d bytes", n)
		}
		frame = append(line, make([]byte, n+2)...)
		_, err = io.ReadFull(from, frame[len(line):])
		return frame, []string{string(frame[len(line) : len(frame)-2])}, err
	case '%':
		n *= 2
	case '*', '~', '>':
	default:
		return line, nil, nil
	}
	frame = line
	for range n {
		part, text, err := readFrame(from)
		frame = append(frame, part...)
		if err != nil || len(frame) > maxFrame {
			return frame, nil, err
		}
		words = append(words, strings.Join(text, " "))
	}
	return frame, words, nil
}

// A kinds knows what kind of command a script is. The text of a script says so at its head, and a
// server knows no script before it has seen the text.
type kinds struct{ known sync.Map } // by SHA1

var head = regexp.MustCompile(`(?m)^-- (acquire|release|extend)\w*:`)

// of returns "acquire", "release" or "extend" for a command of a lock, and "" for any other.
func (k *kinds) of(words []string) string {
	if len(words) < 2 {
		return ""
	}
	switch strings.ToLower(words[0]) {
	case "evalsha":
		kind, _ := k.known.Load(strings.ToLower(words[1]))
		text, _ := kind.(string)
		return text
	case "eval":
		m := head.FindStringSubmatch(words[1])
		if m == nil {
			return ""
		}
		sum := sha1.Sum([]byte(words[1]))
		k.known.Store(hex.EncodeToString(sum[:]), m[1])
		return m[1]
	case "set":
		return "acquire"
	}
	return ""
}
