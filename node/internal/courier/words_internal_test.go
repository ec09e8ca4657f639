package courier

import (
	"slices"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
)

// Commands go to a server as arrays of bulk strings.
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
