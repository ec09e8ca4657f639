package faults

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Parse reads a plan. Settings that are left out are as in [New]. An error names the
// line, what was wanted, and what was found.
func Parse(text string) (*Plan, error) {
	p, line, err := parse(text)
	switch {
	case err == nil:
		return p, nil
	case line > 0:
		return p, fmt.Errorf("plan, line %d: %w", line, err)
	}
	return p, fmt.Errorf("plan: %w", err)
}

// parse returns the line of an error, or 0 if that is about no line.
func parse(text string) (p *Plan, line int, err error) {
	r := reader{p: New(5, 3), told: make(map[string]int)}
	p = r.p
	p.Lock.MaxLease = 0 // until it is known whether the plan tells
	headed := false
	for line := range strings.Lines(text) {
		r.line++
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case headed:
			err = r.read(words)
		case len(words) != 3 || words[0] != "redquorum" || words[1] != "plan":
			err = fmt.Errorf("want \"redquorum plan %d\", have %q", Format, strings.TrimSpace(line))
		case words[2] != strconv.Itoa(Format):
			err = fmt.Errorf("this program reads format %d, not %s", Format, words[2])
		default:
			headed = true
		}
		if err != nil {
			return nil, r.line, err
		}
	}
	if !headed {
		return nil, 0, fmt.Errorf("it is empty; the first line must be \"redquorum plan %d\"", Format)
	}
	if p.Lock.MaxLease == 0 {
		p.Lock.MaxLease = max(New(5, 3).Lock.MaxLease, p.Lock.Lease)
	}
	slices.SortStableFunc(r.events, func(a, b read) int { return cmp.Compare(a.At, b.At) })
	for _, e := range r.events {
		p.Events = append(p.Events, e.Event)
	}
	if wrong := p.check(); wrong != nil {
		return p, r.where(wrong), wrong.err
	}
	return p, 0, nil
}

type reader struct {
	p      *Plan
	line   int
	told   map[string]int // the lines of settings, by their words
	events []read
}

type read struct {
	Event
	line int
}

func (r *reader) where(w *wrong) (line int) {
	for _, setting := range w.settings {
		line = max(line, r.told[setting])
	}
	if w.settings == nil {
		line = r.events[w.event].line
	}
	return line
}

func (r *reader) tell(setting string) error {
	if r.told[setting] > 0 {
		return fmt.Errorf("%q is there already", setting)
	}
	r.told[setting] = r.line
	return nil
}

func (r *reader) read(words []string) error {
	key, rest := words[0], words[1:]
	if key == "at" {
		e, err := parseEvent(rest)
		r.events = append(r.events, read{e, r.line})
		return err
	}
	for _, b := range r.p.blocks() {
		if b.key == key {
			return r.settings(b, rest)
		}
	}
	for _, f := range r.p.scalars() {
		if f.key == key {
			if len(rest) != 1 {
				return fmt.Errorf("want one value after %q, have %q", key, strings.Join(rest, " "))
			}
			if err := r.tell(key); err != nil {
				return err
			}
			return f.set(rest[0])
		}
	}
	known := []string{"at"}
	for _, b := range r.p.blocks() {
		known = append(known, b.key)
	}
	return unknown("word", key, append(known, keys(r.p.scalars())...))
}

func keys(fields []field) (keys []string) {
	for _, f := range fields {
		keys = append(keys, f.key)
	}
	return keys
}

func (r *reader) settings(b block, words []string) error {
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			return fmt.Errorf("%s: want word=value, have %q", b.key, w)
		}
		i := slices.IndexFunc(b.fields, func(f field) bool { return f.key == key })
		if i < 0 {
			return fmt.Errorf("%s: %w", b.key, unknown("setting", key, keys(b.fields)))
		}
		if err := r.tell(b.key + " " + key); err != nil {
			return err
		}
		if err := b.fields[i].set(value); err != nil {
			return fmt.Errorf("%s %s: %w", b.key, key, err)
		}
	}
	return nil
}

// A field is how to read and write one setting.
type field struct {
	key string
	set func(string) error
	get func() string
}

type block struct {
	key    string
	fields []field
}

func (p *Plan) scalars() []field {
	return []field{
		{"seed", func(s string) (err error) {
			if p.Seed, err = strconv.ParseUint(s, 10, 64); err != nil {
				return fmt.Errorf("want a number from 0 to 2^64-1, have %q", s)
			}
			return nil
		}, func() string { return strconv.FormatUint(p.Seed, 10) }},
		number("nodes", &p.Nodes), number("clients", &p.Clients), duration("length", &p.Length),
	}
}

func (p *Plan) blocks() []block {
	l, w := &p.Lock, &p.Work
	return []block{
		{"lock", []field{
			word("client", &l.Client, Redquorum, Plain), duration("lease", &l.Lease), duration("maxlease", &l.MaxLease),
			duration("timeout", &l.Timeout),
			duration("poll", &l.Poll), duration("grace", &l.Grace), ratio("drift", &l.Drift),
			onOff("guard", &l.Guard), onOff("renew", &l.Renew), duration("maxhold", &l.MaxHold),
			unless(l.MaxDown == 0, duration("maxdown", &l.MaxDown)), onOff("fence", &l.Fence),
			unless(l.Need == 0, number("need", &l.Need)), unless(l.Replicas == 0, number("replicas", &l.Replicas)),
			{"mistake", func(s string) error {
				if l.Mistake = Mistake(s); Mistakes[l.Mistake] == "" {
					return fmt.Errorf("want a known mistake, have %q", s)
				}
				return nil
			}, func() string { return string(l.Mistake) }},
		}},
		{"work", []field{
			number("names", &w.Names), number("tasks", &w.Tasks), ranged("hold", &w.Hold),
			share("expiring", &w.Expiring), share("late", &w.Late), ranged("think", &w.Think),
			unless(w.Step == 0, duration("step", &w.Step)),
			share("try", &w.Try), share("fixed", &w.Fixed), share("long", &w.Long), rare("short", &w.Short),
			share("extend", &w.Extend),
			share("cancel", &w.Cancel), share("nest", &w.Nest), share("close", &w.Close), share("drop", &w.Drop),
			rare("hand", &w.Hand), rare("handle", &w.Handle), rare("break", &w.Break),
			rare("inspect", &w.Inspect), rare("bound", &w.Bound), rare("minhold", &w.MinHold), rare("label", &w.Label),
			rare("odd", &w.Odd),
			rare("read", &w.Read), rare("write", &w.Write),
			rare("down", &w.Down), rare("fair", &w.Fair),
			rare("several", &w.Several), rare("joint", &w.Joint),
			rare("chain", &w.Chain),
		}},
		{"network", []field{ranged("delay", &p.Network.Delay)}},
		{"assume", []field{ratio("drift", &p.Assume.Drift)}},
	}
}

func unless(out bool, f field) field {
	if out {
		f.get = func() string { return "" }
	}
	return f
}

func number(key string, n *int) field {
	return field{key, func(s string) error {
		v, err := strconv.Atoi(s)
		if err != nil || v < 0 {
			return fmt.Errorf("want a number, have %q", s)
		}
		*n = v
		return nil
	}, func() string { return strconv.Itoa(*n) }}
}

// word is one of the known ones.
func word[T ~string](key string, to *T, known ...T) field {
	return field{key, func(s string) error {
		if *to = T(s); slices.Contains(known, *to) {
			return nil
		}
		want := string(known[0])
		for _, w := range known[1 : len(known)-1] {
			want += ", " + string(w)
		}
		return fmt.Errorf("want %s or %s, have %q", want, known[len(known)-1], s)
	}, func() string { return string(*to) }}
}

func onOff(key string, on *bool) field {
	text := "off"
	if *on {
		text = "on"
	}
	f := word(key, &text, "on", "off")
	return field{key, func(s string) error { err := f.set(s); *on = s == "on"; return err }, f.get}
}

func duration(key string, d *time.Duration) field {
	return field{key, func(s string) (err error) { *d, err = parseDuration(s); return err },
		func() string { return formatDuration(*d) }}
}

func ranged(key string, r *Range) field {
	return field{key, func(s string) (err error) { *r, err = parseRange(s); return err }, r.String}
}

func ratio(key string, r *Ratio) field {
	return field{key, func(s string) (err error) { *r, err = parseRatio(s); return err }, r.String}
}

func share(key string, r *Ratio) field {
	return field{key, func(s string) (err error) {
		if *r, err = parseRatio(s); err == nil && (*r < 0 || *r > Percent(100)) {
			err = fmt.Errorf("want 0%% to 100%%, have %q", s)
		}
		return err
	}, r.String}
}

func rare(key string, r *Ratio) field { return unless(*r == 0, share(key, r)) }

// formatDuration leaves out the zero units at the end of time.Duration's text.
func formatDuration(d time.Duration) string {
	s := d.String()
	if d != 0 && d%time.Minute == 0 {
		s = strings.TrimSuffix(s, "0s")
	}
	if d != 0 && d%time.Hour == 0 {
		s = strings.TrimSuffix(s, "0m")
	}
	return strings.ReplaceAll(s, "µs", "us")
}

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d > MaxLength || d < -MaxLength {
		return 0, fmt.Errorf("want a time such as 10ms, at most %s, have %q", formatDuration(MaxLength), s)
	}
	return d, nil
}

func parseRange(s string) (r Range, err error) {
	low, high, two := strings.Cut(s, "..")
	if r.Min, err = parseDuration(low); err != nil {
		return r, err
	}
	r.Max = r.Min
	if two {
		r.Max, err = parseDuration(high)
	}
	if err == nil && (r.Min < 0 || r.Max < r.Min) {
		err = fmt.Errorf("want a range such as 1ms..5ms, have %q", s)
	}
	return r, err
}

func (r Range) String() string {
	if r.Min == r.Max {
		return formatDuration(r.Min)
	}
	return formatDuration(r.Min) + ".." + formatDuration(r.Max)
}

// parseRatio reads a percentage with up to four decimals, without floating point.
func parseRatio(s string) (Ratio, error) {
	bad := fmt.Errorf("want a percentage such as 0.5%%, have %q", s)
	digits, ok := strings.CutSuffix(s, "%")
	if !ok {
		return 0, bad
	}
	digits, negative := strings.CutPrefix(digits, "-")
	digits = strings.TrimPrefix(digits, "+")
	whole, part, _ := strings.Cut(digits, ".")
	if len(part) > 4 || whole == "" {
		return 0, bad
	}
	v, err := strconv.ParseUint(whole+part+"0000"[len(part):], 10, 32)
	if err != nil {
		return 0, bad
	}
	if negative {
		return -Ratio(v), nil
	}
	return Ratio(v), nil
}

func (r Ratio) String() string {
	sign, v := "", int64(r)
	if v < 0 {
		sign, v = "-", -v
	}
	s := fmt.Sprintf("%s%d.%04d", sign, v/10_000, v%10_000)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".") + "%"
}

// width is the most columns of a line with several settings.
const width = 80

// String writes the plan as Parse reads it.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "redquorum plan %d\n", Format)
	for _, f := range p.scalars() {
		fmt.Fprintf(&b, "%s %s\n", f.key, f.get())
	}
	for _, bl := range p.blocks() {
		line := bl.key
		for _, f := range bl.fields {
			value := f.get()
			if value == "" {
				continue
			}
			setting := " " + f.key + "=" + value
			if len(line)+len(setting) > width {
				b.WriteString(line + "\n")
				line = bl.key
			}
			line += setting
		}
		b.WriteString(line + "\n")
	}
	for _, e := range p.Events {
		fmt.Fprintf(&b, "at %s\n", e)
	}
	return b.String()
}
