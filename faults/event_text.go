package faults

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

type argument struct {
	want     string
	of       func(*Event) field
	optional bool
	fits     func(string) bool // whether a word can be this one, or else the next; nil if it must be
}

var arguments = map[Verb][]argument{
	Delay:     {rangeArg},
	Loss:      {ratioArg},
	Duplicate: {ratioArg, rangeArg},
	Reorder:   {ratioArg},
	Hold:      {kindArg, countArg},
	Crash:     {modeArg},
	Demote:    {dataArg},
	Slow:      {rangeArg},
	Full:      {lackArg},
	Starve:    {ratioArg},
	Skew:      {offsetArg},
	Step:      {offsetArg},
	Rate:      {ratioArg},
	Strobe:    {offsetArg, everyArg},
	DoLock:    {nameArg, leaseArg, asArg},
	DoTry:     {nameArg, leaseArg, asArg},
	DoResume:  {nameArg},
	DoBreak:   {nameArg},
	DoInspect: {nameArg},
	DoExtend:  {offsetArg},
	DoWrite:   {lateArg},
	View:      {nodesArg},
	Sever:     {othersArg},
	Lead:      {serverArg},
}

var (
	rangeArg  = argument{want: "a time, or a range of times", of: func(e *Event) field { return ranged("", &e.Range) }}
	ratioArg  = argument{want: "a percentage", of: func(e *Event) field { return ratio("", &e.Ratio) }}
	offsetArg = argument{want: "a time", of: func(e *Event) field { return duration("", &e.Offset) }}
	everyArg  = argument{want: "a period", of: func(e *Event) field { return duration("", &e.Every) }}
	nodesArg  = argument{want: "nodes", of: func(e *Event) field { return nodeSet(&e.Procs.Nodes) }}
	othersArg = argument{want: "the servers at the other end", of: func(e *Event) field { return nodeSet(&e.Source) }}
	serverArg = argument{want: "the server that they are led to", of: othersArg.of}
	modeArg   = argument{want: "durable, second, empty or replica",
		of: func(e *Event) field { return word("", &e.Mode, Durable, Second, Empty, Replica) }}
	lackArg = argument{want: "disk or memory", of: func(e *Event) field { return word("", &e.Mode, Disk, Memory) }}
	asArg   = argument{optional: true, of: func(e *Event) field { return word("", &e.As, ToRead, ToWrite, Fairly) }}
	kindArg = argument{optional: true, fits: func(s string) bool { _, err := strconv.Atoi(s); return err != nil },
		of: func(e *Event) field { return word("", &e.Kind, "acquire", "release", "extend", "rename") }}
	lateArg = argument{optional: true, of: func(e *Event) field { return unless(e.Range == Range{}, ranged("", &e.Range)) }}
	nameArg = argument{want: "the name of a lock", of: func(e *Event) field {
		return field{"", func(s string) error { e.Name = s; return nil }, func() string { return e.Name }}
	}}
	dataArg = argument{want: "durable, second, empty or a node", of: func(e *Event) field {
		return field{"", func(s string) (err error) {
			switch e.Mode = Mode(s); e.Mode {
			case Durable, Second, Empty:
				return nil
			}
			if e.Mode = ""; s[0] != 'n' {
				return fmt.Errorf("want durable, second, empty or a node, have %q", s)
			}
			e.Source, err = parseSet('n', s)
			return err
		}, func() string {
			if e.Source != 0 {
				return e.Source.text('n')
			}
			return string(e.Mode)
		}}
	}}
	countArg = argument{optional: true, of: func(e *Event) field {
		return unless(e.Count == 0, field{"", func(s string) (err error) {
			if e.Count, err = strconv.Atoi(s); err != nil || e.Count < 1 {
				return fmt.Errorf("want how many, have %q", s)
			}
			return nil
		}, func() string { return strconv.Itoa(e.Count) }})
	}}
	leaseArg = argument{optional: true, fits: func(s string) bool { return strings.Contains(s, "=") }, of: func(e *Event) field {
		return unless(e.Lease == 0, field{"", func(s string) (err error) {
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
		}, func() string {
			if e.Fixed {
				return "fixed=" + formatDuration(e.Lease)
			}
			return "lease=" + formatDuration(e.Lease)
		}})
	}}
)

func nodeSet(to *Set) field {
	return field{"", func(s string) (err error) { *to, err = parseSet('n', s); return err }, func() string { return to.text('n') }}
}

// parseEvent reads TIME VERB TARGET ARGUMENTS [for TIME].
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
		return e, unknownVerb(e.Verb)
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
		if err := a.of(&e).set(words[0]); err != nil {
			return e, fmt.Errorf("%s: %w", e.Verb, err)
		}
		words = words[1:]
	}
	if len(words) > 0 {
		return e, fmt.Errorf("%s: nothing is known of %q", e.Verb, strings.Join(words, " "))
	}
	return e, nil
}

// String writes the event as Parse reads it, without "at".
func (e Event) String() string { return formatDuration(e.At) + " " + e.Words() }

func (e Event) Words() string {
	words := []string{string(e.Verb)}
	switch {
	case groups[e.Verb] != onLinks:
		words = append(words, e.Procs.String())
	case e.Verb != Heal || e.Links != (Links{All, All, Both}):
		words = append(words, e.Links.String())
	}
	for _, a := range arguments[e.Verb] {
		if s := a.of(&e).get(); s != "" {
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
