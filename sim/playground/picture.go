package main

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/sim"
)

// forgets is a plan in which a node restarts and forgets a lock: with textbook Redlock
// two clients then have it.
const forgets = `redquorum plan 1
nodes 3
clients 2
length 2s
lock lease=1s maxlease=1s timeout=50ms poll=250ms renew=off
network delay=1ms
at 0s cut c1-n3
at 0s cut c2-n1
at 50ms lock c1 x
at 250ms crash n2 empty for 10ms
at 480ms lock c2 x
`

// Times and pixels of the picture.
const (
	shown   = 1860 * time.Millisecond
	rounded = 10 * time.Millisecond // so that it does not change with each small change of the engine
	pixel   = 3 * time.Millisecond
	left    = 36 // of time 0
	width   = left + int(shown/pixel)
	panel   = 200 // the height of a run
)

type look struct {
	name, text, faint, wrong string
	clients                  [2]string
	inside                   string // of text in a bar
}

var looks = []look{
	{"light", "#1f2328", "#8c959f", "#cf222e", [2]string{"#0969da", "#bc4c00"}, "#ffffff"},
	{"dark", "#e6edf3", "#7d8590", "#f85149", [2]string{"#58a6ff", "#f0883e"}, "#0d1117"},
}

func pictures(dir string) error {
	for _, l := range looks {
		text, err := l.draw()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "restart-"+l.name+".svg"), []byte(text), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// A bar is a client's hold of the lock, or a client's key on a node; until is 0 while it
// is open.
type bar struct {
	lane, client int
	from, until  time.Duration
}

var lanes = []string{"c1", "c2", "n1", "n2", "n3"}

type strip struct {
	bars    []bar
	crash   time.Duration // of n2
	ignored bar           // n2, after it
	waits   bar           // c2
	both    bar           // two clients have the lock

	owners map[string]int // clients by the owner names of their attempts
	open   []bar          // by lane
}

func stripOf(variant string) (*strip, error) {
	p, err := faults.Parse(forgets)
	if err != nil {
		return nil, err
	}
	v, _ := sim.FindVariant(variant)
	r := sim.Run(v.Of(p), nil, sim.WithTrace(), sim.JudgedBy("I13")) // a run goes on after two have had the lock
	s := &strip{owners: make(map[string]int), open: make([]bar, len(lanes))}
	for i := range r.Trace.Entries {
		if e := &r.Trace.Entries[i]; e.At < shown {
			s.add(e, p.Lock.MaxLease)
		}
	}
	for lane := range lanes {
		s.end(lane, shown)
	}
	return s, nil
}

func (s *strip) add(e *sim.Entry, maxLease time.Duration) {
	at := e.At.Round(rounded)
	if e.Client >= 0 && e.Owner != "" {
		s.owners[e.Owner] = e.Client
	}
	switch e.Kind {
	case sim.KindBelief:
		s.open[e.Client] = bar{e.Client, e.Client, at, shown}
		if e.Client == 1 {
			s.waits.until = at
		}
		if other := s.open[1-e.Client]; other.until > at {
			s.both = bar{from: at, until: other.until}
		}
	case sim.KindBeliefEnd:
		s.end(e.Client, at)
		s.both.until = min(s.both.until, at)
	case sim.KindKey:
		s.end(2+e.Node, at)
		if e.Owner != "" {
			s.open[2+e.Node] = bar{2 + e.Node, s.owners[e.Owner], at, min(e.Until.Round(rounded), shown)}
		}
	case sim.KindFault:
		if strings.HasPrefix(e.Text, "crash") {
			s.crash = at
		}
	case sim.KindStep:
		s.waits = bar{lane: e.Client, client: e.Client, from: at} // c2's comes last
	case sim.KindEngine:
		if e.Text == quorum.EventNodeAbstains.String() {
			s.ignored = bar{lane: 2 + e.Node, from: s.crash, until: s.crash + maxLease}
		}
	}
}

func (s *strip) end(lane int, at time.Duration) {
	if b := s.open[lane]; b.until > 0 {
		b.until = min(b.until, at)
		s.bars = append(s.bars, b)
	}
	s.open[lane] = bar{}
}

func (l *look) draw() (string, error) {
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" `+
		`font-family="system-ui, sans-serif" font-size="16">`+"\n", width, 2*panel-16)
	out.WriteString("<title>A server forgets a lock: textbook Redlock has two holders, redquorum one.</title>\n")
	for i, variant := range []string{"plain", "redquorum"} {
		s, err := stripOf(variant)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, `<g transform="translate(0 %d)">`+"\n", i*panel)
		l.strip(&out, s)
		out.WriteString("</g>\n")
	}
	out.WriteString("</svg>\n")
	return out.String(), nil
}

func (l *look) strip(out *strings.Builder, s *strip) {
	x := func(at time.Duration) int { return left + int(at/pixel) }
	y := func(lane int) int { return 34 + lane*30 }
	words := func(x, y int, color, text string) {
		fmt.Fprintf(out, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", x, y, color, html.EscapeString(text))
	}
	frame := func(b bar, high int, color string) {
		if b.until > 0 {
			fmt.Fprintf(out, `<rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="none" `+
				`stroke="%s" stroke-width="2" stroke-dasharray="5 3"/>`+"\n",
				x(b.from), y(b.lane)-4, x(b.until)-x(b.from), high, color)
		}
	}
	if s.both.until > 0 {
		words(0, 18, l.wrong, "Textbook Redlock: n2 restarts and forgets c1's lock. Two clients have it.")
	} else {
		words(0, 18, l.text, "redquorum: n2 is ignored until what it forgot is over. c2 waits.")
	}
	for lane, name := range lanes {
		words(6, y(lane)+15, l.text, name)
		fmt.Fprintf(out, `<path d="M%d %dH%d" stroke="%s" stroke-dasharray="1 5"/>`+"\n", left, y(lane)+10, width,
			l.faint)
	}
	frame(s.ignored, 28, l.text)
	for _, b := range s.bars {
		fmt.Fprintf(out, `<rect x="%d" y="%d" width="%d" height="20" rx="3" fill="%s"/>`+"\n",
			x(b.from), y(b.lane), x(b.until)-x(b.from), l.clients[b.client])
		if b.lane < 2 {
			words(x(b.from)+8, y(b.lane)+15, l.inside, "has the lock")
		}
	}
	if s.waits.until-s.waits.from > 100*time.Millisecond {
		words(x(s.waits.from), y(s.waits.lane)+15, l.clients[s.waits.client], "waits")
	}
	frame(s.both, 58, l.wrong)
	fmt.Fprintf(out, `<path d="M%d %dv20" stroke="%s" stroke-width="3"/>`+"\n", x(s.crash), y(3), l.text)
	words(x(s.crash)+6, y(3)+15, l.text, "restarts")
}
