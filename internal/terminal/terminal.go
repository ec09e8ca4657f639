// Package terminal lays text out for a terminal, and keeps text of others from
// controlling it.
package terminal

import (
	"io"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// Plain returns a writer that writes visible text, line feeds and tabs to w, and quotes
// all else as Go does, such as escape sequences in a server's error. Each Write must have
// whole characters.
func Plain(w io.Writer) io.Writer { return plain{w} }

type plain struct{ w io.Writer }

func (p plain) Unwrap() io.Writer { return p.w }

func (p plain) Write(text []byte) (int, error) {
	var safe []byte
	for rest := text; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r == '\n' || r == '\t' || unicode.IsPrint(r) && (r != utf8.RuneError || size > 1) {
			safe = append(safe, rest[:size]...)
		} else {
			quoted := strconv.Quote(string(rest[:size]))
			safe = append(safe, quoted[1:len(quoted)-1]...)
		}
		rest = rest[size:]
	}
	if _, err := p.w.Write(safe); err != nil {
		return 0, err
	}
	return len(text), nil
}
