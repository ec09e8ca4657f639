package nodetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/node"
)

// redquorums is an owner that is not of another make.
const redquorums = "8743c9c0-0795-8907-87fd-6c719a6b4586:1"

// suffixes end the names of waiters.
var suffixes = [...]string{node.Exclusive: "", node.Read: node.ReadSuffix, node.Write: node.WriteSuffix}

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

// reserving keeps places for all names.
func reserving(cmd node.Command) node.Command {
	return withWait(cmd, func(w *node.Wait) { w.Reserve = true })
}

// handing lets a release hand the lock on.
func handing(next node.Token, cmd node.Command) node.Command {
	cmd.Handoff = next
	return cmd
}

// waiters returns the living waiters of a name in the order of its queue.
func (f fixture) waiters(name string) (all []string) {
	f.Helper()
	for _, place := range f.state(name).Queue {
		all = append(all, place.Waiter)
	}
	return all
}

// wantQueue requires these waiters in this order. Their names get the suffix of the test's mode.
func (f fixture) wantQueue(waiters ...string) {
	f.Helper()
	f.wantLine(name, waiters...)
}

// wantLine requires them in the queue of a name, each with a whole life.
func (f fixture) wantLine(name string, waiters ...string) {
	f.Helper()
	f.wantWaiters(name, waiters...)
	for _, place := range f.state(name).Queue {
		f.wantLife(place.TTL, life)
	}
}

// wantWaiters requires them, however long their places are kept.
func (f fixture) wantWaiters(name string, waiters ...string) {
	f.Helper()
	var want []string
	for _, waiter := range waiters {
		want = append(want, waiter+suffixes[f.mode])
	}
	if got := f.waiters(name); !slices.Equal(got, want) {
		f.Errorf("the queue of %q is %q, want %q", name, got, want)
	}
}

// wantBehind requires a refusal with so many before.
func (f fixture) wantBehind(ahead int, ttl time.Duration, cmd node.Command) node.Reply {
	f.Helper()
	r := f.want(node.Refused, cmd)
	if r.Line.Ahead != ahead {
		f.Errorf("%d ahead, want %d", r.Line.Ahead, ahead)
	}
	f.wantLife(r.TTL, ttl)
	return r
}

var queueRules = []rule{
	{"a free name without a queue is granted, as without a ticket", func(f fixture) {
		f.want(node.Granted, inLine(1, "me", f.acquire(name, "a", 5)))
		f.wantState(name, 5, life, "a")
		f.wantQueue()
		f.want(node.Refused, f.acquire(name, "b", 6))
		f.want(node.Released, f.release(name, "a", 5))
		f.wantState(name, 5, 0)
	}},
	{"executed twice it does no harm", func(f fixture) {
		f.want(node.Granted, inLine(1, "me", f.acquire(name, "a", 5)))
		f.want(node.Granted, inLine(1, "me", f.acquire(name, "a", 9)))
		f.wantState(name, 5, life, "a")
		f.wantQueue()
	}},
	{"a token at or below the fence is stale, and makes a place", func(f fixture) {
		f.want(node.Absent, f.release(name, "x", 5))
		f.wantTold(node.Stale, 5, inLine(2, "me", f.acquire(name, "a", 5)))
		f.want(node.Stale, impatient(inLine(1, "other", f.acquire(name, "b", 5))))
		f.wantQueue("me")
		f.wantBehind(1, life, inLine(3, "third", f.acquire(name, "c", 6)))
	}},
	{"a refused waiter has a place, in the order of the tickets", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.wantBehind(0, life, inLine(7, "seven", f.acquire(name, "s", 6)))
		f.wantBehind(1, life, inLine(9, "nine", f.acquire(name, "n", 7)))
		f.wantBehind(1, life, inLine(8, "eight", f.acquire(name, "e", 8)))
		f.wantTold(node.Refused, 5, inLine(3, "three", f.acquire(name, "t", 9)))
		f.wantQueue("three", "seven", "eight", "nine")
	}},
	{"equal tickets are in the order of the waiters", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.wantBehind(0, life, inLine(7, "b", f.acquire(name, "x", 6)))
		f.wantBehind(1, life, inLine(7, "a", f.acquire(name, "y", 7))) // it has no place yet
		f.wantQueue("a", "b")
	}},
	{"asking again keeps the place", func(f fixture) {
		f.want(node.Granted, lasting(9*life, f.acquire(name, "a", 5)))
		f.want(node.Refused, inLine(1, "one", f.acquire(name, "x", 6)))
		f.want(node.Refused, inLine(2, "two", f.acquire(name, "y", 7)))
		f.must(f.Advance(life / 2))
		f.want(node.Refused, inLine(2, "two", f.acquire(name, "y2", 8)))
		f.want(node.Refused, inLine(1, "one", f.acquire(name, "x2", 9)))
		f.wantQueue("one", "two")
		f.must(f.Advance(life/2 + time.Second))
		f.wantWaiters(name, "one", "two")
	}},
	{"the largest ticket is exact", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.want(node.Refused, inLine(node.MaxToken, "last", f.acquire(name, "x", 6)))
		f.want(node.Refused, inLine(node.MaxToken-1, "last but one", f.acquire(name, "y", 7)))
		f.wantQueue("last but one", "last")
		if q := f.state(name).Queue; q[0].Ticket != node.MaxToken-1 || q[1].Ticket != node.MaxToken {
			f.Errorf("the queue is %+v", q)
		}
	}},
	{"when it is free it is the first one's, and the others get the TTL of its place", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.want(node.Refused, inLine(1, "one", f.acquire(name, "x", 6)))
		f.want(node.Refused, inLine(2, "two", f.acquire(name, "y", 7)))
		f.must(f.Advance(life / 2))
		f.want(node.Released, f.release(name, "a", 5))
		f.wantBehind(1, life/2, inLine(2, "two", f.acquire(name, "y", 8)))
		f.wantBehind(2, life/2, inLine(3, "three", f.acquire(name, "z", 9)))
		f.want(node.Granted, inLine(1, "one", f.acquire(name, "x", 10)))
		f.wantQueue("two", "three")
		f.wantState(name, 10, life, "x")
		f.want(node.Released, f.release(name, "x", 10))
		f.wantBehind(1, life, inLine(3, "three", f.acquire(name, "z", 11)))
		f.want(node.Granted, inLine(2, "two", f.acquire(name, "y", 12)))
	}},
	{"a waiter that does not ask again drops out", func(f fixture) {
		f.want(node.Granted, lasting(9*life, f.acquire(name, "a", 5)))
		f.want(node.Refused, inLine(1, "one", f.acquire(name, "x", 6)))
		f.want(node.Refused, inLine(2, "two", f.acquire(name, "y", 7)))
		f.want(node.Refused, inLine(3, "three", f.acquire(name, "z", 8)))
		f.must(f.Advance(life / 2))
		f.want(node.Refused, inLine(3, "three", f.acquire(name, "z", 9)))
		f.must(f.Advance(life/2 + time.Second))
		f.wantWaiters(name, "three")
		f.want(node.Released, f.release(name, "a", 5))
		f.want(node.Granted, inLine(3, "three", f.acquire(name, "z", 10)))
		f.wantQueue()
	}},
	{"a caller that does not wait has no place, and takes no other's", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.wantBehind(0, life, impatient(inLine(1, "one", f.acquire(name, "x", 6))))
		f.wantQueue()
		f.want(node.Refused, inLine(2, "two", f.acquire(name, "y", 7)))
		f.want(node.Refused, impatient(inLine(2, "two", f.acquire(name, "y", 8))))
		f.wantQueue("two")
		f.want(node.Released, f.release(name, "a", 5))
		f.wantBehind(1, life, impatient(inLine(3, "three", f.acquire(name, "z", 9))))
		f.want(node.Granted, impatient(inLine(1, "one", f.acquire(name, "x", 10))))
	}},
	{"a refused waiter has a place, though its token is not above the fence", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.wantBehind(0, life, inLine(1, "one", f.acquire(name, "x", 5)))
		f.want(node.Released, f.release(name, "a", 5))
		f.wantQueue("one")
		f.want(node.Granted, inLine(1, "one", f.acquire(name, "x", 6)))
	}},
	{"a waiter that gives up leaves the queue", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.want(node.Refused, inLine(1, "one", f.acquire(name, "x", 6)))
		f.want(node.Refused, inLine(2, "two", f.acquire(name, "y", 7)))
		f.want(node.Absent, impatient(inLine(1, "one", f.release(name, "x", 6))))
		f.wantQueue("two")
		f.want(node.Absent, impatient(inLine(1, "one", f.release(name, "x", 6))))
		f.wantState(name, 6, life, "a")
	}},
	{"a partial grant is given back with the place", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.want(node.Refused, inLine(1, "one", f.acquire(name, "x", 6)))
		f.want(node.Refused, inLine(2, "two", f.acquire(name, "y", 7)))
		f.want(node.Released, f.release(name, "a", 5))
		f.want(node.Granted, inLine(1, "one", f.acquire(name, "x", 8)))
		f.want(node.Released, inLine(1, "one", f.release(name, "x", 8)))
		f.wantQueue("one", "two")
		f.wantBehind(1, life, inLine(2, "two", f.acquire(name, "y", 9)))
		f.want(node.Granted, inLine(1, "one", f.acquire(name, "x", 10)))
		f.want(node.Released, impatient(inLine(1, "one", f.release(name, "x", 10))))
		f.wantQueue("two")
	}},
	{"giving back what was not granted makes no place, and takes none", func(f fixture) {
		f.want(node.Absent, inLine(1, "one", f.release(name, "x", 6)))
		f.wantQueue()
		f.wantState(name, 6, 0)
		f.want(node.Granted, f.acquire(name, "a", 7))
		f.want(node.Refused, inLine(1, "one", f.acquire(name, "x", 8)))
		f.want(node.Absent, inLine(1, "one", f.release(name, "x", 8)))
		f.wantQueue("one")
	}},
	{"one who is less patient does not shorten another's place", func(f fixture) {
		f.want(node.Granted, lasting(9*life, f.acquire(name, "a", 5)))
		f.want(node.Refused, staying(3*life, inLine(1, "one", f.acquire(name, "x", 6))))
		f.want(node.Refused, inLine(2, "two", f.acquire(name, "y", 7)))
		f.pass()
		f.wantWaiters(name, "one")
	}},
	{"a key that is not a hash is a wrong type, and the queue is left", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.want(node.Refused, inLine(1, "one", f.acquire(name, "x", 6)))
		f.must(f.Do("SET", name, "x"))
		f.wantErr(node.ErrWrongType, inLine(1, "one", f.acquire(name, "x", 7)))
		f.wantQueue("one")
		f.wantErr(node.ErrWrongType, impatient(inLine(1, "one", f.release(name, "x", 7))))
		f.wantQueue()
	}},
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
	{"any text is a name, and any text a waiter", func(f fixture) {
		for _, name := range []string{"foo", "a{b}c", "x{y", "{}", "two words", "\x00\xff\r\n", "%s"} {
			waiter := "w " + name
			f.want(node.Granted, f.acquire(name, "a", 5))
			f.want(node.Refused, inLine(1, waiter, f.acquire(name, "b", 6)))
			f.wantLine(name, waiter)
			f.want(node.Released, f.release(name, "a", 5))
			f.want(node.Granted, inLine(1, waiter, f.acquire(name, "b", 7)))
		}
	}},
	{"a release is published on the name's channel, and that a place was given up is not", func(f fixture) {
		b := f.watch(name)
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.want(node.Refused, inLine(1, "one", f.acquire(name, "x", 6)))
		f.want(node.Refused, inLine(2, "two", f.acquire(name, "y", 7)))
		f.want(node.Absent, impatient(inLine(2, "two", f.release(name, "y", 7))))
		f.silent(b)
		f.want(node.Released, f.release(name, "a", 5))
		f.rings(b)
		f.want(node.Absent, impatient(inLine(1, "one", f.release(name, "x", 6))))
		f.silent(b)
		f.want(node.Granted, inLine(4, "four", f.acquire(name, "w", 9)))
		f.want(node.Released, inLine(4, "four", f.release(name, "w", 9)))
		f.rings(b)
	}},
	{"a lock with more than 64 fields may be of another make", func(f fixture) {
		for i := range 65 {
			f.must(f.Do("HSET", name, fmt.Sprint(redquorums, i), "1"))
			f.must(f.Do("PEXPIRE", name, fmt.Sprint(life.Milliseconds())))
			if r := f.want(node.Refused, inLine(1, "one", f.acquire(name, "x", 6))); r.Line.Foreign != (i >= 64) {
				f.Errorf("%d fields are foreign: %v", i+1, r.Line.Foreign)
			}
		}
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
	{"a refusal tells whether there is a lock, and of another make", func(f fixture) {
		const own, redisson = redquorums, "8743c9c0-0795-4907-87fd-6c719a6b4586:1"
		for _, c := range []struct {
			owner string
			want  bool
		}{{own, false}, {redisson, true}, {"a", true}} {
			f.want(node.Granted, f.acquire(name, c.owner, 5))
			if r := f.want(node.Refused, inLine(1, "one", f.acquire(name, "x", 6))); r.Line.Foreign != c.want || r.Line.Free {
				f.Errorf("%q is foreign: %v, or free: %v", c.owner, r.Line.Foreign, r.Line.Free)
			}
			f.want(node.Released, f.release(name, c.owner, 0))
			if r := f.want(node.Refused, inLine(2, "two", f.acquire(name, "y", 7))); r.Line.Foreign || !r.Line.Free {
				f.Errorf("what is free is foreign: %v, or free: %v", r.Line.Foreign, r.Line.Free)
			}
			f.want(node.Granted, inLine(1, "one", f.acquire(name, "x", 8)))
			f.want(node.Released, inLine(1, "one", f.release(name, "x", 0)))
			f.want(node.Absent, impatient(inLine(2, "two", f.release(name, "y", 0))))
			f.must(f.Do("DEL", node.FenceKey(name)))
		}
	}},
	{"a waiter that was notified and has not asked since is passed over", func(f fixture) {
		first, second := f.watchFor("first:a"), f.watchFor("second:b")
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.want(node.Refused, inLine(1, "first:a", f.acquire(name, "x", 6)))
		f.want(node.Refused, inLine(2, "second:b", f.acquire(name, "y", 7)))
		told := func(token node.Token, mine, other bell) {
			f.Helper()
			f.want(node.Released, f.release(name, "a", token))
			f.rings(mine)
			f.silent(other)
			f.want(node.Granted, f.acquire(name, "a", token+1))
		}
		told(8, first, second)
		f.wantQueue("first:a", "second:b") // with as much life as before
		told(9, second, first)
		f.want(node.Released, f.release(name, "a", 10))
		f.silent(first)
		f.silent(second)
		f.want(node.Granted, f.acquire(name, "a", 11))
		f.want(node.Refused, inLine(1, "first:a", f.acquire(name, "x", 12)))
		told(13, first, second)
	}},
	{"a refusal has the highest ticket in the queue, of any waiter", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "a", 5))
		for _, ticket := range []node.Token{30, 20, 25} {
			if r := f.want(node.Refused, inLine(ticket, fmt.Sprint(ticket), f.acquire(name, "x", 6))); r.Line.Last != 30 {
				f.Errorf("told of %d, want 30", r.Line.Last)
			}
		}
		if r := f.want(node.Refused, impatient(inLine(95, "try", f.acquire(name, "v", 6)))); r.Line.Last != 30 {
			f.Errorf("told of %d, want 30", r.Line.Last)
		}
	}},
	{"a process is notified of the names that it waits for", func(f fixture) {
		mine, other := f.watchFor("me:1"), f.watchName("other", "me:2")
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.want(node.Refused, inLine(1, "me:1", f.acquire(name, "x", 6)))
		f.want(node.Released, f.release(name, "a", 5))
		f.rings(mine)
		f.silent(other)
	}},
	{"a release says whether anybody is in line, and whether anybody listens who is not", func(f fixture) {
		says := func(awaited, others bool, release node.Command) {
			f.Helper()
			if r := f.want(node.Released, release); r.Line.Awaited != awaited || r.Line.Others != others {
				f.Errorf("awaited: %v, others: %v; want %v, %v", r.Line.Awaited, r.Line.Others, awaited, others)
			}
		}
		f.watchFor("you")
		f.want(node.Granted, f.acquire(name, "a", 5))
		says(false, false, f.release(name, "a", 5))
		f.want(node.Granted, inLine(1, "me", f.acquire(name, "a", 6)))
		says(false, false, impatient(inLine(1, "me", f.release(name, "a", 6))))
		f.want(node.Granted, f.acquire(name, "a", 7))
		f.want(node.Refused, inLine(2, "you", f.acquire(name, "b", 8)))
		says(true, false, f.release(name, "a", 7))
		f.watch(name)
		f.want(node.Granted, inLine(1, "me", f.acquire(name, "a", 8)))
		says(true, true, impatient(inLine(1, "me", f.release(name, "a", 8))))
		f.want(node.Absent, f.release(name, "a", 9))
	}},
	{"a queue of the dead is no queue", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.want(node.Refused, inLine(1, "one", f.acquire(name, "x", 6)))
		f.must(f.Advance(life + time.Second))
		f.want(node.Absent, inLine(2, "two", f.release(name, "y", 7)))
		f.wantQueue()
		f.want(node.Granted, inLine(9, "nine", f.acquire(name, "z", 8)))
	}},
}

var queueSeveralRules = []rule{
	{"free names without a queue are all granted, as without a ticket", func(f fixture) {
		cmd := inLine(1, "me", of(f.acquire(name, "a", 5), several...))
		f.want(node.Granted, cmd)
		f.want(node.Granted, cmd)
		f.wantStates(several, 5, life, "a")
		f.want(node.Released, inLine(1, "me", of(f.release(name, "a", 5), several...)))
		f.wantStates(several, 5, 0)
	}},
	{"a refused waiter is queued on each name that is in its way, and on no other", func(f fixture) {
		held := several[:2]
		f.want(node.Granted, of(f.acquire(name, "h", 5), held...))
		f.wantBehind(0, life, inLine(1, "me", of(f.acquire(name, "a", 6), several...)))
		f.wantLine(several[0], "me")
		f.wantLine(several[1], "me")
		f.wantLine(several[2])
		f.want(node.Released, f.release(several[0], "h", 5))
		f.wantBehind(0, life, inLine(1, "me", of(f.acquire(name, "a", 7), several...)))
		f.wantLine(several[0])
		f.wantLine(several[1], "me")
		f.want(node.Granted, f.acquire(several[2], "h", 8))
		f.want(node.Released, f.release(several[1], "h", 5))
		f.wantBehind(0, life, inLine(1, "me", of(f.acquire(name, "a", 9), several...)))
		f.wantLine(several[1])
		f.wantLine(several[2], "me")
		f.want(node.Released, f.release(several[2], "h", 8))
		f.want(node.Granted, inLine(1, "me", of(f.acquire(name, "a", 10), several...)))
		f.wantStates(several, 10, life, "a")
		for _, name := range several {
			f.wantLine(name)
		}
	}},
	{"it is served when it is first in each line", func(f fixture) {
		f.want(node.Granted, of(f.acquire(name, "h", 5), several...))
		f.want(node.Refused, inLine(1, "one", f.acquire(several[1], "x", 6)))
		f.wantBehind(1, life, inLine(2, "me", of(f.acquire(name, "a", 7), several...)))
		f.wantBehind(1, life, inLine(3, "three", f.acquire(several[0], "z", 8)))
		f.want(node.Released, of(f.release(name, "h", 5), several...))
		if r := f.wantBehind(1, life, inLine(2, "me", of(f.acquire(name, "a", 9), several...))); !r.Line.Free {
			f.Error("no lock is in its way")
		}
		f.wantLine(several[0], "three")
		f.wantLine(several[1], "one", "me")
		f.want(node.Granted, inLine(1, "one", f.acquire(several[1], "x", 10)))
		f.want(node.Released, f.release(several[1], "x", 10))
		f.want(node.Granted, inLine(2, "me", of(f.acquire(name, "a", 11), several...)))
		f.wantLine(several[0], "three")
	}},
	{"a waiter that barges takes all free names, though others are before it", func(f fixture) {
		f.want(node.Granted, of(f.acquire(name, "h", 5), several...))
		f.want(node.Refused, inLine(1, "one", f.acquire(several[1], "x", 6)))
		f.want(node.Released, of(f.release(name, "h", 5), several[0], several[1]))
		f.want(node.Refused, barging(inLine(2, "me", of(f.acquire(name, "a", 7), several...))))
		f.wantLine(several[1], "one")
		f.wantLine(several[2], "me")
		f.want(node.Released, f.release(several[2], "h", 5))
		f.want(node.Granted, barging(inLine(2, "me", of(f.acquire(name, "a", 8), several...))))
		f.wantStates(several, 8, life, "a")
		f.wantLine(several[1], "one")
	}},
	{"two who ask for the same names in another order are in the same order", func(f fixture) {
		ab, ba := []string{several[0], several[1]}, []string{several[1], several[0]}
		f.want(node.Granted, of(f.acquire(name, "h", 5), ab...))
		f.want(node.Refused, inLine(2, "two", of(f.acquire(name, "b", 6), ba...)))
		f.want(node.Refused, inLine(1, "one", of(f.acquire(name, "a", 7), ab...)))
		f.want(node.Released, of(f.release(name, "h", 5), ab...))
		f.want(node.Refused, inLine(2, "two", of(f.acquire(name, "b", 8), ba...)))
		f.wantLine(several[0], "one", "two")
		f.wantLine(several[1], "one", "two")
		f.want(node.Granted, inLine(1, "one", of(f.acquire(name, "a", 9), ab...)))
	}},
	{"a refusal has the longest TTL of the locks in the way, and the highest fence", func(f fixture) {
		f.want(node.Granted, lasting(3*life, f.acquire(several[0], "h", 9)))
		f.want(node.Granted, f.acquire(several[1], redquorums, 5))
		if r := f.wantBehind(0, 3*life, inLine(1, "me", of(f.acquire(name, "a", 10), several...))); r.Fence != 9 || !r.Line.Foreign || r.Line.Free {
			f.Errorf("fence %d, foreign: %v, free: %v", r.Fence, r.Line.Foreign, r.Line.Free)
		}
		f.want(node.Released, f.release(several[0], "h", 9))
		if r := f.wantBehind(0, life, inLine(1, "me", of(f.acquire(name, "a", 10), several...))); r.Fence != 9 || r.Line.Foreign {
			f.Errorf("fence %d, foreign: %v", r.Fence, r.Line.Foreign)
		}
		f.must(f.Do("PERSIST", several[1]))
		f.wantBehind(0, node.NoExpiry, inLine(1, "me", of(f.acquire(name, "a", 10), several...)))
	}},
	{"a token at or below one fence is stale, and makes all places", func(f fixture) {
		f.want(node.Absent, f.release(several[1], "x", 7))
		f.wantTold(node.Stale, 7, inLine(1, "me", of(f.acquire(name, "a", 7), several...)))
		for _, name := range several {
			f.wantLine(name, "me")
		}
		f.want(node.Stale, impatient(inLine(2, "you", barging(of(f.acquire(name, "b", 7), several...)))))
		f.wantLine(several[0], "me")
	}},
	{"names that are the owner's stay, and the others are created, or waited for", func(f fixture) {
		f.want(node.Granted, lasting(3*life, f.acquire(several[0], "a", 5)))
		f.want(node.Granted, f.acquire(several[1], "h", 5))
		f.wantBehind(0, life, inLine(1, "me", of(f.acquire(name, "a", 6), several...)))
		f.wantLine(several[0])
		f.wantLine(several[1], "me")
		f.want(node.Released, f.release(several[1], "h", 5))
		f.want(node.Granted, inLine(1, "me", of(f.acquire(name, "a", 7), several...)))
		f.wantState(several[0], 5, 3*life, "a")
		f.wantState(several[1], 7, life, "a")
	}},
	{"a waiter that gives up a free name, because another is held, notifies only the next in its queue", func(f fixture) {
		a, b := several[0], several[1]
		next := f.watchName(a, "next:2")
		others := f.watch(a)
		f.want(node.Granted, of(f.acquire(name, "h", 5), a, b))
		me := inLine(1, "me:1", of(f.acquire(name, "m", 6), a, b))
		f.want(node.Refused, me)
		f.want(node.Refused, inLine(2, "next:2", f.acquire(a, "n", 7)))
		f.want(node.Refused, me)
		f.silent(next) // nothing is free
		mine := f.watchName(a, "me:1")
		f.want(node.Released, f.release(a, "h", 5))
		f.rings(mine)
		f.rings(others)
		f.silent(next)
		f.want(node.Refused, me)
		f.rings(next)
		f.silent(others)
		f.wantLine(a, "next:2")
		f.wantLine(b, "me:1")
		f.want(node.Refused, me)
		f.silent(next) // it has no turn any more to pass on
		f.want(node.Granted, inLine(2, "next:2", f.acquire(a, "n", 8)))
		f.want(node.Released, f.release(a, "n", 8))
		f.silent(mine) // as long as it waits for the other
	}},
	{"a waiter that reserves keeps its place for a free name, too, until it no longer does", func(f fixture) {
		a, b := several[0], several[1]
		mine, next := f.watchName(a, "me:1"), f.watchName(a, "next:2")
		me := func(token node.Token) node.Command { return inLine(1, "me:1", of(f.acquire(name, "m", token), a, b)) }
		f.want(node.Granted, of(f.acquire(name, "h", 5), a, b))
		f.want(node.Refused, reserving(me(6)))
		f.want(node.Refused, standing(inLine(2, "next:2", f.acquire(a, "n", 7))))
		f.want(node.Released, handing(8, f.release(a, "h", 5)))
		f.rings(mine) // it has no standby claim
		if r := f.wantBehind(1, life, inLine(2, "next:2", f.acquire(a, "n", 9))); !r.Line.Free {
			f.Error("a waiter that was notified and has not come is waited for")
		}
		f.wantBehind(0, life, reserving(me(9)))
		f.wantLine(a, "me:1", "next:2")
		f.wantLine(b, "me:1")
		if r := f.wantBehind(1, life, inLine(2, "next:2", f.acquire(a, "n", 9))); r.Line.Free {
			f.Error("what is reserved counts as free")
		}
		f.silent(next)
		f.want(node.Refused, me(9))
		f.rings(next)
		f.want(node.Granted, inLine(2, "next:2", f.acquire(a, "n", 9)))
		f.want(node.Released, f.release(a, "n", 9))
		f.want(node.Refused, reserving(me(10)))
		f.want(node.Released, f.release(b, "h", 5))
		f.want(node.Granted, reserving(me(10)))
		f.wantLine(a)
		f.wantLine(b)
	}},
	{"a waiter that reserves keeps no name behind one that it lacks", func(f fixture) {
		a, b := several[0], several[1]
		next := f.watchName(b, "next:2")
		me := func(token node.Token) node.Command {
			return reserving(inLine(1, "me:1", of(f.acquire(name, "m", token), a, b)))
		}
		f.want(node.Granted, of(f.acquire(name, "h", 5), a, b))
		f.want(node.Refused, me(6))
		f.want(node.Refused, inLine(2, "next:2", f.acquire(b, "n", 7)))
		f.want(node.Released, f.release(b, "h", 5))
		f.want(node.Refused, me(8))
		f.rings(next)
		f.wantLine(a, "me:1")
		f.wantLine(b, "next:2")
		f.want(node.Granted, inLine(2, "next:2", f.acquire(b, "n", 9)))
		f.want(node.Refused, me(10)) // a is held, and so is b
		f.wantLine(b, "me:1")
		f.want(node.Released, f.release(b, "n", 9))
		f.want(node.Refused, inLine(3, "last:3", f.acquire(b, "l", 11)))
		if r := f.wantBehind(1, life, inLine(3, "last:3", f.acquire(b, "l", 11))); !r.Line.Free {
			f.Error("what is after the one in the way is reserved")
		}
	}},
	{"a waiter that gives up leaves all queues, and notifies the next where the name is free", func(f fixture) {
		a, b := several[0], several[1]
		nextA, nextB := f.watchName(a, "next:2"), f.watchName(b, "last:3")
		f.want(node.Granted, of(f.acquire(name, "h", 5), a, b))
		f.want(node.Refused, inLine(1, "me", of(f.acquire(name, "m", 6), a, b)))
		f.want(node.Refused, inLine(2, "next:2", f.acquire(a, "n", 7)))
		f.want(node.Refused, inLine(3, "last:3", f.acquire(b, "l", 8)))
		f.want(node.Released, f.release(b, "h", 5))
		f.rings(nextB) // the one before it does not listen
		f.want(node.Refused, inLine(3, "last:3", f.acquire(b, "l", 9)))
		f.want(node.Absent, impatient(inLine(1, "me", of(f.release(name, "m", 6), a, b))))
		f.wantLine(a, "next:2")
		f.wantLine(b, "last:3")
		f.rings(nextB)
		f.silent(nextA)
		f.wantState(a, 6, life, "h")
	}},
	{"a refusal tells the highest ticket in all queues, and a release whether anybody is in one, or listens", func(f fixture) {
		a, b := several[0], several[1]
		says := func(awaited, others bool, release node.Command) {
			f.Helper()
			if r := f.want(node.Released, release); r.Line.Awaited != awaited || r.Line.Others != others {
				f.Errorf("awaited: %v, others: %v", r.Line.Awaited, r.Line.Others)
			}
		}
		f.want(node.Granted, of(f.acquire(name, "h", 5), a, b))
		says(false, false, of(f.release(name, "h", 5), a, b))
		f.want(node.Granted, of(f.acquire(name, "h", 6), a, b))
		f.want(node.Refused, inLine(90, "late", f.acquire(a, "x", 7)))
		f.want(node.Refused, inLine(30, "early", f.acquire(b, "y", 7)))
		if r := f.want(node.Refused, impatient(inLine(95, "try", of(f.acquire(name, "z", 7), a, b)))); r.Line.Last != 90 || r.Line.Ahead != 1 {
			f.Errorf("told of %d with %d ahead", r.Line.Last, r.Line.Ahead)
		}
		f.watch(b)
		says(true, true, of(f.release(name, "h", 6), a, b))
	}},
	{"a release of several hands on each", func(f fixture) {
		first, second := f.watchFor("first:a"), f.watchName("another", "second:b")
		f.want(node.Granted, of(f.acquire(name, "a", 5), name, "another"))
		f.want(node.Refused, standing(inLine(1, "first:a", f.acquire(name, "x", 6))))
		f.want(node.Refused, standing(inLine(2, "second:b", f.acquire("another", "y", 7))))
		f.wantHanded(first, node.Standby("x"), handing(8, of(f.release(name, "a", 5), name, "another")))
		f.wantState("another", 8, life, node.Standby("y"))
		if turn := <-second.handed; turn.Owner != node.Standby("y") {
			f.Errorf("told %+v", turn)
		}
	}},
	{"a partial grant is given back with the places", func(f fixture) {
		f.want(node.Granted, inLine(1, "me", of(f.acquire(name, "a", 5), several...)))
		f.want(node.Refused, inLine(2, "you", f.acquire(several[2], "b", 6)))
		f.want(node.Released, inLine(1, "me", of(f.release(name, "a", 5), several...)))
		f.wantLine(several[0], "me")
		f.wantLine(several[2], "me", "you")
		f.want(node.Absent, inLine(1, "me", of(f.release(name, "a", 5), several...)))
	}},
	{"without some of them it is absent, but what is there is given back", func(f fixture) {
		f.want(node.Granted, f.acquire(several[1], "a", 5))
		f.want(node.Absent, inLine(1, "me", of(f.release(name, "a", 6), several...)))
		f.wantStates(several, 6, 0)
		f.wantLine(several[0])
		f.wantLine(several[1], "me")
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
