package nodetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/node"
)

// brevity is a deadline if no answer will come, and ten times as long as the suite waits
// if nothing is to come.
const brevity = 100 * time.Millisecond

// errSkip ends a rule whose rest is about another kind of node.
var errSkip = errors.New("another kind of node")

// A player plays rules on one system.
type player struct {
	System
	mode        node.Mode
	early, late time.Duration // how much less or more than wanted a TTL may be
	wait        time.Duration // for what has to come
	life        *node.Life    // of the last reply
	bells       map[string]bell
	turns       chan heard
	listens     map[string]bool
	stops       []func()

	names  []string // those of the last given
	givens int
}

// A heard is a turn, and the process that heard it.
type heard struct {
	node.Turn
	by string
}

// A bell rings with each call of wake.
type bell struct {
	rings chan struct{}
	stop  func()
}

func newPlayer(s System, mode node.Mode) *player {
	return &player{
		System: s, mode: mode, early: patience, wait: patience,
		bells: make(map[string]bell), turns: make(chan heard, 1000), listens: make(map[string]bool),
	}
}

func (p *player) end() {
	for _, stop := range p.stops {
		stop()
	}
}

func (p *player) play(words []string) error {
	switch words[0] {
	case "for":
		variants, rest, err := variants(words)
		for i := 0; i < len(variants) && err == nil; i++ {
			err = p.play(variants[i](rest))
		}
		return err
	case "soon":
		p.wait = brevity / 10
		defer func() { p.wait = patience }()
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			if err := p.play(words[1:]); err == nil || time.Now().After(end) {
				return err
			}
		}
	}
	for i := slices.Index(words, "|"); i >= 0; i = slices.Index(words, "|") {
		if err := p.step(words[:i]); err != nil {
			return err
		}
		words = words[i+1:]
	}
	return p.step(words)
}

func (p *player) step(words []string) error {
	var want []string
	if i := slices.Index(words, "->"); i >= 0 {
		words, want = words[:i], p.named(spread(words[i+1:]))
	}
	got, err := p.do(p.named(spread(words)), want)
	if err != nil {
		return fmt.Errorf("%s: %w", join(words), err)
	}
	if !fits(got, want, p.early, p.late) {
		return fmt.Errorf("%s\n  got  %s\n  want %s", join(words), join(got), join(want))
	}
	return nil
}

// variants returns what a line that begins with for does to other words, for each of its
// values, and the words after do.
func variants(words []string) (all []func([]string) []string, rest []string, err error) {
	values := words[min(3, len(words)):]
	if do := slices.Index(values, "do"); do >= 0 {
		values, rest = values[:do], values[do+1:]
	}
	if len(values) == 0 || words[2] != "in" {
		return nil, nil, errors.New("want: for VARIABLE in VALUES, and perhaps: do LINE")
	}
	names := strings.Split(words[1], "/")
	for _, value := range spread(values) {
		var pairs []string
		for i, part := range strings.SplitN(value, "/", len(names)) {
			pairs = append(pairs, "$"+names[i], part)
		}
		replace := strings.NewReplacer(pairs...).Replace
		all = append(all, func(words []string) (replaced []string) {
			for _, word := range words {
				replaced = append(replaced, replace(word))
			}
			return replaced
		})
	}
	return all, rest, nil
}

// named replaces * by the names of the last given, in a key by the first. It drops
// mode=rival if that is the rule's mode.
func (p *player) named(words []string) (all []string) {
	for _, word := range words {
		switch {
		case word == "*":
			all = append(all, p.names...)
		case strings.Contains(word, "{*}"):
			all = append(all, strings.Replace(word, "*", p.names[0], 1))
		case word != "mode=rival":
			all = append(all, word)
		case rival(p.mode) != p.mode:
			all = append(all, "mode="+rival(p.mode).String())
		}
	}
	return all
}

// do does one step, and returns its answer. The wanted answer says how long to wait.
func (p *player) do(words, want []string) (a answer, err error) {
	switch args := words[1:]; words[0] {
	case "acquire", "release", "extend", "break", "downgrade", "rename":
		r, err := p.reply(words)
		return replyText(r), err
	case "inspect", "fences", "queue":
		r, err := p.reply(append([]string{"inspect"}, args...))
		return lookText(words[0], r, p.mode, args[len(args)-1]), err
	case "redis":
		if err = p.Do(args...); errors.Is(err, node.ErrWrongType) {
			return answer{"error", reasonText(err)}, nil
		}
		return nil, err
	case "advance":
		d, err := time.ParseDuration(args[0])
		return nil, errors.Join(err, p.Advance(d))
	case "stall", "resume":
		return nil, p.Stall(words[0] == "stall")
	case "cut":
		return nil, p.Cut()
	case "connect":
		return nil, p.connect()
	case "close":
		return nil, p.Node.Close()
	case "needs": // life, or no life
		r, err := p.reply([]string{"inspect", "life"})
		if err == nil && (r.Life != nil) != (args[0] == "life") {
			err = errSkip
		}
		return nil, err
	case "watch", "woken", "quiet", "stop":
		return nil, p.watch(words[0], args)
	case "listen":
		for _, process := range args {
			err = errors.Join(err, p.listen(process))
		}
		return nil, err
	case "turns":
		return p.turnsText(args[0], want)
	case "given":
		return nil, p.given(args)
	case "then":
		return p.then(want)
	case "ask", "leave", "back":
		r, err := p.shorthand(words[0], args)
		return replyText(r), err
	}
	return nil, errors.New("there is no such verb")
}

func (p *player) reply(words []string) (node.Reply, error) {
	c, err := parse(words, p.mode)
	if err != nil {
		return node.Reply{}, err
	}
	c.Deadline = p.Clock.Now().Add(c.deadline)
	r := p.ask(c.Command)
	p.life = r.Life
	if late := p.Clock.Now().Sub(c.Deadline); reason(r.Err) == node.ErrTimeout && !r.Unsent &&
		(late < 0 || late > patience/2) {
		return r, fmt.Errorf("the reply came %v after the deadline", late)
	}
	return r, wellFormed(c.Command, r)
}

// watch begins a watch, or requires that it wakes or does not.
func (p *player) watch(verb string, args []string) error {
	b := p.bells[args[0]]
	if verb == "watch" {
		mode := p.mode
		if len(args) > 2 {
			mode = modes[strings.TrimPrefix(args[2], "mode=")]
		}
		b.rings = make(chan struct{}, 1000)
		b.stop = p.Node.Watch(args[1], mode, func() { b.rings <- struct{}{} })
		p.bells[args[0]] = b
		p.stops = append(p.stops, b.stop)
	}
	if verb == "stop" {
		b.stop()
	}
	wanted := verb == "watch" || verb == "woken"
	woken := b.ring(p.wait, wanted)
	for verb == "watch" || verb == "stop" { // what is under way
		if !b.ring(brevity/10, true) {
			return nil
		}
	}
	if woken != wanted {
		return fmt.Errorf("woken: %v", woken)
	}
	return nil
}

// ring waits for a call of wake, for a moment only if none is wanted.
func (b bell) ring(limit time.Duration, wanted bool) bool {
	if !wanted {
		limit = brevity / 10
	}
	select {
	case <-b.rings:
		return true
	case <-time.After(limit):
		return false
	}
}

// listen has all listeners hear from a process, too.
func (p *player) listen(process string) error {
	if p.listens[process] {
		return nil
	}
	p.listens[process] = true
	p.stops = append(p.stops, p.Node.Listen(process, func(turn node.Turn) { p.turns <- heard{turn, process} }))
	if got, err := p.hear(1); err != nil || len(got) != 1 || got[0].Name != "" {
		return fmt.Errorf("a subscription begins with %+v (%v)", got, err)
	}
	return nil
}

// hear waits for some turns, and then for more, except in a table: its names are new in
// each line, so a later line, or the end of the rule, finds a late turn.
func (p *player) hear(want int) (got []heard, err error) {
	for {
		limit := p.wait
		switch {
		case len(got) >= want && len(p.names) == 0:
			limit = brevity / 10
		case len(got) >= want:
			limit = 0
		}
		select {
		case turn := <-p.turns:
			got = append(got, turn)
			handed := turn.Owner != ""
			if handed != (turn.Life != nil) || handed && (p.life == nil || *turn.Life != *p.life) {
				err = fmt.Errorf("%+v has the life %+v, and the last reply %+v", turn, turn.Life, p.life)
			} else if handed && (turn.Server != p.life.ID || turn.Proof != node.ProofOf(secret, turn.Token,
				p.life.ID)) {
				err = fmt.Errorf("%+v has not the server %s, or not its proof", turn, p.life.ID)
			}
		case <-time.After(limit):
			return got, err
		}
	}
}

// turnsText says in any order which waiters were notified, to which owners the name was
// handed over, with which token, and which process heard.
func (p *player) turnsText(name string, want []string) (a answer, err error) {
	nobody := slices.Equal(want, []string{"nobody"})
	slices.Sort(want)
	turns := len(want)
	if nobody {
		turns = 0
	}
	got, err := p.hear(turns)
	for _, turn := range got {
		word := strings.TrimSuffix(turn.Waiter, suffixes[p.mode])
		if turn.Owner != "" {
			word = fmt.Sprint(turn.Owner, "=", turn.Token)
		}
		if turn.Owner != "" || turn.by != node.Process(turn.Waiter) {
			word += "@" + turn.by
		}
		if turn.Name != name {
			word = turn.Name + "/" + word
		}
		a = append(a, word)
	}
	slices.Sort(a)
	a.add("nobody", len(a) == 0)
	return a, err
}
