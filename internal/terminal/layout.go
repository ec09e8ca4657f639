package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

// Page is the most columns of a text for people.
const Page = 80

func Is(w any) bool {
	f := file(w)
	if f == nil {
		return false
	}
	s, err := f.Stat()
	return err == nil && s.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

func file(w any) *os.File {
	for {
		v, ok := w.(interface{ Unwrap() io.Writer })
		if !ok {
			f, _ := w.(*os.File)
			return f
		}
		w = v.Unwrap()
	}
}

// PageOf is the most columns of a text that goes to w.
func PageOf(w any) int {
	return min(Page, Columns(w))
}

func Cut(line string, width int) string {
	if r := []rune(line); len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return line
}

// A Bar is a line that shows progress. If it is not Live, nothing is written.
type Bar struct {
	W     io.Writer
	Live  bool
	shown bool
}

func (b *Bar) Draw(part float64, text string) {
	if !b.Live {
		return
	}
	const width = 30
	full := min(width, int(part*width))
	line := fmt.Sprintf("[%s%s] %s", strings.Repeat("=", full), strings.Repeat(" ", width-full), text)
	fmt.Fprintf(b.W, "\r%s\x1b[K", Cut(line, Columns(b.W)-1)) // one that wraps could not be written over
	b.shown = true
}

// Clear removes the line.
func (b *Bar) Clear() {
	if b.shown {
		fmt.Fprint(b.W, "\r\x1b[K")
	}
}

// Wrap breaks text between words, for so many columns. Later lines have the indent; the
// caller begins the first with as much.
func Wrap(width int, text, indent string) string {
	return fill(width, utf8.RuneCountInString(indent), strings.Split(text, " "), indent)
}

// fill makes lines of words. The first line has used columns already.
func fill(width, used int, words []string, indent string) string {
	var b strings.Builder
	for i, word := range words {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case used+1+n > width:
			b.WriteString("\n" + indent)
			used = utf8.RuneCountInString(indent)
		default:
			b.WriteString(" ")
			used++
		}
		b.WriteString(word)
		used += n
	}
	return b.String()
}

// Reflow breaks the lines of a text. Lines without an indent are paragraphs. In others
// two spaces divide a word from its explanation, to which deeper lines that follow
// belong. Reflow keeps all other lines.
func Reflow(text string, width int) string {
	var b strings.Builder
	var p paragraph
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		rest := strings.TrimLeft(line, " ")
		indent := len(line) - len(rest)
		if rest != "" && p.goesOn(indent) {
			p.add(indent, rest)
			continue
		}
		p.write(&b, width)
		_, means, explained := strings.Cut(rest, "  ")
		switch {
		case rest == "" || indent > 0 && !explained:
			b.WriteString(line + "\n")
		case indent == 0:
			p = paragraph{words: strings.Fields(rest)}
		default:
			means = strings.TrimLeft(means, " ")
			p = paragraph{indent: indent, begin: line[:len(line)-len(means)], words: strings.Fields(means)}
			p.hang = utf8.RuneCountInString(p.begin)
		}
	}
	p.write(&b, width)
	return b.String()
}

type paragraph struct {
	indent int    // of its first line
	begin  string // of that, before the words
	hang   int    // the indent of the other lines
	words  []string
}

func (p *paragraph) goesOn(indent int) bool {
	return p.words != nil && (p.indent == 0 && indent == 0 || p.indent > 0 && indent > p.indent)
}

func (p *paragraph) add(indent int, line string) {
	p.hang = min(p.hang, indent)
	p.words = append(p.words, strings.Fields(line)...)
}

func (p *paragraph) write(b *strings.Builder, width int) {
	if p.words != nil {
		b.WriteString(p.begin + fill(width, utf8.RuneCountInString(p.begin), p.words, strings.Repeat(" ", p.hang)) +
			"\n")
	}
	*p = paragraph{}
}
