package courier

import (
	"strconv"

	"github.com/redquorum/redquorum/internal/resp"
)

// words are commands as they are sent: each an array of bulk strings.
type words []byte

// begin is for a command of n words, which follow.
func (w *words) begin(n int) { *w = header(*w, '*', n) }

func (w *words) command(list ...string) {
	w.begin(len(list))
	for _, word := range list {
		w.text(word)
	}
}

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

// list returns the words of one command, for other clients and tests.
func (w words) list() (list []string) {
	array, _, _ := new(resp.Parser).Parse(w)
	for _, word := range array.([]any) {
		list = append(list, word.(string))
	}
	return list
}
