package faults

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Parse reads a plan. What is left out is as in [New]. An error names the line,
// what was wanted, and what was there.
func Parse(text string) (*Plan, error) {
	r := reader{p: New(5, 3), told: make(map[string]int)}
	p := r.p
	p.Lock.MaxLease = 0 // until it is known whether the plan tells
	headed := false
	for line := range strings.Lines(text) {
		r.line++
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if !headed {
			if len(words) != 3 || words[0] != "redquorum" || words[1] != "plan" {
				return nil, fmt.Errorf("plan, line %d: want \"redquorum plan %d\", have %q", r.line, Format, strings.TrimSpace(line))
			}
			if words[2] != strconv.Itoa(Format) {
				return nil, fmt.Errorf("plan, line %d: this program reads format %d, not %s", r.line, Format, words[2])
			}
			headed = true
			continue
		}
		if err := r.read(words); err != nil {
			return nil, fmt.Errorf("plan, line %d: %w", r.line, err)
		}
	}
	if !headed {
		return nil, fmt.Errorf("plan: it is empty; the first line must be \"redquorum plan %d\"", Format)
	}
	if p.Lock.MaxLease == 0 {
		p.Lock.MaxLease = max(New(5, 3).Lock.MaxLease, p.Lock.Lease)
	}
	slices.SortStableFunc(r.events, func(a, b read) int { return cmp.Compare(a.At, b.At) })
	for _, e := range r.events {
		p.Events = append(p.Events, e.Event)
	}
	if wrong := p.check(); wrong != nil {
		return p, fmt.Errorf("plan%s: %w", r.where(wrong), wrong.err)
	}
	return p, nil
}

// A reader is a plan that is being read.
type reader struct {
	p      *Plan
	line   int
	told   map[string]int // the lines of settings, by their words
	events []read
}

// A read event is one with its line.
type read struct {
	Event
	line int
}

// where names the line of what is wrong, if it is one.
func (r *reader) where(w *wrong) string {
	line := 0
	for _, setting := range w.settings {
		line = max(line, r.told[setting])
	}
	if w.settings == nil {
		line = r.events[w.event].line
	}
	if line == 0 {
		return ""
	}
	return fmt.Sprintf(", line %d", line)
}

// tell notes that a setting is on this line.
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
	return fmt.Errorf("unknown word %q", key)
}

// settings reads the words of a block.
func (r *reader) settings(b block, words []string) error {
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			return fmt.Errorf("%s: want word=value, have %q", b.key, w)
		}
		i := slices.IndexFunc(b.fields, func(f field) bool { return f.key == key })
		if i < 0 {
			return fmt.Errorf("%s: unknown setting %q", b.key, key)
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

// A field is one setting: its word, how to read it and how to write it.
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
			{"client", func(s string) error {
				if l.Client = Client(s); l.Client != Redquorum && l.Client != Plain {
					return fmt.Errorf("want %s or %s, have %q", Redquorum, Plain, s)
				}
				return nil
			}, func() string { return string(l.Client) }},
			duration("lease", &l.Lease), duration("maxlease", &l.MaxLease), duration("timeout", &l.Timeout),
			duration("poll", &l.Poll), duration("grace", &l.Grace), ratio("drift", &l.Drift),
			onOff("guard", &l.Guard), onOff("renew", &l.Renew), duration("maxhold", &l.MaxHold), onOff("fence", &l.Fence),
			unless(l.Need == 0, number("need", &l.Need)),
			{"mistake", func(s string) error {
				if l.Mistake = Mistake(s); Mistakes[l.Mistake] == "" {
					return fmt.Errorf("want a known mistake, have %q", s)
				}
				return nil
			}, func() string { return string(l.Mistake) }},
		}},
		{"work", []field{
			number("names", &w.Names), number("tasks", &w.Tasks), ranged("hold", &w.Hold), ranged("think", &w.Think),
			share("try", &w.Try), share("fixed", &w.Fixed), share("long", &w.Long), share("extend", &w.Extend),
			share("cancel", &w.Cancel), share("nest", &w.Nest), share("close", &w.Close), share("drop", &w.Drop),
			unless(w.Read == 0, share("read", &w.Read)), unless(w.Write == 0, share("write", &w.Write)),
			unless(w.Down == 0, share("down", &w.Down)), unless(w.Fair == 0, share("fair", &w.Fair)),
			unless(w.Several == 0, share("several", &w.Several)), unless(w.Joint == 0, share("joint", &w.Joint)),
			unless(w.Chain == 0, share("chain", &w.Chain)),
		}},
		{"network", []field{ranged("delay", &p.Network.Delay)}},
		{"assume", []field{ratio("drift", &p.Assume.Drift)}},
	}
}

// unless leaves a field out of what is written.
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

func onOff(key string, b *bool) field {
	return field{key, func(s string) error {
		if s != "on" && s != "off" {
			return fmt.Errorf("want on or off, have %q", s)
		}
		*b = s == "on"
		return nil
	}, func() string {
		if *b {
			return "on"
		}
		return "off"
	}}
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

// formatDuration writes d as time.Duration does, without the zero units at the end.
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

// parseRatio reads a percentage, to four digits after the point, without
// floating point.
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

// String writes the plan as Parse reads it.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "redquorum plan %d\n", Format)
	for _, f := range p.scalars() {
		fmt.Fprintf(&b, "%s %s\n", f.key, f.get())
	}
	for _, bl := range p.blocks() {
		b.WriteString(bl.key)
		for _, f := range bl.fields {
			if value := f.get(); value != "" {
				fmt.Fprintf(&b, " %s=%s", f.key, value)
			}
		}
		b.WriteByte('\n')
	}
	for _, e := range p.Events {
		fmt.Fprintf(&b, "at %s\n", e)
	}
	return b.String()
}

// An argument is one word of an event after its target.
type argument struct {
	optional bool
	fits     func(string) bool // whether a word can be this one, or else the next; nil if it must be
	want     string
	set      func(*Event, string) error
	get      func(*Event) string // "" if it is left out
}

var arguments = map[Verb][]argument{
	Delay:     {rangeArg},
	Loss:      {ratioArg},
	Duplicate: {ratioArg, rangeArg},
	Reorder:   {ratioArg},
	Hold:      {kindArg, countArg},
	Crash:     {modeArg},
	Slow:      {rangeArg},
	Skew:      {offsetArg},
	Step:      {offsetArg},
	Rate:      {ratioArg},
	Strobe:    {offsetArg, everyArg},
	DoLock:    {nameArg, leaseArg, asArg},
	DoTry:     {nameArg, leaseArg, asArg},
	DoExtend:  {offsetArg},
	DoWrite:   {lateArg},
	View:      {nodesArg},
}

var (
	rangeArg = argument{want: "a time, or a range of times",
		set: func(e *Event, s string) (err error) { e.Range, err = parseRange(s); return err },
		get: func(e *Event) string { return e.Range.String() }}
	lateArg = argument{optional: true, want: "how much later it arrives",
		set: rangeArg.set,
		get: func(e *Event) string {
			if e.Range == (Range{}) {
				return ""
			}
			return e.Range.String()
		}}
	nodesArg = argument{want: "nodes",
		set: func(e *Event, s string) (err error) { e.Procs.Nodes, err = parseSet('n', s); return err },
		get: func(e *Event) string { return e.Procs.Nodes.text('n') }}
	ratioArg = argument{want: "a percentage",
		set: func(e *Event, s string) (err error) { e.Ratio, err = parseRatio(s); return err },
		get: func(e *Event) string { return e.Ratio.String() }}
	offsetArg = argument{want: "a time",
		set: func(e *Event, s string) (err error) { e.Offset, err = parseDuration(s); return err },
		get: func(e *Event) string { return formatDuration(e.Offset) }}
	everyArg = argument{want: "a period",
		set: func(e *Event, s string) (err error) { e.Every, err = parseDuration(s); return err },
		get: func(e *Event) string { return formatDuration(e.Every) }}
	modeArg = argument{want: "durable, second, empty or replica",
		set: func(e *Event, s string) error {
			if e.Mode = Mode(s); e.Mode != Durable && e.Mode != Second && e.Mode != Empty && e.Mode != Replica {
				return fmt.Errorf("want durable, second, empty or replica, have %q", s)
			}
			return nil
		},
		get: func(e *Event) string { return string(e.Mode) }}
	kindArg = argument{optional: true, want: "acquire, release or extend", fits: func(s string) bool { _, err := strconv.Atoi(s); return err != nil },
		set: func(e *Event, s string) error {
			if e.Kind = s; s != "acquire" && s != "release" && s != "extend" {
				return fmt.Errorf("want acquire, release or extend, have %q", s)
			}
			return nil
		},
		get: func(e *Event) string { return e.Kind }}
	countArg = argument{optional: true, want: "how many",
		set: func(e *Event, s string) error {
			n, err := strconv.Atoi(s)
			if err != nil || n < 1 {
				return fmt.Errorf("want how many, have %q", s)
			}
			e.Count = n
			return nil
		},
		get: func(e *Event) string {
			if e.Count == 0 {
				return ""
			}
			return strconv.Itoa(e.Count)
		}}
	nameArg = argument{want: "the name of a lock",
		set: func(e *Event, s string) error { e.Name = s; return nil },
		get: func(e *Event) string { return e.Name }}
	asArg = argument{optional: true, want: "read, write or fair",
		set: func(e *Event, s string) error {
			if e.As = As(s); e.As != ToRead && e.As != ToWrite && e.As != Fairly {
				return fmt.Errorf("want read, write or fair, have %q", s)
			}
			return nil
		},
		get: func(e *Event) string { return string(e.As) }}
	leaseArg = argument{optional: true, want: "lease=1s or fixed=1s", fits: func(s string) bool { return strings.Contains(s, "=") },
		set: func(e *Event, s string) (err error) {
			key, value, _ := strings.Cut(s, "=")
			if key != "lease" && key != "fixed" {
				return fmt.Errorf("want lease=1s or fixed=1s, have %q", s)
			}
			e.Fixed = key == "fixed"
			e.Lease, err = parseDuration(value)
			if err == nil && e.Lease <= 0 {
				err = fmt.Errorf("want a lease of more than 0, have %q", s)
			}
			return err
		},
		get: func(e *Event) string {
			switch {
			case e.Lease == 0:
				return ""
			case e.Fixed:
				return "fixed=" + formatDuration(e.Lease)
			}
			return "lease=" + formatDuration(e.Lease)
		}}
)

// parseEvent reads what comes after "at": TIME VERB TARGET ARGUMENTS [for TIME].
func parseEvent(words []string) (e Event, err error) {
	if len(words) < 2 {
		return e, fmt.Errorf("want at TIME VERB TARGET, have \"at %s\"", strings.Join(words, " "))
	}
	if e.At, err = parseDuration(words[0]); err != nil {
		return e, err
	}
	e.Verb = Verb(words[1])
	about, ok := groups[e.Verb]
	if !ok {
		return e, fmt.Errorf("unknown verb %q", words[1])
	}
	words = words[2:]
	if i := slices.Index(words, "for"); i >= 0 {
		if i != len(words)-2 {
			return e, fmt.Errorf("want a time after \"for\", at the end, have %q", strings.Join(words[i+1:], " "))
		}
		if e.For, err = parseDuration(words[i+1]); err != nil {
			return e, err
		}
		if e.For <= 0 {
			return e, fmt.Errorf("want a time of more than 0 after \"for\", have %s", words[i+1])
		}
		words = words[:i]
	}
	switch {
	case about == onLinks && e.Verb == Heal && len(words) == 0:
		e.Links = Links{All, All, Both}
	case len(words) == 0:
		return e, fmt.Errorf("%s: want a target", e.Verb)
	case about == onLinks:
		e.Links, err = parseLinks(words[0])
		words = words[1:]
	default:
		e.Procs, err = parseProcs(words[0])
		words = words[1:]
	}
	if err != nil {
		return e, err
	}
	for _, a := range arguments[e.Verb] {
		if len(words) == 0 {
			if !a.optional {
				return e, fmt.Errorf("%s: want %s after the target", e.Verb, a.want)
			}
			break
		}
		if a.fits != nil && !a.fits(words[0]) {
			continue
		}
		if err := a.set(&e, words[0]); err != nil {
			return e, fmt.Errorf("%s: %w", e.Verb, err)
		}
		words = words[1:]
	}
	if len(words) > 0 {
		return e, fmt.Errorf("%s: nothing is known of %q", e.Verb, strings.Join(words, " "))
	}
	return e, nil
}

// String writes the event as Parse reads it, without the "at".
func (e Event) String() string { return formatDuration(e.At) + " " + e.Words() }

// Words writes the event without its time.
func (e Event) Words() string {
	words := []string{string(e.Verb)}
	switch {
	case groups[e.Verb] != onLinks:
		words = append(words, e.Procs.String())
	case e.Verb != Heal || e.Links != (Links{All, All, Both}):
		words = append(words, e.Links.String())
	}
	for _, a := range arguments[e.Verb] {
		if s := a.get(&e); s != "" {
			words = append(words, s)
		}
	}
	if e.For > 0 {
		words = append(words, "for", formatDuration(e.For))
	}
	return strings.Join(words, " ")
}

// parseLinks reads CLIENTS WAY NODES, such as c1-n4,n5 or c*>n3.
func parseLinks(s string) (l Links, err error) {
	i := strings.IndexAny(s, "-<>")
	if i < 0 {
		return l, fmt.Errorf("want links such as c1-n4,n5 or c*>n3, have %q", s)
	}
	l.Way = Way(s[i])
	if l.Clients, err = parseSet('c', s[:i]); err == nil {
		l.Nodes, err = parseSet('n', s[i+1:])
	}
	return l, err
}

func (l Links) String() string { return l.Clients.text('c') + string(l.Way) + l.Nodes.text('n') }

// parseProcs reads nodes or clients, such as n1,n3 or c*.
func parseProcs(s string) (p Procs, err error) {
	switch s[0] {
	case 'n':
		p.Nodes, err = parseSet('n', s)
	case 'c':
		p.Clients, err = parseSet('c', s)
	default:
		err = fmt.Errorf("want nodes or clients, such as n1,n3 or c2, have %q", s)
	}
	return p, err
}

func (p Procs) String() string {
	if p.Clients != 0 {
		return p.Clients.text('c')
	}
	return p.Nodes.text('n')
}

func parseSet(letter byte, s string) (set Set, err error) {
	if s == string(letter)+"*" {
		return All, nil
	}
	for word := range strings.SplitSeq(s, ",") {
		n := 0
		if len(word) > 1 && word[0] == letter {
			n, _ = strconv.Atoi(word[1:])
		}
		if n < 1 || n > MaxClients || strings.HasPrefix(word[1:], "+") {
			return 0, fmt.Errorf("want %c1, %c2 and so on, or %c*, have %q", letter, letter, letter, word)
		}
		set |= 1 << (n - 1)
	}
	return set, nil
}

func (s Set) text(letter byte) string {
	if s == All {
		return string(letter) + "*"
	}
	var words []string
	for i := range 64 {
		if s.Has(i) {
			words = append(words, string(letter)+strconv.Itoa(i+1))
		}
	}
	return strings.Join(words, ",")
}

// Check reports what is wrong with the plan: all that Parse would refuse.
func (p *Plan) Check() error {
	if p == nil {
		return errors.New("plan: there is none")
	}
	if wrong := p.check(); wrong != nil {
		return fmt.Errorf("plan: %w", wrong.err)
	}
	return nil
}

// A wrong is what is wrong with a plan: with settings, or with an event.
type wrong struct {
	settings []string
	event    int
	err      error
}

func (p *Plan) check() *wrong {
	w := func(settings, format string, args ...any) *wrong {
		return &wrong{settings: strings.Split(settings, ", "), err: fmt.Errorf(format, args...)}
	}
	if wrong := p.unreadable(); wrong != nil {
		return wrong
	}
	switch l := p.Lock; {
	case p.Nodes < 1 || p.Nodes > MaxNodes:
		return w("nodes", "nodes is %d; want 1 to %d", p.Nodes, MaxNodes)
	case p.Clients < 1 || p.Clients > MaxClients:
		return w("clients", "clients is %d; want 1 to %d", p.Clients, MaxClients)
	case p.Length <= 0:
		return w("length", "length is %s; want more than 0", formatDuration(p.Length))
	case p.Work.Names < 1 || p.Work.Names > MaxNames:
		return w("work names", "work names is %d; want 1 to %d", p.Work.Names, MaxNames)
	case p.Work.Tasks < 1 || p.Work.Tasks > MaxTasks:
		return w("work tasks", "work tasks is %d; want 1 to %d", p.Work.Tasks, MaxTasks)
	case l.Lease <= 0 || l.MaxLease < l.Lease || l.MaxLease > MaxLease:
		return w("lock lease, lock maxlease", "lock lease is %s and maxlease %s; want 0 < lease <= maxlease, and at most %s",
			formatDuration(l.Lease), formatDuration(l.MaxLease), formatDuration(MaxLease))
	case l.Timeout <= 0 || l.Poll < time.Millisecond || l.Grace < 0 || l.MaxHold < 0:
		return w("lock timeout, lock poll, lock grace, lock maxhold", "lock timeout, poll, grace and maxhold are %v, %v, %v and %v; want a timeout of more than 0, a poll of at least 1ms, and the others not negative", l.Timeout, l.Poll, l.Grace, l.MaxHold)
	case l.Client != Redquorum && l.Client != Plain:
		return w("lock client", "lock client: want %s or %s, have %q", Redquorum, Plain, l.Client)
	case l.Mistake != "" && Mistakes[l.Mistake] == "":
		return w("lock mistake", "lock mistake is %q, which is not known", l.Mistake)
	case l.Need != 0 && (l.Need <= p.Nodes/2 || l.Need > p.Nodes):
		return w("lock need, nodes", "lock need is %d; want more than half of %d nodes, and at most all, or 0", l.Need, p.Nodes)
	case p.Work.Read+p.Work.Write > Percent(100):
		return w("work read, work write", "work read and write are %s and %s; want at most 100%% together", p.Work.Read, p.Work.Write)
	case l.Client == Plain && (l.Need != 0 || p.Work.kinds()):
		return w("lock client", "a plain client has one kind of lock, and a majority")
	case l.Drift < 0 || l.Drift > Percent(40):
		return w("lock drift", "lock drift is %s; want 0%% to 40%%", l.Drift)
	case l.Client == Redquorum && l.Lease <= 2*l.allowance():
		return w("lock lease, lock drift", "lock lease is %s, of which %s are given up for the drift of clocks; want more than twice as much",
			formatDuration(l.Lease), formatDuration(l.allowance()))
	}
	for i, e := range p.Events {
		if err := p.checkEvent(e); err != nil {
			return &wrong{event: i, err: fmt.Errorf("at %s: %w", e, err)}
		}
	}
	return nil
}

// allowance is what of a lease is given up for the drift of clocks.
func (l *Lock) allowance() time.Duration {
	return time.Duration(float64(l.Lease)*float64(l.Drift)/1e6) + 2*time.Millisecond
}

// unreadable returns what Parse could not read of the plan as it is written.
func (p *Plan) unreadable() *wrong {
	if !p.plain() {
		if wrong := p.unreadableSettings(); wrong != nil {
			return wrong
		}
	}
	for i := range p.Events {
		if e := &p.Events[i]; !e.plain() {
			if err := e.unreadable(); err != nil {
				return &wrong{event: i, err: err}
			}
		}
	}
	return nil
}

// plain reports whether all settings have values that can be read. It is asked before each
// run, and writes nothing.
func (p *Plan) plain() bool {
	l, w := &p.Lock, &p.Work
	for _, share := range [...]Ratio{w.Try, w.Fixed, w.Long, w.Extend, w.Cancel, w.Nest, w.Close, w.Drop,
		w.Read, w.Write, w.Down, w.Fair, w.Several, w.Joint, w.Chain} {
		if share < 0 || share > Percent(100) {
			return false
		}
	}
	return min(p.Nodes, p.Clients, w.Names, w.Tasks, l.Need) >= 0 && (l.Client == Redquorum || l.Client == Plain) &&
		plainTimes(p.Length, l.Lease, l.MaxLease, l.Timeout, l.Poll, l.Grace, l.MaxHold) &&
		w.Hold.plain() && w.Think.plain() && p.Network.Delay.plain() && l.Mistake == "" && l.Drift.plain() && p.Assume.Drift.plain()
}

// plain reports whether the event has no word but its verb and its target, and values
// that can be read.
func (e *Event) plain() bool {
	switch e.Verb {
	case Crash, Hold, DoLock, DoTry, View:
		return false
	}
	return groups[e.Verb] != 0 && plainTimes(e.At, e.For, e.Offset, e.Every) && e.Range.plain() && e.Ratio.plain()
}

func plainTimes(times ...time.Duration) bool {
	return slices.Max(times) <= MaxLength && slices.Min(times) >= -MaxLength
}

func (r Range) plain() bool { return r.Min >= 0 && r.Min <= r.Max && r.Max <= MaxLength }

func (r Ratio) plain() bool { return r <= math.MaxUint32 && r >= -math.MaxUint32 }

func (p *Plan) unreadableSettings() *wrong {
	written := func(key string, f field) *wrong {
		if text := f.get(); text != "" {
			if err := f.set(text); err != nil {
				return &wrong{settings: []string{key}, err: err}
			}
		}
		return nil
	}
	again := *p
	for _, f := range again.scalars() {
		if wrong := written(f.key, f); wrong != nil {
			return wrong
		}
	}
	for _, b := range again.blocks() {
		for _, f := range b.fields {
			key := b.key + " " + f.key
			if wrong := written(key, f); wrong != nil {
				wrong.err = fmt.Errorf("%s: %w", key, wrong.err)
				return wrong
			}
		}
	}
	return nil
}

func (e *Event) unreadable() error {
	if groups[e.Verb] == 0 {
		return fmt.Errorf("unknown verb %q", e.Verb)
	}
	if e.At > MaxLength || e.For > MaxLength {
		return fmt.Errorf("want a time such as 10ms, at most %s, have %q", formatDuration(MaxLength), formatDuration(max(e.At, e.For)))
	}
	for _, a := range arguments[e.Verb] {
		text, again := a.get(e), *e
		if text == "" && !a.optional {
			return fmt.Errorf("%s: want %s after the target", e.Verb, a.want)
		}
		if text != "" {
			if err := a.set(&again, text); err != nil {
				return fmt.Errorf("%s: %w", e.Verb, err)
			}
		}
	}
	return nil
}

func (p *Plan) checkEvent(e Event) error {
	for _, s := range []struct {
		set    Set
		count  int
		letter byte
	}{{e.Links.Nodes, p.Nodes, 'n'}, {e.Procs.Nodes, p.Nodes, 'n'}, {e.Links.Clients, p.Clients, 'c'}, {e.Procs.Clients, p.Clients, 'c'}} {
		if s.set != All && s.set>>s.count != 0 {
			return fmt.Errorf("there is no %s", (s.set >> s.count << s.count).text(s.letter))
		}
	}
	about := groups[e.Verb]
	switch {
	case about == onLinks && (e.Links.Clients == 0 || e.Links.Nodes == 0):
		return fmt.Errorf("want links")
	case about == onLinks && e.Links.Way != Both && e.Links.Way != To && e.Links.Way != From:
		return fmt.Errorf("want a way: -, > or <")
	case about == onNodes && e.Procs.Nodes == 0:
		return fmt.Errorf("want nodes")
	case (about == onClients || about == isStep) && e.Procs.Clients == 0:
		return fmt.Errorf("want clients")
	case e.Verb == View && e.Procs.Nodes == 0:
		return fmt.Errorf("want nodes")
	case (e.Verb == View || e.Verb == Clone || e.Verb == Alias) && e.At != 0:
		return fmt.Errorf("it is so from the beginning: its time must be 0s")
	case about == onProcs && (e.Procs.Clients == 0) == (e.Procs.Nodes == 0):
		return fmt.Errorf("want nodes or clients")
	case e.At < 0:
		return fmt.Errorf("its time is negative")
	case e.At > p.Length:
		return fmt.Errorf("the part with faults is over by then: length is %s", formatDuration(p.Length))
	case e.For < 0:
		return fmt.Errorf("it lasts a negative time")
	case (e.Verb == Pause || e.Verb == Suspend || e.Verb == Block || e.Verb == Strobe) && e.For == 0:
		return fmt.Errorf("want \"for\" and a time")
	case e.For > 0 && !lasts[e.Verb]:
		return fmt.Errorf("it does not last, and cannot have \"for\"")
	case e.Verb == Strobe && e.Every <= 0:
		return fmt.Errorf("want a period of more than 0")
	case e.Verb == Rate && (e.Ratio > Percent(50) || e.Ratio < -Percent(50)):
		return fmt.Errorf("a clock's rate may be off by 50%% at most")
	case (e.Verb == Loss || e.Verb == Duplicate || e.Verb == Reorder) && (e.Ratio < 0 || e.Ratio > Percent(100)):
		return fmt.Errorf("want 0%% to 100%%")
	case e.Verb == DoExtend && e.Offset <= 0:
		return fmt.Errorf("want a lease of more than 0")
	case strings.ContainsAny(e.Name, " \t\n#"), e.Name == "for", e.Name == Far:
		return fmt.Errorf("%q cannot be a name here", e.Name)
	case slices.Contains(strings.Split(e.Name, ",")[1:], ""), strings.HasPrefix(e.Name, ","):
		return fmt.Errorf("one of the names in %q is empty", e.Name)
	case e.As != "" && strings.Contains(e.Name, ","):
		return fmt.Errorf("several names are not for %s", e.As)
	case p.Lock.Client == Plain && (e.As != "" || e.Verb == DoDowngrade):
		return fmt.Errorf("a plain client has one kind of lock")
	case e.Range.Min < 0 || e.Range.Max < e.Range.Min || e.Range.Max > math.MaxInt64/4:
		return fmt.Errorf("%v is no range", e.Range)
	}
	return nil
}

// lasts are the verbs that may have a "for", after which they end by themselves.
var lasts = map[Verb]bool{
	Cut: true, Delay: true, Loss: true, Duplicate: true, Reorder: true, Hold: true, Deafen: true, Crash: true, Slow: true,
	Block: true, Pause: true, Suspend: true, Strobe: true, Kill: true, Step: true,
}
