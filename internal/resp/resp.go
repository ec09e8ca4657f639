// Package resp reads the Redis serialization protocol, RESP2
// (https://redis.io/docs/latest/develop/reference/protocol-spec/). It allocates a bounded
// part of what a server announces or sends.
package resp

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// ErrProtocol is for nonsense from a server.
var ErrProtocol = errors.New("what came is no reply of a Redis server")

var ErrTooLong = fmt.Errorf("%w: it is too long", ErrProtocol)

// MaxReply is the length of the longest reply of a Redis server to a node, in bytes: a
// message to a waiter has a name, and so has its channel. See node.MaxName.
const MaxReply = 1 << 20

// No reply has a longer line, more elements, or deeper lists.
const (
	maxLine     = 4 << 10 // of an error, for the most part
	maxElements = int64(MaxReply / leastReply)
	maxDepth    = 8

	leastReply = len(":1\r\n")
)

// An Error is one that a server has sent, such as "NOAUTH Authentication required.".
type Error string

func (e Error) Error() string { return string(e) }

// A Parser reads replies. Their lists share an array, which it reuses after Reset.
type Parser struct {
	Most  int // bytes that a string may have; 0: MaxReply
	lists []any

	// For an incomplete reply: where its next element begins, how many elements are to
	// come of the innermost list and of those around it, and how many all its lists have.
	at    int
	open  []int
	total int64
}

// Reset makes room for other lists: those that were returned are no longer used.
func (p *Parser) Reset() {
	clear(p.lists)
	p.lists = p.lists[:0]
}

func (p *Parser) list(n int) []any {
	p.lists = slices.Grow(p.lists, n)
	at := len(p.lists)
	p.lists = p.lists[:at+n]
	return p.lists[at : at : at+n]
}

// Parse reads the reply at the beginning of b and returns its size in bytes, 0 if it is
// incomplete; the next b then begins with this one. A reply is an int64, a string, nil, a
// list of these as []any, or an Error. err is ErrProtocol, with what was found.
func (p *Parser) Parse(b []byte) (reply any, n int, err error) {
	if len(p.open) == 0 {
		p.at, p.total, p.open = 0, 0, append(p.open, 1)
	}
	for len(p.open) > 0 {
		size, elements, err := scan(b[p.at:], cmp.Or(p.Most, MaxReply))
		if p.total += int64(elements); err == nil && (p.total > maxElements || len(p.open) > maxDepth) {
			err = notRESP(b)
		}
		if err != nil || size == 0 {
			return nil, 0, err
		}
		p.at += size
		p.count(elements)
	}
	reply, n = p.build(b)
	return reply, n, nil
}

// count notes an element. It is a list if it has elements itself.
func (p *Parser) count(elements int) {
	p.open[len(p.open)-1]--
	if elements > 0 {
		p.open = append(p.open, elements)
		return
	}
	for len(p.open) > 0 && p.open[len(p.open)-1] == 0 {
		p.open = p.open[:len(p.open)-1]
	}
}

// scan returns the size of the element at the beginning of b, 0 if it is incomplete. For
// a list that is its first line, and elements is how many follow. A string has at most
// most bytes.
func scan(b []byte, most int) (size, elements int, err error) {
	end := bytes.IndexByte(b[:min(len(b), maxLine)], '\n')
	switch {
	case end < 0 && len(b) < maxLine:
		return 0, 0, nil
	case end < 2 || b[end-1] != '\r':
		return 0, 0, notRESP(b)
	}
	size = end + 1
	if b[0] == '+' || b[0] == '-' {
		return size, 0, nil
	}
	num, ok := integer(b[1 : end-1])
	switch {
	case b[0] == ':' && ok:
	case b[0] == '$' && ok && num >= -1 && num <= int64(most):
		if num >= 0 {
			size += int(num) + len("\r\n")
		}
	case b[0] == '*' && ok && num >= -1 && num <= maxElements:
		elements = max(0, int(num))
	default:
		return 0, 0, notRESP(b)
	}
	if size > len(b) {
		return 0, 0, nil
	}
	return size, elements, nil
}

// build makes the reply at the beginning of b, which is complete, and returns its size.
func (p *Parser) build(b []byte) (reply any, size int) {
	end := bytes.IndexByte(b, '\n')
	line, size := b[1:end-1], end+1
	switch b[0] {
	case '+':
		return string(line), size
	case '-':
		return Error(line), size
	}
	num, _ := integer(line)
	switch {
	case b[0] == ':':
		return num, size
	case num < 0:
		return nil, size
	case b[0] == '$':
		return string(b[size : size+int(num)]), size + int(num) + len("\r\n")
	}
	list := p.list(int(num))
	for range num {
		element, n := p.build(b[size:])
		list = append(list, element)
		size += n
	}
	return list, size
}

// integer reads a decimal number as strconv.ParseInt does, mostly without a string.
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

func notRESP(b []byte) error { return fmt.Errorf("%w: %.40q", ErrProtocol, b) }
