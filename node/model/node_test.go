package model_test

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/node/nodetest"
)

// in runs a test in time that stands still while anything runs.
func in(t *testing.T, test func(t *testing.T, n *model.Node, c clock.Clock)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := clock.Runtime()
		n := model.New(c, "a")
		test(t, n, c)
		assert.NoError(t, n.Close())
	})
}

type call struct {
	mu    sync.Mutex
	reply node.Reply
	at    []clock.Instant // when replies came
}

func (c *call) is(t *testing.T, status node.Status, reason error, at time.Duration) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.Must(t, len(c.at) == 1, "%d replies, want one", len(c.at))
	assert.That(t, c.reply.Status == status && errors.Is(c.reply.Err, reason) && c.at[0] == clock.Instant(at),
		"%v (%v) at %v, want %v (%v) at %v", c.reply.Status, c.reply.Err, time.Duration(c.at[0]), status, reason, at)
}

func (c *call) isOpen(t *testing.T) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.That(t, len(c.at) == 0, "answered: %v (%v)", c.reply.Status, c.reply.Err)
}

func submit(n *model.Node, c clock.Clock, deadline time.Duration, cmd node.Command) *call {
	var made call
	cmd.Deadline = clock.Instant(deadline)
	n.Submit(cmd, func(r node.Reply) {
		made.mu.Lock()
		defer made.mu.Unlock()
		made.reply = r
		made.at = append(made.at, c.Now())
	})
	return &made
}

func holds(n *model.Node, owner string) (held bool) {
	n.Do(func(s *model.Server, now model.Time) { _, held = s.Holds(now, "n", owner) })
	return held
}

// wait lets time pass, and then waits for all tasks.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestAtOnce(t *testing.T) {
	in(t, func(t *testing.T, n *model.Node, c clock.Clock) {
		submit(n, c, time.Second, acquire("n", "a", 1, time.Hour)).is(t, node.Granted, nil, 0)
	})
}

func TestDelay(t *testing.T) {
	in(t, func(t *testing.T, n *model.Node, c clock.Clock) {
		n.Delay(10 * ms)
		first := submit(n, c, time.Second, acquire("n", "a", 1, time.Hour))
		wait(5*ms - 1)
		assert.That(t, !holds(n, "a"), "executed before half of the delay")
		wait(1)
		assert.That(t, holds(n, "a"), "not executed after half of the delay")
		first.isOpen(t)
		n.Delay(0) // what comes now must not overtake
		second := submit(n, c, time.Second, release("n", "a", 1))
		wait(time.Second)
		first.is(t, node.Granted, nil, 10*ms)
		second.is(t, node.Released, nil, 10*ms)
	})
}

func TestNoneOvertakesWhatIsNotYetExecuted(t *testing.T) {
	in(t, func(t *testing.T, n *model.Node, c clock.Clock) {
		n.Delay(10 * ms)
		cmd := acquire("n", "a", 1, time.Hour)
		first := submit(n, c, time.Second, cmd)
		cmd.Claims[0].Owner = "somebody else" // the caller may use it again
		n.Delay(0)
		second := submit(n, c, time.Second, release("n", "a", 1))
		wait(time.Second)
		first.is(t, node.Granted, nil, 10*ms)
		second.is(t, node.Released, nil, 10*ms)
	})
}

func TestCloseReturnsAfterTheReplies(t *testing.T) {
	n := model.New(clock.Runtime(), "a")
	n.Hang(true)
	const open = 1000
	var replies atomic.Int32
	for range open {
		n.Submit(node.Command{Kind: node.Inspect, Claims: []node.Claim{{Name: "n"}}, Deadline: clock.Never},
			func(node.Reply) { replies.Add(1) })
	}
	n.Close()
	assert.Equal(t, replies.Load(), open)
}

func TestDelayBeyondTheDeadline(t *testing.T) {
	for _, deadline := range []time.Duration{3 * ms, 7 * ms, 10 * ms} {
		in(t, func(t *testing.T, n *model.Node, c clock.Clock) {
			n.Delay(10 * ms)
			made := submit(n, c, deadline, acquire("n", "a", 1, time.Hour))
			wait(time.Second)
			made.is(t, node.Unknown, node.ErrTimeout, deadline)
			assert.That(t, !made.reply.Unsent && holds(n, "a"), "what is on its way must be executed all the same")
		})
	}
}

func TestHang(t *testing.T) {
	in(t, func(t *testing.T, n *model.Node, c clock.Clock) {
		n.Hang(true)
		early := submit(n, c, 10*ms, acquire("n", "a", 1, time.Hour))
		never := submit(n, c, time.Duration(clock.Never), acquire("n", "b", 1, time.Hour))
		wait(20 * ms)
		n.Hang(false)
		submit(n, c, time.Second, release("n", "a", 1)).is(t, node.Absent, nil, 20*ms)
		wait(time.Hour)
		early.is(t, node.Unknown, node.ErrTimeout, 10*ms)
		never.isOpen(t)
		assert.NoError(t, n.Close())
		never.is(t, node.Unknown, node.ErrClosed, time.Hour+20*ms)
	})
}

func TestDropReplies(t *testing.T) {
	in(t, func(t *testing.T, n *model.Node, c clock.Clock) {
		n.DropReplies(true)
		made := submit(n, c, 10*ms, acquire("n", "a", 1, time.Hour))
		assert.That(t, holds(n, "a"), "not executed")
		made.isOpen(t)
		wait(time.Second)
		made.is(t, node.Unknown, node.ErrTimeout, 10*ms)
	})
}

func TestDown(t *testing.T) {
	in(t, func(t *testing.T, n *model.Node, c clock.Clock) {
		n.Delay(10 * ms)
		open := submit(n, c, time.Second, acquire("n", "a", 1, time.Hour))
		wait(2 * ms)
		n.Down(true)
		refused := submit(n, c, time.Second, acquire("n", "a", 1, time.Hour))
		refused.is(t, node.Unknown, node.ErrUnreachable, 2*ms)
		assert.That(t, refused.reply.Unsent, "not Unsent")
		wait(time.Second)
		open.is(t, node.Unknown, node.ErrUnreachable, 2*ms)
		assert.That(t, !open.reply.Unsent && !holds(n, "a"), "what was on its way must be lost, and may not be called unsent")
		n.Down(false)
		n.Delay(0)
		submit(n, c, 2*time.Second, acquire("n", "a", 1, time.Hour)).is(t, node.Granted, nil, time.Second+2*ms)
	})
}

func TestRestartBeginsALife(t *testing.T) {
	for _, empty := range []bool{false, true} {
		in(t, func(t *testing.T, n *model.Node, c clock.Clock) {
			first := submit(n, c, time.Hour, acquire("n", "a", 1, time.Hour))
			age := c.Now().Sub(first.reply.Life.Born)
			assert.That(t, age >= 24*time.Hour, "a new node counts as %v old", age)
			wait(time.Second)
			n.Restart(empty)
			second := submit(n, c, time.Hour, acquire("n", "b", 2, time.Hour))
			want := node.Refused
			if empty {
				want = node.Granted
			}
			second.is(t, want, nil, time.Second)
			life := second.reply.Life
			assert.That(t, life.ID != first.reply.Life.ID && life.Born == c.Now(), "life %+v after %+v", life, first.reply.Life)
			n.SetLife(nil)
			life = submit(n, c, time.Hour, release("n", "b", 2)).reply.Life
			assert.That(t, life == nil, "life %+v, want none", life)
		})
	}
}

func TestStepMovesTheServersClockAlone(t *testing.T) {
	in(t, func(t *testing.T, n *model.Node, c clock.Clock) {
		submit(n, c, time.Hour, acquire("n", "a", 1, time.Hour))
		n.Step(time.Hour)
		assert.That(t, holds(n, "a"), "gone before its time")
		n.Step(ms)
		assert.That(t, !holds(n, "a"), "there after its time")
		n.Step(-ms)
		assert.That(t, holds(n, "a"), "not there, with the clock set back")
	})
}

// Nobody is woken once stop has returned.
func TestStopDuringWake(t *testing.T) {
	n := model.New(clock.Runtime(), "a")
	stopSecond, beginning, woken := func() {}, true, false
	n.Watch("n", node.Exclusive, func() { stopSecond() })
	stopSecond = n.Watch("n", node.Exclusive, func() { woken, beginning = !beginning, false })
	n.Publish("n")
	assert.That(t, !woken, "woken after stop")
}

func TestWakeThatWakes(t *testing.T) {
	n := model.New(clock.Runtime(), "a")
	calls := 0
	n.Watch("n", node.Exclusive, func() {
		if calls++; calls < 4 {
			n.Publish(node.Channel("n"))
		}
	})
	assert.That(t, calls == 4, "%d calls of 4", calls)
}

func TestWakes(t *testing.T) {
	in(t, func(t *testing.T, n *model.Node, c clock.Clock) {
		var woken []string
		add := func(name string) func() { return func() { woken = append(woken, name) } }
		expect := func(when string, want ...string) {
			t.Helper()
			assert.That(t, slices.Equal(woken, want), "%s: woken %v, want %v", when, woken, want)
			woken = nil
		}
		stopA := n.Watch("a", node.Exclusive, add("a"))
		expect("at the beginning", "a")
		n.Watch("b", node.Exclusive, add("b"))
		n.Watch("{a}", node.Exclusive, add("a in braces")) // by Redisson's rule the same channel
		expect("at the beginning", "b", "a in braces")
		n.Publish(node.Channel("a"))
		expect("a notice", "a", "a in braces")
		n.Hang(true)
		n.Publish(node.Channel("a"))
		n.Watch("c", node.Exclusive, add("c"))
		expect("hanging")
		n.Hang(false)
		expect("no longer hanging", "a", "a in braces", "b", "c")
		n.Down(true)
		n.Publish(node.Channel("a"))
		expect("down")
		n.Down(false)
		expect("up", "a", "a in braces", "b", "c")
		stopA()
		n.Restart(true)
		expect("after a restart", "a in braces", "b", "c")
		n.Publish(node.Channel("a"))
		expect("a notice after stop", "a in braces")
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	tests.NeedSeconds(t)
	nodetest.Run(t, func(*testing.T) nodetest.System { return nodetest.Model(clock.Runtime()) })
}
