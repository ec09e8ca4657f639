package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/redquorum/redquorum/internal/terminal"
)

// A helpPage is what a verb says with --help.
type helpPage struct {
	words   []string // the verb, and for sim a word of its own
	summary string
	text    string
	flags   []helpFlag
}

// A helpFlag is a flag there. Value says what its value is; "" if it has none.
type helpFlag struct{ name, value, usage string }

// takesFile reports whether the value is the name of a file.
func (f helpFlag) takesFile() bool { return f.value == "file" || f.value == "folder" }

// manColumns is how many columns man leaves of 80.
const manColumns = 73

// helpPages asks all verbs for their help, so that it is written once. It fits a manual page.
func helpPages() (pages []helpPage) {
	for _, v := range verbs() {
		pages = append(pages, newPage(v, v.name))
		if v.name == "sim" {
			for _, w := range simWords() {
				pages = append(pages, newPage(w, v.name, w.name))
			}
		}
	}
	return pages
}

func newPage(v verb, words ...string) helpPage {
	out := terminal.Sheet{Columns: manColumns}
	v.run(context.Background(), &command{args: []string{"--help"}, stdout: &out, stderr: io.Discard, screen: io.Discard})
	p := helpPage{words: words, summary: v.summary}
	flags := ""
	p.text, flags, _ = strings.Cut(out.String(), "\nflags:\n")
	for line := range strings.Lines(flags) {
		line = strings.TrimSuffix(line, "\n")
		if m := flagLine.FindStringSubmatch(line); m != nil {
			p.flags = append(p.flags, helpFlag{name: m[1], value: m[2]})
		} else if n := len(p.flags); n > 0 {
			f := &p.flags[n-1]
			f.usage = strings.TrimSpace(f.usage + " " + strings.TrimSpace(line))
		}
	}
	return p
}

var flagLine = regexp.MustCompile(`^  (--?[\w-]+)(?: (.+))?$`)

const manManual = `
usage: redquorum man

Prints the manual page, made of what all verbs say with --help.

example:
  redquorum man | man -l -
`

func manVerb(_ context.Context, c *command) int {
	fs := c.flags("man", manManual)
	if status, ok := c.parse(fs); !ok {
		return status
	}
	if fs.NArg() > 0 {
		return c.fail("man", leftOver(fs.Arg(0)))
	}
	if _, err := io.WriteString(c.stdout, manPage()); err != nil {
		return c.fail("man", err)
	}
	return exitOK
}

// manPage is the manual in the language of man.
func manPage() string {
	var b, intro strings.Builder
	usage(&intro)
	fmt.Fprintf(&b, ".TH REDQUORUM 1 \"\" %q \"User Commands\"\n.SH NAME\nredquorum \\- locks on a majority of independent Redis masters\n"+
		".SH SYNOPSIS\n.B redquorum\n.I VERB\n[flags] ...\n.SH DESCRIPTION\n", "redquorum "+version())
	writePlain(&b, intro.String())
	b.WriteString(".SH VERBS\n")
	for _, p := range helpPages() {
		fmt.Fprintf(&b, ".SS redquorum %s\n", strings.Join(p.words, " "))
		writePlain(&b, p.text)
		for _, f := range p.flags {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(strings.TrimSpace(f.name+" "+f.value)), roff(f.usage))
		}
	}
	return b.String()
}

// writePlain writes text as it is.
func writePlain(b *strings.Builder, text string) {
	b.WriteString(".nf\n")
	for line := range strings.Lines(strings.TrimSpace(text) + "\n") {
		b.WriteString(roff(strings.ReplaceAll(line, "\t", "    ")))
	}
	b.WriteString(".fi\n")
}

// roff escapes a line.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}
