package nodetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
)

// A rule is a sentence about commands, and a test of it. Each has a server
// without keys.
type rule struct {
	sentence string
	test     func(f fixture)
}

// Run requires of an implementation everything that package node says. open
// returns a node on a server without keys; Run closes the node.
func Run(t *testing.T, open func(t *testing.T) System) {
	exclusive, alone := []node.Mode{node.Exclusive}, []node.Mode{node.Exclusive, node.Write}
	all := []node.Mode{node.Exclusive, node.Read, node.Write}
	for _, group := range []struct {
		name  string
		modes []node.Mode // of the locks, unless a rule says otherwise
		rules []rule
	}{
		{"Acquire", all, acquireRules},
		{"Acquire several", exclusive, acquireSeveralRules},
		{"Release", exclusive, releaseRules},
		{"Release several", exclusive, releaseSeveralRules},
		{"Extend", all, extendRules},
		{"Inspect", exclusive, inspectRules},
		{"Break", exclusive, breakRules},
		{"Read", exclusive, readRules},
		{"Write", exclusive, writeRules},
		{"Downgrade", exclusive, downgradeRules},
		{"Waiter", all, waiterRules},
		{"Queue", alone, queueRules},
		{"Queues of several", exclusive, queueSeveralRules},
		{"Who is next", exclusive, nextRules},
		{"Hand-off", all, handoffRules},
		{"Hand-off of readers", exclusive, readersHandoffRules},
		{"Fence", alone, fenceRules},
		{"Submit", exclusive, submitRules},
		{"Watch", exclusive, watchRules},
		{"Close", exclusive, closeRules},
	} {
		for _, mode := range group.modes {
			t.Run(group.name+", "+mode.String(), func(t *testing.T) {
				for _, r := range group.rules {
					t.Run(r.sentence, func(t *testing.T) {
						s := open(t)
						t.Cleanup(func() {
							if err := s.Node.Close(); err != nil {
								t.Errorf("Close: %v", err)
							}
						})
						r.test(newFixture(t, s, mode))
					})
				}
			})
		}
	}
}

// texts are names, owners and waiters that a server must not take for anything else.
var texts = []string{"foo", "a{b}c", "x{y", "x}y", "{}", "two words", "été", "\x00\xff\r\n", "%s"}

// name is the lock of most tests; a, b and c are owners.
const name = "orders:17"

var acquireRules = []rule{
	{"a free name is granted, with the field at 1, its life, and the token as fence", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.wantState(name, 5, life, "a")
	}},
	{"a key that is not a hash is a wrong type, whatever the token", func(f fixture) {
		f.want(node.Absent, f.release(name, "a", 5))
		f.must(f.Do("SET", name, "x"))
		for token := node.Token(5); token <= 6; token++ {
			f.wantErr(node.ErrWrongType, f.acquire(name, "a", token))
		}
		if got := f.state(name); got.Type != "string" || got.Fence != 5 {
			f.Errorf("after it: %+v, want a string and the fence 5", got)
		}
	}},
	{"so is a fence that is not a number, or too high for a token, to all who read it", func(f fixture) {
		for _, fence := range []string{"x", "99999999999999999999"} {
			f.must(f.Do("SET", node.FenceKey(name), fence))
			for _, cmd := range []node.Command{f.acquire(name, "a", 5), inLine(1, "me", f.acquire(name, "a", 5)), f.read("a", 5),
				of(in(node.Exclusive, f.acquire(name, "a", 5)), name, "another"), f.inspect(name)} {
				f.wantErr(node.ErrWrongType, cmd)
			}
			if fence == "x" { // what a release raises it to is compared with it
				f.wantErr(node.ErrWrongType, f.release(name, "a", 5))
				f.wantErr(node.ErrWrongType, f.breakLock(name, 5))
			}
		}
	}},
	{"the owner's own field is granted, whatever the token, and nothing changes", func(f fixture) {
		cmd := f.acquire(name, "a", 5)
		f.want(node.Granted, cmd)
		f.want(node.Granted, cmd)
		f.want(node.Granted, lasting(9*life, f.acquire(name, "a", 9)))
		f.wantState(name, 5, life, "a")
		f.want(node.Absent, f.release(name, "b", 9))
		f.want(node.Granted, cmd)
		f.wantState(name, 9, life, "a")
	}},
	{"another's key is refused, with its life and the fence, whatever the token", func(f fixture) {
		f.want(node.Granted, f.rival().acquire(name, "a", 5))
		for token := node.Token(4); token <= 6; token++ {
			f.wantLife(f.wantTold(node.Refused, 5, f.acquire(name, "b", token)).TTL, life)
		}
		f.rival().wantState(name, 5, life, "a")
	}},
	{"a refusal without a fence reports 0", func(f fixture) {
		f.must(f.Do("HSET", name, "java", "1"))
		f.must(f.Do("PEXPIRE", name, "100000"))
		f.wantLife(f.wantTold(node.Refused, 0, f.acquire(name, "a", 5)).TTL, life)
	}},
	{"a key that never expires is refused with NoExpiry", func(f fixture) {
		f.want(node.Granted, f.rival().acquire(name, "a", 5))
		f.must(f.Do("PERSIST", name))
		r := f.want(node.Refused, f.acquire(name, "b", 6))
		f.wantLife(r.TTL, node.NoExpiry)
	}},
	{"a token at or below the fence is stale", func(f fixture) {
		f.want(node.Absent, f.release(name, "a", 5))
		for token := node.Token(4); token <= 5; token++ {
			f.wantTold(node.Stale, 5, f.acquire(name, "b", token))
		}
		f.want(node.Granted, f.acquire(name, "b", 6))
	}},
	{"a command delayed until after its own release does no harm", func(f fixture) {
		cmd := f.acquire(name, "a", 5)
		f.want(node.Granted, cmd)
		f.want(node.Released, f.release(name, "a", 5))
		f.want(node.Stale, cmd)
		f.wantState(name, 5, 0)
	}},
	{"an expired key is no key", func(f fixture) {
		f.want(node.Granted, f.rival().acquire(name, "a", 5))
		f.must(f.Advance(life - patience))
		f.want(node.Refused, f.acquire(name, "b", 6))
		f.must(f.Advance(patience + time.Second))
		f.want(node.Granted, f.acquire(name, "b", 6))
		f.wantState(name, 6, life, "b")
	}},
	{"the largest token is exact", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "a", node.MaxToken-1))
		f.want(node.Released, f.release(name, "a", node.MaxToken-1))
		f.wantTold(node.Stale, node.MaxToken-1, f.acquire(name, "b", node.MaxToken-1))
		f.want(node.Granted, f.acquire(name, "b", node.MaxToken))
		f.wantState(name, node.MaxToken, life, "b")
	}},
	{"a fraction of a millisecond is a millisecond", func(f fixture) {
		cmd := f.acquire(name, "a", 5)
		cmd.TTL, cmd.Retention = 1, 1
		f.want(node.Granted, cmd)
		f.must(f.Advance(time.Second))
		f.wantState(name, 0, 0)
	}},
	{"names do not meet", func(f fixture) {
		f.want(node.Granted, f.acquire("x", "a", 5))
		f.want(node.Granted, f.acquire("y", "b", 3))
		f.wantState("x", 5, life, "a")
		f.wantState("y", 3, life, "b")
	}},
	{"any text is a name, and any text an owner", func(f fixture) {
		for _, name := range texts {
			f.want(node.Granted, f.acquire(name, "o "+name, 5))
			f.wantState(name, 5, life, "o "+name)
			f.wantKept(f.extend(life, node.Claim{Name: name, Owner: "o " + name}), true)
			f.want(node.Released, f.release(name, "o "+name, 5))
			f.wantState(name, 5, 0)
		}
	}},
}

var releaseRules = []rule{
	{"the owner's field is removed, and the key with it, and a second release finds nothing", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.want(node.Released, f.release(name, "a", 5))
		f.wantState(name, 5, 0)
		f.want(node.Absent, f.release(name, "a", 5))
	}},
	{"another's lock stays, and the fence is raised", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.want(node.Absent, f.release(name, "b", 4))
		f.wantState(name, 5, life, "a")
		f.want(node.Absent, f.release(name, "b", 7))
		f.wantState(name, 7, life, "a")
	}},
	{"another field in the hash stays, with the key and its life", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.must(f.Do("HSET", name, "java", "1"))
		f.want(node.Released, f.release(name, "a", 5))
		f.wantState(name, 5, life, "java")
	}},
	{"the fence is raised, also where there was no lock, and never lowered", func(f fixture) {
		f.want(node.Absent, f.release(name, "a", 5))
		f.want(node.Absent, f.release(name, "b", 7))
		f.want(node.Absent, f.release(name, "a", 4))
		f.wantState(name, 7, 0)
	}},
	{"a key that is not a hash is a wrong type, after raising the fence", func(f fixture) {
		f.must(f.Do("SET", name, "x"))
		f.wantErr(node.ErrWrongType, f.release(name, "a", 5))
		if got := f.state(name); got.Type != "string" || got.Fence != 5 {
			f.Errorf("after it: %+v, want a string and the fence 5", got)
		}
	}},
}

// of gives a command a claim on each of the names, as its first claim is.
func of(cmd node.Command, names ...string) node.Command {
	claim := cmd.Claims[0]
	cmd.Claims = nil
	for _, name := range names {
		claim.Name = name
		cmd.Claims = append(cmd.Claims, claim)
	}
	return cmd
}

// One of them has no braces of its own.
var several = []string{"x", "y{z}", "z"}

func (f fixture) wantStates(names []string, fence node.Token, ttl time.Duration, owners ...string) {
	f.Helper()
	for _, name := range names {
		f.wantState(name, fence, ttl, owners...)
	}
}

var acquireSeveralRules = []rule{
	{"one in the way refuses all, with its life and the highest fence", func(f fixture) {
		for _, held := range several {
			f.must(f.Do("FLUSHALL"))
			for i, other := range several {
				f.want(node.Absent, f.release(other, "", node.Token(i+1)))
			}
			f.must(f.Do("HSET", held, "java", "1"))
			f.must(f.Do("PEXPIRE", held, "100000"))
			for _, token := range []node.Token{2, 4} { // it comes before a stale token
				f.wantLife(f.wantTold(node.Refused, 3, of(f.acquire(name, "a", token), several...)).TTL, life)
			}
			for i, other := range several {
				if other != held {
					f.wantState(other, node.Token(i+1), 0)
				}
			}
		}
	}},
	{"of several in the way a refusal has the longest TTL", func(f fixture) {
		for i, ms := range []string{"100000", "900000", "500000"} {
			f.must(f.Do("HSET", several[i], "java", "1"))
			f.must(f.Do("PEXPIRE", several[i], ms))
		}
		f.wantLife(f.want(node.Refused, of(f.acquire(name, "a", 5), several...)).TTL, 9*life)
		f.must(f.Do("PERSIST", several[0]))
		f.wantLife(f.want(node.Refused, of(f.acquire(name, "a", 5), several...)).TTL, node.NoExpiry)
	}},
	{"the owner's own life is not told", func(f fixture) {
		own := f.acquire(several[0], "a", 5)
		own.TTL = 9 * life
		f.want(node.Granted, own)
		f.want(node.Granted, f.acquire(several[1], "b", 4))
		f.wantLife(f.want(node.Refused, of(f.acquire(name, "a", 5), several...)).TTL, life)
	}},
	{"one fence that is not below the token makes it stale, with the highest", func(f fixture) {
		for _, behind := range several {
			f.must(f.Do("FLUSHALL"))
			f.want(node.Absent, f.release(behind, "b", 7))
			for token := node.Token(6); token <= 7; token++ {
				f.wantTold(node.Stale, 7, of(f.acquire(name, "a", token), several...))
			}
			f.wantState(behind, 7, 0)
			f.want(node.Granted, of(f.acquire(name, "a", 8), several...))
			f.wantStates(several, 8, life, "a")
		}
	}},
	{"names that are the owner's stay, and the others are created", func(f fixture) {
		f.want(node.Granted, of(f.acquire(name, "a", 5), several...))
		f.must(f.Do("DEL", several[1]))
		f.must(f.Do("DEL", node.FenceKey(several[1])))
		cmd := of(f.acquire(name, "a", 5), several...)
		cmd.TTL = 3 * life
		f.want(node.Granted, cmd)
		f.wantState(several[0], 5, life, "a")
		f.wantState(several[1], 5, 3*life, "a")
		f.wantState(several[2], 5, life, "a")
	}},
	{"the fence of a name that is the owner's does not count", func(f fixture) {
		f.want(node.Granted, f.acquire(several[0], "a", 5))
		f.want(node.Absent, f.release(several[0], "b", 9))
		f.want(node.Absent, f.release(several[1], "b", 5))
		f.wantTold(node.Stale, 5, of(f.acquire(name, "a", 5), several...))
		f.want(node.Granted, of(f.acquire(name, "a", 6), several...))
		f.wantState(several[0], 9, life, "a")
	}},
	{"one that is not a hash is a wrong type, and nothing changes", func(f fixture) {
		for _, wrong := range several {
			f.must(f.Do("FLUSHALL"))
			f.must(f.Do("SET", wrong, "x"))
			f.wantErr(node.ErrWrongType, of(f.acquire(name, "a", 5), several...))
			for _, other := range several {
				if other != wrong {
					f.wantState(other, 0, 0)
				}
			}
		}
	}},
	{"names with one fence are two locks", func(f fixture) { // by Redisson's rule for braces
		f.want(node.Granted, of(f.acquire(name, "a", 5), "x", "{x}"))
		f.wantStates([]string{"x", "{x}"}, 5, life, "a")
	}},
	{"many are granted and released", func(f fixture) {
		names := make([]string, 300)
		for i := range names {
			names[i] = fmt.Sprint("many ", i)
		}
		f.want(node.Granted, of(f.acquire(name, "a", 5), names...))
		f.want(node.Refused, f.acquire(names[299], "b", 6))
		f.want(node.Released, of(f.release(name, "a", 5), names...))
		f.wantState(names[299], 5, 0)
	}},
}

var releaseSeveralRules = []rule{
	{"one that is not a hash is a wrong type, after ending the others", func(f fixture) {
		for _, wrong := range several {
			f.must(f.Do("FLUSHALL"))
			f.want(node.Granted, of(f.acquire(name, "a", 5), several...))
			f.must(f.Do("SET", wrong, "x"))
			f.wantErr(node.ErrWrongType, of(f.release(name, "a", 6), several...))
			for _, other := range several {
				if got := f.state(other); got.Fence != 6 || (got.Type == "string") != (other == wrong) || got.Type == "hash" {
					f.Errorf("%q with the wrong type at %q: %+v", other, wrong, got)
				}
			}
		}
	}},
}

var extendRules = []rule{
	{"the owner's key gets the life, and is never shortened", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "a", 5))
		want := life
		for _, ttl := range []time.Duration{1, life / 2, 3 * life, life} { // a fraction of a millisecond is a millisecond
			want = max(want, ttl)
			f.wantKept(f.extend(ttl, node.Claim{Name: name, Owner: "a"}), true)
			f.wantState(name, 5, want, "a")
		}
		f.must(f.Do("PERSIST", name))
		f.wantKept(f.extend(9*life, node.Claim{Name: name, Owner: "a"}), true)
		f.wantState(name, 5, node.NoExpiry, "a")
	}},
	{"another's key is not touched", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.wantKept(f.extend(3*life, node.Claim{Name: name, Owner: "b"}), false)
		f.wantState(name, 5, life, "a")
	}},
	{"a name without a lock gets none", func(f fixture) {
		f.wantKept(f.extend(life, node.Claim{Name: name, Owner: "a"}), false)
		f.wantState(name, 0, 0)
	}},
	{"an expired key is not revived", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.must(f.Advance(life + time.Second))
		f.wantKept(f.extend(life, node.Claim{Name: name, Owner: "a"}), false)
		f.wantState(name, 5, 0)
	}},
	{"Kept says which claims had their field, in their order", func(f fixture) {
		f.want(node.Granted, f.acquire("x", "a", 5))
		f.want(node.Granted, f.acquire("y", "b", 5))
		f.must(f.Do("SET", "s", "x"))
		f.wantKept(f.extend(3*life,
			node.Claim{Name: "none", Owner: "a"}, node.Claim{Name: "x", Owner: "a"}, node.Claim{Name: "s", Owner: "a"},
			node.Claim{Name: "x", Owner: "b"}, node.Claim{Name: "y", Owner: "b"}), false, true, false, false, true)
		f.wantState("x", 5, 3*life, "a")
		f.wantState("y", 5, 3*life, "b")
	}},
	{"hundreds of claims are one command", func(f fixture) {
		claims := make([]node.Claim, 700)
		want := make([]bool, len(claims))
		for i := range claims {
			claims[i] = node.Claim{Name: string(rune('a'+i%26)) + string(rune('a'+i/26)), Owner: "a"}
			if want[i] = i%3 == 0; want[i] {
				f.want(node.Granted, f.acquire(claims[i].Name, "a", 5))
			}
		}
		f.wantKept(f.extend(3*life, claims...), want...)
	}},
}

func (f fixture) wantKept(cmd node.Command, want ...bool) {
	f.Helper()
	r := f.want(node.Done, cmd)
	for i, kept := range r.Kept {
		if kept != want[i] {
			f.Errorf("claim %d: kept %v, want %v", i, kept, want[i])
		}
	}
}

var inspectRules = []rule{
	{"a name that was never used has nothing", func(f fixture) {
		f.wantState(name, 0, 0)
	}},
	{"a lock has its owner, its life and its fence, and all stay", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.wantState(name, 5, life, "a")
		f.wantState(name, 5, life, "a")
	}},
	{"fields are sorted, and have their values", func(f fixture) {
		for _, field := range []string{"b", "d", "a", "c"} {
			f.must(f.Do("HSET", name, field, "of "+field))
		}
		got := f.state(name)
		if len(got.Fields) != 4 || got.TTL != node.NoExpiry {
			f.Fatalf("got %+v, want 4 fields and no expiry", got)
		}
		for i, field := range got.Fields {
			if want := string(rune('a' + i)); field != (node.Field{Name: want, Value: "of " + want}) {
				f.Errorf("field %d: %+v, want %s", i, field, want)
			}
		}
	}},
	{"another type is reported by its name, and a string by how it begins", func(f fixture) {
		for value, want := range map[string]string{"x": "x", strings.Repeat("long", 20): strings.Repeat("long", 16), "": ""} {
			f.must(f.Do("SET", name, value))
			got := f.state(name)
			if got.Type != "string" || got.Value != want || got.Fields != nil || got.TTL != node.NoExpiry {
				f.Errorf("got %+v, want a string %q without fields and without expiry", got, want)
			}
		}
	}},
}

var breakRules = []rule{
	{"a lock of any owner is removed, and the fence raised", func(f fixture) {
		cmd := f.acquire(name, "a", 5)
		f.want(node.Granted, cmd)
		f.want(node.Released, f.breakLock(name, 7))
		f.wantState(name, 7, 0)
		f.want(node.Stale, cmd)
		f.want(node.Absent, f.release(name, "a", 5))
	}},
	{"a lock of several fields is removed whole", func(f fixture) {
		f.must(f.Do("HSET", name, "java", "2"))
		f.must(f.Do("HSET", name, "go", "1"))
		f.want(node.Released, f.breakLock(name, 7))
		f.wantState(name, 7, 0)
	}},
	{"without a lock the fence is raised all the same", func(f fixture) {
		f.want(node.Absent, f.breakLock(name, 7))
		f.wantState(name, 7, 0)
	}},
	{"the fence is never lowered", func(f fixture) {
		f.want(node.Granted, f.acquire(name, "a", 5))
		f.want(node.Released, f.breakLock(name, 3))
		f.wantState(name, 5, 0)
	}},
	{"a key that is not a hash is left alone", func(f fixture) {
		f.must(f.Do("SET", name, "x"))
		f.wantErr(node.ErrWrongType, f.breakLock(name, 7))
		if got := f.state(name); got.Type != "string" {
			f.Errorf("after it: %+v, want a string", got)
		}
	}},
}

// brief is a retention longer than a lock's life and shorter than two.
const brief = life + life/2

func (f fixture) briefly(cmd node.Command) node.Command {
	cmd.Retention = brief
	return cmd
}

var fenceRules = []rule{
	{"a token delayed until after its own expiry is stale", func(f fixture) {
		cmd := f.acquire(name, "a", 5)
		f.want(node.Granted, cmd)
		f.must(f.Advance(life + time.Second))
		f.want(node.Stale, cmd)
	}},
	{"it outlives its lock, and goes after its retention", func(f fixture) {
		f.want(node.Granted, f.briefly(f.acquire(name, "a", 5)))
		f.must(f.Advance(life + patience/2))
		f.wantState(name, 5, 0)
		f.must(f.Advance(life / 2))
		f.wantState(name, 0, 0)
		f.want(node.Granted, f.acquire(name, "b", 1))
	}},
	{"raising it begins its retention again", func(f fixture) {
		for _, raise := range []node.Command{f.acquire(name, "a", 6), f.release(name, "a", 6), f.breakLock(name, 6)} {
			f.must(f.Do("FLUSHALL"))
			f.want(node.Absent, f.briefly(f.release(name, "a", 5)))
			f.must(f.Advance(life))
			f.reply(f.briefly(raise))
			f.must(f.Advance(life))
			f.wantFence(6)
		}
	}},
	{"what does not raise it does not prolong it", func(f fixture) {
		cmd := f.briefly(f.acquire(name, "a", 5))
		cmd.TTL = 9 * life
		f.want(node.Granted, cmd)
		f.must(f.Advance(life))
		f.want(node.Granted, cmd)
		f.want(node.Refused, f.acquire(name, "b", 9))
		f.want(node.Absent, f.release(name, "b", 5))
		f.wantKept(f.extend(9*life, node.Claim{Name: name, Owner: "a"}), true)
		f.want(node.Released, f.release(name, "a", 5))
		f.want(node.Absent, f.breakLock(name, 5))
		f.want(node.Stale, f.acquire(name, "b", 5))
		f.must(f.Advance(life))
		f.wantFence(0)
	}},
	{"without it, an old token is granted", func(f fixture) {
		f.want(node.Absent, f.release(name, "a", 5))
		f.must(f.Do("DEL", node.FenceKey(name)))
		f.want(node.Granted, f.acquire(name, "b", 1))
		f.wantState(name, 1, life, "b")
	}},
	{"it is not that of the name with braces around it", func(f fixture) { // though their channel is one, by Redisson's rule
		f.want(node.Absent, f.release("x", "a", 5))
		f.want(node.Granted, f.acquire("{x}", "b", 5))
	}},
}

func (f fixture) wantFence(want node.Token) {
	f.Helper()
	if got := f.state(name).Fence; got != want {
		f.Errorf("fence %d, want %d", got, want)
	}
}
