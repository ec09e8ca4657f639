package redisnode

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

func infoText(id string, uptime int) string {
	return fmt.Sprintf("# Server\r\nredis_version:7.0.15\r\nrun_id:%s\r\nuptime_in_seconds:%d\r\n", id, uptime)
}

// TestCensus follows the lives behind a node through its handshakes.
func TestCensus(t *testing.T) {
	var c node.Census
	at := func(seconds float64) clock.Instant { return clock.Instant(seconds * float64(time.Second)) }
	for _, step := range []struct {
		what    string
		now     float64 // of the handshake
		texts   []string
		id      string
		born    float64
		contact float64 // when the last reply came, if later than the handshake
	}{
		{"first, and a second of doubt", 1000, []string{infoText("a", 100)}, "a", 901, 1010},
		{"the same again, though the uptime tells otherwise", 1011, []string{infoText("a", 5)}, "a", 901, 1020},
		{"restarted just now", 1021, []string{infoText("b", 0)}, "b", 1021, 1030},
		{"restarted a while ago", 1060, []string{infoText("c", 25)}, "c", 1036, 1070},
		{"a replica that is older than the last reply", 1080, []string{infoText("d", 5000)}, "d", 1080, 1090},
		{"a replica that is as old as the last reply", 1095, []string{infoText("e", 7)}, "e", 1095, 1099},
		{"back to one of before", 1100, []string{infoText("d", 5020)}, "d", 1100, 0},
		{"more servers", 1110, []string{infoText("f", 3), infoText("d", 5030)}, "d+f", 1108, 0},
		{"the same in another order", 1120, []string{infoText("d", 5040), infoText("f", 13)}, "d+f", 1108, 1125},
		{"one failed over", 1130, []string{infoText("d", 5050), infoText("g", 9999)}, "d+g", 1130, 0},
		{"one that says nothing", 1140, []string{infoText("d", 5060), "# Server\r\n"}, "", 0, 0},
		{"then all is new", 1150, []string{infoText("d", 5070)}, "d", 1150 - 5069, 0},
		{"none", 1160, nil, "", 0, 0},
	} {
		life := c.Take(uptimes(step.texts), at(step.now))
		switch {
		case life == nil && step.id != "":
			t.Errorf("%s: no life", step.what)
		case life != nil && (life.ID != step.id || life.Born != at(step.born)):
			t.Errorf("%s: %s born at %v, want %s at %v", step.what, life.ID, time.Duration(life.Born), step.id, step.born)
		}
		if step.contact > 0 {
			c.Heard(at(step.contact))
		}
	}
}

// standing is a clock that is set by hand.
type standing struct {
	clock.Clock
	now clock.Instant
}

func (c *standing) Now() clock.Instant { return c.now }

// What comes over a new link has no life without INFO: however long the process was
// held up before, that is sent first, and its time begins then.
func TestIntroductionIsNeverTooLate(t *testing.T) {
	c := &standing{now: 1}
	s := &server{clock: c, limit: 10, armed: clock.Never, timer: time.NewTimer(time.Hour)}
	s.introduce(time.Second)
	var late node.Reply
	for _, deadline := range []time.Duration{time.Second, time.Minute} {
		cmd := node.Command{Kind: node.Inspect, Claims: []node.Claim{{Name: "a"}}, Deadline: c.now.Add(deadline)}
		if err := s.enqueue(cmd, func(r node.Reply) { late = r }); err != nil {
			t.Fatal(err)
		}
	}
	c.now = c.now.Add(2 * time.Second)
	s.expire()
	batch := s.take(nil)
	if len(batch) != 2 || batch[0].kind != 0 || batch[1].kind != node.Inspect {
		t.Fatalf("%d commands are sent; want INFO, and the one that is not late", len(batch))
	}
	if !late.Unsent {
		t.Errorf("the late one is answered %+v", late)
	}
	if got, want := batch[0].deadline, c.now.Add(time.Second); got != want {
		t.Errorf("INFO has until %v, want %v", time.Duration(got), time.Duration(want))
	}
	if s.armed > batch[0].deadline {
		t.Error("nobody looks whether INFO is answered")
	}
}

// Of what makes a link useless only the word of a replica makes its servers' lives begin
// anew; and after it, until the next link, nothing is granted or handed on.
func TestOnlyAReplicaIsDistrusted(t *testing.T) {
	readOnly := serverReply{errors.New("READONLY You can't write against a read only replica.")}
	for _, tt := range []struct {
		what    string
		results [][]result // as they come
		after   error      // of the last command
		anew    bool
	}{
		{"an answer that did not come", [][]result{{{err: io.ErrUnexpectedEOF}, {val: int64(1)}}}, nil, false},
		{"an answer too many", [][]result{{{val: int64(1)}, {val: int64(1)}, {val: int64(1)}}}, nil, false},
		{"a replica", [][]result{{{err: readOnly}, {val: int64(1)}}}, errDemoted, true},
		{"a replica, and later a master", [][]result{{{err: readOnly}}, {{val: int64(1)}}}, errDemoted, true},
	} {
		c := &standing{now: clock.Instant(time.Hour)}
		s := &server{clock: c, log: slog.New(slog.DiscardHandler), limit: 10, armed: clock.Never, timer: time.NewTimer(time.Hour)}
		meet := func() *node.Life {
			life, err := s.handshake([]string{"run_id:a\r\nuptime_in_seconds:60\r\n"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return life
		}
		handsOn := func() bool {
			turn, ok := s.turn("grant me 7 a name")
			return ok && turn.Life != nil
		}
		life := meet()
		var last node.Reply
		for range 2 {
			cmd := node.Command{Kind: node.Acquire, Claims: []node.Claim{{Name: "a", Owner: "me", Token: 1}}, TTL: time.Second, Deadline: c.now.Add(time.Second)}
			if err := s.enqueue(cmd, func(r node.Reply) { last = r }); err != nil {
				t.Fatal(err)
			}
		}
		s.take(nil)
		good := true
		for _, results := range tt.results {
			good = s.settle(results, life) && good
		}
		if good {
			t.Errorf("%s: the link is still good", tt.what)
		}
		if last.Err != tt.after || tt.after == nil && last.Status != node.Granted {
			t.Errorf("%s: the next is answered %+v", tt.what, last)
		}
		if handsOn() == tt.anew {
			t.Errorf("%s: whether it hands on a lock is %v", tt.what, !tt.anew)
		}
		c.now = c.now.Add(time.Second)
		if again := meet(); (again.Born == c.now) != tt.anew {
			t.Errorf("%s: then born at %v, was at %v", tt.what, time.Duration(again.Born), time.Duration(life.Born))
		}
		if !handsOn() {
			t.Errorf("%s: nothing is handed on by its new life", tt.what)
		}
	}
}

// Who is told by a server's former life that it has a lock has none: a restart may have
// lost it.
func TestAHandOverByAFormerLifeDoesNotCount(t *testing.T) {
	s := &server{clock: &standing{now: clock.Instant(time.Hour)}, log: slog.New(slog.DiscardHandler)}
	told := func() *node.Life {
		turn, ok := s.turn("grant me 7 old name")
		if !ok || turn.Owner != "me" || turn.Token != 7 || turn.Name != "name" {
			t.Fatalf("heard %+v, %v", turn, ok)
		}
		return turn.Life
	}
	if told() != nil {
		t.Error("it counts before it is known whose the server is")
	}
	for _, id := range []string{"old", "new"} {
		life, err := s.handshake([]string{infoText(id, 60)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]*node.Life{"old": life}[id]
		if got := told(); got != want {
			t.Errorf("the server is %s: what was told by old has the life %+v, want %+v", id, got, want)
		}
	}
}
