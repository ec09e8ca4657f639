package nodetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/node"
)

// redquorums is an owner that is not of another make.
const redquorums = "8743c9c0-0795-8907-87fd-6c719a6b4586:1"

// inLine gives a command a ticket, and patience for longer than a test takes. The waiter's name
// gets the suffix of the command's mode.
func inLine(ticket node.Token, waiter string, cmd node.Command) node.Command {
	return withWait(cmd, func(w *node.Wait) { w.Ticket, w.Waiter, w.PlaceTTL = ticket, waiter+suffixes[cmd.Mode], life })
}

// staying makes a waiter wait for another time.
func staying(d time.Duration, cmd node.Command) node.Command {
	return withWait(cmd, func(w *node.Wait) { w.PlaceTTL = d })
}

// impatient is of a caller that does not wait, or no more.
func impatient(cmd node.Command) node.Command { return staying(0, cmd) }

// barging does not let others go first.
func barging(cmd node.Command) node.Command {
	return withWait(cmd, func(w *node.Wait) { w.Barge = true })
}

// standing leaves a standby claim with the place, with the token of the claim.
func standing(cmd node.Command) node.Command { return standingWith(cmd.Claims[0].Token, cmd) }

func standingWith(token node.Token, cmd node.Command) node.Command {
	return withWait(cmd, func(w *node.Wait) { w.Standby = token })
}

// handing lets a release hand the lock on.
func handing(next node.Token, cmd node.Command) node.Command {
	cmd.Handoff = next
	return cmd
}

// wantQueue requires these waiters in this order, each with a whole life.
func (f fixture) wantQueue(waiters ...string) {
	f.Helper()
	f.wantLine(name, waiters...)
}

// wantLine requires them in the queue of a name. Their names get the suffix of the test's mode.
func (f fixture) wantLine(name string, waiters ...string) {
	f.Helper()
	queue := f.state(name).Queue
	if !slices.EqualFunc(queue, waiters, func(p node.Place, waiter string) bool { return p.Waiter == waiter+suffixes[f.mode] }) {
		f.Errorf("the queue of %q is %+v, want %q", name, queue, waiters)
	}
	for _, place := range queue {
		f.wantLife(place.TTL, life)
	}
}

// waiterRules are those of a waiter in any mode. The tables in next.go say when it has its turn.
var waiterRules = []goRule{
	{"the largest ticket is exact", func(f fixture) {
		f.want(node.Granted, f.rival().acquire(name, "a", 5))
		f.want(node.Refused, inLine(node.MaxToken, "last", f.acquire(name, "x", 6)))
		f.want(node.Refused, inLine(node.MaxToken-1, "last but one", f.acquire(name, "y", 7)))
		f.wantQueue("last but one", "last")
		if q := f.state(name).Queue; q[0].Ticket != node.MaxToken-1 || q[1].Ticket != node.MaxToken {
			f.Errorf("the queue is %+v", q)
		}
	}},
	{"a waiter that gives back a partial grant has its place again, until it gives up", func(f fixture) {
		back := inLine(1, "one", f.release(name, "x", 5))
		f.want(node.Absent, back) // it was not granted
		f.wantQueue()
		f.want(node.Granted, inLine(1, "one", f.acquire(name, "x", 6)))
		f.want(node.Released, back)
		f.wantQueue("one")
		f.want(node.Absent, back)
		f.want(node.Absent, inLine(2, "two", f.release(name, "y", 5)))
		f.wantQueue("one")
		f.want(node.Absent, impatient(back))
		f.wantQueue()
		f.want(node.Granted, inLine(1, "one", f.acquire(name, "x", 7)))
		f.want(node.Released, impatient(back))
		f.wantQueue()
	}},
	{"a place is kept for as long as its waiter says, whatever others say", func(f fixture) {
		f.want(node.Granted, lasting(9*life, f.rival().acquire(name, "a", 5)))
		f.want(node.Refused, inLine(2, "two", f.acquire(name, "x", 6)))
		f.want(node.Refused, staying(2*life, inLine(1, "one", f.acquire(name, "y", 7))))
		f.want(node.Refused, inLine(3, "three", f.acquire(name, "z", 8)))
		f.pass()
		f.wantQueue("one")
	}},
	{"a queue of the dead is no queue", func(f fixture) {
		f.want(node.Granted, f.rival().acquire(name, "a", 5))
		f.want(node.Refused, inLine(1, "one", f.acquire(name, "x", 6)))
		f.pass()
		f.want(node.Absent, inLine(2, "two", f.release(name, "y", 7)))
		f.wantQueue()
		f.want(node.Granted, inLine(9, "nine", f.acquire(name, "z", 8)))
	}},
	{"a key that is not a hash is a wrong type, and the queue is left", func(f fixture) {
		f.want(node.Granted, f.rival().acquire(name, "a", 5))
		f.want(node.Refused, inLine(1, "one", f.acquire(name, "x", 6)))
		f.must(f.Do("SET", name, "x"))
		f.wantErr(node.ErrWrongType, inLine(1, "one", f.acquire(name, "x", 7)))
		f.wantQueue("one")
		f.wantErr(node.ErrWrongType, impatient(inLine(1, "one", f.release(name, "x", 7))))
		f.wantQueue()
	}},
	{"any text is a name, and any text a waiter", func(f fixture) {
		for _, name := range texts {
			f.want(node.Granted, f.acquire(name, "a", 5))
			f.want(node.Released, inLine(1, "w "+name, f.release(name, "a", 5)))
			f.wantLine(name, "w "+name)
			f.want(node.Granted, inLine(1, "w "+name, f.acquire(name, "b", 7)))
		}
	}},
	{"a release is published on the name's channel, and that a place was given up is not", func(f fixture) {
		b, give := f.watch(name), inLine(1, "one", f.release(name, "x", 6))
		f.want(node.Granted, inLine(1, "one", f.acquire(name, "x", 6)))
		f.want(node.Released, give)
		f.rings(b)
		f.want(node.Absent, impatient(give))
		f.silent(b)
	}},
	{"a waiter that was notified is passed over until it asks again", func(f fixture) {
		first := f.watchFor("first:a")
		f.want(node.Granted, f.rival().acquire(name, "a", 5))
		f.want(node.Refused, inLine(1, "first:a", f.acquire(name, "x", 6)))
		f.want(node.Released, f.rival().release(name, "a", 5))
		f.rings(first)
		f.wantQueue("first:a") // with as much life as before
		f.want(node.Granted, f.rival().acquire(name, "a", 7))
		f.want(node.Released, f.rival().release(name, "a", 7))
		f.silent(first)
		f.want(node.Granted, f.rival().acquire(name, "a", 8))
		f.want(node.Refused, inLine(1, "first:a", f.acquire(name, "x", 9)))
		f.want(node.Released, f.rival().release(name, "a", 8))
		f.rings(first)
	}},
}

var queueRules = []goRule{
	{"a queue of another type keeps nobody's lock, and is left", func(f fixture) {
		f.must(f.Do("SET", node.QueueKey(name), "x"))
		b := f.watch(name)
		for i, release := range []node.Command{
			inLine(1, "one", f.release(name, "a", 5)),
			impatient(inLine(1, "one", f.release(name, "a", 6))),
			handing(20, f.release(name, "a", 7)),
			f.breakLock(name, 8),
		} {
			f.want(node.Granted, f.acquire(name, "a", node.Token(i+5)))
			f.want(node.Released, release)
			f.rings(b)
			f.wantErr(node.ErrWrongType, inLine(2, "two", f.acquire(name, "b", 100)))
			f.wantErr(node.ErrWrongType, f.inspect(name))
		}
		f.wantErr(node.ErrWrongType, f.read("r", 100)) // it looks at the queue without a ticket, too
		f.must(f.Do("DEL", node.QueueKey(name)))
		f.wantState(name, 8, 0)
	}},
	{"names that differ only in their braces have nothing in common", func(f fixture) {
		const plain, tagged = "a", "{a}"
		f.want(node.Granted, f.acquire(plain, "a", 9))
		f.want(node.Refused, inLine(1, "one", f.acquire(plain, "x", 10)))
		f.wantLine(tagged)
		f.want(node.Granted, inLine(2, "two", f.acquire(tagged, "b", 5)))
		f.wantState(tagged, 5, life, "b")
		f.wantLine(plain, "one")
		b := f.watchFor("one")
		f.want(node.Released, handing(11, inLine(2, "two", f.release(tagged, "b", 5))))
		f.silent(b)
		f.wantState(plain, 9, life, "a")
	}},
	{"a refusal says whether the lock is of another make, or may be, as it has more than 64 fields", func(f fixture) {
		ask := impatient(inLine(1, "one", f.acquire(name, "x", 6)))
		for owner, foreign := range map[string]bool{redquorums: false, "8743c9c0-0795-4907-87fd-6c719a6b4586:1": true, "a": true} {
			f.must(f.Do("FLUSHALL"))
			f.want(node.Granted, f.acquire(name, owner, 5))
			if r := f.want(node.Refused, ask); r.Line.Foreign != foreign {
				f.Errorf("%q is foreign: %v", owner, r.Line.Foreign)
			}
		}
		f.must(f.Do("FLUSHALL"))
		for i := range 65 {
			f.must(f.Do("HSET", name, fmt.Sprint(redquorums, i), "1"))
			if r := f.want(node.Refused, ask); r.Line.Foreign != (i >= 64) {
				f.Errorf("%d fields are foreign: %v", i+1, r.Line.Foreign)
			}
		}
	}},
}

// An each says what a command of one waiter does to each of several names. A name is written as its
// holder, which is x for another owner and m for the waiter's, and the tickets in its queue. The
// waiter has ticket 20, and does not listen. After a ticket there is what is special:
//
//   - it has left a standby claim
//     ^  its place reserves the name
//     t  it is notified
//     h  the lock is handed on to it
type each struct {
	does        string
	status      node.Status
	names, want []string
}

var eaches = []each{
	{"ask", node.Granted, []string{":", ":", ":"}, []string{"m:", "m:", "m:"}},
	{"ask", node.Granted, []string{"m:", ":", "m:"}, []string{"m:", "m:", "m:"}},
	{"ask", node.Granted, []string{": 20", ": 20 30", ":"}, []string{"m:", "m: 30", "m:"}},

	// It is queued for the names in its way, and gives up the others to those behind it.
	{"ask", node.Refused, []string{"x:", "x:", ":"}, []string{"x: 20", "x: 20", ":"}},
	{"ask", node.Refused, []string{":", "m:", "x:"}, []string{":", "m:", "x: 20"}},
	{"ask", node.Refused, []string{": 20", "x: 20", ":"}, []string{":", "x: 20", ":"}},
	{"ask", node.Refused, []string{": 20", ": 10 20", ": 30"}, []string{":", ": 10 20", ": 30"}},
	{"ask", node.Refused, []string{"x: 10 30", "x:", ": 10"}, []string{"x: 10 20 30", "x: 20", ": 10 20"}},
	{"ask", node.Refused, []string{": 20 30", "x: 20"}, []string{": 30t", "x: 20"}},
	{"ask", node.Refused, []string{": 30", "x: 20"}, []string{": 30", "x: 20"}},
	{"ask", node.Refused, []string{"x: 20 30", "x: 20"}, []string{"x: 20 30", "x: 20"}},
	{"ask impatiently", node.Refused, []string{": 20 30", "x: 10"}, []string{": 20 30", "x: 10"}},

	{"barge", node.Refused, []string{":", ": 10", "x:"}, []string{":", ": 10", "x: 20"}},
	{"barge", node.Granted, []string{":", ": 10", ": 20"}, []string{"m:", "m: 10", "m:"}},

	{"ask below a fence", node.Stale, []string{":", ":", ": 30"}, []string{": 20", ": 20", ": 20 30"}},
	{"ask below a fence", node.Stale, []string{"m:", ":"}, []string{"m:", ": 20"}},
	{"ask below a fence", node.Refused, []string{":", ":", "x:"}, []string{":", ":", "x: 20"}},

	// It reserves the names up to the first in its way.
	{"reserve", node.Refused, []string{": 20 30", "x: 20"}, []string{": 20^ 30", "x: 20^"}},
	{"reserve", node.Refused, []string{"x: 20", ": 20 30"}, []string{"x: 20^", ": 30t"}},
	{"reserve", node.Refused, []string{":", "x:", "x: 30", ":"}, []string{": 20^", "x: 20^", "x: 20 30", ":"}},
	{"reserve", node.Granted, []string{": 20", ": 20 30"}, []string{"m:", "m: 30"}},

	{"leave", node.Absent, []string{"x: 20 30", ": 20 30"}, []string{"x: 30", ": 30t"}},
	{"leave", node.Absent, []string{": 30", ": 10 20"}, []string{": 30", ": 10t"}},
	{"leave", node.Released, []string{"m:", "m: 20 30"}, []string{":", ": 30t"}},

	{"release", node.Released, []string{"m:", "m:", "m:"}, []string{":", ":", ":"}},
	{"release", node.Released, []string{"m: 10 30", "m:"}, []string{": 10t 30", ":"}},
	{"release", node.Absent, []string{":", "m: 30", "x:"}, []string{":", ": 30t", "x:"}},
	{"release while others listen", node.Released, []string{"m: 30+", "m:"}, []string{": 30t", ":"}},
	{"hand on", node.Released, []string{"m: 10+ 30", "m: 10 30+", "m:"}, []string{": 10h 30", ": 10t 30", ":"}},

	{"give back", node.Released, []string{"m:", "m: 30"}, []string{": 20", ": 20 30t"}},
	{"give back", node.Absent, []string{":", "m:", "x: 10"}, []string{":", ": 20", "x: 10"}},
}

// A side is one name of an each.
type side struct {
	holder string
	queue  []spot
}

func sideOf(text string) (s side) {
	holder, queue, _ := strings.Cut(text, ":")
	s.holder = holder
	for _, word := range strings.Fields(queue) {
		var one spot
		fmt.Sscanf(word, "%d%c", &one.ticket, &one.mark)
		one.kept = time.Duration(one.ticket/10) * life
		s.queue = append(s.queue, one)
	}
	return s
}

// before is how many are in the queue before the waiter of the table.
func (s side) before() int {
	return len(slices.DeleteFunc(slices.Clone(s.queue), func(s spot) bool { return s.ticket >= 20 }))
}

// inTheWay reports whether the name refuses the waiter.
func (s side) inTheWay(does string) bool {
	return s.holder == "x" || s.holder == "" && s.before() > 0 && does != "barge"
}

// line is what the reply says of the queues.
func (row each) line() (l node.Line) {
	l.Free = row.status == node.Refused
	for i, text := range row.names {
		is, becomes := sideOf(text), sideOf(row.want[i])
		switch mine := is.holder == "m"; {
		case row.status == node.Released:
			l.Awaited = l.Awaited || mine && (len(is.queue) > 0 || row.does == "give back")
			l.Others = row.does == "release while others listen"
		case row.status == node.Absent, row.status == node.Stale, mine:
		case len(becomes.queue) > 0:
			l.Last = max(l.Last, becomes.queue[len(becomes.queue)-1].ticket)
			fallthrough
		default:
			if is.inTheWay(row.does) {
				l.Ahead = max(l.Ahead, is.before())
			}
			l.Foreign = l.Foreign || is.holder == "x"
			l.Free = l.Free && is.holder == ""
		}
	}
	return l
}

// commandOf makes what a row begins with, and returns its command.
func (f fixture) commandOf(row each, names []string) node.Command {
	f.Helper()
	for i, text := range row.names {
		s := sideOf(text)
		f.lineUp(names[i], strings.Trim(s.holder, "m"), s.queue)
		if s.holder == "m" {
			f.want(node.Granted, f.acquire(names[i], "me", held))
		}
	}
	switch row.does {
	case "ask below a fence":
		f.want(node.Absent, f.release(names[1], "", next))
	case "release while others listen":
		f.watch(names[0])
	}
	me := spot{ticket: 20, kept: 20 * life}
	ask := of(f.asks(names[0], me, "me", next), names...)
	release := of(f.release(names[0], "me", held), names...)
	back := staying(me.kept, inLine(me.ticket, me.base(), release))
	return map[string]node.Command{
		"ask": ask, "ask below a fence": ask, "ask impatiently": impatient(ask), "barge": barging(ask),
		"reserve": withWait(ask, func(w *node.Wait) { w.Reserve = true }),
		"release": release, "release while others listen": handing(next, release), "hand on": handing(next, release),
		"give back": back, "leave": impatient(back),
	}[row.does]
}

// wantEach plays a row with these names.
func (f fixture) wantEach(row each, names []string, heard <-chan node.Turn) {
	f.Helper()
	what := fmt.Sprintf("%s: %q", row.does, row.names)
	cmd := f.commandOf(row, names)
	r := f.want(row.status, cmd)
	if line := row.line(); r.Line != line {
		f.Errorf("%s: %+v, want %+v", what, r.Line, line)
	}
	var turns []node.Turn
	for i, name := range names {
		is, becomes := sideOf(row.names[i]), sideOf(row.want[i])
		owners := map[string][]string{"x": {"h0"}, "m": {"me"}}[becomes.holder]
		fence := node.Token(0)
		switch {
		case is.holder != becomes.holder && cmd.Kind == node.Acquire, row.does == "ask below a fence" && i == 1:
			fence = next
		case is.holder != "", cmd.Kind == node.Release:
			fence = held
		}
		var left []spot
		for _, s := range becomes.queue {
			if s.ticket == 20 && cmd.Waiting().Stays() {
				s.kept = cmd.Waiting().PlaceTTL
			}
			switch {
			case s.mark == 'h' && r.Life != nil: // else the node hands nothing on
				turns = append(turns, node.Turn{Name: name, Owner: node.Standby(s.owner()), Token: next, Life: r.Life})
				owners, fence = append(owners, node.Standby(s.owner())), next
				continue
			case s.mark == 'h', s.mark == 't':
				turns = append(turns, node.Turn{Name: name, Waiter: s.waiter()})
			}
			left = append(left, s)
		}
		f.wantLeft(what, name, left)
		if got := f.wantOwners(what, name, node.Exclusive, owners); got.Fence != fence {
			f.Errorf("%s: fence %d, want %d", what, got.Fence, fence)
		}
		f.wantReserved(what, name, left)
	}
	f.wantTurns(what, heard, turns)
}

// wantReserved requires that the next to ask hears whether the waiter of the table, if it is the
// first, reserves a name.
func (f fixture) wantReserved(what, name string, queue []spot) {
	f.Helper()
	if len(queue) == 0 || queue[0].ticket != 20 {
		return
	}
	f.must(f.Do("DEL", name))
	r := f.want(node.Refused, impatient(inLine(90, "last", f.acquire(name, "l", next+1))))
	if reserved := queue[0].mark == '^'; r.Line.Free == reserved {
		f.Errorf("%s: %q is reserved: %v", what, name, !reserved)
	}
}

var queueSeveralRules = []goRule{
	{"a waiter gets all or none, and is in the queues of those that it waits for", func(f fixture) {
		heard := f.hear(spot{ticket: 10}, spot{ticket: 30})
		for i, row := range eaches {
			var names []string
			for k := range row.names {
				names = append(names, fmt.Sprint("each ", i, k))
			}
			f.wantEach(row, names, heard)
		}
	}},
	{"what is wrong with one keeps none of the others", func(f fixture) {
		for i, wrong := range several {
			token := node.Token(10 * (i + 1))
			f.want(node.Granted, inLine(1, "me", of(f.acquire(name, "a", token), several...)))
			f.must(f.Do("SET", wrong, "x"))
			f.wantErr(node.ErrWrongType, inLine(1, "me", of(f.acquire(name, "a", token+1), several...)))
			f.wantErr(node.ErrWrongType, impatient(inLine(1, "me", of(f.release(name, "a", token), several...))))
			f.must(f.Do("DEL", wrong))
			f.wantStates(several, token, 0)

			f.want(node.Granted, inLine(1, "me", of(f.acquire(name, "a", token+2), several...)))
			f.must(f.Do("SET", node.QueueKey(wrong), "x"))
			f.wantErr(node.ErrWrongType, inLine(1, "me", of(f.acquire(name, "b", token+3), several...)))
			f.want(node.Released, inLine(1, "me", of(f.release(name, "a", token+2), several...)))
			f.must(f.Do("DEL", node.QueueKey(wrong)))
			f.wantStates(several, token+2, 0)
			f.want(node.Absent, impatient(inLine(1, "me", of(f.release(name, "a", token+2), several...))))
		}
	}},
}
