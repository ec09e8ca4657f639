// Package nodetest holds every implementation of [node.Node] to the meaning that package
// node gives to its commands.
//
// [Run] plays the rules in testdata, which are text. [Differential] gives several nodes
// the same random commands and disturbances and requires the same replies.
package nodetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A System is a node under test, and access to the server behind it.
type System struct {
	Name  string
	Node  node.Node
	Clock clock.Clock // the node's

	// Do executes a Redis command on the server: one of DEL, FLUSHALL, HSET (of one
	// field), PERSIST, PEXPIRE, PUBLISH and SET (of key and value alone). WRONGTYPE comes
	// as node.ErrWrongType.
	Do func(args ...string) error

	// Advance lets d, at least 0, pass for every expiry on the server, and nothing else.
	Advance func(d time.Duration) error

	// Slack is how much more time than Advance lets pass may go by on the server between
	// two commands. For Differential alone.
	Slack time.Duration

	// Stall makes the server take commands without an answer, or ends that. For Run
	// alone.
	Stall func(stalled bool) error

	// Cut breaks all connections of the node. The server keeps its data. For Run
	// alone.
	Cut func() error
}

// patience bounds every wait.
const patience = 20 * time.Second

func (s System) ask(cmd node.Command) node.Reply {
	replies := make(chan node.Reply, 1)
	s.Node.Submit(cmd, func(r node.Reply) { replies <- r })
	select {
	case r := <-replies:
		return r
	case <-time.After(patience):
		panic(fmt.Sprintf("nodetest: %s: no reply to %v in %v", s.Name, cmd.Kind, patience))
	}
}

func (s System) connect() error {
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		r := s.ask(s.inspect("connect"))
		if r.Status == node.Done {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("nodetest: %s: not connected after %v: %w", s.Name, patience, r.Err)
		}
	}
}

func (s System) soon() clock.Instant { return s.Clock.Now().Add(patience) }

func (s System) inspect(name string) node.Command {
	return node.Command{Kind: node.Inspect, Claims: []node.Claim{{Name: name}}, Deadline: s.soon()}
}

var reasons = []struct {
	word string
	err  error
}{
	{"timeout", node.ErrTimeout}, {"unreachable", node.ErrUnreachable}, {"overloaded", node.ErrOverloaded},
	{"closed", node.ErrClosed}, {"loading", node.ErrLoading}, {"busy", node.ErrBusy}, {"read-only", node.ErrReadOnly},
	{"cannot-save", node.ErrMisconf}, {"out-of-memory", node.ErrOutOfMemory}, {"server", node.ErrServer},
	{"wrong-type", node.ErrWrongType}, {"auth", node.ErrAuth}, {"certificate", node.ErrCertificate},
	{"unsupported", node.ErrUnsupported},
}

func reason(err error) error {
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return r.err
		}
	}
	return nil
}

func reasonText(err error) string {
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return r.word
		}
	}
	return fmt.Sprint(err)
}

// wellFormed holds for every reply to a command of this kind.
func wellFormed(cmd node.Command, r node.Reply) error {
	switch {
	case (r.Status == node.Unknown) != (r.Err != nil):
		return fmt.Errorf("status %v with error %v", r.Status, r.Err)
	case r.Err != nil && reason(r.Err) == nil:
		return fmt.Errorf("an error that is none of package node's: %w", r.Err)
	case r.Unsent && r.Status != node.Unknown:
		return fmt.Errorf("%v, and unsent", r.Status)
	case r.Status == node.Done && (cmd.Kind == node.Extend || cmd.Kind == node.Downgrade) &&
		len(r.Kept) != len(cmd.Claims):
		return fmt.Errorf("%d claims and %d in Kept", len(cmd.Claims), len(r.Kept))
	case r.Status == node.Done && cmd.Kind == node.Inspect && r.State == nil:
		return errors.New("no State")
	case !possible(cmd.Kind, r.Status):
		return fmt.Errorf("%v cannot be %v", cmd.Kind, r.Status)
	}
	return nil
}

func possible(k node.Kind, s node.Status) bool {
	switch s {
	case node.Unknown:
		return true
	case node.Granted, node.Refused:
		return k == node.Acquire || k == node.Rename
	case node.Stale:
		return k == node.Acquire || k == node.Break || k == node.Rename
	case node.Released, node.Absent:
		return k == node.Release || k == node.Break
	case node.Done:
		return k == node.Extend || k == node.Inspect || k == node.Downgrade
	}
	return false
}
