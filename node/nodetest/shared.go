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

// rival is of another owner, whose locks exclude those of the test.
func (f fixture) rival() fixture {
	if f.mode == node.Read {
		f.mode = node.Write
	}
	return f
}

// end ends what an owner has in whichever mode.
func (f fixture) end(owner string, token node.Token) node.Command {
	return in(node.Write, f.release(name, owner, token))
}

// wantShared requires a hash of these fields and a life of about ttl. No field is no key.
func (f fixture) wantShared(ttl time.Duration, fields ...string) {
	f.Helper()
	f.wantHash(f.state(name), ttl, fields...)
}

// wantFences requires the fence and the highest token of a reader.
func (f fixture) wantFences(fence, readers node.Token) {
	f.Helper()
	if got := f.state(name); got.Fence != fence || got.Readers != readers {
		f.Errorf("fence %d and readers' %d, want %d and %d", got.Fence, got.Readers, fence, readers)
	}
}

// lasting gives a command another TTL.
func lasting(ttl time.Duration, cmd node.Command) node.Command {
	cmd.TTL = ttl
	return cmd
}

// pass lets a hold of one life expire.
func (f fixture) pass() { f.Helper(); f.must(f.Advance(life + time.Second)) }

var readRules = []goRule{
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
	{"a command delayed until after its own release is stale, also while others read", func(f fixture) {
		cmd := f.read("a", 5)
		f.want(node.Granted, cmd)
		f.want(node.Granted, f.read("b", 6))
		f.want(node.Released, f.end("a", 5))
		f.want(node.Stale, cmd)
		f.wantShared(life, "b=1", "mode=read")
	}},
	{"the key lives as long as the longest reader", func(f fixture) {
		f.want(node.Granted, lasting(2*life, f.read("a", 5)))
		f.want(node.Granted, lasting(5*life, f.read("b", 6)))
		f.want(node.Granted, f.read("c", 7))
		f.wantShared(5*life, "a=1", "b=1", "c=1", "mode=read")
		f.want(node.Released, f.end("b", 6))
		f.wantShared(2*life, "a=1", "c=1", "mode=read")
		f.want(node.Released, f.end("c", 7))
		f.wantShared(2*life, "a=1", "mode=read")
		f.want(node.Released, f.end("a", 5))
		f.wantShared(0)
	}},
	{"a dead reader is granted again, if its token may", func(f fixture) {
		cmd := f.read("a", 5)
		f.want(node.Granted, cmd)
		f.want(node.Granted, lasting(9*life, f.read("b", 6)))
		f.pass()
		f.want(node.Granted, cmd)
		f.wantKept(in(node.Read, f.extend(life, node.Claim{Name: name, Owner: "a"})), true)
		f.pass()
		f.want(node.Absent, f.end("x", 6))
		f.want(node.Stale, cmd)
	}},
	{"a dead reader is nothing to release for, and goes", func(f fixture) {
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Granted, lasting(9*life, f.read("b", 6)))
		f.pass()
		f.want(node.Released, f.end("b", 6))
		f.wantShared(0)
	}},
	{"with the dead removed the living stay", func(f fixture) {
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Granted, lasting(9*life, f.read("b", 6)))
		f.want(node.Granted, lasting(5*life, f.read("c", 7)))
		f.pass()
		f.want(node.Released, f.end("b", 6))
		f.wantShared(4*life, "c=1", "mode=read")
	}},
	{"of many readers one is enough to keep the lock, wherever it is, and none to end it", func(f fixture) {
		const many = 150
		long := strings.Repeat("r", 65) // Redis looks at a hash of such fields a page at a time
		for i := range many {
			ttl := life
			if i == 77 {
				ttl = 5 * life
			}
			f.want(node.Granted, lasting(ttl, f.read(fmt.Sprint(long, i), 5)))
		}
		f.want(node.Granted, lasting(9*life, f.read("longest", 6)))
		f.want(node.Refused, f.write("w", 7))
		f.want(node.Released, f.end("longest", 6))
		if left := f.state(name).TTL; left < 5*life-time.Second {
			f.Errorf("gone in %v, and a reader has %v", left, 5*life)
		}
		f.pass()
		f.want(node.Granted, f.read("last", 8))
		f.want(node.Refused, f.write("w", 9))
		f.want(node.Released, f.end("last", 8))
		f.want(node.Refused, f.write("w", 9))
		f.want(node.Released, f.end(long+"77", 5))
		f.wantShared(0)
		f.want(node.Granted, f.write("w", 9))
	}},
	{"a reader's release leaves a writer alone", func(f fixture) { // Redisson lets a writer read, too
		f.want(node.Granted, f.write("w", 5))
		f.must(f.Do("HSET", name, "a", "1"))
		f.want(node.Released, f.end("a", 6))
		f.wantShared(life, "mode=write", "w:write=1")
	}},
	{"a writer's release leaves readers", func(f fixture) {
		f.want(node.Granted, f.write("w", 5))
		for _, reader := range []string{"a", "b"} {
			f.must(f.Do("HSET", name, reader, "1"))
		}
		f.must(f.Do("SET", node.HoldKey(name, "a"), "1"))
		f.want(node.Released, f.end("w", 5))
		f.wantShared(life, "a=1", "mode=read")
		f.want(node.Granted, f.read("c", 6))
	}},
	{"another's field is not released", func(f fixture) {
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Absent, f.end("b", 4))
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
		f.want(node.Released, f.end("b", 6))
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
			f.want(node.Released, f.end("a", 5))
			f.must(f.Do("DEL", name))
			f.must(f.Do("DEL", node.FenceKey(name)))
		}
	}},
	{"the last reader's release wakes, and a writer's", func(f fixture) {
		b, plain := f.watchMode(node.Write), f.watch(name)
		f.want(node.Granted, f.read("a", 5))
		f.want(node.Granted, f.read("b", 6))
		f.want(node.Released, f.end("a", 5))
		f.silent(b)
		f.want(node.Released, f.end("b", 6))
		f.rings(b)
		f.want(node.Granted, f.write("w", 7))
		f.silent(b)
		f.want(node.Released, f.end("w", 7))
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

var writeRules = []goRule{
	{"readers are in the way, with the longest life and the higher fence", func(f fixture) {
		f.want(node.Granted, f.read("a", 8))
		f.want(node.Granted, lasting(3*life, f.read("b", 4)))
		f.wantLife(f.wantTold(node.Refused, 8, f.write("w", 5)).TTL, 3*life)
	}},
	{"a token at or below a reader's is stale", func(f fixture) {
		f.want(node.Granted, f.read("a", 8))
		f.pass()
		for token := node.Token(7); token <= 8; token++ {
			f.wantTold(node.Stale, 8, f.write("w", token))
		}
		f.want(node.Granted, f.write("w", 9))
		f.wantFences(9, 8)
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

var downgradeRules = []goRule{
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
		f.want(node.Released, f.end("a", 6))
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
	{"an owner that is not the writer, or no longer is, is not kept", func(f fixture) {
		f.wantKept(f.downgrade(name, "w"), false)
		f.want(node.Granted, f.write("v", 5))
		f.wantKept(f.downgrade(name, "w"), false)
		f.wantShared(life, "mode=write", "v:write=1")
		f.want(node.Released, f.end("v", 5))
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
		f.want(node.Released, f.end("a", 6))
		f.wantShared(node.NoExpiry, "mode=read", "w=1")
	}},
	{"a key that is not a hash is a wrong type", func(f fixture) {
		f.must(f.Do("SET", name, "x"))
		f.wantErr(node.ErrWrongType, f.downgrade(name, "w"))
	}},
}

// watchMode watches name in a mode.
func (f fixture) watchMode(mode node.Mode) goBell {
	f.Helper()
	return f.watchIn(name, mode)
}

// silent requires that there is no call of wake.
func (f fixture) silent(b goBell) {
	f.Helper()
	select {
	case <-b.rings:
		f.Error("woken for nothing")
	case <-time.After(brevity / 10):
	}
}
