package courier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
)

// A wireServer is a minimal server in virtual time.
type wireServer struct {
	mu     sync.Mutex
	conns  int
	heard  map[string]int
	answer func(command string, words []string) string // "": as usual
	late   atomic.Int64                                // for so long the next answer is kept back

	latency time.Duration // for so long each answer is on its way
	undated bool          // its connections have no deadlines
}

// A tunnel is like a connection of golang.org/x/crypto/ssh.
type tunnel struct{ net.Conn }

var errNoDeadline = errors.New("ssh: tcpChan: deadline not supported")

func (tunnel) SetDeadline(time.Time) error      { return errNoDeadline }
func (tunnel) SetReadDeadline(time.Time) error  { return errNoDeadline }
func (tunnel) SetWriteDeadline(time.Time) error { return errNoDeadline }

func (f *wireServer) count(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if what == "" {
		return f.conns
	}
	return f.heard[what]
}

// answers changes what it answers.
func (f *wireServer) answers(answer func(command string, words []string) string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

func (f *wireServer) dial(context.Context) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns++
	near, far := net.Pipe()
	go f.serve(far)
	if f.undated {
		return tunnel{near}, nil
	}
	return near, nil
}

func (f *wireServer) serve(conn net.Conn) {
	type answer struct {
		text string
		due  time.Time
	}
	answers, gone := make(chan answer, 10_000), make(chan bool)
	go func() {
		defer close(gone)
		for a := range answers {
			time.Sleep(time.Until(a.due))
			conn.Write([]byte(a.text))
		}
	}()
	defer func() { close(answers); <-gone; conn.Close() }()
	var unread []byte
	var p resp.Parser
	queued := false // in MULTI
	buf := make([]byte, 64<<10)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		unread = append(unread, buf[:n]...)
		f.mu.Lock()
		f.heard[reads]++
		f.mu.Unlock()
		for {
			_, n, _ := p.Parse(unread)
			if n == 0 {
				break
			}
			list := words(unread).list()
			unread = unread[n:]
			command := strings.ToLower(list[0])
			f.mu.Lock()
			f.heard[command]++
			text := ""
			if queued = queued && command != "exec"; queued {
				text = "+QUEUED\r\n"
			} else if f.answer != nil {
				text = f.answer(command, list)
			}
			queued = queued || command == "multi"
			f.mu.Unlock()
			if text == "" {
				text = usual(command, list)
			}
			due := time.Now().Add(f.latency + time.Duration(f.late.Swap(0)))
			if text != silence {
				answers <- answer{text, due}
			}
			if text == nonsense {
				answers <- answer{" ", due} // which is on its way until the other end is closed
				return
			}
		}
	}
}

// reads is among what is heard: how often a connection was read.
const reads = "reads"

// silence is no answer.
const silence = "-"

// nonsense is the last answer, after which a server reads no more.
const nonsense = "HTTP/1.1 400 Bad Request\r\n"

func usual(command string, words []string) string {
	switch command {
	case "ping":
		return "*2\r\n$4\r\npong\r\n$0\r\n\r\n" // of a subscription
	case "subscribe":
		all := ""
		for i, channel := range words[1:] {
			all += fmt.Sprintf("*3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:%d\r\n", len(channel), channel, i+1)
		}
		return all
	case "info":
		return bulk(infoText("abc", 1000))
	case "eval", "evalsha":
		return ":1\r\n"
	}
	return "-ERR unknown command\r\n"
}

func target(dial func(context.Context) (net.Conn, error), password string) Target {
	t := Target{Dial: dial, Timeout: time.Second}
	t.Credentials = func(context.Context) (string, string, error) { return "", password, nil }
	if password != "" {
		t.DB, t.ClientName = 2, "me"
	}
	return t
}

// node connects before anybody asks it.
func (f *wireServer) node(t *testing.T, to Target, replicas int) node.Node {
	f.heard = make(map[string]int)
	n := ToServer(to, Options{Clock: clock.Runtime(), Replicas: replicas})
	t.Cleanup(func() { n.Close(); time.Sleep(time.Minute) }) // the server may be about to answer
	return n
}

// rest runs f with a node and its server, also over connections without deadlines.
func rest(t *testing.T, f func(t *testing.T, s *wireServer, n node.Node)) {
	for _, undated := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := wireServer{undated: undated}
			f(t, &s, s.node(t, target(s.dial, ""), 0))
		})
	}
}

func asks(n node.Node, timeout time.Duration, cmd node.Command) node.Reply {
	replies := make(chan node.Reply, 1) // a node that is already known to be down answers at once
	cmd.Deadline = n.(*server).clock.Now().Add(timeout)
	n.Submit(cmd, func(r node.Reply) { replies <- r })
	return <-replies
}

func plain(kind node.Kind, owner string, token node.Token) node.Command {
	cmd := node.Command{Kind: kind, Claims: []node.Claim{{Name: "a", Owner: owner, Token: token}}}
	if kind == node.Acquire || kind == node.Extend {
		cmd.TTL = time.Second
	}
	return cmd
}

func acquires(n node.Node) node.Reply { return asks(n, time.Second, plain(node.Acquire, "me", 1)) }

func granted(t *testing.T, n node.Node) {
	t.Helper()
	r := acquires(n)
	assert.That(t, r.Status == node.Granted, "answered %+v", r)
}

// Commands do not wait for others on their way, and share system calls.
func TestManyInFlight(t *testing.T) {
	rest(t, func(t *testing.T, s *wireServer, n node.Node) {
		granted(t, n)
		s.late.Store(int64(100 * time.Millisecond))
		before := s.count(reads)
		const many = 1000
		var answered atomic.Int64
		for range many {
			cmd := plain(node.Extend, "me", 1)
			cmd.Deadline = clock.Never
			n.Submit(cmd, func(node.Reply) { answered.Add(1) })
		}
		time.Sleep(time.Millisecond)
		if sent, took := s.count("evalsha"), s.count(reads)-before; answered.Load() > 0 || sent < many-1 || took > many/5 {
			t.Errorf("%d of %d were sent, over %d reads, before the answers to %d", sent, many, took, answered.Load())
		}
		time.Sleep(time.Second)
		assert.That(t, answered.Load() >= many, "%d of %d are answered", answered.Load(), many)
	})
}

// A new node needs two round trips to its first answer: for the greeting, and for the
// command.
func TestFirstReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := wireServer{latency: 10 * time.Millisecond}
		began := time.Now()
		granted(t, s.node(t, target(s.dial, ""), 0))
		assert.Equal(t, time.Since(began), 2*s.latency, s.latency)
	})
}

// A resting connection is used so often that no middle box forgets it.
func TestARestingConnectionIsKept(t *testing.T) {
	rest(t, func(t *testing.T, s *wireServer, n node.Node) {
		granted(t, n)
		before := s.count("info")
		time.Sleep(10 * restAfter)
		got := s.count("info") - before
		assert.That(t, got >= 8 && got <= 10, "asked for its role %d times in ten times %v", got, restAfter)
		granted(t, n)
		assert.Equal(t, s.count(""), 1, "made")
	})
}

// The answers to its PINGs show that a quiet subscription works.
func TestAQuietSubscriptionIsKept(t *testing.T) {
	rest(t, func(t *testing.T, s *wireServer, n node.Node) {
		defer n.Watch("a", node.Exclusive, func() {})()
		time.Sleep(time.Minute)
		got := s.count("ping")
		assert.That(t, got >= 20, "%d PINGs in a minute", got)
		assert.Equal(t, s.count("subscribe"), 1, "subscribed")
	})
}

func TestASilentSubscriptionIsLeft(t *testing.T) {
	rest(t, func(t *testing.T, s *wireServer, n node.Node) {
		granted(t, n)
		defer n.Watch("a", node.Exclusive, func() {})()
		time.Sleep(time.Second)
		s.answers(func(command string, _ []string) string {
			if command == "ping" && s.heard["subscribe"] == 1 {
				return silence
			}
			return ""
		})
		time.Sleep(2 * QuietLimit)
		assert.Equal(t, s.count("subscribe"), 2, "subscribed")
		time.Sleep(time.Minute)
	})
}

// Somebody may have permitted the channel meanwhile.
func TestARefusedChannelIsAskedForAgain(t *testing.T) {
	rest(t, func(t *testing.T, s *wireServer, n node.Node) {
		permitted, refused := false, 0
		s.answers(func(command string, words []string) string {
			if command != "subscribe" || permitted || !slices.Contains(words[1:], node.Channel("a")) {
				return ""
			}
			refused++
			return "-NOPERM this user has no permissions to access one of the channels used as arguments\r\n"
		})
		woken := make(chan bool, 10)
		defer n.Watch("a", node.Exclusive, func() { woken <- true })()
		defer n.Watch("b", node.Exclusive, func() {})()
		time.Sleep(10 * time.Second)
		s.mu.Lock()
		assert.That(t, refused != 0 && refused <= 5, "refused %d times in a few seconds", refused)
		permitted = true
		s.mu.Unlock()
		select {
		case <-woken:
		case <-time.After(refusedFor + 10*time.Second):
			t.Error("the channel is permitted, and is not asked for")
		}
	})
}

// A silent connection is kept for a while: TCP may be about to send again what was lost.
// Commands are answered at their deadlines all the same.
func TestASilentConnectionIsKeptForAWhile(t *testing.T) {
	for silent, conns := range map[time.Duration]int{
		minSilence - 100*time.Millisecond: 1,
		minSilence + 100*time.Millisecond: 2,
	} {
		rest(t, func(t *testing.T, s *wireServer, n node.Node) {
			granted(t, n)
			s.late.Store(int64(silent))
			const timeout = 500 * time.Millisecond
			began := time.Now()
			if r := asks(n, timeout, plain(node.Inspect, "", 0)); !errors.Is(r.Err, node.ErrTimeout) || time.Since(began) > timeout+coarse {
				t.Errorf("answered %v after %v", r.Err, time.Since(began))
			}
			time.Sleep(2 * minSilence)
			granted(t, n)
			assert.Equal(t, s.count(""), conns, silent)
		})
	}
}

// A server that says nonsense and reads no more is left, also by a command stuck on its
// way, which goes over the next connection.
func TestAStuckWriteEndsWithItsConnection(t *testing.T) {
	rest(t, func(t *testing.T, s *wireServer, n node.Node) {
		if s.undated {
			return // it is not stuck: it may be on its way behind a tunnel
		}
		granted(t, n)
		s.answers(func(command string, _ []string) string {
			time.Sleep(100 * time.Millisecond) // while it reads nothing
			s.answer = nil
			return nonsense
		})
		n.Submit(node.Command{Kind: node.Inspect, Claims: []node.Claim{{Name: "a"}}, Deadline: clock.Never}, func(node.Reply) {})
		time.Sleep(50 * time.Millisecond)
		granted(t, n)
	})
}

// A server that hangs executes later what was written to it, even after the connection
// was closed. So each written acquire is followed by its release, over the same
// connection.
func TestNoAcquireIsWrittenWithoutItsRelease(t *testing.T) {
	for _, timeout := range []time.Duration{20 * time.Millisecond, 500 * time.Millisecond, time.Second, 3 * time.Second, 4 * time.Second} {
		rest(t, func(t *testing.T, s *wireServer, n node.Node) {
			granted(t, n)
			written := map[string]int{} // by token: 1 for an acquire, less for each release
			s.answers(func(command string, words []string) string {
				switch {
				case !strings.HasPrefix(command, "eval"):
				case words[1] == acquireScript.sha:
					written[words[6]]++
				default:
					written[words[7]]--
				}
				return silence
			})
			var after []node.Reply
			for token := node.Token(2); token < 100; token++ {
				r := asks(n, timeout, plain(node.Acquire, "me", token))
				assert.Must(t, r.Err != nil, "the server hangs, and has answered")
				if r.Unsent {
					after = append(after, r)
					time.Sleep(10 * time.Millisecond)
					continue
				}
				cmd := plain(node.Release, "me", token)
				cmd.Deadline = n.(*server).clock.Now().Add(timeout)
				n.Submit(cmd, func(node.Reply) {})
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			for token, n := range written {
				assert.That(t, n <= 0, "timeout %v: the acquire of token %s was written, its release was not", timeout, token)
			}
			assert.That(t, len(written) != 0 && len(after) != 0 && s.conns >= 2,
				"%d acquires were written, %d unsent, over %d connections", len(written), len(after), s.conns)
		})
	}
}

// An acquire that was kept while the link was silent goes when the server answers.
func TestAStallThatEnds(t *testing.T) {
	rest(t, func(t *testing.T, s *wireServer, n node.Node) {
		granted(t, n)
		s.late.Store(int64(time.Second))
		n.Submit(node.Command{Kind: node.Inspect, Claims: []node.Claim{{Name: "a"}}, Deadline: clock.Never}, func(node.Reply) {})
		time.Sleep(stallAfter)
		began := time.Now()
		granted(t, n)
		assert.Equal(t, time.Since(began), time.Second-stallAfter, "it took")
		assert.Equal(t, s.count(""), 1)
	})
}

// An unused node that is gone is dialed ever more rarely, also if somebody waits for a
// notice. The next command gets its own attempt.
func TestANodeThatIsGoneIsLeftAlone(t *testing.T) {
	for _, watched := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var s wireServer
			var dials atomic.Int64
			var gone atomic.Bool
			gone.Store(true)
			n := s.node(t, target(func(ctx context.Context) (net.Conn, error) {
				dials.Add(1)
				if gone.Load() {
					return nil, syscall.ECONNREFUSED
				}
				return s.dial(ctx)
			}, ""), 0)
			if watched {
				defer n.Watch("a", node.Exclusive, func() {})()
			}
			time.Sleep(10 * time.Second)
			assert.That(t, dials.Load() <= 12, "dialed %d times in 10 s", dials.Load())
			time.Sleep(10 * time.Minute)
			dials.Store(0)
			time.Sleep(10 * time.Minute)
			assert.That(t, dials.Load() >= 30 && dials.Load() <= 90, "dialed %d times in 10 min", dials.Load())
			dials.Store(0)
			for range 3000 { // it is asked, and answers at once
				began := time.Now()
				if r := acquires(n); !errors.Is(r.Err, node.ErrUnreachable) || !r.Unsent || time.Since(began) > 0 {
					t.Fatalf("%+v after %v", r, time.Since(began))
				}
				time.Sleep(time.Millisecond)
			}
			assert.That(t, dials.Load() >= 5 && dials.Load() <= 20, "dialed %d times in 3 s", dials.Load())
			time.Sleep(time.Minute)
			gone.Store(false)
			granted(t, n)
			time.Sleep(time.Second)
			assert.That(t, watched == (s.count("subscribe") == 1), "subscribed %d times", s.count("subscribe"))
		})
	}
}

// While a node is down, channels without a watcher are forgotten, and others are not.
func TestNoChannelStaysWhileANodeIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s wireServer
		var gone atomic.Bool
		gone.Store(true)
		n := s.node(t, target(func(ctx context.Context) (net.Conn, error) {
			if gone.Load() {
				return nil, syscall.ECONNREFUSED
			}
			return s.dial(ctx)
		}, ""), 0)
		channels := func() int {
			w := n.(*server).watch
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.topics)
		}
		defer n.Watch("kept", node.Exclusive, func() {})()
		for i := range 1000 {
			n.Watch(fmt.Sprint("kept no longer ", i), node.Exclusive, func() {})()
		}
		first := n.Watch("again", node.Exclusive, func() {})
		first()
		defer n.Watch("again", node.Exclusive, func() {})()
		first() // it has ended, and says nothing of the next
		assert.Equal(t, channels(), 2, "there are")
		gone.Store(false)
		time.Sleep(time.Minute) // whether or not a connection was refused before
		granted(t, n)
		time.Sleep(time.Minute)
		if got := channels(); got != 2 || s.count("subscribe") == 0 {
			t.Errorf("there are %d channels, after %d subscriptions", got, s.count("subscribe"))
		}
	})
}

// A server may become a replica that takes writes. It says so only when asked.
func TestAReplicaThatTakesWritesHasNoVote(t *testing.T) {
	role := func(s *wireServer, role string) {
		s.answers(func(command string, words []string) string {
			if command != "info" {
				return ""
			}
			return bulk(infoText("abc", 1000) + "role:" + role + "\r\n")
		})
	}
	for _, rests := range []time.Duration{0, roleEvery, time.Minute} {
		rest(t, func(t *testing.T, s *wireServer, n node.Node) {
			role(s, "master")
			granted(t, n)
			role(s, "slave")
			time.Sleep(rests)
			began, conns := time.Now(), s.count("")
			for time.Since(began) < 3*time.Second {
				r := acquires(n)
				assert.Must(t, r.Err != nil || time.Since(began) < roleEvery-rests, "after a rest of %v, %v later: %+v", rests, time.Since(began), r)
				assert.Must(t, r.Err == nil || errors.Is(r.Err, node.ErrReadOnly) || errors.Is(r.Err, node.ErrUnreachable), "%v", r.Err)
				time.Sleep(time.Millisecond)
			}
			assert.That(t, s.count("")-conns <= 20, "%d connections in 3 s", s.count("")-conns)
			role(s, "master")
			began = time.Now()
			for r := acquires(n); r.Err != nil; r = acquires(n) {
				time.Sleep(time.Millisecond)
			}
			assert.That(t, time.Since(began) <= maxPause, "it is a master for %v", time.Since(began))
			if born := n.(*server).lifespan.lives.Life().Born; n.(*server).clock.Now().Sub(born) > time.Since(began) {
				t.Errorf("its life goes back to before it was a replica")
			}
		})
	}
}

// A server that took over behind an open connection may lack the newest locks. It is as
// young as the last answer of its predecessor.
func TestEachAnswerIsTheLastWordOfALife(t *testing.T) {
	rest(t, func(t *testing.T, s *wireServer, n node.Node) {
		granted(t, n)
		time.Sleep(time.Hour)
		granted(t, n)
		answered := n.(*server).clock.Now()
		once := true
		s.answers(func(command string, words []string) string {
			switch {
			case command == "info":
				return bulk(infoText("def", 1800)) // younger than the connection
			case once:
				once = false
				return nonsense // which ends the connection
			}
			return ""
		})
		acquires(n)
		time.Sleep(time.Second)
		r := acquires(n)
		assert.That(t, r.Err == nil && r.Life.ID == "def" && r.Life.Born >= answered, "%+v", r)
	})
}

// A full queue refuses new locks. Leases are renewed and released all the same.
func TestAFullQueueTakesRenewalsAndReleases(t *testing.T) {
	rest(t, func(t *testing.T, s *wireServer, n node.Node) {
		granted(t, n)
		s.late.Store(int64(time.Second))
		var open atomic.Int64
		submit := func(kind node.Kind) bool {
			cmd := plain(kind, "me", 1)
			cmd.Deadline = n.(*server).clock.Now().Add(time.Minute)
			open.Add(1)
			var refused atomic.Bool
			n.Submit(cmd, func(r node.Reply) { open.Add(-1); refused.Store(errors.Is(r.Err, node.ErrOverloaded)) })
			return refused.Load()
		}
		for range n.(*server).queue.limit {
			assert.Must(t, !submit(node.Inspect), "it is not full yet")
		}
		for kind, refused := range map[node.Kind]bool{node.Acquire: true, node.Inspect: true, node.Break: true,
			node.Extend: false, node.Release: false, node.Downgrade: false} {
			assert.Equal(t, submit(kind), refused, kind)
		}
		time.Sleep(time.Minute)
		assert.Equal(t, open.Load(), 0, "are open")
	})
}

// A stale connection's Close does not end what waits, like that of an SSH client whose
// network is dead.
type stale struct {
	tunnel
	closed *atomic.Int32
}

func (s stale) Close() error { s.closed.Add(1); return nil }

// dead returns a connection with nobody at the other end, and its true Close.
func dead() (conn stale, end func()) {
	near, _ := net.Pipe()
	return stale{tunnel{near}, new(atomic.Int32)}, func() { near.Close() }
}

// They work on a connection that has none: a deadline that is set while something waits
// counts, and the connection works on without it. No goroutine stays: the bubble would
// not end.
func TestDeadlinesOfATunnel(t *testing.T) {
	buf := make([]byte, 10)
	for what, tt := range map[string]struct {
		set func(net.Conn, time.Time) error
		do  func(net.Conn) (int, error)
	}{
		"read":  {net.Conn.SetReadDeadline, func(c net.Conn) (int, error) { return c.Read(buf) }},
		"write": {net.Conn.SetWriteDeadline, func(c net.Conn) (int, error) { return c.Write(make([]byte, 1<<20)) }},
		"both":  {net.Conn.SetDeadline, func(c net.Conn) (int, error) { return c.Read(buf) }},
	} {
		for when, d := range map[string]time.Duration{"before": 3 * time.Second, "meanwhile": 3 * time.Second, "at once": -time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				conn, end := dead()
				c := dated(conn)
				began := time.Now()
				if when == "before" {
					assert.NoError(t, tt.set(c, began.Add(d)))
				}
				failed := make(chan error)
				go func() { _, err := tt.do(c); failed <- err }()
				synctest.Wait()
				if when != "before" {
					assert.NoError(t, tt.set(c, began.Add(d)))
				}
				assert.Is(t, <-failed, os.ErrDeadlineExceeded, what, when)
				assert.Equal(t, time.Since(began), max(0, d), what, when)
				c.Close()
				c.Close()
				synctest.Wait()
				assert.Equal(t, conn.closed.Load(), 1, "closed", what, when)
				end()
			})
		}
	}
	synctest.Test(t, func(t *testing.T) { // a deadline that has passed does no harm to what follows
		near, far := net.Pipe()
		c := dated(tunnel{near})
		c.SetReadDeadline(time.Now().Add(time.Second))
		_, err := c.Read(buf)
		assert.Is(t, err, os.ErrDeadlineExceeded)
		c.SetReadDeadline(time.Time{})
		go far.Write([]byte("+OK\r\n"))
		n, err := c.Read(buf)
		assert.That(t, err == nil && string(buf[:n]) == "+OK\r\n", "%q, %v", buf[:n], err)
		c.Close()
		_, err = far.Read(buf)
		assert.Is(t, err, io.EOF, "after Close")
	})
}

// go-redis fails if it cannot set a deadline.
func TestATunnelToACluster(t *testing.T) {
	c := Checked(tunnel{tests.Playing(strings.NewReader("+OK\r\n"))})
	defer c.Close()
	assert.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	text, err := io.ReadAll(c)
	assert.That(t, err == nil && string(text) == "+OK\r\n", "%q, %v", text, err)
}

// The end of a connection comes after all that was said: a server may have said why.
func TestTheEndOfATunnel(t *testing.T) {
	reset := errors.New("connection reset by peer")
	for _, why := range []error{nil, reset} {
		synctest.Test(t, func(t *testing.T) {
			said := io.Reader(strings.NewReader("-DENIED\r\n"))
			if why != nil {
				said = io.MultiReader(said, iotest.ErrReader(why))
			}
			c := dated(mute{tunnel{tests.Playing(said)}})
			defer c.Close()
			_, err := c.Write(make([]byte, 1<<20))
			assert.NoError(t, err)
			text, err := io.ReadAll(c)
			assert.That(t, string(text) == "-DENIED\r\n" && err == why, "%q, %v; want %v", text, err, why)
			synctest.Wait()
			_, err = c.Write([]byte("x"))
			assert.That(t, err == why || why == nil && err == io.EOF, "to write: %v; want %v", err, why)
		})
	}
}

// A mute connection takes nothing.
type mute struct{ net.Conn }

func (mute) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// A silent server is left in time, also through a tunnel whose Close ends nothing, so
// that a dialer can make a new tunnel.
func TestASilentTunnelIsLeft(t *testing.T) {
	for _, silent := range []string{"handshake", "commands"} {
		synctest.Test(t, func(t *testing.T) {
			var s wireServer
			var ends []func()
			dials := 0
			n := s.node(t, target(func(ctx context.Context) (net.Conn, error) {
				if dials++; silent == "handshake" && dials == 1 {
					conn, end := dead()
					ends = append(ends, end)
					return conn, nil
				}
				conn, err := s.dial(ctx)
				ends = append(ends, func() { conn.Close() })
				return stale{tunnel{conn}, new(atomic.Int32)}, err
			}, ""), 0)
			if silent == "commands" {
				granted(t, n)
				s.late.Store(int64(time.Hour))
			}
			acquires(n)
			time.Sleep(minSilence)
			granted(t, n)
			assert.Equal(t, dials, 2, silent)
			n.Close()
			for _, end := range ends {
				end()
			}
			time.Sleep(time.Hour)
		})
	}
}
