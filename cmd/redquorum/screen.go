package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/terminal"
)

// A screen shows a picture that is redrawn on a terminal, and lines elsewhere.
type screen struct {
	w    io.Writer
	live bool
	painter
	nodes    int
	every    time.Duration
	lines    int       // of the last picture
	told     int       // messages that were printed as lines
	lastLine time.Time // when the last line about the count was printed
}

func newScreen(w io.Writer, nodes int) *screen {
	const least = 60 // columns of a picture
	s := &screen{w: w, live: terminal.Is(w) && terminal.Columns(w) >= least, nodes: nodes,
		every: 100 * time.Millisecond}
	s.painter = newPainter(w)
	return s
}

const (
	green  = "32"
	yellow = "33"
	red    = "31"
	bold   = "1"
	dim    = "2"
)

type painter bool

// newPainter colors what goes to a terminal, unless the user wants no color.
func newPainter(w io.Writer) painter { return painter(terminal.Is(w) && os.Getenv("NO_COLOR") == "") }

func (p painter) paint(code, text string) string {
	if !p || code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// draw is called with d.mu held.
func (s *screen) draw(d *demo) {
	if !s.live {
		s.tell(d)
		return
	}
	var b strings.Builder
	line := func(format string, args ...any) {
		fmt.Fprintf(&b, format, args...)
		b.WriteString("\x1b[K\n")
		s.lines++
	}
	if s.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.lines)
	}
	s.lines = 0
	line("%s  %d workers, %d nodes, one lock, lease %v    %4.1fs", s.paint(bold, "redquorum demo"), demoWorkers,
		s.nodes,
		demoLease, time.Since(d.start).Seconds())
	line("")
	if d.report != nil {
		for i, state := range nodeStates(d.report) {
			code := map[byte]string{'h': green, 'f': green, 's': red}[state[0]]
			if code == "" {
				code = yellow
			}
			mark := map[string]string{green: "●", red: "✗", yellow: "◐"}[code]
			line("  %s", s.paint(code, fmt.Sprintf("%s node %d    %s", mark, i+1, state)))
		}
	}
	line("")
	for i, n := range d.done {
		mark, text := " ", strings.Repeat("▪", min(n/2, 40))
		switch {
		case d.asleep[i]:
			mark, text = s.paint(yellow, "z"), s.paint(yellow, text)
		case d.holder == i:
			mark, text = s.paint(green, "▶"), s.paint(green, text)
		}
		line("  %s worker %d %5d %s", mark, i+1, n, text)
	}
	line("")
	line("  number %s    token %s", s.paint(bold, fmt.Sprint(d.number)), s.paint(dim, fmt.Sprint(d.fence)))
	line("")
	const shown = 6
	var last []string
	for _, m := range d.messages {
		last = append(last, strings.Split(terminal.Wrap(min(terminal.Page, terminal.Columns(s.w))-2, m, messageIndent),
			"\n")...)
	}
	last = last[max(0, len(last)-shown):]
	for i := range shown {
		text := ""
		if i < len(last) {
			text = last[i]
		}
		line("  %s", terminal.Cut(text, terminal.Page-2))
	}
	_, _ = io.WriteString(s.w, b.String())
}

// tell prints news, and the state once a second.
func (s *screen) tell(d *demo) {
	for _, m := range d.messages[s.told:] {
		fmt.Fprintln(s.w, terminal.Wrap(terminal.PageOf(s.w), m, messageIndent))
	}
	s.told = len(d.messages)
	if time.Since(s.lastLine) < time.Second || d.report == nil {
		return
	}
	s.lastLine = time.Now()
	fmt.Fprintf(s.w, "%5.1fs  number %d, token %d; %s\n", time.Since(d.start).Seconds(), d.number, d.fence,
		nodeHealth(d.report))
}

// messageIndent puts a message's further lines below its text, after the time.
const messageIndent = "        "

func (s *screen) begin(text string) {
	fmt.Fprintf(s.w, "%s\n\n", terminal.Wrap(terminal.PageOf(s.w), text, ""))
}

func (s *screen) end(lines ...string) (err error) {
	for _, l := range lines {
		_, failed := fmt.Fprintln(s.w, s.paint(bold, terminal.Wrap(terminal.PageOf(s.w), l, "")))
		err = cmp.Or(err, failed)
	}
	return err
}
