package nodetest

import (
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The README of testdata says what the rules' words mean.
//
//go:embed testdata/*.txt
var testdata embed.FS

// A rule is a sentence, and the commands and answers that show it.
type rule struct {
	sentence string
	lines    []line
}

type line struct {
	number int
	words  []string
}

// parseRules also returns the modes in which a file's rules are played.
func parseRules(text string) (in []string, rules []rule, err error) {
	var r rule
	for i, text := range append(strings.Split(text, "\n"), "") {
		words, err := split(text)
		comment, is := strings.CutPrefix(text, "#")
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("line %d: %w", i+1, err)
		case text == "" && len(r.lines) > 0:
			rules = append(rules, r)
			fallthrough
		case text == "":
			r = rule{}
		case is && len(r.lines) == 0 && !strings.HasSuffix(r.sentence, "."):
			r.sentence = strings.TrimSpace(r.sentence + comment)
		case len(words) > 0 && words[0] == "modes":
			in = words[1:]
		case len(words) > 0:
			r.lines = append(r.lines, line{i + 1, words})
		}
		if len(r.lines) == 1 && (len(in) == 0 || r.sentence == "") {
			return nil, nil, fmt.Errorf("line %d: it has no sentence above it, or the file no modes", i+1)
		}
	}
	return in, rules, nil
}

// Run requires of an implementation everything that package node says. open returns a
// node on a server without keys; Run closes it.
func Run(t *testing.T, open func(t *testing.T) System) {
	entries, err := testdata.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		text, err := testdata.ReadFile("testdata/" + entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		in, rules, err := parseRules(string(text))
		if err != nil {
			t.Fatalf("%s: %v", entry.Name(), err)
		}
		for _, mode := range in {
			t.Run(strings.TrimSuffix(entry.Name(), ".txt")+", "+mode, func(t *testing.T) {
				for _, r := range rules {
					t.Run(r.sentence, func(t *testing.T) {
						err := r.each(func(lines []line) error {
							s := open(t)
							p := newPlayer(s, modes[mode])
							err := errors.Join(s.connect(), p.all(lines))
							return errors.Join(err, s.Node.Close())
						})
						if err != nil {
							t.Errorf("testdata/%s:%v", entry.Name(), err)
						}
					})
				}
			})
		}
	}
	for _, r := range goRules {
		t.Run("Go/"+r.sentence, func(t *testing.T) {
			f := fixture{t, open(t)}
			f.must(f.connect())
			r.test(f)
			f.must(f.Node.Close())
		})
	}
}

// Play plays the rules of a text, each on a server whose keys it removes, such as a
// difference that Differential has reported. A TTL may differ by the system's Slack.
func Play(s System, text string) error {
	in, rules, err := parseRules(text)
	if err != nil {
		return err
	}
	for _, mode := range in {
		for _, r := range rules {
			err := r.each(func(lines []line) error {
				p := newPlayer(s, modes[mode])
				p.early, p.late = s.Slack, s.Slack
				return errors.Join(s.connect(), s.Do("FLUSHALL"), p.all(lines))
			})
			if err != nil {
				return fmt.Errorf("%s: line %w", s.Name, err)
			}
		}
	}
	return nil
}

// each plays a rule once for each value of its variables.
func (r rule) each(play func([]line) error) error {
	first := r.lines[0].words
	if first[0] != "for" || slices.Contains(first, "do") {
		return play(r.lines)
	}
	variants, _, err := variants(first)
	for i := 0; i < len(variants) && err == nil; i++ {
		var lines []line
		for _, l := range r.lines[1:] {
			lines = append(lines, line{l.number, variants[i](l.words)})
		}
		err = play(lines)
	}
	return err
}

func (p *player) all(lines []line) error {
	defer p.end()
	for _, l := range lines {
		if err := p.play(l.words); errors.Is(err, errSkip) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%d: %w", l.number, err)
		}
	}
	if tables := len(p.names) > 0; tables {
		p.names = nil
		if late, err := p.hear(0); err != nil || len(late) > 0 {
			return fmt.Errorf("at the end of the rule: heard %+v (%v)", late, err)
		}
	}
	return nil
}
