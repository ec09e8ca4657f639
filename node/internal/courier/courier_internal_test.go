package courier

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// inspects queues an Inspect for each of some names.
func inspects(t *testing.T, s *server, names ...string) {
	t.Helper()
	for i, name := range names {
		cmd := node.Command{Kind: node.Inspect, Claims: []node.Claim{{Name: name}}, Deadline: s.clock.Now().Add(time.Duration(i+1) * time.Second)}
		if err := s.enqueue(cmd, func(node.Reply) {}); err != nil {
			t.Fatal(err)
		}
	}
}

func queued(s *server) string {
	var names []string
	for _, c := range s.queue.calls() {
		names = append(names, c.claims[0].Name)
	}
	return strings.Join(names, " ")
}

// A command that has its answer is not sent any more: its caller may have gone on to
// something else.
func TestWhatIsAnsweredIsNotSentAgain(t *testing.T) {
	c := &standing{now: clock.Instant(time.Hour)}
	s := gatherer(c)
	inspects(t, s, "a", "b", "c")
	s.take(nil)
	s.link = &stream{} // not to be given up: its silence may last
	c.now = c.now.Add(time.Second)
	s.heard = c.now
	s.expire()
	s.giveBack(3)
	if got := queued(s); got != "b c" {
		t.Errorf("queued again: %s; want b and c, as a is answered", got)
	}
}

// Commands that are sent again keep their order, and go before those that were never
// sent, whether the answers came at once or one by one.
func TestWhatIsSentAgainKeepsItsOrder(t *testing.T) {
	lacks := result{err: serverReply{errors.New("NOSCRIPT No matching script.")}}
	for what, answers := range map[string][][]result{
		"at once":    {{lacks, lacks, lacks}},
		"one by one": {{lacks}, {lacks}, {lacks}},
	} {
		s := gatherer(&standing{now: clock.Instant(time.Hour)})
		s.least = 0
		inspects(t, s, "a", "b", "c")
		s.take(nil)
		inspects(t, s, "d")
		for _, results := range answers {
			if !s.settle(results, nil) {
				t.Fatal("the link is of no more use")
			}
		}
		if got := queued(s); got != "a b c d" {
			t.Errorf("answered %s: the order is %s", what, got)
		}
	}
}
