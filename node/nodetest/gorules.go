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
		{"Read", exclusive, readRules},
		{"Write", exclusive, writeRules},
		{"Downgrade", exclusive, downgradeRules},
		{"Waiter", all, waiterRules},
		{"Queue", alone, queueRules},
		{"Queues of several", exclusive, queueSeveralRules},
		{"Who is next", exclusive, nextRules},
		{"Hand-off", all, handoffRules},
		{"Hand-off of readers", exclusive, readersHandoffRules},
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
