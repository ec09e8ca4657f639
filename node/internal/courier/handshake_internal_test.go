package courier

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/lives"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
)

func infoText(id string, uptime int) string {
	return fmt.Sprintf("# Server\r\nredis_version:7.0.15\r\nrun_id:%s\r\nuptime_in_seconds:%d\r\n", id, uptime)
}

const noReplid = "0000000000000000000000000000000000000000"

// promotedText is infoText of a promoted server, with the ages of its connections to
// replicas.
func promotedText(id string, uptime int, replid, replid2 string, ages ...int) string {
	text := infoText(id, uptime) + fmt.Sprintf("# Replication\r\nrole:master\r\nmaster_replid:%s\r\nmaster_replid2:%s\r\n", replid, replid2)
	for _, age := range ages {
		text += fmt.Sprintf("id=7 addr=127.0.0.1:5 name=age=99 age=%d idle=0\n", age)
	}
	return text
}

func TestLifeTracker(t *testing.T) {
	var c lives.Tracker
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
		{"a promoted one, with a replica", 2000, []string{promotedText("h", 900, "x", "w", 51)}, "h", 1950, 0},
		{"none", 2010, nil, "", 0, 0},
		{"a promoted one, with replicas", 2020, []string{promotedText("h", 920, "x", "w", 5, 71)}, "h", 1950, 2025},
		{"the same again, without", 2030, []string{promotedText("h", 930, "x", "w")}, "h", 1950, 2035},
		{"it is not told any more", 2040, []string{promotedText("h", 940, "y", noReplid)}, "h", 1950, 2045},
		{"promoted again, some time ago", 2050, []string{promotedText("h", 950, "z", "y", 3)}, "h", 2048, 2055},
		{"promoted once more, before the last reply", 2060, []string{promotedText("h", 960, "u", "z", 50)}, "h", 2060, 2065},
		{"none", 2080, nil, "", 0, 0},
		{"restarted, and promoted before that", 2090, []string{promotedText("i", 20, "x", "w", 90)}, "i", 2071, 0},
		{"none", 2100, nil, "", 0, 0},
		{"promoted, nobody knows when", 2110, []string{promotedText("j", 900, "x", "w")}, "j", 2110, 0},
		{"its clock was set back, to before its start", 2115, []string{infoText("l", -3600)}, "l", 2115, 2118},
		{"its clock is right again", 2119, []string{infoText("l", 9999)}, "l", 2115, 0},
		{"none", 2120, nil, "", 0, 0},
		{"never promoted, with a replica", 2130, []string{promotedText("k", 100, "x", noReplid, 7)}, "k", 2031, 0},
	} {
		life := c.Handshake(uptimes(step.texts), at(step.now))
		switch {
		case life == nil && step.id != "":
			t.Errorf("%s: no life", step.what)
		case life != nil && (life.ID != step.id || life.Born != at(step.born)):
			t.Errorf("%s: %s born at %v, want %s at %v", step.what, life.ID, time.Duration(life.Born), step.id, step.born)
		}
		if step.contact > 0 {
			c.Answered(at(step.contact))
		}
	}
}

// A member of a cluster is refused for every name: it counts other masters or, if the
// user may not ask, has answered MOVED as a master. A replica says MOVED, too, which
// passes.
func TestAMemberOfAClusterHasNoVote(t *testing.T) {
	const noRight, standalone = "-NOPERM this user has no permissions to run the 'cluster|info' command\r\n", ""
	for what, tt := range map[string]struct {
		info    string // the answer to CLUSTER INFO; standalone: it is not in cluster mode
		moved   bool   // it answers MOVED
		replica bool   // from then on it is one, for a while
		want    error
	}{
		"one of three":                       {bulk("cluster_size:3\r\n"), false, false, node.ErrUnsupported},
		"the only one":                       {bulk("cluster_size:1\r\n"), false, false, nil},
		"the only one, that was deposed":     {bulk("cluster_size:1\r\n"), true, true, nil},
		"nobody knows":                       {noRight, false, false, nil},
		"nobody knows, and it has not all":   {noRight, true, false, node.ErrUnsupported},
		"nobody knows, and it was deposed":   {noRight, true, true, nil},
		"it is in no cluster, whatever this": {standalone, true, true, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			var refuses, follows atomic.Bool
			refuses.Store(tt.moved)
			s := &wireServer{answer: func(command string, _ []string) string {
				switch {
				case command == "cluster":
					return tt.info
				case command == "info" && follows.Load():
					return bulk("role:slave\r\n")
				case command == "info" && tt.info != standalone:
					return bulk(infoText("abc", 1000) + "redis_mode:cluster\r\nrole:master\r\n")
				case strings.HasPrefix(command, "eval") && refuses.Load():
					follows.Store(tt.replica)
					return "-MOVED 15495 10.0.0.2:6379\r\n"
				}
				return ""
			}}
			n := s.node(t, target(s.dial, ""), 0)
			if tt.moved {
				r := acquires(n)
				assert.That(t, errors.Is(r.Err, node.ErrServer), "%s: at first %v", what, r.Err)
				time.Sleep(time.Second)
				if r = acquires(n); tt.replica {
					assert.Is(t, r.Err, node.ErrReadOnly, what)
				}
				refuses.Store(false) // for this name
				follows.Store(false)
				time.Sleep(time.Minute)
			}
			r := acquires(n)
			assert.Is(t, r.Err, tt.want, what)
			assert.That(t, node.Permanent(r.Err) == (tt.want != nil), "%s: %v", what, r.Err)
			sent := s.count("cluster")
			assert.That(t, (sent > 0) == (tt.info != standalone), "%s: CLUSTER INFO was sent %d times", what, sent)
		})
	}
}

type standing struct {
	clock.Clock
	now clock.Instant
}

func (c *standing) Now() clock.Instant { return c.now }

// A command waits until the server has accepted the user, the database and the name, and
// has said who it is: another user or database must not get it, and its reply needs a
// life.
func TestNothingIsSentBeforeTheGreeting(t *testing.T) {
	greeting := []string{"auth", "select", "client", "info", "info", "client"}
	for refused, want := range map[string]error{
		"":                          nil,
		"auth default secret":       node.ErrAuth,
		"select 2":                  node.ErrAuth,
		"client setname me":         node.ErrAuth,
		"info server":               node.ErrAuth,
		"info replication":          node.ErrAuth,
		"client list type replica":  nil,
		"nothing, but it is asleep": node.ErrUnreachable,
	} {
		var all []string
		answer := func(command string, words []string) string {
			all = append(all, command)
			switch line := strings.Join(words, " "); {
			case line == refused:
				return "-NOPERM this user has no permissions to run the command\r\n"
			case command == "auth", command == "select", command == "client" && words[1] == "setname":
				return "+OK\r\n"
			}
			return ""
		}
		synctest.Test(t, func(t *testing.T) {
			s := &wireServer{answer: answer}
			s.late.Store(int64(900 * time.Millisecond))
			if refused != "" && want == node.ErrUnreachable {
				s.late.Store(int64(1100 * time.Millisecond))
			}
			n := s.node(t, target(s.dial, "secret"), 0)
			r := asks(n, 2*time.Second, plain(node.Acquire, "me", 1))
			s.mu.Lock()
			defer s.mu.Unlock()
			switch {
			case !errors.Is(r.Err, want), (want == nil) != (r.Life != nil), (want != nil) != r.Unsent:
				t.Errorf("refused %q: %+v", refused, r)
			case want == nil && !slices.Equal(all, append(greeting, "eval")), want != nil && slices.Contains(all, "eval"):
				t.Errorf("refused %q: sent %v", refused, all)
			}
		})
	}
}

// A greeting succeeds if each command does, and nothing else comes.
func TestExchange(t *testing.T) {
	greeting, first := [][]string{{"auth", "default", "secret"}}, [][]string{{"info"}}
	for said, want := range map[string]error{
		"+OK\r\n$1\r\na\r\n":        nil,
		"+OK\r\n-LOADING\r\n":       nil, // what that means is for others
		"+OK\r\n$1\r\na\r\n:1\r\n":  resp.ErrProtocol,
		"+OK\r\n$1\r\na\r\n:1":      resp.ErrProtocol,
		":1\r\n$1\r\na\r\n":         resp.ErrProtocol,
		"$1\r\na\r\n+OK\r\n":        resp.ErrProtocol,
		"-WRONGPASS\r\n$1\r\na\r\n": node.ErrAuth,
		"-WRONGPASS\r\n":            node.ErrAuth,
		"+OK\r\n-LOADING":           io.EOF,
		"+OK\r\n":                   io.EOF,
		"":                          io.EOF,
	} {
		replies, err := newWire(tests.Playing(strings.NewReader(said)), nil).exchange(time.Time{}, greeting, first)
		assert.That(t, errors.Is(connectError(err), want) && (len(replies) == 1) == (want == nil), "of %q: %v, %v, want %v", said, replies, err, want)
	}
}

// A server that refuses the connection says so first, and ends it. Other refusals do not
// explain why the rest does not come: the server may be slow, or die.
func TestRefusalOfAConnection(t *testing.T) {
	for said, want := range map[string][2]error{ // if it ends the connection, and if it is silent
		"-DENIED by protected mode\r\n":                              {node.ErrAuth, os.ErrDeadlineExceeded},
		"$1\r\na\r\n-ERR section (replication) is not supported\r\n": {io.EOF, os.ErrDeadlineExceeded},
	} {
		for i, then := range []error{io.EOF, os.ErrDeadlineExceeded} {
			conn := tests.Playing(io.MultiReader(strings.NewReader(said), iotest.ErrReader(then)))
			_, err := newWire(conn, nil).exchange(time.Time{}, nil, introduction)
			assert.That(t, errors.Is(connectError(err), want[i]), "of %q, then %v: %v, want %v", said, then, err, want[i])
		}
	}
}

// Several errors make a link useless, but only a replica's begins its servers' lives
// again. After it nothing is granted or handed over until the next link.
func TestOnlyAReplicaIsDistrusted(t *testing.T) {
	readOnly := refusal{error: errors.New("READONLY You can't write against a read only replica.")}
	for _, tt := range []struct {
		what    string
		results [][]result // as they come
		after   error      // of the last command
		newLife bool
	}{
		{"an answer that did not come", [][]result{{{err: io.ErrUnexpectedEOF}, {val: int64(1)}}}, nil, false},
		{"an answer too many", [][]result{{{val: int64(1)}, {val: int64(1)}, {val: int64(1)}}}, nil, false},
		{"a replica", [][]result{{{err: readOnly}, {val: int64(1)}}}, errDemoted, true},
		{"a replica, and later a master", [][]result{{{err: readOnly}}, {{val: int64(1)}}}, errDemoted, true},
	} {
		c := &standing{now: clock.Instant(time.Hour)}
		s := gatherer(c)
		s.queue.groups.least, s.watch.life = 0, "a"
		meet := func() *node.Life {
			life := assert.Got(s.lifespan.handshake([]string{"run_id:a\r\nuptime_in_seconds:60\r\n"}))(t)
			return life
		}
		handsOver := func() bool {
			turn, ok := s.turn("grant me 7 a proof name")
			return ok && turn.Life != nil
		}
		life := meet()
		answers := submits(t, s, plain(node.Acquire, "me", 1), plain(node.Acquire, "me", 1))
		s.queue.take(nil)
		good := true
		for _, results := range tt.results {
			good = s.queue.settle(results, life) && good
		}
		assert.That(t, !good, "%s: the link is still good", tt.what)
		if last := (*answers)[1]; last.Err != tt.after || tt.after == nil && last.Status != node.Granted {
			t.Errorf("%s: the next is answered %+v", tt.what, last)
		}
		assert.That(t, handsOver() != tt.newLife, "%s: whether it hands over a lock is %v", tt.what, !tt.newLife)
		c.now = c.now.Add(time.Second)
		if again := meet(); (again.Born == c.now) != tt.newLife {
			t.Errorf("%s: then born at %v, was at %v", tt.what, time.Duration(again.Born), time.Duration(life.Born))
		}
		assert.That(t, handsOver(), "%s: nothing is handed over by its new life", tt.what)
	}
}

// A restart may have lost the lock.
func TestAHandOverByAFormerLifeDoesNotCount(t *testing.T) {
	s := gatherer(&standing{now: clock.Instant(time.Hour)})
	told := func() *node.Life {
		turn, ok := s.turn("grant me 7 old proof name")
		assert.Must(t, ok && turn.Owner == "me" && turn.Token == 7 && turn.Name == "name", "heard %+v, %v", turn, ok)
		return turn.Life
	}
	assert.That(t, told() == nil, "it counts before it is known whose the server is")
	for _, id := range []string{"old", "new"} {
		life := assert.Got(s.lifespan.handshake([]string{infoText(id, 60)}))(t)
		assert.That(t, told() == nil, "it counts before it is known who says so")
		s.watch.life = "old"
		want := map[string]*node.Life{"old": life}[id]
		assert.Equal(t, told(), want, id)
		s.watch.life = "another"
		assert.That(t, told() == nil, "it counts though another server says so")
		s.watch.life = ""
	}
}

// A hand-over has a token and a recipient.
func TestImpossibleTurns(t *testing.T) {
	s := gatherer(&standing{})
	for _, message := range []string{
		"grant me 0 life proof name", "grant me -1 life proof name", "grant me 9007199254740992 life proof name",
		"grant me 99999999999999999999 life proof name", "grant  5 life proof name", "grant me 5 life proof ", "grant me 5 life proof",
		"grant me 5 life name", "grant me x life proof name", "turn  name", "turn waiter ", "turn", "other 1 2 3 4",
	} {
		turn, ok := s.turn(message)
		assert.That(t, !ok, "%q: %+v", message, turn)
	}
	for _, message := range []string{"grant me 1 life proof a name", "grant me 9007199254740991 life proof a name", "turn waiter a name", ""} {
		turn, ok := s.turn(message)
		assert.That(t, ok && (message == "" || turn.Name == "a name"), "%q: %+v, %v", message, turn, ok)
	}
}

// A run_id goes with commands and in messages, so nonsense is refused. A server may also
// tell none.
func TestImpossibleLives(t *testing.T) {
	for _, id := range []string{strings.Repeat("x", 65), "a b", "a\x1b[31m", "ä"} {
		s := gatherer(&standing{})
		life, err := s.lifespan.handshake([]string{infoText(id, 60)})
		assert.That(t, life == nil && errors.Is(err, resp.ErrProtocol), "%q: %v, %v", id, life, err)
	}
	s := gatherer(&standing{})
	life, err := s.lifespan.handshake([]string{infoText("a", math.MaxInt64)})
	assert.That(t, err == nil && life.Born <= 0, "an uptime of 300 billion years: %+v, %v", life, err)
}
