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

// Differential gives all systems the same random commands and disturbances, at about ops
// of them, and requires the same replies from each: equal in all but Life, and a TTL
// within Slack. With few names, owners and tokens every outcome comes up. It goes on
// until each has, and fails after ten times as many operations, unless ops is below
// 20,000. With -short it makes a fifth of them.
//
// A failure is reduced to a short rule with the answers of the first system, and the
// command that repeats it: see [Play].
func Differential(t rapid.TB, ops int, systems ...System) {
	const steps, each = 60, 100 // a run of so many steps makes about so many operations
	runs := max(1, ops/each)
	defer set(t, "rapid.checks", fmt.Sprint(runs))()
	for _, s := range systems {
		if err := s.connect(); err != nil {
			t.Fatal(err)
		}
		for _, process := range listeners {
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
		r := race{systems: systems, seen: seen}
		about := rapid.SampledFrom(subjects).Draw(rt, "subject")
		program := rapid.SliceOfN(about.step(unit(systems)), steps, steps).Draw(rt, "program")
		err := r.run(program)
		total += r.done
		switch {
		case r.late != "":
			late++
			t.Log(r.late)
			// Commands still on their way, as late as the server was, must not come into
			// the next run.
			time.Sleep(100*time.Millisecond + time.Since(r.looked))
		case err != nil:
			rt.Fatal(err)
		}
	}
	// With 25,000 the rarest outcome comes up five times on average, so about once in 150
	// times it does not.
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

// set changes a flag of package rapid, which has no other way in. back restores it.
func set(t rapid.TB, name, value string) (back func()) {
	f := flag.Lookup(name)
	before := f.Value.String()
	if err := f.Value.Set(value); err != nil {
		t.Fatal(err)
	}
	return func() { f.Value.Set(before) }
}

// unit is the step of time: a millisecond, the finest of a server, so that expiry is hit
// exactly, unless time goes by unasked on one server.
func unit(systems []System) time.Duration {
	u := time.Millisecond
	for _, s := range systems {
		u = max(u, 4*s.Slack)
	}
	return u
}

// telling is the number of operations by which every outcome must have come up.
const telling = 20_000

var outcomes = func() (all []string) {
	add := func(command string, came ...string) {
		for _, what := range came {
			all = append(all, command+": "+what)
		}
	}
	for _, of := range []string{"", " of several", " read", " write"} {
		for _, line := range []string{"", " in line"} {
			add("acquire"+of+line, "granted", "refused", "refused, never expires", "stale", "wrong type")
			add("release"+of+line, "released", "absent", "wrong type")
		}
		add("acquire"+of+" in line", "refused, others first")
	}
	for _, mode := range []string{"", " read", " write"} {
		add("extend"+mode, "kept", "not kept")
		add("rename"+mode, "granted", "refused", "stale", "wrong type")
	}
	add("downgrade", "kept", "not kept", "wrong type")
	add("break", "released", "absent", "wrong type")
	add("inspect", "none", "hash", "hash of several", "string", "never expires", "no fence", "fence", "readers",
		"queue", "queue of several", "queue of several modes", "handed over")
	return all
}()

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
		queue := r.State.Queue
		for came, is := range map[string]bool{
			"hash of several": len(r.State.Fields) > 1,
			"never expires":   r.State.TTL == node.NoExpiry,
			"handed over": slices.ContainsFunc(r.State.Fields,
				func(f node.Field) bool { return strings.Contains(f.Name, node.OfferSuffix) }),
			"readers":          r.State.Readers != 0,
			"no fence":         r.State.Fence == 0,
			"fence":            r.State.Fence != 0,
			"queue":            len(queue) > 0,
			"queue of several": len(queue) > 1,
			"queue of several modes": slices.ContainsFunc(queue, func(p node.Place) bool {
				return node.WaiterMode(p.Waiter) != node.WaiterMode(queue[0].Waiter)
			}),
		} {
			if is {
				all = append(all, what(came))
			}
		}
		return all
	}
	return []string{what(r.Status.String())}
}

// A step is a command of a node, one of Redis, or to let time pass, for every system.
type step struct {
	cmd     node.Command // without a deadline, if Kind is not 0
	redis   []string
	advance time.Duration
}

func (s step) String() string {
	switch {
	case s.cmd.Kind != 0:
		return commandText(s.cmd)
	case len(s.redis) > 0:
		return join(append([]string{"redis"}, s.redis...))
	case s.advance > 0:
		return fmt.Sprint("advance ", s.advance)
	}
	return "-"
}

func (s step) GoString() string { return s.String() }

var (
	// A name in braces shares the fence of the name without them.
	lockNames = []string{"n", "{n}", "a{b}"}
	owners    = []string{"a", "8743c9c0-0795-8907-87fd-6c719a6b4586:1"}
	offers    = []string{node.Offer(owners[0]), node.Offer(owners[1])}
	listeners = []string{"me", "you"}
	waiters   = append(slices.Clone(listeners), owners[1]+"7") // this one does not listen
	keys      = append([]string{
		node.FenceKey("n"), node.FenceKey("a{b}"), node.ReadersKey("n"), node.NextKey("n"), node.NextKey("a{b}"),
		node.HoldKey("n", owners[0]), node.HoldKey("a{b}", owners[0]), node.HoldKey("a{b}", owners[1]),
		node.QueueKey("n"), node.QueueKey("a{b}"), node.PlaceKey("n", "me"), node.PlaceKey("a{b}", "you"),
		node.PlaceKey("n", "me"+node.ReadSuffix), node.PlaceKey("a{b}", "you"+node.WriteSuffix),
	}, lockNames...)
)

// A subject is what a program is about: its steps, as often as they are to come up. The
// first operation is what an irrelevant step is reduced to.
type subject struct {
	ops   string
	modes []node.Mode
	names []string
	lines bool // with tickets
	pairs bool // acquire and release two names at once
}

var subjects = []subject{
	{
		ops:   "- acquire acquire release release rename inspect advance SET",
		modes: []node.Mode{node.Exclusive},
		names: lockNames,
		pairs: true,
	},
	{
		ops: "- acquire acquire acquire acquire acquire release release release extend extend rename rename advance advance advance advance " +
			"inspect break SET HSET DEL PERSIST PEXPIRE FLUSHALL",
		modes: []node.Mode{node.Exclusive},
		names: lockNames,
	},
	{
		ops: "- acquire acquire acquire acquire acquire acquire release release release extend extend downgrade downgrade rename rename rename " +
			"advance advance advance DEL PEXPIRE PERSIST HSET break",
		modes: []node.Mode{node.Read, node.Write, node.Read},
		names: []string{"n", "a{b}", "n"},
	},
	{
		ops: "- acquire acquire acquire acquire acquire acquire acquire acquire release release release release release release " +
			"downgrade advance advance DEL HSET PEXPIRE break",
		modes: []node.Mode{node.Read, node.Write, node.Read, node.Exclusive},
		names: []string{"n"},
		lines: true,
	},
	{
		ops: "- acquire acquire acquire release release extend downgrade advance inspect SET SET HSET DEL PERSIST PEXPIRE " +
			"break FLUSHALL",
		modes: []node.Mode{node.Exclusive, node.Read, node.Write},
		names: lockNames,
		lines: true,
	},
	{
		ops: "- acquire acquire acquire acquire acquire acquire release release release release advance advance advance " +
			"DEL DEL PEXPIRE PERSIST HSET break break",
		modes: []node.Mode{node.Exclusive},
		names: []string{"n", "a{b}", "n"},
		lines: true,
	},
	{
		ops:   "- acquire acquire acquire acquire release release release release inspect advance SET FLUSHALL",
		modes: []node.Mode{node.Exclusive},
		names: lockNames,
		lines: true,
		pairs: true,
	},
}

func (about subject) claim(t *rapid.T) node.Claim {
	return node.Claim{
		Name:  rapid.SampledFrom(about.names).Draw(t, "name"),
		Owner: rapid.SampledFrom(owners).Draw(t, "owner"),
		Token: node.Token(rapid.IntRange(1, 12).Draw(t, "token")),
	}
}

func above(t *rapid.T, token node.Token, what string) node.Token {
	step := rapid.IntRange(-1, 2).Draw(t, what)
	if step < 0 {
		return 0
	}
	return token + node.Token(step)
}

func (about subject) step(unit time.Duration) *rapid.Generator[step] {
	return rapid.Custom(func(t *rapid.T) (s step) {
		op := rapid.SampledFrom(strings.Fields(about.ops)).Draw(t, "op")
		switch op {
		case "-":
		case "advance":
			s.advance = time.Duration(rapid.IntRange(1, 6).Draw(t, "time")) * unit
		case "FLUSHALL":
			s.redis = []string{op}
		case "DEL", "PERSIST", "PEXPIRE":
			s.redis = []string{op, rapid.SampledFrom(keys).Draw(t, "key")}
			if op == "PEXPIRE" {
				s.redis = append(s.redis, fmt.Sprint(drawLife(t, "time", 6, unit).Milliseconds()))
			}
		case "SET":
			s.redis = []string{op, rapid.SampledFrom(about.names).Draw(t, "key"), "x"}
		case "HSET":
			field := rapid.SampledFrom([][]string{{"java", "1"}, {"a", "1"}, {"b", "1"},
				{node.ModeField, "read"}}).Draw(t, "field")
			s.redis = append([]string{op, rapid.SampledFrom(about.names).Draw(t, "key")}, field...)
		default:
			s.cmd = about.command(t, kinds[op], unit)
		}
		return s
	})
}

// drawLife draws how long a key lives, up to so many units. If a server's time is
// inexact, keys expire halfway between steps.
func drawLife(t *rapid.T, what string, most int, unit time.Duration) time.Duration {
	d := time.Duration(rapid.IntRange(1, most).Draw(t, what)) * unit
	if unit > time.Millisecond {
		d += unit / 2
	}
	return d
}

func (about subject) command(t *rapid.T, kind node.Kind, unit time.Duration) node.Command {
	c := node.Command{Kind: kind, Claims: []node.Claim{about.claim(t)}, Retention: drawLife(t, "keep", 16, unit),
		Wait: &node.Wait{}}
	if kind == node.Acquire || kind == node.Release || kind == node.Extend || kind == node.Rename {
		c.Mode = rapid.SampledFrom(about.modes).Draw(t, "mode")
	}
	if kind == node.Rename {
		c.From = rapid.SampledFrom(owners).Draw(t, "from")
	}
	if kind == node.Acquire || kind == node.Extend || kind == node.Rename { // it is rounded up
		c.TTL = drawLife(t, "ttl", 8, unit) - rapid.SampledFrom([]time.Duration{0, 1, time.Millisecond - 1}).Draw(t,
			"odd")
	}
	if kind == node.Extend {
		c.Claims = rapid.SliceOfN(rapid.Custom(about.claim), 1, 3).Draw(t, "claims")
	}
	if kind != node.Acquire && kind != node.Release && kind != node.Rename {
		return c
	}
	if about.lines && kind != node.Rename {
		drawWait(t, &c, unit)
	}
	if c.Mode == node.Exclusive && (about.pairs || rapid.IntRange(0, 2).Draw(t, "several") == 2) {
		more := c.Claims[0]
		more.Name = rapid.SampledFrom(lockNames).Filter(func(name string) bool { return name != more.Name }).Draw(t,
			"more")
		c.Claims = append(c.Claims, more)
		c.Wait.Reserve = kind == node.Acquire && c.Wait.Stays() && rapid.Bool().Draw(t, "reserve")
	} else if kind == node.Acquire && c.Wait.Stays() {
		if c.Wait.Offer = above(t, c.Claims[0].Token, "stands"); c.Wait.Offer != 0 {
			c.Wait.Secret = secret
		}
	}
	return c
}

// drawWait usually gives a command a waiter, and a release a hand-over.
func drawWait(t *rapid.T, c *node.Command, unit time.Duration) {
	if rapid.IntRange(0, 4).Draw(t, "in line") > 0 {
		c.Wait.Ticket = node.Token(rapid.IntRange(1, 4).Draw(t, "ticket"))
		c.Wait.Waiter = rapid.SampledFrom(waiters).Draw(t, "waiter") + suffixes[c.Mode]
		c.Wait.Barge = rapid.Bool().Draw(t, "barge")
		if rapid.IntRange(0, 12).Draw(t, "stays") > 0 {
			c.Wait.PlaceTTL = drawLife(t, "place", 12, unit)
		}
	}
	if c.Kind == node.Release {
		if rapid.IntRange(0, 9).Draw(t, "offer") == 9 {
			c.Claims[0].Owner = offers[0]
		}
		c.HandOver = above(t, c.Claims[0].Token, "next")
	}
}

type race struct {
	systems []System
	seen    map[string]int
	done    int
	looked  time.Time // when advance was begun last
	late    string    // how a server was late: the rest cannot be compared
	rule    []string  // steps that did something, as a rule's lines with the first system's answers
	looks   []string  // later steps, which only look at names
}

func (r *race) run(program []step) error {
	if err := r.all(func(s System) error { return s.Do("FLUSHALL") }); err != nil {
		return err
	}
	r.looked = time.Now()
	for _, s := range program {
		if err := r.play(s); err != nil {
			return fmt.Errorf("%w\nAs a rule, with the answers of %s:\n\nmodes exclusive\n\n# The systems differ.\nlisten %s\n%s",
				err, r.systems[0].Name, strings.Join(listeners, " "), strings.Join(append(r.rule, r.looks...), "\n"))
		}
		if r.late != "" {
			return nil
		}
	}
	return nil
}

func (r *race) play(s step) error {
	r.looks = nil
	switch {
	case s.cmd.Kind != 0:
		return r.submit(s.cmd)
	case s.advance > 0:
		r.rule = append(r.rule, s.String())
		return r.advance(s.advance)
	case len(s.redis) == 0:
		return nil
	}
	wrong := ""
	err := r.all(func(sys System) error {
		if err := sys.Do(s.redis...); !errors.Is(err, node.ErrWrongType) {
			return err
		}
		wrong = " -> error wrong-type"
		return nil // HSET of a string: all refuse, as what is there then shows
	})
	r.rule = append(r.rule, s.String()+wrong)
	if err != nil {
		return err
	}
	return r.inspect(lockNames...)
}

func (r *race) all(f func(System) error) error {
	for _, s := range r.systems {
		if err := f(s); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return nil
}

// advance lets d pass everywhere. With 0 it takes back what passed unasked, unless that
// was so much that keys may have expired.
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

// submit requires equal replies to one command, and then equal states of its names.
func (r *race) submit(cmd node.Command) error {
	if err := r.compare(cmd); err != nil || cmd.Kind == node.Inspect {
		return err
	}
	var names []string
	for _, c := range cmd.Claims {
		names = append(names, c.Name)
	}
	return r.inspect(names...)
}

func (r *race) inspect(names ...string) error {
	for _, name := range names {
		if err := r.compare(r.systems[0].inspect(name)); err != nil {
			return fmt.Errorf("then %q: %w", name, err)
		}
	}
	return nil
}

func (r *race) compare(cmd node.Command) error {
	if err := r.advance(0); err != nil {
		return err
	}
	r.done++
	var want node.Reply
	for i, sys := range r.systems {
		cmd.Deadline = sys.soon()
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
			r.note(cmd, got)
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

func (r *race) note(cmd node.Command, got node.Reply) {
	if cmd.Kind != node.Inspect {
		r.rule = append(r.rule, commandText(cmd)+" -> "+join(replyText(got)))
		return
	}
	for _, verb := range []string{"inspect", "fences", "queue"} {
		r.looks = append(r.looks, join([]string{verb, cmd.Claims[0].Name})+" -> "+
			join(lookText(verb, got, node.Exclusive, "")))
	}
}

// same requires that got is what was answered before.
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
	return a.Type == b.Type && a.Fence == b.Fence && near(a.TTL, b.TTL, slack) &&
		fmt.Sprint(a.Fields) == fmt.Sprint(b.Fields) &&
		a.Readers == b.Readers && a.More == b.More && a.Behind == b.Behind &&
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
