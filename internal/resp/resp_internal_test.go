package resp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]any{
		":1\r\n":         int64(1),
		":-1\r\n":        int64(-1),
		"+PONG\r\n":      "PONG",
		"$-1\r\n":        nil,
		"*-1\r\n":        nil,
		"$0\r\n\r\n":     "",
		"$2\r\n\r\n\r\n": "\r\n",
		"*0\r\n":         []any(nil),
		"*3\r\n:0\r\n$4\r\nhash\r\n*1\r\n:-9223372036854775808\r\n": []any{int64(0), "hash",
			[]any{int64(math.MinInt64)}},
	} {
		growing := new(Parser)
		for end := range len(text) {
			for _, p := range []*Parser{new(Parser), growing} {
				if got, n, err := p.Parse([]byte(text[:end])); got != nil || n != 0 || err != nil {
					t.Errorf("parse(%q), which is not whole: %v, %d, %v", text[:end], got, n, err)
				}
			}
		}
		for _, p := range []*Parser{new(Parser), growing, growing} {
			got, n, err := p.Parse([]byte(text + ":7\r\n"))
			assert.That(t, reflect.DeepEqual(got, want) && n == len(text) && err == nil,
				"parse(%q): %v, %d, %v; want %v", text, got, n, err, want)
		}
	}
	got, _, _ := new(Parser).Parse([]byte("-NOSCRIPT No matching script.\r\n"))
	e, ok := got.(Error)
	assert.That(t, ok && e == "NOSCRIPT No matching script.", "an error is %#v", got)
}

// A reply is read once, though it comes in pieces: that of a huge hash would delay all
// others.
func TestALongReplyIsReadOnce(t *testing.T) {
	const elements, each = 100_000, 4 << 10
	text := []byte(fmt.Sprintf("*%d\r\n", elements) + strings.Repeat("$8\r\nelements\r\n", elements))
	var p Parser
	made := testing.AllocsPerRun(1, func() { // a string, and an any of it, for each element that is read
		for end := each; ; end += each {
			p.Reset()
			got, n, err := p.Parse(text[:min(end, len(text))])
			assert.Must(t, err == nil && (n > 0) == (end >= len(text)), "%d of %d bytes: %d are understood, %v", end,
				len(text), n, err)
			if n > 0 {
				assert.Must(t, n == len(text) && len(got.([]any)) == elements, "it has %d bytes", n)
				return
			}
		}
	})
	assert.That(t, made <= 3*elements, "%v allocations for %d elements", made, elements)
}

func FuzzReply(f *testing.F) {
	f.Add([]byte("*2\r\n:0\r\n$1\r\na\r\n"))
	f.Add([]byte("-ERR\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, n, err := new(Parser).Parse(b)
		assert.Must(t, n >= 0 && n <= len(b) && (err == nil || n == 0), "%d bytes used of %d, %v", n, len(b), err)
		if n > 0 {
			_, again, err := new(Parser).Parse(b[:n])
			assert.Must(t, again == n && err == nil, "a whole reply of %d bytes, then %d, %v", n, again, err)
			var growing Parser
			for end := range n + 1 {
				if _, grown, err := growing.Parse(b[:end]); grown != n*(end/n) || err != nil {
					t.Fatalf("a reply of %d bytes has %d when there are %d, %v", n, grown, end, err)
				}
			}
		}
	})
}

// They are refused at the first line, whatever may follow.
func TestBombsAreRefused(t *testing.T) {
	for _, text := range append(tests.Bombs()[:tests.NoReplies:tests.NoReplies], "HTTP/1.1 400 Bad Request\r\n",
		":\r\n", ":1\n", ":1x\r\n", "\r\n", "\n") {
		var p Parser
		if got, n, err := p.Parse([]byte(text)); !errors.Is(err, ErrProtocol) || cap(p.lists) > 0 {
			t.Errorf("%.40q: %v, %d bytes, %v, room for %d", text, got, n, err, cap(p.lists))
		}
	}
	for _, text := range []string{"-" + strings.Repeat("E", maxLine-3) + "\r\n",
		fmt.Sprintf("$%d\r\n%s\r\n", MaxReply, make([]byte, MaxReply))} {
		_, n, err := new(Parser).Parse([]byte(text))
		assert.That(t, n == len(text) && err == nil, "%.40q: %d bytes of %d, %v", text, n, len(text), err)
	}
}

// go-redis reads complete replies, also those before one that is none.
func TestBoundedConnection(t *testing.T) {
	const good = "+OK\r\n*2\r\n$3\r\nabc\r\n:1\r\n"
	for _, slowly := range []bool{false, true} {
		for _, tt := range []struct {
			said, read string
			err        error
		}{
			{good, good, io.EOF},
			{good + "*2\r\n:1\r\n", good, io.EOF},
			{good + "$100\r\n" + strings.Repeat("x", 99), good, io.EOF},
			{"*1000000000\r\n" + good, "", ErrProtocol},
			{"$1048576\r\n" + strings.Repeat("x", 1<<20), "", ErrTooLong},
			{"*2\r\n$1000000\r\n" + strings.Repeat("x", 1000000) + "\r\n$1000000\r\n" + strings.Repeat("x", 1000000),
				"", ErrTooLong},
		} {
			read, err := readBounded([]byte(tt.said), slowly)
			if err == nil {
				err = io.EOF
			}
			assert.That(t, string(read) == tt.read && errors.Is(err, tt.err), "of %.40q came %.40q, %v; want %.40q, %v",
				tt.said, read, err, tt.read, tt.err)
		}
	}
}

// readBounded reads what a server says, perhaps in pieces, as go-redis does.
func readBounded(said []byte, slowly bool) ([]byte, error) {
	r := io.Reader(bytes.NewReader(said))
	if slowly {
		r = iotest.OneByteReader(r)
	}
	return io.ReadAll(Bounded(tests.Playing(r), MaxReply))
}

// FuzzBounded has a connection say anything, in pieces, and compares it with an unbounded
// one.
func FuzzBounded(f *testing.F) {
	for i, text := range tests.Bombs() {
		f.Add([]byte("+OK\r\n"+text), byte(i))
	}
	f.Fuzz(func(t *testing.T, said []byte, _ byte) {
		fast, _ := readBounded(said, false)
		slow, err := readBounded(said, true)
		assert.Must(t, bytes.HasPrefix(said, slow) && (err != nil || bytes.Equal(slow, fast)),
			"%q is read of %q, or slowly %q", fast, said, slow)
		for rest := slow; len(rest) > 0; {
			_, n, err := new(Parser).Parse(rest)
			assert.Must(t, n != 0, "%q is not whole: %v", rest, err)
			rest = rest[n:]
		}
	})
}
