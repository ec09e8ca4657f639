package election_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/process"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/node/redisserver"
	"github.com/redquorum/redquorum/quorum"
)

// gocron's Elector.
var _ interface{ IsLeader(context.Context) error } = (*election.Election)(nil)

var background = context.Background()

// A world is three nodes and the programs on them, in virtual time. A command takes 1 ms.
type world struct {
	t       *testing.T
	clock   clock.Clock
	nodes   []*model.Node
	leaders int // programs that lead now
	terms   []node.Token
}

func inWorld(t *testing.T, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, clock: clock.Runtime()}
		for i := range 3 {
			w.nodes = append(w.nodes, model.New(w.clock, fmt.Sprint("n", i+1)))
			w.nodes[i].Delay(time.Millisecond)
		}
		test(w)
		time.Sleep(time.Minute)
		for _, n := range w.nodes {
			_ = n.Close()
		}
	})
}

// locker returns another program's Locker, with a lease of 3 s.
func (w *world) locker(label string) *quorum.Locker {
	return w.open(quorum.Options{Label: label, NoRestartGuard: true})
}

// open returns one with these options.
func (w *world) open(o quorum.Options) *quorum.Locker {
	var nodes []node.Node
	for _, n := range w.nodes {
		nodes = append(nodes, n)
	}
	o.Lease, o.MaxLease, o.Clock, o.SharedNodes = 3*time.Second, 3*time.Second, w.clock, true
	l, err := quorum.New(nodes, o)
	assert.Succeed(w.t, err)
	return l
}

// each calls f for each node.
func (w *world) each(f func(*model.Node)) {
	for _, n := range w.nodes {
		f(n)
	}
}

// pass lets time pass, and then waits for all tasks.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) election(l *quorum.Locker, o election.Options) *election.Election {
	o.Clock = w.clock
	return election.New(l, "boss", o)
}

func (w *world) leads(work func(context.Context, *quorum.Lease) error) func(context.Context, *quorum.Lease) error {
	return func(ctx context.Context, lease *quorum.Lease) error {
		if w.leaders++; w.leaders > 1 {
			w.t.Errorf("%d programs lead", w.leaders)
		}
		if n := len(w.terms); n > 0 && w.terms[n-1] >= lease.Token() {
			w.t.Errorf("term %d follows %d", lease.Token(), w.terms[n-1])
		}
		w.terms = append(w.terms, lease.Token())
		defer func() { w.leaders-- }()
		return work(ctx, lease)
	}
}

// untilEnd works until the context ends, and then takes d to stop.
func untilEnd(d time.Duration) func(context.Context, *quorum.Lease) error {
	return func(ctx context.Context, _ *quorum.Lease) error {
		<-ctx.Done()
		time.Sleep(d)
		return nil
	}
}

// A program that is to end leads until its function has returned, however long that
// takes, and then the next leads at once.
func TestLeadersTakeTurns(t *testing.T) {
	inWorld(t, func(w *world) {
		const stops = 20 * time.Second // several leases
		var began [3]time.Time
		var cancels [3]context.CancelFunc
		var elections [3]*election.Election
		done := make(chan int)
		for i := range began {
			l := w.locker(fmt.Sprint("program ", i))
			defer l.Close()
			elections[i] = w.election(l, election.Options{})
			ctx, cancel := context.WithCancel(background)
			cancels[i] = cancel
			go func() {
				err := elections[i].Run(ctx, w.leads(func(ctx context.Context, lease *quorum.Lease) error {
					began[i] = time.Now()
					return untilEnd(stops)(ctx, lease)
				}))
				assert.NoError(t, err)
				done <- i
			}()
			time.Sleep(time.Second)
		}
		for i := range began {
			pass(time.Minute)
			for k, e := range elections {
				leader, err := e.Leader(background)
				assert.That(t, err == nil && leader.Identity == fmt.Sprint("program ", i) && leader.Owner != "",
					"program %d sees %+v, %v; want program %d", k, leader, err, i)
				if err := e.IsLeader(background); (err == nil) != (k == i) || err != nil && !errors.Is(err, quorum.ErrNotHeld) {
					t.Errorf("program %d: %v, while program %d leads", k, err, i)
				}
			}
			canceled := time.Now()
			cancels[i]()
			if ended := <-done; ended != i || time.Since(canceled) < stops {
				t.Errorf("program %d ended, after %v", ended, time.Since(canceled))
			}
			pass(time.Second)
			if i+1 < len(began) {
				took := began[i+1].Sub(canceled)
				assert.That(t, took >= stops && took <= stops+10*time.Millisecond, "program %d led after %v", i+1, took)
			}
			assert.That(t, elections[i].IsLeader(background) != nil, "program %d leads, and has resigned", i)
		}
		leader, err := elections[0].Leader(background)
		assert.That(t, err == nil && leader == (election.Leader{}), "%+v leads, %v", leader, err)
	})
}

func TestLostLeadership(t *testing.T) {
	for name, lose := range map[string]func(w *world){
		"no node answers": func(w *world) {
			for _, n := range w.nodes {
				n.Hang(true)
			}
			time.Sleep(10 * time.Second)
			for _, n := range w.nodes {
				n.Hang(false)
			}
		},
		"it is broken": func(w *world) {
			l := w.locker("operator")
			defer l.Close()
			assert.NoError(w.t, assert.ErrorOf(l.Break(background, "boss")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				l := w.locker("it")
				defer l.Close()
				var causes []error
				ended := errors.New("it is enough")
				e := w.election(l, election.Options{})
				done := make(chan error)
				go func() {
					done <- e.Run(background, w.leads(func(ctx context.Context, lease *quorum.Lease) error {
						if len(causes) == 2 {
							return ended
						}
						<-ctx.Done()
						assert.That(t, e.IsLeader(ctx) != nil, "it leads when its context has ended")
						causes = append(causes, context.Cause(ctx))
						return errors.New("does not matter")
					}))
				}()
				for range 2 {
					time.Sleep(time.Second)
					lose(w)
					time.Sleep(5 * time.Second)
				}
				assert.Equal(t, <-done, ended)
				if len(w.terms) != 3 || slices.ContainsFunc(causes, func(err error) bool { return !errors.Is(err, quorum.ErrLost) }) {
					t.Errorf("%d terms ended with %v", len(w.terms), causes)
				}
			})
		})
	}
}

func TestTermsAreBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx, cancel := context.WithCancel(background)
		var led [2]int
		done := make(chan error)
		for i := range led {
			l := w.locker("")
			defer l.Close()
			e := w.election(l, election.Options{Lock: []quorum.Option{quorum.WithMaxHold(5 * time.Second)}})
			go func() {
				done <- e.Run(ctx, w.leads(func(ctx context.Context, lease *quorum.Lease) error {
					led[i]++
					return untilEnd(0)(ctx, lease)
				}))
			}()
		}
		pass(time.Minute)
		cancel()
		for range led {
			err := <-done
			assert.That(t, err == nil || errors.Is(err, context.Canceled), "%v", err)
		}
		assert.That(t, led[0] >= 4 && led[1] >= 4, "they led %v times in a minute", led)
	})
}

// Run ends when its function returns, with its error, and when waiting cannot help.
func TestRunReturns(t *testing.T) {
	failed := errors.New("failed")
	forever := func(l *quorum.Locker) func(context.Context, *quorum.Lease) error { return untilEnd(0) }
	for name, c := range map[string]struct {
		lead func(l *quorum.Locker) func(context.Context, *quorum.Lease) error
		held bool // by another program
		name string
		want error
	}{
		"function is done": {lead: func(*quorum.Locker) func(context.Context, *quorum.Lease) error {
			return func(context.Context, *quorum.Lease) error { return nil }
		}},
		"function fails": {lead: func(*quorum.Locker) func(context.Context, *quorum.Lease) error {
			return func(context.Context, *quorum.Lease) error { return failed }
		}, want: failed},
		"function unlocks": {lead: func(*quorum.Locker) func(context.Context, *quorum.Lease) error {
			return func(ctx context.Context, lease *quorum.Lease) error { return lease.Unlock(ctx) }
		}},
		"Locker is closed": {lead: func(l *quorum.Locker) func(context.Context, *quorum.Lease) error {
			return func(ctx context.Context, _ *quorum.Lease) error {
				go l.Close()
				<-ctx.Done()
				return nil
			}
		}, want: quorum.ErrClosed},
		"context ends while it leads": {lead: forever},
		"context ends while it waits": {lead: forever, held: true, want: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				l, other := w.locker("it"), w.locker("other")
				defer l.Close()
				defer other.Close()
				if c.held {
					assert.Succeed(t, assert.ErrorOf(other.Lock(background, "boss")))
				}
				ctx, cancel := context.WithTimeout(background, 10*time.Second)
				defer cancel()
				err := w.election(l, election.Options{}).Run(ctx, w.leads(c.lead(l)))
				assert.That(t, errors.Is(err, c.want) && (c.want != nil || err == nil), "%v; want %v", err, c.want)
				assert.That(t, len(w.terms) <= 1, "%d terms", len(w.terms))
				time.Sleep(time.Second)
				r, err := other.Inspect(background, "boss")
				assert.That(t, err == nil && (r.Verdict == "free") != c.held, "%v, %v", r.Verdict, err)
			})
		})
	}
}

// A candidate outlasts an outage longer than MaxDown, an error that is permanent until
// somebody fixes it, and the end of its wait. It asks seldom, and says why once a minute.
func TestRunGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		lock         []quorum.Option
		fail, repair func(w *world)
	}{
		"outage": {
			fail:   func(w *world) { w.each(func(n *model.Node) { n.Down(true) }) },
			repair: func(w *world) { w.each(func(n *model.Node) { n.Down(false) }) },
		},
		"permanent": {nil, func(w *world) {
			w.each(func(n *model.Node) {
				n.Do(func(s *model.Server, _ model.Time) { s.Set(node.FenceKey("boss"), "no token") })
			})
		}, func(w *world) {
			w.each(func(n *model.Node) { n.Do(func(s *model.Server, _ model.Time) { s.Del(node.FenceKey("boss")) }) })
		}},
		"held": {[]quorum.Option{quorum.WithWait(0)}, func(w *world) {
			w.each(func(n *model.Node) { n.Do(func(s *model.Server, _ model.Time) { s.Set("boss", "redsync's") }) })
		}, func(w *world) {
			w.each(func(n *model.Node) { n.Do(func(s *model.Server, _ model.Time) { s.Del("boss") }) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				failed, lines := 0, 0
				l := w.open(quorum.Options{MaxDown: 2 * time.Second, Observe: func(e quorum.Event) {
					if e.Kind == quorum.EventNotAcquired && e.Err != nil {
						failed++
					}
				}})
				defer l.Close()
				c.fail(w)
				began := time.Now()
				time.AfterFunc(90*time.Second, func() { c.repair(w) })
				logger := slog.New(slog.NewTextHandler(lineCounter{&lines}, nil))
				ctx, cancel := context.WithTimeout(background, 10*time.Minute)
				defer cancel()
				e := w.election(l, election.Options{Lock: c.lock, Logger: logger})
				err := e.Run(ctx, w.leads(func(context.Context, *quorum.Lease) error { return nil }))
				took := time.Since(began)
				assert.That(t, err == nil && took >= 90*time.Second && took < 93*time.Second, "it led after %v: %v", took, err)
				assert.That(t, failed >= 40 && failed <= 90 && lines == 2, "%d attempts failed, %d lines", failed, lines)
			})
		})
	}
}

type lineCounter struct{ lines *int }

func (c lineCounter) Write(b []byte) (int, error) { *c.lines++; return len(b), nil }

func TestCampaign(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.locker("a"), w.locker("b")
		defer a.Close()
		defer b.Close()
		first, second := w.election(a, election.Options{}), w.election(b, election.Options{})
		lease, err := first.Campaign(background)
		assert.Must(t, err == nil && first.IsLeader(background) == nil && second.IsLeader(background) != nil,
			"%v, %v, %v", err, first.IsLeader(background), second.IsLeader(background))
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		_, err = second.Campaign(ctx)
		assert.That(t, errors.Is(err, quorum.ErrHeld) && second.IsLeader(background) != nil, "%v", err)
		err = lease.Unlock(background)
		assert.That(t, err == nil && first.IsLeader(background) != nil, "%v, %v", err, first.IsLeader(background))
		next, err := second.Campaign(background)
		assert.That(t, err == nil && second.IsLeader(background) == nil && next.Token() > lease.Token(), "%v", err)
	})
}

// Observers see each leader by name, after at most the interval and a timeout, and no
// change while too few nodes answer.
func TestObserve(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, c := w.locker("a"), w.locker(quorum.NoLabel), w.locker("c")
		defer a.Close()
		defer b.Close()
		ctx, cancel := context.WithCancel(background)
		const every = 500 * time.Millisecond
		var seen []election.Leader
		var last time.Time
		ended := make(chan bool)
		go func() {
			for leader := range w.election(c, election.Options{Every: every}).Observe(ctx) {
				seen, last = append(seen, leader), time.Now()
			}
			ended <- true
		}()
		expect := func(want ...string) {
			t.Helper()
			changed := time.Now()
			pass(10 * time.Second)
			var got []string
			for _, leader := range seen {
				got = append(got, leader.Identity)
			}
			assert.That(t, slices.Equal(got, want), "observed %q, want %q", got, want)
			bound := every + quorum.Defaults().Timeout
			assert.That(t, last.Sub(changed) <= bound, "observed after %v, want %v", last.Sub(changed), bound)
		}
		expect("")
		assert.Succeed(t, assert.ErrorOf(w.election(a, election.Options{}).Campaign(background)))
		expect("", "a")
		w.nodes[0].Down(true)
		expect("", "a")
		w.nodes[1].Down(true)
		expect("", "a")
		w.nodes[0].Down(false)
		w.nodes[1].Down(false)
		expect("", "a", "") // its lease has ended meanwhile
		lease := assert.Got(b.Lock(background, "boss"))(t)
		expect("", "a", "", lease.Owner())
		assert.That(t, seen[1].Owner != "" && seen[3] == (election.Leader{Identity: lease.Owner(), Owner: lease.Owner()}), "observed %+v", seen)
		cancel()
		<-ended
		n := 0
		for range w.election(c, election.Options{}).Observe(background) { // it may be left
			n++
			break
		}
		go func() {
			for range w.election(c, election.Options{Every: time.Hour}).Observe(background) {
				n++
			}
			ended <- true
		}()
		time.Sleep(time.Second)
		closes := time.Now()
		_ = c.Close() // and it ends with the Locker
		<-ended
		assert.That(t, time.Since(closes) <= time.Second, "it ended %v after Close began", time.Since(closes))
		assert.That(t, n == 2, "%d leaders observed", n)
	})
}

// Without a majority that agrees, somebody may lead.
func TestLeaderIsNotKnown(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.locker("it")
		defer l.Close()
		e := w.election(l, election.Options{})
		for i, n := range w.nodes[:2] { // and nobody has a majority
			n.Do(func(s *model.Server, now model.Time) {
				s.Apply(now, node.Command{Kind: node.Acquire, Claims: []node.Claim{{Name: "boss", Owner: fmt.Sprint("owner", i), Token: 1}},
					TTL: time.Minute, Retention: time.Minute})
			})
		}
		leader, err := e.Leader(background)
		assert.That(t, errors.Is(err, quorum.ErrNoQuorum) && leader == (election.Leader{}), "%+v, %v", leader, err)
		for _, n := range w.nodes[:2] {
			n.Down(true)
		}
		leader, err = e.Leader(background)
		assert.That(t, errors.Is(err, quorum.ErrNoQuorum) && leader == (election.Leader{}), "%+v, %v", leader, err)
	})
}

// Keys on restarted nodes may be over, or be of an attempt for which these did not count.
func TestRestartedNodesNameNoLeader(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.open(quorum.Options{})
		defer l.Close()
		e := w.election(l, election.Options{})
		lease := assert.Got(e.Campaign(background))(t)
		for restarted, want := range []error{nil, nil, quorum.ErrNoQuorum, quorum.ErrNoQuorum} {
			if restarted > 0 {
				w.nodes[restarted-1].Restart(false)
			}
			leader, err := e.Leader(background)
			named := leader.Owner == lease.Owner()
			assert.That(t, errors.Is(err, want) && named == (want == nil), "%d restarted: %+v, %v", restarted, leader, err)
		}
		pass(4 * time.Second) // the lease was renewed meanwhile
		leader, err := e.Leader(background)
		assert.That(t, err == nil && leader.Owner == lease.Owner() && lease.Remaining() > 0, "%+v, %v", leader, err)
	})
}

// OnLeader gets all leaders during Run, the program itself as well, and none after it.
func TestOnLeader(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.locker("a"), w.locker("b")
		defer a.Close()
		defer b.Close()
		lease := assert.Got(b.Lock(background, "boss"))(t)
		var seen []string
		busy := false
		e := w.election(a, election.Options{OnLeader: func(leader election.Leader) {
			busy = true
			time.Sleep(time.Second)
			busy = false
			seen = append(seen, leader.Identity)
		}})
		time.AfterFunc(10*time.Second, func() { _ = lease.Unlock(background) })
		err := e.Run(background, w.leads(func(context.Context, *quorum.Lease) error {
			time.Sleep(500 * time.Millisecond) // OnLeader is called for 1 s
			return nil
		}))
		assert.That(t, err == nil && !busy && slices.Equal(seen, []string{"b", "a"}), "%v; observed %q; still called: %v", err, seen, busy)
	})
}

// Notices tell followers of a new leader, a new note and a resignation, long before they
// ask by themselves.
func TestNotices(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, follower := w.locker("a"), w.locker("b"), w.locker("c")
		defer a.Close()
		defer b.Close()
		defer follower.Close()
		ctx, cancel := context.WithCancel(background)
		var seen []string
		go func() {
			for leader := range w.election(follower, election.Options{Every: time.Hour}).Observe(ctx) {
				seen = append(seen, leader.Identity+" "+leader.Note)
			}
		}()
		pass(time.Second)
		campaign := func(l *quorum.Locker, note string) *quorum.Lease {
			lease, err := w.election(l, election.Options{Lock: []quorum.Option{quorum.WithNote(note)}}).Campaign(background)
			assert.NoError(t, err)
			return lease
		}
		var leases [2]*quorum.Lease
		equal := func(says, want string) {
			t.Helper()
			pass(20 * time.Millisecond)
			assert.Equal(t, strings.Join(seen, ", "), want, says)
			seen = nil
		}
		equal("nobody leads", " ")
		for _, step := range []struct {
			says string
			do   func()
			want string // "": no news
		}{
			{"a leads", func() { leases[0] = campaign(a, "10.0.0.1:80") }, "a 10.0.0.1:80"},
			{"it has another note", func() { _ = leases[0].SetNote("10.0.0.2:80") }, "a 10.0.0.2:80"},
			{"it is renewed", func() { time.Sleep(10 * time.Second) }, ""},
			{"b waits", func() { go func() { leases[1] = campaign(b, "10.0.0.3:80") }() }, ""},
			{"a resigns for b", func() { _ = leases[0].Unlock(background) }, "b 10.0.0.3:80"},
			{"b has no note", func() { _ = leases[1].SetNote("") }, "b "},
			{"b resigns", func() { _ = leases[1].Unlock(background); leases[1].Announce() }, " "},
			{"a leads, and is done", func() {
				_ = w.election(a, election.Options{}).Run(background, func(context.Context, *quorum.Lease) error { pass(20 * time.Millisecond); return nil })
			}, "a ,  "},
		} {
			step.do()
			equal(step.says, step.want)
		}
		assert.That(t, node.IsOffer(leases[1].Owner()), "observers keep a lock from being handed over")
		cancel()
		pass(time.Second)
	})
}

const (
	candidateNodes = "REDQUORUM_ELECTION_NODES"
	candidateLease = "REDQUORUM_ELECTION_LEASE"
)

func TestMain(m *testing.M) {
	if urls := os.Getenv(candidateNodes); urls != "" {
		if err := campaign(strings.Split(urls, ",")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// campaign is a candidate's process. It says when it leads, and resigns at SIGTERM.
func campaign(urls []string) error {
	lease, err := time.ParseDuration(os.Getenv(candidateLease))
	if err != nil {
		return err
	}
	l, err := connect(urls, lease)
	if err != nil {
		return err
	}
	defer l.Close()
	ctx, stop := signal.NotifyContext(background, syscall.SIGTERM)
	defer stop()
	return election.New(l, "boss", election.Options{}).Run(ctx, func(ctx context.Context, lease *quorum.Lease) error {
		fmt.Println(lease.Token())
		<-ctx.Done()
		return nil
	})
}

func connect(urls []string, lease time.Duration) (*quorum.Locker, error) {
	nodes, err := redisnode.Dial(urls...)
	if err != nil {
		return nil, err
	}
	return quorum.New(nodes, quorum.Options{Lease: lease, NoRestartGuard: true})
}

// A candidate is another process, and a Writer of its output.
type candidate struct {
	*process.Process
	leads chan time.Time
}

func (c *candidate) Write(b []byte) (int, error) {
	c.leads <- time.Now()
	return len(b), nil
}

type race struct {
	t     testing.TB
	urls  []string
	lease time.Duration
}

// newRace starts three servers.
func newRace(t testing.TB, lease time.Duration) *race {
	r := &race{t: t, lease: lease}
	for _, s := range tests.Servers(t, 3, redisserver.Config{}) {
		r.urls = append(r.urls, s.URL())
	}
	return r
}

func (r *race) joins() *candidate {
	r.t.Helper()
	c := &candidate{leads: make(chan time.Time, 100)}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), candidateNodes+"="+strings.Join(r.urls, ","), candidateLease+"="+r.lease.String())
	cmd.Stdout, cmd.Stderr = c, os.Stderr
	var err error
	c.Process, err = process.Start(cmd)
	assert.Succeed(r.t, err)
	r.t.Cleanup(c.Kill)
	return c
}

// awaits returns when c leads.
func (r *race) awaits(c *candidate) time.Time {
	r.t.Helper()
	select {
	case at := <-c.leads:
		return at
	case <-c.Exited():
		r.t.Fatal("the process has ended")
	case <-time.After(r.lease + 30*time.Second): // no sound run needs that
		r.t.Fatal("the process does not lead")
	}
	panic("not reached")
}

func (r *race) waits(l *quorum.Locker) {
	r.t.Helper()
	for range 3000 {
		if report, err := l.Inspect(background, "boss"); err != nil || len(report.Waiting) > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatal("nobody waits")
}

// A killed leader is followed when its lease has ended, and one that resigns at once.
// Other processes see who leads.
func TestRealLeaders(t *testing.T) {
	t.Parallel()
	r := newRace(t, 3*time.Second) // a leader that a busy machine keeps from renewing is no leader
	l := assert.Got(connect(r.urls, r.lease))(t)
	defer l.Close()
	leader := r.joins()
	r.awaits(leader)
	for i, end := range []func(*candidate){
		func(c *candidate) { c.Kill() },
		func(c *candidate) { _ = c.Signal(syscall.SIGTERM) },
	} {
		next := r.joins()
		r.waits(l)
		assert.Must(t, len(next.leads) == 0, "two lead")
		end(leader)
		r.awaits(next)
		ctx, cancel := context.WithTimeout(background, 30*time.Second)
		want := fmt.Sprintf(" pid %d ", next.PID())
		seen := ""
		for who := range election.New(l, "boss", election.Options{}).Observe(ctx) {
			if seen = who.Identity; strings.Contains(seen, want) {
				break
			}
		}
		cancel()
		assert.That(t, strings.Contains(seen, want), "%q leads; want%s", seen, want)
		if <-leader.Exited(); i == 1 && leader.ExitCode() != 0 {
			t.Errorf("it has resigned, and its status is %d", leader.ExitCode())
		}
		leader = next
	}
}

// BenchmarkFailover measures how long nobody leads, from the end of a leader until the
// next has begun, on one machine.
//
//	go test -bench Failover/kill/lease=5s -benchtime 10x -run '^$' ./election
func BenchmarkFailover(b *testing.B) {
	for _, way := range []struct {
		name string
		end  func(*candidate)
	}{
		{"kill", func(c *candidate) { c.Kill() }},
		{"resign", func(c *candidate) { _ = c.Signal(syscall.SIGTERM) }},
	} {
		for _, lease := range []time.Duration{5 * time.Second, 15 * time.Second, 30 * time.Second} {
			b.Run(fmt.Sprintf("%s/lease=%v", way.name, lease), func(b *testing.B) {
				r := newRace(b, lease)
				l := assert.Got(connect(r.urls, lease))(b)
				defer l.Close()
				leader := r.joins()
				r.awaits(leader)
				var took []time.Duration
				for b.Loop() {
					next := r.joins()
					r.waits(l)
					time.Sleep(rand.N(lease / 3)) // between two renewals
					ended := time.Now()
					way.end(leader)
					took = append(took, r.awaits(next).Sub(ended))
					leader = next
				}
				slices.Sort(took)
				b.Log(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-median")
				b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "ms-worst")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
