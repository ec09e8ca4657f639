package nodetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/redquorum/redquorum/node"
)

func (f fixture) read(owner string, token node.Token) node.Command {
	return in(node.Read, f.acquire(name, owner, token))
}

func (f fixture) write(owner string, token node.Token) node.Command {
	return in(node.Write, f.acquire(name, owner, token))
}

// endShared ends what an owner has in whichever mode.
func (f fixture) endShared(owner string, token node.Token) node.Command {
	cmd := in(node.Write, f.release(name, owner, token))
	cmd.Turn = life / 2
	return cmd
}

// wantShared requires a hash of these fields and a life of about ttl. No field is
// no key.
func (f fixture) wantShared(ttl time.Duration, fields ...string) {
	f.Helper()
	got := f.state(name)
	var have []string
	for _, field := range got.Fields {
		have = append(have, field.Name+"="+field.Value)
	}
	if strings.Join(have, " ") != strings.Join(fields, " ") || (got.Type == "none") != (len(fields) == 0) {
		f.Errorf("a %s of %q, want %q", got.Type, have, fields)
	}
	f.wantLife(got.TTL, ttl)
}

// wantFences requires the fence and the highest token of a reader.
func (f fixture) wantFences(fence, readers node.Token) {
	f.Helper()
	if got := f.state(name); got.Fence != fence || got.Readers != readers {
		f.Errorf("fence %d and readers' %d, want %d and %d", got.Fence, got.Readers, fence, readers)
	}
}

func (f fixture) wantIntent(waiter string, ttl time.Duration) {
	f.Helper()
	got := f.state(name)
	if got.Intent != waiter {
		f.Errorf("intent of %q, want %q", got.Intent, waiter)
	}
	f.wantLife(got.IntentTTL, ttl)
}

// lasting gives a command another TTL.
func lasting(ttl time.Duration, cmd node.Command) node.Command {
	cmd.TTL = ttl
	return cmd
}

// pass lets a hold of one life expire.
func (f fixture) pass() { f.Helper(); f.must(f.Advance(life + time.Second)) }

var readRules = []rule{
	{"readers share", func(f fixture) {
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Granted, f.read("b", 6))
		f.wantShared(life, "a=1", "b=1", "mode=read")
		f.wantFences(0, 6)
	}},
	{"a reader with a lower token than another is not stale, and the highest stays", func(f fixture) {
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Granted, f.read("b", 4))
		f.wantFences(0, 5)
	}},
	{"executed twice it does no harm", func(f fixture) {
		cmd := f.read("a", 5)
		f.want(node.Granted, cmd)
		f.want(node.Granted, in(node.Read, lasting(9*life, f.acquire(name, "a", 9))))
		f.wantShared(life, "a=1", "mode=read")
		f.wantFences(0, 5)
		f.want(node.Released, f.endShared("a", 5))
		f.wantShared(0)
	}},
	{"a writer is in the way, with its life and the fence", func(f fixture) {
		f.want(node.Granted, f.write("w", 5))
		r := f.want(node.Refused, f.read("a", 4)) // it comes before a stale token
		f.wantLife(r.TTL, life)
		if r.Fence != 5 {
			f.Errorf("fence %d, want 5", r.Fence)
		}
		f.wantShared(life, "mode=write", "w:write=1")
	}},
	{"a plain lock is in the way, and readers are in its", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "p", 5))
		f.want(node.Refused, f.read("a", 6))
		f.want(node.Released, f.release(name, "p", 5))
		f.want(node.Granted, f.read("a", 6))
		f.wantLife(f.want(node.Refused, f.acquire(name, "p", 7)).TTL, life)
	}},
	{"a token at or below the fence is stale", func(f fixture) {
		f.want(node.Absent, f.endShared("a", 5))
		for token := node.Token(4); token <= 5; token++ {
			if r := f.want(node.Stale, f.read("a", token)); r.Fence != 5 {
				f.Errorf("fence %d, want 5", r.Fence)
			}
		}
		f.wantShared(0)
		f.wantFences(5, 0)
		f.want(node.Granted, f.read("a", 6))
	}},
	{"a command delayed until after its own release is stale, also while others read", func(f fixture) {
		cmd := f.read("a", 5)
		f.want(node.Granted, cmd)
		f.want(node.Granted, f.read("b", 6))
		f.want(node.Released, f.endShared("a", 5))
		f.want(node.Stale, cmd)
		f.wantShared(life, "b=1", "mode=read")
	}},
	{"a key that is not a hash is a wrong type", func(f fixture) {
		f.must(f.Do("SET", name, "x"))
		f.wantErr(node.ErrWrongType, f.read("a", 5))
		f.wantErr(node.ErrWrongType, f.endShared("a", 5))
		if got := f.state(name); got.Type != "string" || got.Fence != 5 || got.Readers != 0 {
			f.Errorf("after it: %+v", got)
		}
	}},
	{"the key lives as long as the longest reader", func(f fixture) {
		f.want(node.Granted, lasting(2*life, f.read("a", 5)))
		f.want(node.Granted, lasting(5*life, f.read("b", 6)))
		f.want(node.Granted, f.read("c", 7))
		f.wantShared(5*life, "a=1", "b=1", "c=1", "mode=read")
		f.want(node.Released, f.endShared("b", 6))
		f.wantShared(2*life, "a=1", "c=1", "mode=read")
		f.want(node.Released, f.endShared("c", 7))
		f.wantShared(2*life, "a=1", "mode=read")
		f.want(node.Released, f.endShared("a", 5))
		f.wantShared(0)
	}},
	{"a dead reader is granted anew, if its token may", func(f fixture) {
		cmd := f.read("a", 5)
		f.want(node.Granted, cmd)
		f.want(node.Granted, lasting(9*life, f.read("b", 6)))
		f.pass()
		f.want(node.Granted, cmd)
		f.wantKept(in(node.Read, f.extend(life, node.Claim{Name: name, Owner: "a"})), true)
		f.pass()
		f.want(node.Absent, f.endShared("x", 6))
		f.want(node.Stale, cmd)
	}},
	{"a dead reader is nothing to release for, and goes", func(f fixture) {
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Granted, lasting(9*life, f.read("b", 6)))
		f.pass()
		f.want(node.Released, f.endShared("b", 6))
		f.wantShared(0)
	}},
	{"with the dead removed the living stay", func(f fixture) {
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Granted, lasting(9*life, f.read("b", 6)))
		f.want(node.Granted, lasting(5*life, f.read("c", 7)))
		f.pass()
		f.want(node.Released, f.endShared("b", 6))
		f.wantShared(4*life, "c=1", "mode=read")
	}},
	{"of many readers one is enough to keep the lock, wherever it is, and none to end it", func(f fixture) {
		const many = 150
		for i := range many {
			ttl := life
			if i == 77 {
				ttl = 5 * life
			}
			f.want(node.Granted, lasting(ttl, f.read(fmt.Sprint("r", i), 5)))
		}
		f.want(node.Granted, lasting(9*life, f.read("longest", 6)))
		f.want(node.Refused, f.write("w", 7))
		f.want(node.Released, f.endShared("longest", 6))
		if left := f.state(name).TTL; left < 5*life-time.Second {
			f.Errorf("gone in %v, and a reader has %v", left, 5*life)
		}
		f.pass()
		f.want(node.Granted, f.read("last", 8))
		f.want(node.Refused, f.write("w", 9))
		f.want(node.Released, f.endShared("last", 8))
		f.want(node.Refused, f.write("w", 9))
		f.want(node.Released, f.endShared("r77", 5))
		f.wantShared(0)
		f.want(node.Granted, f.write("w", 9))
	}},
	{"a reader's release leaves a writer alone", func(f fixture) { // Redisson lets a writer read, too
		f.want(node.Granted, f.write("w", 5))
		f.must(f.Do("HSET", name, "a", "1"))
		f.want(node.Released, f.endShared("a", 6))
		f.wantShared(life, "mode=write", "w:write=1")
	}},
	{"a writer's release leaves readers", func(f fixture) {
		f.want(node.Granted, f.write("w", 5))
		for _, reader := range []string{"a", "b"} {
			f.must(f.Do("HSET", name, reader, "1"))
		}
		f.must(f.Do("SET", node.HoldKey(name, "a"), "1"))
		f.want(node.Released, f.endShared("w", 5))
		f.wantShared(life, "a=1", "mode=read")
		f.want(node.Granted, f.read("c", 6))
	}},
	{"another's field is not released", func(f fixture) {
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Absent, f.endShared("b", 4))
		f.wantShared(life, "a=1", "mode=read")
	}},
	{"extending raises the reader's life and the key's, and shortens neither", func(f fixture) {
		claim := node.Claim{Name: name, Owner: "a"}
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Granted, lasting(3*life, f.read("b", 6)))
		f.wantKept(in(node.Read, f.extend(2*life, claim)), true)
		f.wantShared(3*life, "a=1", "b=1", "mode=read")
		f.pass()
		f.wantKept(in(node.Read, f.extend(life/2, claim)), true)
		f.wantKept(in(node.Read, f.extend(9*life, claim)), true)
		f.wantShared(9*life, "a=1", "b=1", "mode=read")
		f.want(node.Released, f.endShared("b", 6))
		f.wantShared(9*life, "a=1", "mode=read")
	}},
	{"a dead reader's claim is not kept, nor another's, nor that of no key", func(f fixture) {
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Granted, lasting(9*life, f.read("b", 6)))
		f.pass()
		f.wantKept(in(node.Read, f.extend(20*life, node.Claim{Name: name, Owner: "a"}, node.Claim{Name: name, Owner: "x"},
			node.Claim{Name: name, Owner: "b"}, node.Claim{Name: "free", Owner: "b"})), false, false, true, false)
		f.must(f.Do("SET", "string", "x"))
		f.wantKept(in(node.Read, f.extend(life, node.Claim{Name: "string", Owner: "b"})), false)
	}},
	{"a break ends all readers", func(f fixture) {
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Granted, f.read("b", 6))
		f.want(node.Released, f.breakLock(name, 7))
		f.wantShared(0)
		f.wantKept(in(node.Read, f.extend(life, node.Claim{Name: name, Owner: "a"})), false)
		f.want(node.Stale, f.read("a", 5))
	}},
	{"a hash of somebody else's holds nobody up", func(f fixture) {
		for _, value := range []string{"inf", "300000000", "-1", "many"} {
			f.must(f.Do("HSET", name, "ratio", value))
			f.must(f.Do("HSET", name, node.ModeField, "read"))
			if got := f.state(name); len(got.Fields) != 2 {
				f.Errorf("%q: %+v", value, got)
			}
			f.want(node.Granted, f.write("a", 5)) // whose reader is nobody
			f.want(node.Released, f.endShared("a", 5))
			f.must(f.Do("DEL", name))
			f.must(f.Do("DEL", node.FenceKey(name)))
		}
	}},
	{"any text is a name, and any text an owner", func(f fixture) {
		for _, name := range []string{"foo", "a{b}c", "x{y", "{}", "two words", "\x00\xff\r\n", "%s"} {
			owner := "o " + name
			f.want(node.Granted, in(node.Read, f.acquire(name, owner, 5)))
			f.want(node.Refused, in(node.Write, f.acquire(name, "w", 6)))
			f.wantKept(in(node.Read, f.extend(life, node.Claim{Name: name, Owner: owner})), true)
			f.want(node.Released, in(node.Read, f.release(name, owner, 5)))
			f.wantState(name, 5, 0)
			f.want(node.Granted, in(node.Write, f.acquire(name, owner, 6)))
			f.want(node.Released, in(node.Write, f.release(name, owner, 6)))
			f.wantState(name, 6, 0)
		}
	}},
	{"the last reader's release wakes, and a writer's", func(f fixture) {
		b, plain := f.watchMode(node.Write), f.watch(name)
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Granted, f.read("b", 6))
		f.want(node.Released, f.endShared("a", 5))
		f.silent(b)
		f.want(node.Released, f.endShared("b", 6))
		f.rings(b)
		f.want(node.Granted, f.write("w", 7))
		f.silent(b)
		f.want(node.Released, f.endShared("w", 7))
		f.rings(b)
		f.silent(plain)
	}},
	{"a break wakes readers and writers", func(f fixture) {
		b := f.watchMode(node.Read)
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Released, f.breakLock(name, 6))
		f.rings(b)
	}},
}

var writeRules = []rule{
	{"a free name is granted, and the fence raised", func(f fixture) {
		f.want(node.Granted, f.write("w", 5))
		f.wantShared(life, "mode=write", "w:write=1")
		f.wantFences(5, 0)
		f.want(node.Released, f.endShared("w", 5))
		f.wantShared(0)
	}},
	{"executed twice it does no harm", func(f fixture) {
		f.want(node.Granted, f.write("w", 5))
		f.want(node.Granted, lasting(9*life, f.write("w", 9)))
		f.wantShared(life, "mode=write", "w:write=1")
		f.wantFences(5, 0)
	}},
	{"a plain lock is in the way, and whoever waits for it leaves no intent", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "p", 5))
		r := f.want(node.Refused, waiting("me", f.write("w", 6)))
		f.wantLife(r.TTL, life)
		if r.Fence != 5 {
			f.Errorf("fence %d, want 5", r.Fence)
		}
		f.wantIntent("", 0)
	}},
	{"another writer is in the way, and whoever waits for it leaves an intent, but not in place of readers", func(f fixture) {
		f.want(node.Granted, f.write("v", 5))
		f.want(node.Refused, f.write("w", 6))
		f.wantIntent("", 0)
		r := f.want(node.Refused, waiting("me", f.write("w", 6)))
		f.wantLife(r.TTL, life)
		if r.Fence != 5 {
			f.Errorf("fence %d, want 5", r.Fence)
		}
		f.wantIntent("me", life)
		f.want(node.Refused, patient(f.read("a", 6)))
		f.want(node.Refused, waiting("me", f.write("w", 6)))
		f.wantIntent(node.ReadersNext, life)
	}},
	{"writers that wait come before the next of the process that has written", func(f fixture) {
		f.want(node.Granted, f.write("p:1", 5))
		f.want(node.Refused, waiting("q:7", f.write("q:1", 6)))
		f.want(node.Released, f.endShared("p:1", 5))
		f.wantIntent(node.OthersNext+"p", life/2)
		r := f.want(node.Refused, f.write("p:2", 4))
		f.wantLife(r.TTL, life/2)
		if r.Fence != 5 {
			f.Errorf("fence %d, want 5", r.Fence)
		}
		f.wantIntent(node.OthersNext+"p", life/2)
		f.want(node.Stale, waiting("q:7", f.write("q:2", 4)))
		f.wantIntent(node.OthersNext+"p", life/2)
		f.want(node.Granted, waiting("q:7", f.write("q:3", 7)))
		f.wantIntent("", 0)
	}},
	{"it is kept that a writer waits whose turn it is not", func(f fixture) {
		f.want(node.Granted, f.write("p:1", 5))
		f.want(node.Refused, waiting("q:7", f.write("q:1", 6)))
		f.want(node.Released, f.endShared("p:1", 5))
		f.want(node.Refused, waiting("p:8", f.write("p:2", 7)))
		f.wantIntent(node.OthersNext+"p:8", life/2)
		f.want(node.Refused, waiting("p:9", f.write("p:3", 8)))
		f.wantIntent(node.OthersNext+"p:9", life/2)
		f.want(node.Granted, waiting("q:7", f.write("q:3", 9)))
		f.wantIntent("p:9", life)
		f.want(node.Released, f.endShared("q:3", 9))
		f.wantIntent(node.OthersNext+"q", life/2)
		f.want(node.Granted, f.write("p:4", 10))
		f.wantIntent("", 0)
		f.want(node.Refused, waiting("q:7", f.write("q:4", 11)))
		f.want(node.Released, f.endShared("p:4", 10))
		f.want(node.Refused, waiting("p:8", f.write("p:5", 12)))
		f.want(node.Granted, f.write("r:1", 13)) // it does not wait, and knows of no patience
		f.wantIntent("", 0)
	}},
	{"writers that do not come are waited for no longer than their turn", func(f fixture) {
		f.want(node.Granted, f.write("p:1", 5))
		f.want(node.Refused, waiting("q:7", f.write("q:1", 6)))
		end := f.endShared("p:1", 5)
		end.Turn = 0
		f.want(node.Released, end)
		f.wantIntent("q:7", life)
		f.want(node.Granted, f.write("p:2", 7))
		f.want(node.Released, f.endShared("p:2", 7))
		f.want(node.Refused, f.write("p:3", 8))
		f.must(f.Advance(life/2 + time.Second))
		f.want(node.Granted, f.write("p:3", 8))
	}},
	{"readers come while it is the turn of writers of other processes", func(f fixture) {
		f.want(node.Granted, f.write("p:1", 5))
		f.want(node.Refused, waiting("q:7", f.write("q:1", 6)))
		f.want(node.Released, f.endShared("p:1", 5))
		f.want(node.Granted, f.read("a", 7))
		f.wantIntent(node.OthersNext+"p", life/2)
		f.want(node.Refused, waiting("q:7", f.write("q:2", 8)))
		f.wantIntent("q:7", life)
		f.want(node.Refused, f.read("b", 9))
	}},
	{"who gives up while it is the turn of others is forgotten", func(f fixture) {
		f.want(node.Granted, f.write("p:1", 5))
		f.want(node.Refused, waiting("q:7", f.write("q:1", 6)))
		f.want(node.Released, f.endShared("p:1", 5))
		f.want(node.Refused, waiting("p:8", f.write("p:2", 7)))
		end := f.endShared("p:2", 7)
		end.Waiter = "p:9"
		f.want(node.Absent, end)
		f.wantIntent(node.OthersNext+"p:8", life/2)
		end.Waiter = "p:8"
		f.want(node.Absent, end)
		f.wantIntent(node.OthersNext+"p", life/2)
		f.want(node.Granted, waiting("q:7", f.write("q:2", 9)))
		f.wantIntent("", 0)
	}},
	{"who gives up while it is the turn of others does not make that last", func(f fixture) {
		f.want(node.Granted, f.write("p:1", 5))
		f.want(node.Refused, waiting("q:7", f.write("q:1", 6)))
		f.want(node.Released, f.endShared("p:1", 5))
		f.must(f.Advance(life / 4))
		f.want(node.Refused, waiting("p:8", f.write("p:2", 7)))
		f.wantIntent(node.OthersNext+"p:8", life/4)
		end := f.endShared("p:2", 7)
		end.Waiter = "p:8"
		f.want(node.Absent, end)
		f.wantIntent(node.OthersNext+"p", life/4)
	}},
	{"writers of the same process come as they come", func(f fixture) {
		f.want(node.Granted, f.write("p:1", 5))
		f.want(node.Refused, waiting("p:7", f.write("p:2", 6)))
		f.want(node.Released, f.endShared("p:1", 5))
		f.wantIntent("p:7", life)
		f.want(node.Granted, f.write("p:3", 7))
	}},
	{"writers that wait come next also where the one that goes has nothing", func(f fixture) {
		f.want(node.Granted, waiting("q:7", f.write("q:1", 5)))
		f.want(node.Released, waiting("q:7", f.endShared("q:1", 5)))
		f.wantIntent("q:7", life)
		end := f.endShared("p:1", 6)
		f.want(node.Absent, end) // which may be a reader's
		f.wantIntent("q:7", life)
		end.Waiter = "p:8"
		f.want(node.Absent, end)
		f.wantIntent(node.OthersNext+"p", life/2)
		f.want(node.Granted, f.write("q:2", 7))
		f.want(node.Refused, waiting("r:7", f.write("r:1", 8)))
		f.want(node.Absent, end)
		f.wantIntent("r:7", life)
	}},
	{"readers are in the way, with the longest life and the higher fence", func(f fixture) {
		f.want(node.Granted, f.read("a", 8))
		f.want(node.Granted, lasting(3*life, f.read("b", 4)))
		r := f.want(node.Refused, f.write("w", 5))
		f.wantLife(r.TTL, 3*life)
		if r.Fence != 8 {
			f.Errorf("fence %d, want 8", r.Fence)
		}
		f.wantIntent("", 0)
	}},
	{"a token at or below a reader's is stale", func(f fixture) {
		f.want(node.Granted, f.read("a", 8))
		f.pass()
		for token := node.Token(7); token <= 8; token++ {
			if r := f.want(node.Stale, f.write("w", token)); r.Fence != 8 {
				f.Errorf("fence %d, want 8", r.Fence)
			}
		}
		f.want(node.Granted, f.write("w", 9))
		f.wantFences(9, 8)
	}},
	{"a token at or below a writer's is stale", func(f fixture) {
		f.want(node.Granted, f.read("a", 2))
		f.want(node.Released, f.endShared("a", 2))
		f.want(node.Granted, f.write("v", 5))
		f.want(node.Released, f.endShared("v", 5))
		if r := f.want(node.Stale, f.write("w", 5)); r.Fence != 5 {
			f.Errorf("fence %d, want 5", r.Fence)
		}
	}},
	{"dead readers are not in the way", func(f fixture) {
		f.want(node.Granted, f.read("a", 5))
		f.must(f.Do("PERSIST", name))
		f.pass()
		f.wantShared(node.NoExpiry, "a=1", "mode=read")
		f.want(node.Granted, f.write("w", 6))
		f.wantShared(life, "mode=write", "w:write=1")
	}},
	{"dead readers go, and the living stay in the way", func(f fixture) {
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Granted, lasting(9*life, f.read("b", 6)))
		f.pass()
		f.wantShared(8*life, "b=1", "mode=read") // Inspect leaves them out
		f.want(node.Refused, f.write("w", 7))
		f.must(f.Do("SET", node.HoldKey(name, "a"), "1"))
		f.wantShared(8*life, "b=1", "mode=read")
	}},
	{"a key that is not a hash is a wrong type", func(f fixture) {
		f.must(f.Do("SET", name, "x"))
		f.wantErr(node.ErrWrongType, waiting("me", f.write("w", 5)))
		f.wantFences(0, 0)
	}},
	{"beside an intent that is no string nothing is written, and what is there can end", func(f fixture) {
		set := []string{"HSET", node.IntentKey(name), "a", "1"}
		f.must(f.Do(set...))
		f.wantErr(node.ErrWrongType, f.write("w", 5))
		f.must(f.Do("DEL", node.IntentKey(name)))
		f.wantShared(0)
		f.wantFences(0, 0)
		f.want(node.Granted, f.write("w", 5))
		f.must(f.Do(set...))
		leave := f.endShared("w", 5)
		leave.Waiter = "me"
		f.want(node.Released, leave)
	}},
	{"an intent that never expires refuses readers until it is broken", func(f fixture) {
		b := f.watchMode(node.Read)
		for _, set := range [][]string{{"SET", node.IntentKey(name), "gone"}, {"HSET", node.IntentKey(name), "a", "1"}} {
			f.must(f.Do(set...))
			f.wantLife(f.want(node.Refused, f.read("a", 7)).TTL, node.NoExpiry)
			f.want(node.Absent, f.breakLock(name, 6))
			f.rings(b)
			f.wantIntent("", 0)
			f.want(node.Granted, f.read("a", 7))
			f.must(f.Do("FLUSHALL"))
		}
	}},
	{"who waits for readers leaves an intent, and new readers are refused", func(f fixture) {
		f.want(node.Granted, lasting(5*life, f.read("a", 5)))
		f.want(node.Refused, waiting("me", f.write("w", 6)))
		f.wantIntent("me", life)
		r := f.want(node.Refused, f.read("b", 4))
		f.wantLife(r.TTL, life)
		f.want(node.Granted, f.read("a", 5)) // it is a reader already
		f.wantKept(in(node.Read, f.extend(5*life, node.Claim{Name: name, Owner: "a"})), true)
		f.want(node.Released, f.endShared("a", 5))
		f.wantLife(f.want(node.Refused, f.read("b", 7)).TTL, life)
		f.want(node.Granted, waiting("me", f.write("w", 8)))
		f.wantIntent("", 0)
		f.want(node.Released, f.endShared("w", 8))
		f.want(node.Granted, f.read("b", 9))
	}},
	{"an intent ends with its patience, unless its writer asks again", func(f fixture) {
		f.want(node.Granted, lasting(9*life, f.read("a", 5)))
		f.want(node.Refused, waiting("me", f.write("w", 6)))
		f.must(f.Advance(life / 2))
		f.want(node.Refused, waiting("me", f.write("w2", 7)))
		f.must(f.Advance(life/2 + time.Second))
		f.want(node.Refused, f.read("b", 8))
		f.must(f.Advance(life / 2))
		f.want(node.Granted, f.read("b", 8))
	}},
	{"who does not wait leaves no intent, and takes none away", func(f fixture) {
		f.want(node.Granted, lasting(9*life, f.read("a", 5)))
		f.want(node.Refused, waiting("me", f.write("w", 6)))
		f.want(node.Refused, f.write("v", 6))
		f.wantIntent("me", life)
	}},
	{"a writer whose token is not above the fences leaves an intent all the same", func(f fixture) {
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Released, f.endShared("a", 8))
		f.want(node.Stale, f.write("w", 6))
		f.wantIntent("", 0)
		f.want(node.Stale, waiting("me", f.write("w", 6)))
		f.wantIntent("me", life)
		f.want(node.Refused, f.read("b", 9))
		f.want(node.Granted, waiting("me", f.write("w", 9)))
		f.wantIntent("", 0)
		f.want(node.Released, f.endShared("w", 9))
		f.want(node.Granted, f.read("b", 20))
		f.want(node.Released, f.endShared("b", 15))
		f.want(node.Granted, f.read("c", 20))
		f.want(node.Refused, waiting("me", f.write("w", 10)))
		f.wantIntent("me", life)
	}},
	{"a command delayed until after its own release leaves no intent", func(f fixture) {
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Absent, f.endShared("w", 6))
		f.want(node.Refused, waiting("me", f.write("w", 6)))
		f.wantIntent("", 0)
		f.want(node.Released, f.endShared("a", 5))
		f.want(node.Stale, waiting("me", f.write("w", 6)))
		f.wantIntent("", 0)
	}},
	{"readers that wait for a writer come before the next", func(f fixture) {
		f.want(node.Granted, lasting(9*life, f.write("v", 5)))
		f.want(node.Refused, f.read("a", 6))
		f.wantIntent("", 0)
		f.want(node.Refused, patient(f.read("a", 6)))
		f.wantIntent(node.ReadersNext, life)
		f.want(node.Released, f.endShared("v", 5))
		f.wantIntent(node.ReadersNext, life/2)
		r := f.want(node.Refused, waiting("me", f.write("w", 4)))
		f.wantLife(r.TTL, life/2)
		if r.Fence != 5 {
			f.Errorf("fence %d, want 5", r.Fence)
		}
		f.want(node.Granted, f.read("a", 7))
		f.want(node.Granted, f.read("b", 6))
		f.wantIntent(node.ReadersNext, life/2)
		f.want(node.Released, f.endShared("a", 7))
		f.wantIntent(node.ReadersNext, life/2)
		f.want(node.Released, f.endShared("b", 6))
		f.wantIntent("", 0)
		f.want(node.Granted, f.write("w", 8))
	}},
	{"readers that do not come are waited for no longer than their turn", func(f fixture) {
		f.want(node.Granted, f.write("v", 5))
		f.want(node.Refused, patient(f.read("a", 6)))
		f.want(node.Released, f.endShared("v", 5))
		f.want(node.Refused, f.write("w", 7))
		f.must(f.Advance(life/2 + time.Second))
		f.want(node.Granted, f.write("w", 7))
		f.want(node.Refused, patient(f.read("a", 6)))
		end := f.endShared("w", 7)
		end.Turn = 0
		f.want(node.Released, end)
		f.wantIntent("", 0)
	}},
	{"readers that wait for a writer that dies wait no longer than for its lock", func(f fixture) {
		f.want(node.Granted, f.write("v", 5))
		f.must(f.Advance(life / 2))
		f.want(node.Refused, patient(f.read("a", 6)))
		f.wantIntent(node.ReadersNext, life/2)
		f.must(f.Advance(life/2 + time.Second))
		f.want(node.Granted, f.write("w", 7))
		f.must(f.Do("PERSIST", name))
		f.want(node.Refused, patient(f.read("a", 8)))
		f.wantIntent(node.ReadersNext, life)
	}},
	{"readers that come next replace a writer's intent, and a writer's replaces them when they read", func(f fixture) {
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Refused, waiting("me", f.write("w", 6)))
		f.want(node.Refused, patient(f.read("b", 6)))
		f.wantIntent("me", life) // it is the writer's turn
		f.want(node.Released, f.endShared("a", 5))
		f.want(node.Granted, waiting("you", f.write("v", 7)))
		f.wantIntent("me", life)
		f.want(node.Refused, patient(f.read("b", 6)))
		f.wantIntent(node.ReadersNext, life)
		f.want(node.Released, f.endShared("v", 7))
		f.want(node.Granted, f.read("b", 8))
		f.want(node.Refused, waiting("me", f.write("w", 9)))
		f.wantIntent("me", life)
		f.want(node.Refused, f.read("c", 9))
	}},
	{"readers wait for their turn behind nothing but a writer", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "p", 5))
		f.want(node.Refused, patient(f.read("a", 6)))
		f.wantIntent("", 0)
	}},
	{"readers have their turn beside a writer that reads on", func(f fixture) {
		f.want(node.Granted, f.write("w", 5))
		f.want(node.Refused, patient(f.read("a", 6)))
		f.wantKept(f.downgrade(name, "w"), true)
		f.want(node.Granted, f.read("a", 6))
		f.wantIntent(node.ReadersNext, life)
	}},
	{"a writer behind the readers' tokens leaves an intent all the same", func(f fixture) {
		f.want(node.Granted, f.read("a", 8))
		f.want(node.Refused, waiting("me", f.write("w", 5)))
		f.wantIntent("me", life)
	}},
	{"who gives up takes the intent away, and wakes", func(f fixture) {
		b := f.watchMode(node.Read)
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Refused, waiting("me", f.write("w", 6)))
		leave := f.endShared("w", 6)
		leave.Waiter = "me"
		f.want(node.Absent, leave)
		f.rings(b)
		f.wantIntent("", 0)
		f.want(node.Granted, f.read("b", 7))
		f.want(node.Absent, leave)
		f.silent(b)
	}},
	{"another's intent stays, by release and by grant", func(f fixture) {
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Refused, waiting("other", f.write("v", 6)))
		leave := f.endShared("w", 6)
		leave.Waiter = "me"
		f.want(node.Absent, leave)
		f.wantIntent("other", life)
		f.want(node.Released, f.endShared("a", 5))
		f.want(node.Granted, waiting("me", f.write("w", 7)))
		f.wantIntent("other", life)
	}},
	{"a partial grant is given back with the intent", func(f fixture) {
		f.want(node.Granted, waiting("me", f.write("w", 5)))
		f.wantIntent("", 0)
		f.want(node.Released, waiting("me", f.endShared("w", 5)))
		f.wantIntent("me", life)
		f.want(node.Refused, f.read("a", 6))
		f.want(node.Absent, waiting("me", f.endShared("w", 5)))
	}},
	{"a partial grant that is given back was not a writer's turn", func(f fixture) {
		f.want(node.Granted, waiting("me", f.write("w", 5)))
		f.want(node.Refused, patient(f.read("a", 6)))
		f.wantIntent(node.ReadersNext, life)
		f.want(node.Released, waiting("me", f.endShared("w", 5)))
		f.wantIntent("me", life)
		f.want(node.Refused, f.read("a", 6))
	}},
	{"giving back what was not granted leaves no intent", func(f fixture) {
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Absent, waiting("me", f.endShared("w", 6)))
		f.wantIntent("", 0)
	}},
	{"extending raises the writer's life, in its mode alone", func(f fixture) {
		claim := node.Claim{Name: name, Owner: "w"}
		f.want(node.Granted, f.write("w", 5))
		f.wantKept(in(node.Write, f.extend(3*life, claim)), true)
		f.wantShared(3*life, "mode=write", "w:write=1")
		f.wantKept(in(node.Read, f.extend(9*life, claim)), false)
		f.wantKept(f.extend(9*life, claim), false)
		f.wantShared(3*life, "mode=write", "w:write=1")
	}},
}

var downgradeRules = []rule{
	{"the writer becomes a reader with what is left of its life, and wakes", func(f fixture) {
		b := f.watchMode(node.Read)
		f.want(node.Granted, lasting(3*life, f.write("w", 5)))
		f.pass()
		f.wantKept(f.downgrade(name, "w"), true)
		f.rings(b)
		f.wantShared(2*life, "mode=read", "w=1")
		f.wantFences(5, 0)
		f.want(node.Granted, f.read("a", 6))
		f.want(node.Refused, f.write("v", 7))
		f.wantKept(in(node.Read, f.extend(4*life, node.Claim{Name: name, Owner: "w"})), true)
		f.want(node.Released, f.endShared("a", 6))
		f.wantShared(4*life, "mode=read", "w=1")
	}},
	{"executed twice it does no harm", func(f fixture) {
		f.want(node.Granted, f.write("w", 5))
		f.wantKept(f.downgrade(name, "w"), true)
		b := f.watchMode(node.Read)
		f.wantKept(f.downgrade(name, "w"), true)
		f.silent(b)
		f.wantShared(life, "mode=read", "w=1")
	}},
	{"the reader lives as long as the writer would have", func(f fixture) {
		claim := node.Claim{Name: name, Owner: "w"}
		f.want(node.Granted, lasting(3*life, f.write("w", 5)))
		f.pass()
		f.wantKept(f.downgrade(name, "w"), true)
		f.pass()
		f.wantKept(in(node.Read, f.extend(time.Second, claim)), true)
		f.pass()
		f.wantKept(in(node.Read, f.extend(time.Second, claim)), false)
		f.wantShared(0)
	}},
	{"a dead reader is not kept", func(f fixture) {
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Granted, lasting(9*life, f.read("b", 6)))
		f.pass()
		f.wantKept(f.downgrade(name, "a"), false)
	}},
	{"who is not the writer, or no more, is not kept", func(f fixture) {
		f.wantKept(f.downgrade(name, "w"), false)
		f.want(node.Granted, f.write("v", 5))
		f.wantKept(f.downgrade(name, "w"), false)
		f.wantShared(life, "mode=write", "v:write=1")
		f.want(node.Released, f.endShared("v", 5))
		f.wantKept(f.downgrade(name, "v"), false)
		f.wantShared(0)
	}},
	{"a release ends it, whether the downgrade came or not", func(f fixture) {
		f.want(node.Granted, f.write("w", 5))
		f.want(node.Released, in(node.Read, f.release(name, "w", 5)))
		f.wantShared(0)
		f.want(node.Granted, f.write("w", 6))
		f.wantKept(f.downgrade(name, "w"), true)
		f.want(node.Released, in(node.Write, f.release(name, "w", 6)))
		f.wantShared(0)
	}},
	{"a life without end stays without end", func(f fixture) {
		f.want(node.Granted, f.write("w", 5))
		f.must(f.Do("PERSIST", name))
		f.wantKept(f.downgrade(name, "w"), true)
		f.wantShared(node.NoExpiry, "mode=read", "w=1")
		f.pass()
		f.wantKept(f.downgrade(name, "w"), true)
		f.want(node.Granted, f.read("a", 6))
		f.want(node.Released, f.endShared("a", 6))
		f.wantShared(node.NoExpiry, "mode=read", "w=1")
	}},
	{"a key that is not a hash is a wrong type", func(f fixture) {
		f.must(f.Do("SET", name, "x"))
		f.wantErr(node.ErrWrongType, f.downgrade(name, "w"))
	}},
}

// watchMode watches name in a mode.
func (f fixture) watchMode(mode node.Mode) bell {
	f.Helper()
	return f.watchIn(name, mode)
}

// silent requires that there is no call of wake.
func (f fixture) silent(b bell) {
	f.Helper()
	select {
	case <-b.rings:
		f.Error("woken for nothing")
	case <-time.After(brevity / 10):
	}
}
