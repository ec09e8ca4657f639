package redisnode

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// This file is the Redis serialization protocol, RESP2, as far as the scripts
// use it (https://redis.io/docs/latest/develop/reference/protocol-spec/).

// words is one command or more as they are sent: each an array of bulk strings.
type words []byte

// begin is for a command of n words, which follow.
func (w *words) begin(n int) { *w = header(*w, '*', n) }

func (w *words) text(s string) {
	*w = header(*w, '$', len(s))
	*w = append(*w, s...)
	*w = append(*w, "\r\n"...)
}

func (w *words) bytes(b []byte) {
	*w = header(*w, '$', len(b))
	*w = append(*w, b...)
	*w = append(*w, "\r\n"...)
}

func (w *words) number(n int64) {
	var digits [20]byte
	w.bytes(strconv.AppendInt(digits[:0], n, 10))
}

func (w *words) flag(on bool) {
	if on {
		w.number(1)
	} else {
		w.number(0)
	}
}

func header(b []byte, kind byte, n int) []byte {
	switch {
	case n < 10:
		return append(b, kind, '0'+byte(n), '\r', '\n')
	case n < 100:
		return append(b, kind, '0'+byte(n/10), '0'+byte(n%10), '\r', '\n')
	}
	b = strconv.AppendInt(append(b, kind), int64(n), 10)
	return append(b, "\r\n"...)
}

// list returns the words of one command, for those who cannot use it as it is.
func (w words) list() (list []string) {
	array, _, _ := new(parser).parse(w)
	for _, word := range array.([]any) {
		list = append(list, word.(string))
	}
	return list
}

// A serverReply is an error that a server sent: a [redis.Error].
type serverReply struct{ error }

func (serverReply) RedisError() {}

var errProtocol = errors.New("what came is no reply of a Redis server")

const (
	// What is longer or deeper is no reply to a script of ours.
	maxReply = 64 << 20
	maxDepth = 8

	leastReply = len(":1\r\n")
)

// A parser reads replies. The lists that it makes are parts of one, which it uses again
// when it was reset.
type parser struct {
	lists []any

	// Of a reply whose end is yet to come: how many elements are, and where the next begins.
	open, at int
}

func (p *parser) reset() {
	clear(p.lists)
	p.lists = p.lists[:0]
}

// list returns an empty list with room for n.
func (p *parser) list(n int) []any {
	p.lists = slices.Grow(p.lists, n)
	at := len(p.lists)
	p.lists = p.lists[:at+n]
	return p.lists[at : at : at+n]
}

// parse reads the reply at the beginning of b and says how many bytes it has: 0
// if its end is yet to come. A reply is an int64, a string, nil, a list of these
// as []any, or a serverReply. err is errProtocol, with what was found. After a 0
// the next b begins with this one.
func (p *parser) parse(b []byte) (reply any, n int, err error) {
	if !p.ended(b) {
		return nil, 0, nil
	}
	p.open, p.at = 0, 0
	if reply, n, err = p.parseAt(b, 0); n == 0 && err == nil {
		p.open = 1
	}
	return reply, n, err
}

// ended reports whether there is reason to parse b: what it begins with is whole, or no
// reply, or new. It looks at each element once, however often more of a reply comes.
func (p *parser) ended(b []byte) bool {
	for ; p.open > 0; p.open-- {
		end := bytes.IndexByte(b[p.at:], '\n')
		if end < 0 {
			return len(b) >= maxReply
		}
		line, size := b[p.at:p.at+end], end+1
		if end < 2 {
			return true
		}
		num, ok := integer(line[1 : end-1])
		switch line[0] {
		case '$', '*':
			if !ok || num < -1 || num > maxReply {
				return true
			}
			if line[0] == '*' {
				p.open += max(0, int(num))
			} else if num >= 0 {
				size += int(num) + len("\r\n")
			}
		}
		if p.at+size > len(b) {
			return false
		}
		p.at += size
	}
	return true
}

func (p *parser) parseAt(b []byte, depth int) (any, int, error) {
	end := bytes.IndexByte(b, '\n')
	switch {
	case end < 0 && len(b) < maxReply:
		return nil, 0, nil
	case end < 2 || b[end-1] != '\r' || depth > maxDepth:
		return nil, 0, notRESP(b)
	}
	line := b[1 : end-1]
	used := end + 1
	switch b[0] {
	case '+':
		return string(line), used, nil
	case '-':
		return serverReply{errors.New(string(line))}, used, nil
	}
	num, ok := integer(line)
	if !ok || b[0] != ':' && (num < -1 || num > maxReply) {
		return nil, 0, notRESP(b)
	}
	switch b[0] {
	case ':':
		return num, used, nil
	case '$':
		if num < 0 {
			return nil, used, nil
		}
		size := used + int(num) + len("\r\n")
		if len(b) < size {
			return nil, 0, nil
		}
		return string(b[used : size-len("\r\n")]), size, nil
	case '*':
		if num < 0 {
			return nil, used, nil
		}
		if int(num) > (len(b)-used)/leastReply {
			return nil, 0, nil
		}
		list := p.list(int(num))
		for range num {
			element, n, err := p.parseAt(b[used:], depth+1)
			if n == 0 || err != nil {
				return nil, 0, err
			}
			list = append(list, element)
			used += n
		}
		return list, used, nil
	}
	return nil, 0, notRESP(b)
}

// integer reads a decimal number, as strconv.ParseInt does but mostly without a string.
func integer(b []byte) (n int64, ok bool) {
	digits := b
	if len(b) > 0 && b[0] == '-' {
		digits = b[1:]
	}
	if len(digits) > 18 { // it might overflow
		n, err := strconv.ParseInt(string(b), 10, 64)
		return n, err == nil
	}
	if len(digits) == 0 {
		return 0, false
	}
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = 10*n + int64(d-'0')
	}
	if len(digits) < len(b) {
		n = -n
	}
	return n, true
}

func notRESP(b []byte) error { return fmt.Errorf("%w: %.40q", errProtocol, b) }
