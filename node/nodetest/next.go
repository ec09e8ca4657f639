package nodetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/node"
)

// This file has the rules of waiters of all modes in one queue, in tables: which waiters
// exclude others, and which are next.
//
// A table writes a queue as words, one for each waiter. The first has ticket 10, the second 20,
// and so on. A word begins with a mode:
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
var letters = map[byte]node.Mode{'x': node.Exclusive, 'r': node.Read, 'w': node.Write}

// A spot is a waiter of a table.
type spot struct {
	mode   node.Mode
	ticket node.Token
	mark   byte // 0 if there is none
}

func parse(queue string) (spots []spot) {
	for i, word := range strings.Fields(queue) {
		s := spot{mode: letters[word[0]], ticket: node.Token(10 * (i + 1))}
		if len(word) > 1 {
			s.mark = word[1]
		}
		spots = append(spots, s)
	}
	return spots
}

// base is the waiter's name without the suffix of its mode.
func (s spot) base() string {
	if s.mark == '?' {
		return fmt.Sprintf("deaf%d:1", s.ticket)
	}
	return fmt.Sprintf("listens%d:1", s.ticket)
}

func (s spot) waiter() string { return s.base() + suffixes[s.mode] }
func (s spot) owner() string  { return fmt.Sprint("o", s.ticket) }

// asks is the Acquire of a waiter.
func (f fixture) asks(name string, s spot, token node.Token) node.Command {
	return inLine(s.ticket, s.base(), in(s.mode, f.acquire(name, s.owner(), token)))
}

// The tokens of a table: of those who ask, of the holders, and of a hand-off.
const (
	early, held, next = 5, 6, 9
)

// lineUp makes the queue of a row, and its holders h0, h1 and so on, which are named by the
// letters of their modes. The holders live for nine lives, a place for one, the place of ticket
// 20 for two, and so on.
func (f fixture) lineUp(name, holders string, queue []spot) {
	f.Helper()
	f.must(f.Do("HSET", name, "before", "1"))
	for _, s := range queue {
		cmd := staying(time.Duration(s.ticket/10)*life, f.asks(name, s, early))
		if s.mark == '+' {
			cmd = standing(cmd)
		}
		f.want(node.Refused, cmd)
		switch key := node.PlaceKey(name, s.waiter()); s.mark {
		case '-':
			f.must(f.Do("DEL", key))
		case '!':
			f.must(f.Do("SET", key, node.PlaceTold))
			f.must(f.Do("PEXPIRE", key, fmt.Sprint(life.Milliseconds())))
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

// ways say who is in the way of an Acquire.
var ways = []struct {
	holders, queue string
	asks           string // mode, ticket (0: none) and ! if it barges; a ticket of the queue is that waiter's
	first          int    // the ticket of the first in the way; 0: it is granted
	ahead          int
}{
	// Holders.
	{"", "", "r0", 0, 0},
	{"r", "", "r0", 0, 0},
	{"x", "", "r0", lock, 0},
	{"w", "", "r10", lock, 0},
	{"r", "", "x0", lock, 0},
	{"r", "", "w10!", lock, 0},
	{"w", "r r", "r25", lock, 0},
	{"w", "r w", "r20", lock, 1},
	{"r", "r w", "w25", lock, 2},

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

var nextRules = []rule{
	{"a waiter is in the way of those behind it, unless both read", func(f fixture) {
		for i, row := range ways {
			var s spot
			s.mode = letters[row.asks[0]]
			ticket, barges := strings.CutSuffix(row.asks[1:], "!")
			fmt.Sscan(ticket, &s.ticket)
			name, queue := fmt.Sprint("way ", i), parse(row.queue)
			f.lineUp(name, row.holders, queue)
			cmd, status := in(s.mode, f.acquire(name, "me", next)), node.Refused
			if s.ticket > 0 {
				cmd = impatient(f.asks(name, s, next))
			}
			if barges {
				cmd = barging(cmd)
			}
			if row.first == 0 {
				status = node.Granted
			}
			what := fmt.Sprintf("%q holds, %q wait, %s asks", row.holders, row.queue, row.asks)
			r := f.reply(cmd)
			if r.Status != status || r.Line.Ahead != row.ahead || r.Line.Free != (s.ticket > 0 && row.first > 0 && row.first != lock) {
				f.Errorf("%s: %v (%v), %+v; want %v, %d ahead", what, r.Status, r.Err, r.Line, status, row.ahead)
			}
			f.wantLife(r.TTL, time.Duration(row.first/10)*life)
			f.wantLeft(what, name, slices.DeleteFunc(queue, func(other spot) bool {
				return status == node.Granted && other.waiter() == s.waiter()
			}))
		}
	}},
	{"the next are notified, or are handed the lock: the first, or the readers up to the first that does not read", func(f fixture) {
		heard := make(chan node.Turn, 1000)
		for _, s := range parse(strings.Repeat("x ", node.MaxTold+2)) {
			f.Cleanup(f.Node.Listen(node.Process(s.base()), func(turn node.Turn) { heard <- turn }))
			<-heard // it begins
		}
		for i, row := range nexts {
			name, queue, want := fmt.Sprint("next ", i), parse(row.queue), row.want
			what := fmt.Sprintf("%q: %s, %q wait", row.holders, row.does, row.queue)
			f.lineUp(name, row.holders, queue)
			life := f.ends(name, row.holders, row.does, queue[0])
			if strings.HasPrefix(row.does, "hand on") && life == nil { // the node hands nothing on
				want = strings.NewReplacer("h", "t", "g", "t").Replace(want)
			}
			var turns []node.Turn
			var left []spot
			mode, owners := stays(row.holders, row.does)
			for i, becomes := range strings.Fields(want) {
				s := queue[i]
				switch becomes {
				case "h":
					turns = append(turns, node.Turn{Name: name, Owner: node.Standby(s.owner()), Token: next, Life: life})
					mode, owners = s.mode, append(owners, node.Standby(s.owner()))
				case "t":
					turns = append(turns, node.Turn{Name: name, Waiter: s.waiter()})
				}
				if becomes != "h" && becomes != "g" && (row.does != "leave" || i > 0) {
					left = append(left, s)
				}
			}
			f.wantTurns(what, heard, turns)
			f.wantLeft(what, name, left)
			got := f.state(name)
			if fields, all := fieldsIn(got), fieldsOf(mode, owners...); !slices.Equal(fields, all) {
				f.Errorf("%s: the lock is %q, want %q", what, fields, all)
			}
			if strings.Contains(want, "h") && (mode == node.Read && got.Readers != next || mode != node.Read && got.Fence != next) {
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

// stays returns who of a row's holders has the lock still, and its mode.
func stays(holders, does string) (mode node.Mode, owners []string) {
	switch {
	case holders == "rr":
		return node.Read, []string{"h1"}
	case does == "downgrade":
		return node.Read, []string{"h0"}
	case does == "leave" && holders != "":
		return letters[holders[0]], []string{"h0"}
	}
	return node.Exclusive, nil
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

// wantLeft requires the living of these waiters in a queue.
func (f fixture) wantLeft(what, name string, spots []spot) {
	f.Helper()
	var want []string
	for _, s := range spots {
		if s.mark != '-' {
			want = append(want, s.waiter())
		}
	}
	if got := f.waiters(name); !slices.Equal(got, want) {
		f.Errorf("%s: the queue is %q, want %q", what, got, want)
	}
}

// ends does to a lock what a row says, and returns the node's life.
func (f fixture) ends(name, holders, does string, first spot) *node.Life {
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
			f.must(f.Do("SET", node.HoldKey(name, node.Standby(first.owner())), "1"))
		}
	case "downgrade":
		cmd, want = f.downgrade(name, "h0"), node.Done
	case "leave":
		cmd, want = impatient(inLine(first.ticket, first.base(), in(first.mode, f.release(name, first.owner(), 0)))), node.Absent
	}
	return f.want(want, cmd).Life
}
