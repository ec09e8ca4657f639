package nodetest

import (
	"time"

	"github.com/redquorum/redquorum/node"
)

// wantHanded requires that a release hands the lock on, or, if the node has no Life,
// that it notifies the first waiter.
func (f fixture) wantHanded(to goBell, owner string, release node.Command) {
	f.Helper()
	f.wantHandedWith(to, owner, release.Handoff, release)
}

// wantHandedWith requires it with a token of its own.
func (f fixture) wantHandedWith(to goBell, owner string, token node.Token, release node.Command) {
	f.Helper()
	r := f.want(node.Released, release)
	if r.Life == nil {
		f.rings(to)
		f.Skip("the node cannot tell its life, and hands nothing on")
	}
	if turn := f.handed(to, owner, token); turn.Life == nil || *turn.Life != *r.Life {
		f.Errorf("told of the life %+v, want %+v", turn.Life, r.Life)
	}
}

// handed requires a turn with an owner and a token.
func (f fixture) handed(to goBell, owner string, token node.Token) (turn node.Turn) {
	f.Helper()
	select {
	case turn = <-to.handed:
		if turn.Owner != owner || turn.Token != token {
			f.Errorf("told %+v, want owner %q and token %d", turn, owner, token)
		}
	case <-to.rings:
		f.Fatal("told that it may ask")
	case <-time.After(patience):
		f.Fatalf("not told in %v", patience)
	}
	return turn
}

var handoffRules = []goRule{
	{"a standby claim is left if its token is above the fence, whatever that of the Acquire is", func(f fixture) {
		first := f.watchFor("first:a")
		f.want(node.Granted, f.rival().acquire(name, "a", 5))
		x := inLine(1, "first:a", f.acquire(name, "x", 4))
		f.want(node.Refused, standingWith(5, x))
		f.want(node.Released, handing(8, f.rival().release(name, "a", 5)))
		f.rings(first)
		f.wantState(name, 5, 0)
		f.want(node.Stale, standingWith(6, x)) // on a free name, too
		f.want(node.Granted, barging(inLine(2, "second:b", f.rival().acquire(name, "b", 6))))
		f.wantHanded(first, node.Standby("x"), handing(8, f.rival().release(name, "b", 6)))
	}},
	{"a waiter that gives up releases its standby claim; one that only gives back does not", func(f fixture) {
		first, give := f.watchFor("first:a"), f.release(name, "x", 6)
		f.want(node.Granted, f.rival().acquire(name, "a", 5))
		f.want(node.Refused, standing(inLine(1, "first:a", f.acquire(name, "x", 6))))
		f.wantHanded(first, node.Standby("x"), handing(8, f.rival().release(name, "a", 5)))
		f.want(node.Absent, inLine(1, "first:a", give))
		f.want(node.Absent, give) // without a ticket it gives nothing up
		f.wantState(name, 8, life, node.Standby("x"))
		f.want(node.Released, impatient(inLine(1, "first:a", give)))
		f.wantState(name, 8, 0)
	}},
}

var readersHandoffRules = []goRule{
	{"each reader has the lock for as long as its place had left", func(f fixture) {
		short, long := f.watchFor("short:1"), f.watchFor("long:1")
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.want(node.Refused, standing(inLine(1, "short:1", f.read("x", 6))))
		f.want(node.Refused, staying(3*life, standing(inLine(2, "long:1", f.read("y", 7)))))
		f.must(f.Advance(life / 2))
		f.wantHanded(short, node.Standby("x"), handing(8, f.release(name, "a", 5)))
		f.handed(long, node.Standby("y"), 8)
		f.wantShared(5*life/2, fieldsOf(node.Read, node.Standby("y"), node.Standby("x"))...)
		f.wantFences(5, 8)
		f.must(f.Advance(life/2 + time.Second))
		f.wantKept(in(node.Read, f.extend(life, node.Claim{Name: name, Owner: node.Standby("x")}, node.Claim{Name: name, Owner: node.Standby("y")})), false, true)
	}},
	{"readers hand on with the highest of their tokens, whatever the order in which they leave", func(f fixture) {
		next := f.watchFor("next:1")
		base := node.Token(0)
		for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			readers := []string{"a", "b", "c"}
			for _, reader := range readers {
				f.want(node.Granted, f.read(reader, base+5))
			}
			f.want(node.Refused, standing(inLine(1, "next:1", f.write("w", base+6))))
			for i, which := range order {
				end := handing(base+20+node.Token(which), f.end(readers[which], base+5))
				if i < 2 {
					f.want(node.Released, end)
					continue
				}
				f.wantHandedWith(next, node.Standby("w"), base+22, end)
			}
			f.wantFences(base+22, base+5)
			f.want(node.Released, f.end(node.Standby("w"), base+22))
			base += 30
		}
	}},
	{"that is for one hand-off, and where somebody waits", func(f fixture) {
		next := f.watchFor("next:1")
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Granted, f.read("b", 5))
		f.want(node.Released, handing(90, f.end("a", 5))) // nobody waits
		f.want(node.Refused, standing(inLine(1, "next:1", f.write("w", 10))))
		f.wantHanded(next, node.Standby("w"), handing(11, f.end("b", 5)))
		f.want(node.Released, f.end(node.Standby("w"), 11))
		f.want(node.Granted, f.read("a", 20))
		f.want(node.Granted, f.read("b", 20))
		f.want(node.Refused, inLine(1, "next:1", f.write("w", 21))) // without a standby claim
		f.want(node.Released, handing(90, f.end("a", 20)))
		f.want(node.Released, handing(22, f.end("b", 20)))
		f.rings(next)
		f.want(node.Granted, inLine(1, "next:1", f.write("w", 23)))
		f.want(node.Released, f.end("w", 23))
		f.want(node.Granted, f.read("a", 30))
		f.want(node.Refused, standing(inLine(1, "next:1", f.write("w", 31))))
		f.wantHanded(next, node.Standby("w"), handing(32, f.end("a", 30)))
	}},
	{"an exclusive release hands nothing on that readers still have", func(f fixture) {
		next := f.watchFor("next:1")
		f.want(node.Granted, f.acquire(name, "e", 5))
		f.want(node.Released, f.release(name, "e", 5))
		f.want(node.Granted, f.read("a", 6))
		f.want(node.Granted, f.read("b", 6))
		f.want(node.Stale, standingWith(7, inLine(1, "next:1", f.read("c", 5))))
		f.want(node.Released, handing(8, impatient(inLine(2, "other:1", f.release(name, "a", 6)))))
		f.rings(next)
	}},
	{"it lives no longer than the lock", func(f fixture) {
		next := f.watchFor("next:1")
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Granted, f.read("b", 5))
		f.want(node.Refused, inLine(1, "next:1", f.write("w", 6)))
		f.want(node.Released, handing(90, f.end("a", 5)))
		f.pass()
		f.want(node.Granted, f.read("a", 10))
		f.want(node.Refused, standing(inLine(1, "next:1", f.write("w", 11))))
		f.wantHanded(next, node.Standby("w"), handing(12, f.end("a", 10)))
	}},
}
