package nodetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/node"
)

// This file has the rules of waiters of all modes in one queue, in tables: which waiters
// exclude others, and which are next.
//
// A table writes a queue as words, one for each waiter. The first has ticket 10 and a place for
// one life, the second ticket 20 and a place for two lives, and so on. A word begins with a mode:
//
//	x  exclusive
//	r  read
//	w  write
//
// The rest of the word says what is special:
//
//   - the waiter is dead
//     ?  its process does not listen
//     !  it was notified and has not asked since
//   - it has left a standby claim
//     =  it is another one with that ticket
var letters = map[byte]node.Mode{'x': node.Exclusive, 'r': node.Read, 'w': node.Write}

// A spot is a waiter of a table.
type spot struct {
	mode   node.Mode
	ticket node.Token
	mark   byte // 0 if there is none
	kept   time.Duration
}

func parseQueue(queue string) (spots []spot) {
	for i, word := range strings.Fields(queue) {
		s := spot{mode: letters[word[0]], ticket: node.Token(10 * (i + 1)), kept: time.Duration(i+1) * life}
		if len(word) > 1 {
			s.mark = word[1]
		}
		spots = append(spots, s)
	}
	return spots
}

// base is the waiter's name without the suffix of its mode.
func (s spot) base() string {
	switch s.mark {
	case '?':
		return fmt.Sprintf("deaf%d:1", s.ticket)
	case '=':
		return fmt.Sprintf("equals%d:1", s.ticket)
	}
	return fmt.Sprintf("listens%d:1", s.ticket)
}

func (s spot) waiter() string { return s.base() + suffixes[s.mode] }
func (s spot) owner() string  { return fmt.Sprint("o", s.ticket) }

// inTurn compares waiters in the order in which they are served.
func inTurn(a, b spot) int {
	return cmp.Or(cmp.Compare(a.ticket, b.ticket), cmp.Compare(a.waiter(), b.waiter()))
}

// asks is the Acquire of a waiter.
func (f fixture) asks(name string, s spot, owner string, token node.Token) node.Command {
	cmd := in(s.mode, f.acquire(name, owner, token))
	if s.ticket == 0 {
		return cmd
	}
	return staying(s.kept, inLine(s.ticket, s.base(), cmd))
}

// The tokens of a table: of those who ask, of the holders, and of a hand-off.
const (
	early, held, next = 5, 6, 9
)

// lineUp makes the queue of a row, and its holders h0, h1 and so on, which are named by the
// letters of their modes. They live for nine lives.
func (f fixture) lineUp(name, holders string, queue []spot) {
	f.Helper()
	f.must(f.Do("HSET", name, "before", "1"))
	for _, s := range queue {
		cmd := f.asks(name, s, s.owner(), early)
		if s.mark == '+' {
			cmd = standing(cmd)
		}
		f.want(node.Refused, cmd)
		switch key := node.PlaceKey(name, s.waiter()); s.mark {
		case '-':
			f.must(f.Do("DEL", key))
		case '!':
			f.must(f.Do("SET", key, node.PlaceTold))
			f.must(f.Do("PEXPIRE", key, fmt.Sprint(s.kept.Milliseconds())))
		}
	}
	f.must(f.Do("DEL", name))
	for i := range holders {
		cmd := in(letters[holders[i]], f.acquire(name, fmt.Sprint("h", i), held))
		f.want(node.Granted, impatient(inLine(1, "holder", lasting(9*life, cmd))))
	}
}

// lock is what stands for a holder among the tickets in the way.
const lock = 90

// A way says who is in the way of an Acquire.
type way struct {
	holders, queue string
	asks           string     // mode, ticket (0: none) and ! if it barges; a ticket of the queue is that waiter's
	first          node.Token // the ticket of the first in the way; 0: there is none
	ahead          int
}

var ways = []way{
	// Holders.
	{"", "", "r0", 0, 0},
	{"", "", "x10", 0, 0},
	{"", "", "r10", 0, 0},
	{"", "", "w10", 0, 0},
	{"r", "", "r0", 0, 0},
	{"x", "", "r0", lock, 0},
	{"w", "", "r10", lock, 0},
	{"r", "", "x0", lock, 0},
	{"r", "", "w10!", lock, 0},
	{"w", "r r", "r25", lock, 0},
	{"w", "r w", "r20", lock, 1},
	{"r", "r w", "w25", lock, 2},
	{"x", "x x", "x5", lock, 0},
	{"x", "x r", "x15", lock, 1},
	{"x", "x w", "r30", lock, 2},

	// Waiters that do not read exclude all, and readers exclude those.
	{"", "x", "x15", 10, 1},
	{"", "x", "w15", 10, 1},
	{"", "w", "x15", 10, 1},
	{"", "w", "w15", 10, 1},
	{"", "x", "r15", 10, 1},
	{"", "w", "r15", 10, 1},
	{"", "r", "x15", 10, 1},
	{"", "r", "w15", 10, 1},
	{"", "r", "r15", 0, 0},
	{"", "w w", "w5", 0, 0},
	{"", "x x", "x10", 0, 0},
	{"", "x x", "x20", 10, 1},
	{"", "x", "x10=", 10, 1},
	{"", "r r w", "w30", 10, 2},

	// Readers come together, up to the first that does not read.
	{"", "r r w r", "r20", 0, 0},
	{"", "r r w r", "r25", 0, 0},
	{"", "r r w r", "r40", 30, 1},
	{"", "r w r w r", "r50", 20, 3},
	{"r", "w", "r5", 0, 0},
	{"r", "w", "r15", 10, 1},
	{"r", "r w r", "r35", 20, 2},

	// No ticket: a reader comes after all, and others ignore the queue.
	{"", "r r", "r0", 0, 0},
	{"", "r r x r", "r0", 30, 0},
	{"r", "w", "r0", 10, 0},
	{"", "w r", "w0", 0, 0},
	{"", "w r", "x0", 0, 0},

	// To barge helps all but readers.
	{"", "w r", "w35!", 0, 0},
	{"", "w r", "x35!", 0, 0},
	{"", "w r", "r35!", 10, 2},
	{"r", "w", "r15!", 10, 1},

	// The dead are removed up to the first in the way. A reader looks at no readers.
	{"", "w- x-", "w35", 0, 0},
	{"", "w- w", "w35", 20, 1},
	{"", "w w-", "w35", 10, 2},
	{"", "r- w- r w", "w50", 30, 2},
	{"", "r w- r", "r35", 0, 0},
	{"", "r- x- w r", "r50", 30, 2},
	{"", "r- w-", "r0", 0, 0},
	{"x", "w- w", "w35", lock, 1},
}

// nexts say who is next.
var nexts = []struct {
	holders, does, queue string

	// The result for each waiter of the queue: t is notified, h is handed the lock, g only
	// loses its place, and . is nothing.
	want string
}{
	// The first alone.
	{"x", "release", "", ""},
	{"r", "hand on", "", ""},
	{"x", "release", "x x", "t ."},
	{"w", "release", "w w", "t ."},
	{"w", "release", "x w", "t ."},
	{"x", "break", "w+ r", "t ."},
	{"x", "release", "x- x- x x", ". . t ."},
	{"x", "release", "x? x! x x", ". . t ."},
	{"w", "release", "w! r x", ". t ."},
	{"x", "release", strings.Repeat("x? ", node.MaxTold-1) + "x", strings.Repeat(". ", node.MaxTold-1) + "t"},
	{"x", "release", strings.Repeat("x? ", node.MaxTold) + "x", strings.Repeat(". ", node.MaxTold) + "."},
	{"w", "release", strings.Repeat("r? ", node.MaxTold) + "r", strings.Repeat(". ", node.MaxTold) + "."},

	// Readers up to the first that does not read.
	{"x", "release", "r r w r", "t t . ."},
	{"w", "release", "r? r- r! r x r", ". . . t . ."},
	{"r", "break", "r+ r w", "t t ."},
	{"w", "release", strings.Repeat("r ", node.MaxTold+1) + "w", strings.Repeat("t ", node.MaxTold+1) + "."},

	// Nobody but such readers while readers hold.
	{"rr", "release", "w r", ". ."},
	{"rr", "release", "w? r", ". ."},
	{"rr", "release", "w! r", ". ."},
	{"rr", "release", "w- r", ". t"},
	{"rr", "release", "r r? r! r w r", "t . . t . ."},
	{"rr", "hand on", "r+ r w+", "t t ."},
	{"w", "downgrade", "r+ r w r", "t t . ."},
	{"w", "downgrade", "x r", ". ."},

	// One that leaves.
	{"", "leave", "w w r", ". t ."},
	{"", "leave", "x r r w", ". t t ."},
	{"r", "leave", "w r r w", ". t t ."},
	{"r", "leave", "w w r", ". . ."},
	{"w", "leave", "w r", ". ."},
	{"x", "leave", "r x", ". ."},

	// The lock is handed on, to one or to readers.
	{"x", "hand on", "x+ x+", "h ."},
	{"w", "hand on", "w+ r+", "h ."},
	{"w", "hand on", "x+ w+", "h ."},
	{"x", "hand on", "w+ x+", "h ."},
	{"r", "hand on", "w+ r+", "h ."},
	{"r", "hand on", "r+ w+", "h ."},
	{"w", "hand on", "r+ r+ w+ r+", "h h . ."},
	{"w", "hand on", "r+ r r+ x+", "h t h ."},
	{"w", "hand on", "r r+", "t h"},
	{"x", "hand on", "w- r+ w+", ". h ."},
	{"w", "hand on", strings.Repeat("r+ ", node.MaxTold+1) + "w+", strings.Repeat("h ", node.MaxTold+1) + "."},

	// It is not handed on to a waiter without a standby claim, nor past one that does not read.
	{"x", "hand on", "x x+", "t ."},
	{"w", "hand on", "w? w+", ". t"},
	{"w", "hand on", "w! w+", ". t"},
	{"w", "hand on", "x? r+ r+ w+", ". t t ."},
	{"w", "hand on", "r? w+ r+", ". h ."},
	{"w", "hand on", "r! r+", ". h"},

	// Nor is it while others listen on the name's channel.
	{"x", "hand on, others listen", "x+ x+", "t ."},
	{"w", "hand on, others listen", "r+ r+ w+", "t t ."},
	{"r", "release, others listen", "", ""},
	{"rr", "hand on, others listen", "r+ w+", "t ."},

	// The fences.
	{"w", "hand on, below FenceKey", "x+", "t"},
	{"w", "hand on, below FenceKey", "w+", "t"},
	{"w", "hand on, below FenceKey", "r+ r+", "t t"},
	{"w", "hand on, below ReadersKey", "x+", "t"},
	{"w", "hand on, below ReadersKey", "w+", "t"},
	{"w", "hand on, below ReadersKey", "r+ r+", "h h"},

	// A standby owner that reads already.
	{"w", "hand on, the first reads", "r+ r+ w+", "g h ."},
	{"w", "hand on, the first reads", "r+ w+", "g ."},
}

var nextRules = []goRule{
	{"a waiter is in the way of those behind it, unless both read", func(f fixture) {
		for i, row := range ways {
			for k, stays := range []time.Duration{0, 20 * life} {
				f.wantWay(fmt.Sprint("way ", i, k), row, stays, next)
				f.wantWay(fmt.Sprint("stale way ", i, k), row, stays, next-1)
			}
		}
	}},
	{"the next are notified, or are handed the lock: the first, or the readers up to the first that does not read", func(f fixture) {
		heard := f.hear(parseQueue(strings.Repeat("x ", node.MaxTold+2))...)
		for i, row := range nexts {
			name, queue, want := fmt.Sprint("next ", i), parseQueue(row.queue), row.want
			what := fmt.Sprintf("%q: %s, %q wait", row.holders, row.does, row.queue)
			f.lineUp(name, row.holders, queue)
			r := f.ends(name, row.holders, row.does, queue)
			others := strings.HasSuffix(row.does, "others listen") && row.holders != "rr"
			if line := (node.Line{Awaited: r.Status == node.Released && len(queue) > 0 && row.holders != "rr" && row.does != "break", Others: others}); r.Line != line {
				f.Errorf("%s: %+v, want %+v", what, r.Line, line)
			}
			if r.Life == nil { // the node hands nothing on
				want = strings.NewReplacer("h", "t", "g", "t").Replace(want)
			}
			var turns []node.Turn
			var left []spot
			mode, owners := stays(row.holders, row.does)
			ttl := time.Duration(0) // of what is handed on
			for i, becomes := range strings.Fields(want) {
				s := queue[i]
				switch becomes {
				case "h":
					turns = append(turns, node.Turn{Name: name, Owner: node.Standby(s.owner()), Token: next, Life: r.Life})
					mode, owners, ttl = s.mode, append(owners, node.Standby(s.owner())), max(ttl, s.kept)
				case "t":
					turns = append(turns, node.Turn{Name: name, Waiter: s.waiter()})
				}
				if becomes != "h" && becomes != "g" && (row.does != "leave" || i > 0) {
					left = append(left, s)
				}
			}
			f.wantTurns(what, heard, turns)
			f.wantLeft(what, name, left)
			got := f.wantOwners(what, name, mode, owners)
			if ttl == 0 {
				continue
			}
			if f.wantLife(got.TTL, ttl); mode == node.Read && got.Readers != next || mode != node.Read && got.Fence != next {
				f.Errorf("%s: fence %d, readers' %d", what, got.Fence, got.Readers)
			}
		}
	}},
	{"a group is of as many readers as are allowed", func(f fixture) {
		b := f.watchFor("group:1")
		f.must(f.Do("HSET", name, "before", "1"))
		for i := range node.MaxGroup + 2*node.MaxTold {
			f.want(node.Refused, inLine(node.Token(i+1), fmt.Sprint("group:", i), f.read(fmt.Sprint(i), 5)))
		}
		f.want(node.Released, f.release(name, "before", 6))
		for range node.MaxGroup {
			f.rings(b)
		}
		f.silent(b)
	}},
}

// wantWay plays a row: what an Acquire with this token comes to, and which owners and waiters there
// are then. The waiter stays for a time; 0: it does not. The fence is just below next.
func (f fixture) wantWay(name string, row way, stays time.Duration, token node.Token) {
	f.Helper()
	me, queue := spot{mode: letters[row.asks[0]], kept: stays}, parseQueue(row.queue)
	fmt.Sscanf(row.asks[1:], "%d%c", &me.ticket, &me.mark)
	f.lineUp(name, row.holders, queue)
	f.want(node.Absent, f.release(name, "", next-1))
	cmd := f.asks(name, me, "me", token)
	if me.mark == '!' {
		cmd = barging(cmd)
	}

	queued := me.ticket > 0
	mode, owners := heldBy(row.holders)
	want := node.Reply{Status: node.Refused, Fence: next - 1, TTL: time.Duration(row.first/10) * life}
	switch {
	case row.first > 0:
		want.Line = node.Line{Ahead: row.ahead, Free: queued && row.first != lock, Foreign: queued && row.first == lock}
	case token == next:
		want.Status, want.Fence = node.Granted, 0
		mode, owners = me.mode, append(owners, "me")
	default:
		want.Status = node.Stale
	}
	left := slices.DeleteFunc(queue, func(s spot) bool {
		mine := s.waiter() == me.waiter() && (want.Status == node.Granted || stays > 0)
		return mine || s.mark == '-' && (row.first == 0 || s.ticket < row.first)
	})
	if queued && stays > 0 && want.Status != node.Granted {
		left = append(left, me)
		slices.SortFunc(left, inTurn)
	}
	if queued && want.Status != node.Stale && len(left) > 0 {
		want.Line.Last = left[len(left)-1].ticket
	}

	what := fmt.Sprintf("%q holds, %q wait, %s asks with token %d for %v", row.holders, row.queue, row.asks, token, stays)
	r := f.reply(cmd)
	if r.Status != want.Status || r.Fence != want.Fence || r.Line != want.Line {
		f.Errorf("%s: %v (%v), fence %d, %+v; want %v, %d, %+v", what, r.Status, r.Err, r.Fence, r.Line, want.Status, want.Fence, want.Line)
	}
	f.wantLife(r.TTL, want.TTL)
	if want.Status == node.Granted {
		f.want(node.Granted, cmd) // executed twice it does no harm
	}
	f.wantLeft(what, name, left)
	f.wantOwners(what, name, mode, owners)
}

// heldBy returns the mode of a row's holders, and their names.
func heldBy(holders string) (mode node.Mode, owners []string) {
	for i := range holders {
		mode, owners = letters[holders[i]], append(owners, fmt.Sprint("h", i))
	}
	return mode, owners
}

// stays returns who of a row's holders has the lock still, and its mode.
func stays(holders, does string) (mode node.Mode, owners []string) {
	mode, owners = heldBy(holders)
	switch {
	case does == "downgrade":
		return node.Read, owners
	case does == "leave":
		return mode, owners
	case holders == "rr":
		return mode, owners[1:]
	}
	return node.Exclusive, nil
}

// hear returns what the processes of some waiters hear.
func (f fixture) hear(waiters ...spot) <-chan node.Turn {
	f.Helper()
	heard := make(chan node.Turn, 1000)
	for _, s := range waiters {
		f.Cleanup(f.Node.Listen(node.Process(s.base()), func(turn node.Turn) { heard <- turn }))
		<-heard // it begins
	}
	return heard
}

// wantTurns requires these turns in any order, and no others. Lives are of one server.
func (f fixture) wantTurns(what string, from <-chan node.Turn, want []node.Turn) {
	f.Helper()
	var got []string
	for limit := patience; ; {
		if len(got) >= len(want) {
			limit = brevity / 10
		}
		select {
		case turn := <-from:
			got = append(got, turnText(turn))
			continue
		case <-time.After(limit):
		}
		break
	}
	var all []string
	for _, turn := range want {
		all = append(all, turnText(turn))
	}
	slices.Sort(got)
	slices.Sort(all)
	if !slices.Equal(got, all) {
		f.Errorf("%s: heard %q, want %q", what, got, all)
	}
}

// turnText tells all of a turn.
func turnText(turn node.Turn) string {
	text := fmt.Sprintf("%s: to %s%s %d", turn.Name, turn.Waiter, turn.Owner, turn.Token)
	if turn.Life != nil {
		text += fmt.Sprintf(" in %+v", *turn.Life)
	}
	return text
}

// wantLeft requires the living of these waiters in a queue, each with the life of its place.
func (f fixture) wantLeft(what, name string, spots []spot) {
	f.Helper()
	spots = slices.DeleteFunc(slices.Clone(spots), func(s spot) bool { return s.mark == '-' })
	places := f.state(name).Queue
	if !slices.EqualFunc(places, spots, func(p node.Place, s spot) bool { return p.Waiter == s.waiter() && p.Ticket == s.ticket }) {
		f.Fatalf("%s: the queue is %+v, want %+v", what, places, spots)
	}
	for i, place := range places {
		f.wantLife(place.TTL, spots[i].kept)
	}
}

// wantOwners requires a lock of these owners.
func (f fixture) wantOwners(what, name string, mode node.Mode, owners []string) node.State {
	f.Helper()
	got := f.state(name)
	if fields, all := fieldsIn(got), fieldsOf(mode, owners...); !slices.Equal(fields, all) {
		f.Errorf("%s: the lock is %q, want %q", what, fields, all)
	}
	return got
}

// ends does to a lock what a row says.
func (f fixture) ends(name, holders, does string, queue []spot) node.Reply {
	f.Helper()
	cmd, want := f.breakLock(name, held), node.Released
	switch what, special, _ := strings.Cut(does, ", "); what {
	case "release", "hand on":
		cmd = in(letters[holders[0]], f.release(name, "h0", held))
		if what == "hand on" {
			cmd.Handoff = next
		}
		switch special {
		case "below FenceKey":
			f.must(f.Do("SET", node.FenceKey(name), fmt.Sprint(next)))
		case "below ReadersKey":
			f.must(f.Do("SET", node.ReadersKey(name), fmt.Sprint(next)))
		case "the first reads":
			f.must(f.Do("SET", node.HoldKey(name, node.Standby(queue[0].owner())), "1"))
		case "others listen":
			f.watchIn(name, letters[holders[0]])
		}
	case "downgrade":
		cmd, want = f.downgrade(name, "h0"), node.Done
	case "leave":
		first := queue[0]
		cmd, want = impatient(inLine(first.ticket, first.base(), in(first.mode, f.release(name, first.owner(), 0)))), node.Absent
	}
	return f.want(want, cmd)
}
