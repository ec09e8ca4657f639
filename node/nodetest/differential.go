package nodetest

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/redquorum/redquorum/node"
)

// Differential gives all systems the same random commands and disturbances, at
// about ops of them, and requires the same replies from each: equal in all but
// Life, and a TTL within Slack. With few names, owners and tokens every outcome
// comes up. As long as one does not it goes on, and after ten times as many that
// is a failure too, for then the test has lost its worth; unless ops is below
// 20,000. With -short it makes a fifth of them.
//
// The first system is the measure for the others. A failure is reduced to a short
// sequence, with the command that plays it again.
func Differential(t rapid.TB, ops int, systems ...System) {
	const steps, each = 60, 100 // a run of so many steps makes about so many operations
	runs := max(1, ops/each)
	defer set(t, "rapid.checks", fmt.Sprint(runs))()
	for _, s := range systems {
		if err := s.connect(); err != nil {
			t.Fatal(err)
		}
		for _, process := range waiters[:2] { // the third does not listen
			begun := make(chan struct{}, 100)
			defer s.Node.Listen(process, func(turn node.Turn) {
				if turn.Name == "" {
					begun <- struct{}{}
				}
			})()
			<-begun
		}
	}
	seen := make(map[string]int)
	unseen := func(outcome string) bool { return seen[outcome] == 0 }
	made, total, late := 0, 0, 0
	check := func(rt *rapid.T) {
		made++
		r := race{systems: systems, unit: unit(systems), seen: seen}
		about := rapid.SampledFrom(subjects).Draw(rt, "subject")
		program := rapid.SliceOfN(about, steps, steps).Draw(rt, "program")
		err := r.run(program)
		total += r.done
		switch {
		case r.late != "":
			late++
			t.Log(r.late)
			time.Sleep(100 * time.Millisecond) // for what is still on its way not to come into the next run
		case err != nil:
			rt.Fatal(err)
		}
	}
	// With 25,000 the rarest outcome comes up five times on average, so once in some
	// hundred times it does not.
	for range 10 {
		rapid.Check(t, check)
		if t.Failed() || total < telling || !slices.ContainsFunc(outcomes, unseen) {
			break
		}
	}
	t.Logf("%d operations on each of %d systems; %d of %d runs ended early, because a server was late",
		total, len(systems), late, made)
	if late > 2+made/10 {
		t.Errorf("too late in %d of %d runs", late, made)
	}
	for _, outcome := range outcomes {
		if unseen(outcome) && total >= telling && !t.Failed() {
			t.Errorf("never seen: %s", outcome)
		}
		t.Logf("%8d %s", seen[outcome], outcome)
	}
}

// set changes a flag of package rapid, which has no other way in, and returns
// what puts it back.
func set(t rapid.TB, name, value string) (back func()) {
	f := flag.Lookup(name)
	before := f.Value.String()
	if err := f.Value.Set(value); err != nil {
		t.Fatal(err)
	}
	return func() { f.Value.Set(before) }
}

// unit is the step of time. It is a millisecond, the finest that a server
// knows, so that expiry is hit exactly, unless on one server time goes by
// unasked.
func unit(systems []System) time.Duration {
	u := time.Millisecond
	for _, s := range systems {
		u = max(u, 4*s.Slack)
	}
	return u
}

// telling is after how many operations every outcome must have been seen.
const telling = 20_000

// outcomes are all that a command can come to.
var outcomes = []string{
	"acquire: granted", "acquire: refused", "acquire: refused, never expires", "acquire: stale", "acquire: wrong type",
	"release: released", "release: absent", "release: wrong type",
	"acquire of several: granted", "acquire of several: refused", "acquire of several: refused, never expires",
	"acquire of several: stale", "acquire of several: wrong type",
	"release of several: released", "release of several: absent", "release of several: wrong type",
	"extend: kept", "extend: not kept",
	"inspect: none", "inspect: hash", "inspect: hash of several", "inspect: string", "inspect: never expires",
	"inspect: no fence", "inspect: fence",
	"break: released", "break: absent", "break: wrong type",
	"acquire read: granted", "acquire read: refused", "acquire read: refused, never expires", "acquire read: stale",
	"acquire read: wrong type",
	"acquire write: granted", "acquire write: refused", "acquire write: refused, never expires", "acquire write: stale",
	"acquire write: wrong type",
	"release read: released", "release read: absent", "release read: wrong type",
	"release write: released", "release write: absent", "release write: wrong type",
	"extend read: kept", "extend read: not kept", "extend write: kept", "extend write: not kept",
	"downgrade: kept", "downgrade: not kept", "downgrade: wrong type",
	"inspect: readers",
	"acquire in line: granted", "acquire in line: refused", "acquire in line: refused, never expires",
	"acquire in line: refused, others first", "acquire in line: stale", "acquire in line: wrong type",
	"release in line: released", "release in line: absent", "release in line: wrong type",
	"acquire of several in line: granted", "acquire of several in line: refused", "acquire of several in line: refused, never expires",
	"acquire of several in line: refused, others first", "acquire of several in line: stale", "acquire of several in line: wrong type",
	"release of several in line: released", "release of several in line: absent", "release of several in line: wrong type",
	"acquire read in line: granted", "acquire read in line: refused", "acquire read in line: refused, never expires",
	"acquire read in line: refused, others first", "acquire read in line: stale", "acquire read in line: wrong type",
	"release read in line: released", "release read in line: absent", "release read in line: wrong type",
	"acquire write in line: granted", "acquire write in line: refused", "acquire write in line: refused, never expires",
	"acquire write in line: refused, others first", "acquire write in line: stale", "acquire write in line: wrong type",
	"release write in line: released", "release write in line: absent", "release write in line: wrong type",
	"inspect: queue", "inspect: queue of several", "inspect: queue of several modes", "inspect: handed on",
}

func outcome(r node.Reply, cmd node.Command) []string {
	kind, command := cmd.Kind, cmd.Kind.String()
	if len(cmd.Claims) > 1 && kind != node.Extend {
		command += " of several"
	}
	if cmd.Mode != node.Exclusive {
		command += " " + cmd.Mode.String()
	}
	if cmd.Waiting().Queued() {
		command += " in line"
	}
	what := func(came string) string { return command + ": " + came }
	switch {
	case reason(r.Err) == node.ErrWrongType:
		return []string{what("wrong type")}
	case r.Err != nil:
		return []string{what(r.Err.Error())}
	case r.Status == node.Refused && r.Line.Ahead > 0:
		return []string{what("refused, others first")}
	case r.Status == node.Refused && r.TTL == node.NoExpiry:
		return []string{what("refused, never expires")}
	case kind == node.Extend || kind == node.Downgrade:
		var all []string
		for _, kept := range r.Kept {
			all = append(all, what(map[bool]string{true: "kept", false: "not kept"}[kept]))
		}
		return all
	case kind == node.Inspect:
		all := []string{what(r.State.Type)}
		if len(r.State.Fields) > 1 {
			all = append(all, what("hash of several"))
		}
		if r.State.TTL == node.NoExpiry {
			all = append(all, what("never expires"))
		}
		if slices.ContainsFunc(r.State.Fields, func(f node.Field) bool { return strings.Contains(f.Name, node.StandbySuffix) }) {
			all = append(all, what("handed on"))
		}
		if r.State.Readers != 0 {
			all = append(all, what("readers"))
		}
		if len(r.State.Queue) > 0 {
			all = append(all, what("queue"))
		}
		if len(r.State.Queue) > 1 {
			all = append(all, what("queue of several"))
		}
		for _, place := range r.State.Queue {
			if mode := node.WaiterMode(place.Waiter); mode != node.WaiterMode(r.State.Queue[0].Waiter) {
				all = append(all, what("queue of several modes"))
				break
			}
		}
		return append(all, what(map[bool]string{true: "no fence", false: "fence"}[r.State.Fence == 0]))
	}
	return []string{what(r.Status.String())}
}

// A step is one thing to do to every system.
type step struct {
	op      string // a Kind's name, "advance", a Redis command, or "-" for nothing
	mode    node.Mode
	claims  []node.Claim
	waiter  string
	wait    int // patience, in units
	ticket  node.Token
	barge   bool
	stands  node.Token
	reserve bool
	next    node.Token
	key     string        // of a Redis command
	field   string        // of HSET
	time    int           // in units
	odd     time.Duration // less than the time, for it to be rounded up
	keep    int           // retention, in units
}

func (s step) String() string {
	switch s.op {
	case "-":
		return s.op
	case "advance":
		return fmt.Sprintf("advance %d", s.time)
	case "acquire", "release", "extend", "inspect", "break", "downgrade":
		return fmt.Sprintf("%s %v %v ttl %d-%v keep %d waiter %q for %d ticket %d, barges: %v, stands %d, reserves: %v, next %d",
			s.op, s.mode, s.claims, s.time, s.odd, s.keep, s.waiter, s.wait, s.ticket, s.barge, s.stands, s.reserve, s.next)
	}
	return fmt.Sprintf("%s %s %s %d", s.op, s.key, s.field, s.time)
}

// GoString makes rapid print a step as String does.
func (s step) GoString() string { return s.String() }

var (
	// A name in braces has the fence of that without.
	lockNames = []string{"n", "{n}", "a{b}"}
	owners    = []string{"a", "8743c9c0-0795-8907-87fd-6c719a6b4586:1"}
	heirs     = []string{node.Standby(owners[0]), node.Standby(owners[1])}
	waiters   = []string{"me", "you", owners[1] + "7"}
	keys      = append([]string{
		node.FenceKey("n"), node.FenceKey("a{b}"), node.ReadersKey("n"), node.NextKey("n"), node.NextKey("a{b}"),
		node.HoldKey("n", owners[0]), node.HoldKey("a{b}", owners[0]), node.HoldKey("a{b}", owners[1]),
		node.QueueKey("n"), node.QueueKey("a{b}"), node.PlaceKey("n", "me"), node.PlaceKey("a{b}", "you"),
		node.PlaceKey("n", "me"+node.ReadSuffix), node.PlaceKey("a{b}", "you"+node.WriteSuffix),
	}, lockNames...)
)

// A subject is what a program is about: what is in its steps, as often as it is
// to come up. The very first operation is what a step is reduced to if it does
// not matter.
type subject struct {
	ops   []string
	modes []node.Mode
	names []string
	lines bool // with tickets
	pairs bool // acquire and release two names at once
}

var subjects = []*rapid.Generator[step]{
	subject{
		ops:   []string{"-", "acquire", "acquire", "release", "release", "inspect", "advance", "SET"},
		modes: []node.Mode{node.Exclusive},
		names: lockNames,
		pairs: true,
	}.step(),
	subject{
		ops: []string{
			"-", "acquire", "break", "SET", "HSET", "advance", "acquire", "release", "acquire", "release", "advance", "extend",
			"acquire", "DEL", "advance", "acquire", "release", "advance", "inspect", "PERSIST", "PEXPIRE", "extend", "FLUSHALL",
		},
		modes: []node.Mode{node.Exclusive},
		names: lockNames,
	}.step(),
	subject{
		ops: []string{
			"-", "acquire", "acquire", "acquire", "acquire", "acquire", "acquire", "release", "release", "release", "extend",
			"extend", "downgrade", "downgrade", "advance", "advance", "advance", "DEL", "PEXPIRE", "PERSIST", "HSET", "break",
		},
		modes: []node.Mode{node.Read, node.Write, node.Read},
		names: []string{"n", "a{b}", "n"},
	}.step(),
	subject{
		ops: []string{
			"-", "acquire", "acquire", "acquire", "acquire", "acquire", "acquire", "acquire", "acquire", "release", "release",
			"release", "release", "release", "release", "downgrade", "advance", "advance", "DEL", "HSET", "PEXPIRE", "break",
		},
		modes: []node.Mode{node.Read, node.Write, node.Read, node.Exclusive},
		names: []string{"n"},
		lines: true,
	}.step(),
	subject{
		ops: []string{
			"-", "acquire", "acquire", "acquire", "release", "release", "extend", "downgrade", "advance", "inspect", "SET", "SET",
			"HSET", "DEL", "PERSIST", "PEXPIRE", "break", "FLUSHALL",
		},
		modes: []node.Mode{node.Exclusive, node.Read, node.Write},
		names: lockNames,
		lines: true,
	}.step(),
	subject{
		ops: []string{
			"-", "acquire", "acquire", "acquire", "acquire", "acquire", "acquire", "release", "release", "release", "release",
			"advance", "advance", "advance", "DEL", "DEL", "PEXPIRE", "PERSIST", "HSET", "break", "break",
		},
		modes: []node.Mode{node.Exclusive},
		names: []string{"n", "a{b}", "n"},
		lines: true,
	}.step(),
	subject{
		ops: []string{
			"-", "acquire", "acquire", "acquire", "acquire", "release", "release", "release", "release", "inspect", "advance",
			"SET", "FLUSHALL",
		},
		modes: []node.Mode{node.Exclusive},
		names: lockNames,
		lines: true,
		pairs: true,
	}.step(),
}

func (about subject) claim(t *rapid.T) node.Claim {
	return node.Claim{
		Name:  rapid.SampledFrom(about.names).Draw(t, "name"),
		Owner: rapid.SampledFrom(owners).Draw(t, "owner"),
		Token: node.Token(rapid.IntRange(1, 12).Draw(t, "token")),
	}
}

// above draws a token near another one, or 0.
func above(t *rapid.T, token node.Token, what string) node.Token {
	step := rapid.IntRange(-1, 2).Draw(t, what)
	if step < 0 {
		return 0
	}
	return token + node.Token(step)
}

func (about subject) step() *rapid.Generator[step] {
	return rapid.Custom(func(t *rapid.T) step {
		s := step{op: rapid.SampledFrom(about.ops).Draw(t, "op")}
		if s.op == "-" {
			return s
		}
		switch s.op {
		case "advance", "PEXPIRE":
			s.time = rapid.IntRange(1, 6).Draw(t, "time")
		case "acquire", "release":
			s.claims = []node.Claim{about.claim(t)}
			s.mode = rapid.SampledFrom(about.modes).Draw(t, "mode")
			if about.lines && rapid.IntRange(0, 4).Draw(t, "in line") > 0 {
				s.ticket = node.Token(rapid.IntRange(1, 4).Draw(t, "ticket"))
				s.waiter = rapid.SampledFrom(waiters).Draw(t, "waiter") + suffixes[s.mode]
				s.wait = rapid.IntRange(0, 12).Draw(t, "patience")
				s.barge = rapid.Bool().Draw(t, "barge")
			}
			if about.lines && s.op == "release" {
				if rapid.IntRange(0, 9).Draw(t, "heir") == 9 {
					s.claims[0].Owner = heirs[0]
				}
				s.next = above(t, s.claims[0].Token, "next")
			}
			if s.mode == node.Exclusive && (about.pairs || rapid.IntRange(0, 2).Draw(t, "several") == 2) {
				more := s.claims[0]
				more.Name = rapid.SampledFrom(lockNames).Filter(func(name string) bool { return name != more.Name }).Draw(t, "more")
				s.claims = append(s.claims, more)
				s.reserve = s.op == "acquire" && s.wait > 0 && rapid.Bool().Draw(t, "reserve")
			} else if s.op == "acquire" && s.wait > 0 {
				s.stands = above(t, s.claims[0].Token, "stands")
			}
		case "break", "inspect", "downgrade":
			s.claims = []node.Claim{about.claim(t)}
		case "extend":
			s.claims = rapid.SliceOfN(rapid.Custom(about.claim), 1, 3).Draw(t, "claims")
			s.mode = rapid.SampledFrom(about.modes).Draw(t, "mode")
		}
		switch s.op {
		case "acquire", "extend":
			s.time = rapid.IntRange(1, 8).Draw(t, "ttl")
			s.odd = rapid.SampledFrom([]time.Duration{0, 1, time.Millisecond - 1}).Draw(t, "odd")
		case "DEL", "PERSIST", "PEXPIRE":
			s.key = rapid.SampledFrom(keys).Draw(t, "key")
		case "HSET", "SET":
			s.field = rapid.SampledFrom([]string{"java", "a", "b", "mode"}).Draw(t, "field")
			s.key = rapid.SampledFrom(about.names).Draw(t, "key")
		}
		s.keep = rapid.IntRange(1, 16).Draw(t, "keep")
		return s
	})
}

// A race is one program run on all systems.
type race struct {
	systems []System
	unit    time.Duration
	seen    map[string]int
	done    int
	looked  time.Time // when advance was begun last
	late    string    // if a server was, how: what comes then cannot be compared
}

// run plays a program on servers without keys.
func (r *race) run(program []step) error {
	if err := r.all(func(s System) error { return s.Do("FLUSHALL") }); err != nil {
		return err
	}
	r.looked = time.Now()
	for i, s := range program {
		if err := r.play(s); err != nil {
			return fmt.Errorf("%w\nafter:%s", err, shown(program[:i+1]))
		}
		if r.late != "" {
			return nil
		}
	}
	return nil
}

// shown returns the steps that do something, one on a line.
func shown(program []step) string {
	var lines strings.Builder
	for _, s := range program {
		if s.op != "-" {
			lines.WriteString("\n  " + s.String())
		}
	}
	return lines.String()
}

func (r *race) play(s step) error {
	switch s.op {
	case "-":
		return nil
	case "advance":
		return r.advance(time.Duration(s.time) * r.unit)
	case "acquire", "release", "extend", "inspect", "break", "downgrade":
		return r.submit(s)
	}
	args := []string{s.op, s.key}
	switch s.op {
	case "FLUSHALL":
		args = args[:1]
	case "SET":
		args = append(args, "x")
	case "HSET":
		args = append(args, s.field, map[bool]string{true: "read", false: "1"}[s.field == node.ModeField])
	case "PEXPIRE":
		args = append(args, fmt.Sprint(r.life(s).Milliseconds()))
	}
	err := r.all(func(sys System) error {
		if err := sys.Do(args...); !errors.Is(err, node.ErrWrongType) {
			return err
		}
		return nil // HSET of a string: all refuse, as what is there then shows
	})
	if err != nil {
		return err
	}
	for _, name := range lockNames {
		if err := r.submit(step{op: "inspect", claims: []node.Claim{{Name: name}}}); err != nil {
			return fmt.Errorf("then %q: %w", name, err)
		}
	}
	return nil
}

// life is how long a step makes a key live. Where a server's time is not exact,
// keys expire in the middle between the instants at which something happens.
func (r *race) life(s step) time.Duration {
	d := time.Duration(s.time)*r.unit - s.odd
	if r.unit > time.Millisecond {
		d += r.unit / 2
	}
	return d
}

func (r *race) all(f func(System) error) error {
	for _, s := range r.systems {
		if err := f(s); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return nil
}

// advance lets d pass everywhere. With 0 it takes back what passed unasked: if
// that was too much, keys may have expired.
func (r *race) advance(d time.Duration) error {
	begun := time.Now() // what passes from here on may be after the server has looked
	err := r.all(func(s System) error { return s.Advance(d) })
	r.look()
	r.looked = begun
	return err
}

// look notes whether a server was left alone for too long.
func (r *race) look() {
	gone := time.Since(r.looked)
	for _, s := range r.systems {
		if s.Slack > 0 && gone > s.Slack {
			r.late = fmt.Sprintf("late: on %s %v went by unasked", s.Name, gone)
		}
	}
}

// submit requires equal replies to one command, and then equal states of its
// names.
func (r *race) submit(s step) error {
	if err := r.compare(s); err != nil || s.op == "inspect" {
		return err
	}
	for _, c := range s.claims {
		if err := r.compare(step{op: "inspect", claims: []node.Claim{c}}); err != nil {
			return fmt.Errorf("then %q: %w", c.Name, err)
		}
	}
	return nil
}

func (r *race) compare(s step) error {
	if err := r.advance(0); err != nil {
		return err
	}
	r.done++
	var want node.Reply
	for i, sys := range r.systems {
		cmd := r.command(s, sys)
		got := sys.ask(cmd)
		r.look()
		if errors.Is(got.Err, node.ErrTimeout) || errors.Is(got.Err, node.ErrUnreachable) {
			r.late = fmt.Sprintf("late: %s, after %v: %v", sys.Name, time.Since(r.looked), got.Err)
		}
		if r.late != "" {
			return nil
		}
		if err := wellFormed(cmd, got); err != nil {
			return fmt.Errorf("%s: %w", sys.Name, err)
		}
		if i == 0 {
			want = got
			for _, o := range outcome(got, cmd) {
				r.seen[o]++
			}
			continue
		}
		if err := same(want, got, sys.Slack); err != nil {
			return fmt.Errorf("%s and %s differ: %w", r.systems[0].Name, sys.Name, err)
		}
	}
	return nil
}

var kinds = map[string]node.Kind{
	"acquire": node.Acquire, "release": node.Release, "extend": node.Extend, "inspect": node.Inspect, "break": node.Break,
	"downgrade": node.Downgrade,
}

func (r *race) command(s step, sys System) node.Command {
	cmd := node.Command{
		Kind: kinds[s.op], Mode: s.mode, Claims: s.claims, TTL: r.life(s),
		Retention: r.life(step{time: s.keep}), Deadline: sys.soon(),
		Wait:    &node.Wait{Waiter: s.waiter, Ticket: s.ticket, Barge: s.barge, Standby: s.stands, Reserve: s.reserve},
		Handoff: s.next,
	}
	if s.wait > 0 {
		cmd.Wait.PlaceTTL = r.life(step{time: s.wait})
	}
	return cmd
}

// same requires of got what was answered before.
func same(want, got node.Reply, slack time.Duration) error {
	switch {
	case want.Status != got.Status, reason(want.Err) != reason(got.Err), want.Unsent != got.Unsent:
		return fmt.Errorf("%v (%v) and %v (%v)", want.Status, want.Err, got.Status, got.Err)
	case want.Line != got.Line:
		return fmt.Errorf("line %+v and %+v", want.Line, got.Line)
	case want.Fence != got.Fence:
		return fmt.Errorf("fence %d and %d", want.Fence, got.Fence)
	case !near(want.TTL, got.TTL, slack):
		return fmt.Errorf("TTL %v and %v", want.TTL, got.TTL)
	case fmt.Sprint(want.Kept) != fmt.Sprint(got.Kept):
		return fmt.Errorf("kept %v and %v", want.Kept, got.Kept)
	case (want.State == nil) != (got.State == nil):
		return fmt.Errorf("state %v and %v", want.State, got.State)
	case want.State != nil && !sameState(*want.State, *got.State, slack):
		return fmt.Errorf("state %+v and %+v", *want.State, *got.State)
	}
	return nil
}

func sameState(a, b node.State, slack time.Duration) bool {
	return a.Type == b.Type && a.Fence == b.Fence && near(a.TTL, b.TTL, slack) && fmt.Sprint(a.Fields) == fmt.Sprint(b.Fields) &&
		a.Readers == b.Readers &&
		slices.EqualFunc(a.Queue, b.Queue, func(a, b node.Place) bool {
			return a.Waiter == b.Waiter && a.Ticket == b.Ticket && near(a.TTL, b.TTL, slack)
		})
}

func near(a, b, slack time.Duration) bool {
	if a <= 0 || b <= 0 { // no key, or no expiry
		return a == b
	}
	return (a - b).Abs() <= slack
}
