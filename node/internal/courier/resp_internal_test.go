package courier

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
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
		"*3\r\n:0\r\n$4\r\nhash\r\n*1\r\n:-9223372036854775808\r\n": []any{int64(0), "hash", []any{int64(math.MinInt64)}},
	} {
		growing := new(parser)
		for end := range len(text) {
			for _, p := range []*parser{new(parser), growing} {
				if got, n, err := p.parse([]byte(text[:end])); got != nil || n != 0 || err != nil {
					t.Errorf("parse(%q), which is not whole: %v, %d, %v", text[:end], got, n, err)
				}
			}
		}
		for _, p := range []*parser{new(parser), growing, growing} {
			got, n, err := p.parse([]byte(text + ":7\r\n"))
			assert.That(t, reflect.DeepEqual(got, want) && n == len(text) && err == nil, "parse(%q): %v, %d, %v; want %v", text, got, n, err, want)
		}
	}
	got, _, _ := new(parser).parse([]byte("-NOSCRIPT No matching script.\r\n"))
	e, ok := got.(refusal)
	assert.That(t, ok && lacksScript(e) && fromServer(e), "an error is %#v", got)
}

// A reply is not read again from its beginning each time that some of it comes: that of a
// huge hash would hold up all others.
func TestALongReplyIsReadOnce(t *testing.T) {
	const elements, each = 100_000, 4 << 10
	text := []byte(fmt.Sprintf("*%d\r\n", elements) + strings.Repeat("$8\r\nelements\r\n", elements))
	var p parser
	made := testing.AllocsPerRun(1, func() { // a string, and an any of it, for each element that is read
		for end := each; ; end += each {
			p.reset()
			got, n, err := p.parse(text[:min(end, len(text))])
			assert.Must(t, err == nil && (n > 0) == (end >= len(text)), "%d of %d bytes: %d are understood, %v", end, len(text), n, err)
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
		_, n, err := new(parser).parse(b)
		assert.Must(t, n >= 0 && n <= len(b) && (err == nil || n == 0), "%d bytes used of %d, %v", n, len(b), err)
		if n > 0 {
			_, again, err := new(parser).parse(b[:n])
			assert.Must(t, again == n && err == nil, "a whole reply of %d bytes, then %d, %v", n, again, err)
			var growing parser
			for end := range n + 1 {
				if _, grown, err := growing.parse(b[:end]); grown != n*(end/n) || err != nil {
					t.Fatalf("a reply of %d bytes has %d when there are %d, %v", n, grown, end, err)
				}
			}
		}
	})
}

// TestWords checks commands as they go to a server: arrays of bulk strings.
func TestWords(t *testing.T) {
	var w words
	long := strings.Repeat("x", 123)
	w.begin(4)
	w.text("evalsha")
	w.number(-12)
	w.text("")
	w.text(long)
	whole := "*4\r\n$7\r\nevalsha\r\n$3\r\n-12\r\n$0\r\n\r\n$123\r\n" + long + "\r\n"
	assert.Equal(t, string(w), whole)
	assert.That(t, slices.Equal(w.list(), []string{"evalsha", "-12", "", long}), "%q", w.list())
}

func TestFifo(t *testing.T) {
	var f fifo
	var want []*call
	next := func() *call { return new(call) }
	for i := range 10000 {
		switch i * 7919 % 5 {
		case 0, 1, 2:
			c := next()
			f.push(c)
			want = append(want, c)
		case 3:
			if f.len() > 0 {
				assert.Must(t, f.pop() == want[0], "popped another than the first")
				want = want[1:]
			}
		case 4:
			n := min(3, f.len())
			back := f.cut(n)
			for i, c := range back {
				assert.Must(t, c == want[len(want)-n+i], "cut others than the last")
			}
			want = append(back, want[:len(want)-n]...)
			f.insert(0, back)
		}
		assert.Must(t, slices.Equal(f.calls(), want), "step %d: they differ", i)
	}
}
