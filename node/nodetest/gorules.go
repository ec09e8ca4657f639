package nodetest

import (
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
)

// A rule is a sentence about commands, and a test of it. Each has a server
// without keys.
type goRule struct {
	sentence string
	test     func(f fixture)
}

// runGo plays the rules that are not text yet.
func runGo(t *testing.T, open func(t *testing.T) System) {
	exclusive, alone := []node.Mode{node.Exclusive}, []node.Mode{node.Exclusive, node.Write}
	all := []node.Mode{node.Exclusive, node.Read, node.Write}
	for _, group := range []struct {
		name  string
		modes []node.Mode // of the locks, unless a rule says otherwise
		rules []goRule
	}{
		{"Waiter", all, waiterRules},
		{"Queue", alone, queueRules},
		{"Queues of several", exclusive, queueSeveralRules},
		{"Who is next", exclusive, nextRules},
		{"Hand-off", all, handoffRules},
		{"Hand-off of readers", exclusive, readersHandoffRules},
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

func (f fixture) wantKept(cmd node.Command, want ...bool) {
	f.Helper()
	r := f.want(node.Done, cmd)
	for i, kept := range r.Kept {
		if kept != want[i] {
			f.Errorf("claim %d: kept %v, want %v", i, kept, want[i])
		}
	}
}

// A goBell counts calls of wake, and has what was handed on.
type goBell struct {
	rings  chan struct{}
	handed chan node.Turn
	stop   func()
}

// watch watches a name in the mode of the test, and returns when the subscription has begun.
func (f fixture) watch(name string) goBell {
	f.Helper()
	return f.watchIn(name, f.mode)
}

func (f fixture) watchIn(name string, mode node.Mode) goBell {
	f.Helper()
	b := newBell()
	return f.begun(b, f.Node.Watch(name, mode, func() { b.rings <- struct{}{} }))
}

// watchFor watches for a waiter in line for name.
func (f fixture) watchFor(waiter string) goBell {
	f.Helper()
	b := newBell()
	return f.begun(b, f.Node.Listen(node.Process(waiter), func(t node.Turn) {
		if t.Name == "" || t.Name == name && t.Owner == "" {
			b.rings <- struct{}{}
		} else if t.Name == name {
			b.handed <- t
		}
	}))
}

func newBell() goBell {
	return goBell{rings: make(chan struct{}, 1000), handed: make(chan node.Turn, 1000)}
}

// begun returns the goBell when its subscription has begun.
func (f fixture) begun(b goBell, stop func()) goBell {
	f.Helper()
	b.stop = stop
	f.Cleanup(stop)
	f.rings(b)
	b.drain()
	return b
}

// rings requires a call of wake.
func (f fixture) rings(b goBell) {
	f.Helper()
	select {
	case <-b.rings:
	case <-time.After(patience):
		f.Fatalf("not woken in %v", patience)
	}
}

// drain forgets the calls so far, also those that are just under way.
func (b goBell) drain() {
	for {
		select {
		case <-b.rings:
		case <-time.After(brevity / 10):
			return
		}
	}
}
