package nodetest

import (
	"time"

	"github.com/redquorum/redquorum/node"
)

// This file has the rules of whose turn it is among readers and writers that wait.

func (f fixture) wantIntent(waiter string, ttl time.Duration) {
	f.Helper()
	got := f.state(name)
	if got.Intent != waiter {
		f.Errorf("intent of %q, want %q", got.Intent, waiter)
	}
	f.wantLife(got.IntentTTL, ttl)
}

var turnRules = []rule{
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
		end.YieldTTL = 0
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
		end.Wait = &node.Wait{Waiter: "p:9"}
		f.want(node.Absent, end)
		f.wantIntent(node.OthersNext+"p:8", life/2)
		end.Wait = &node.Wait{Waiter: "p:8"}
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
		end.Wait = &node.Wait{Waiter: "p:8"}
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
		end.Wait = &node.Wait{Waiter: "p:8"}
		f.want(node.Absent, end)
		f.wantIntent(node.OthersNext+"p", life/2)
		f.want(node.Granted, f.write("q:2", 7))
		f.want(node.Refused, waiting("r:7", f.write("r:1", 8)))
		f.want(node.Absent, end)
		f.wantIntent("r:7", life)
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
		leave.Wait = &node.Wait{Waiter: "me"}
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
		end.YieldTTL = 0
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
		leave.Wait = &node.Wait{Waiter: "me"}
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
		leave.Wait = &node.Wait{Waiter: "me"}
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
}
