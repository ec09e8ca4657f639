package election_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/process"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/node/redisserver"
	"github.com/redquorum/redquorum/quorum"
)

// This file has elections among processes, on redis-servers.

// The environment of a candidate's process: its servers, and its lease.
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

// A candidate is another process. It is a Writer of what that says.
type candidate struct {
	*process.Process
	leads chan time.Time
}

func (c *candidate) Write(b []byte) (int, error) {
	c.leads <- time.Now()
	return len(b), nil
}

// A race is an election of two processes at a time.
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

// joins starts a process that takes part.
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

// waits returns when a second process waits to lead.
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

// A leader that is killed is followed when its lease has ended, and one that resigns at once. Other
// processes see who leads.
func TestRealLeaders(t *testing.T) {
	t.Parallel()
	r := newRace(t, 3*time.Second) // a leader that a busy machine keeps from renewing is no leader
	l, err := connect(r.urls, r.lease)
	assert.Succeed(t, err)
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

// BenchmarkFailover measures how long nobody leads, by the clock of one machine: from the end of a
// leader until the next has begun.
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
				l, err := connect(r.urls, lease)
				assert.Succeed(b, err)
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

// Servers change their password before the program knows the new one. Its campaign goes on.
func TestAPasswordThatChanges(t *testing.T) {
	t.Parallel()
	all := tests.Servers(t, 3, redisserver.Config{Args: []string{"--requirepass", "old"}})
	var password atomic.Value
	password.Store("old")
	var options []*redis.Options
	for _, s := range all {
		options = append(options, &redis.Options{Addr: s.Addr(), CredentialsProvider: func() (string, string) { return "", password.Load().(string) }})
	}
	locker := func() *quorum.Locker {
		nodes, err := redisnode.DialOptions(options...)
		assert.Succeed(t, err)
		l, err := quorum.New(nodes, quorum.Options{Lease: 5 * time.Second, NoRestartGuard: true})
		assert.Succeed(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	leader, err := locker().Lock(background, "boss")
	assert.Succeed(t, err)
	ran := make(chan error, 1)
	l := locker()
	go func() {
		ran <- election.New(l, "boss", election.Options{}).Run(background, func(context.Context, *quorum.Lease) error { return nil })
	}()
	(&race{t: t}).waits(l)
	for _, s := range all {
		admin := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: "old", DisableIdentity: true})
		defer admin.Close()
		for _, command := range [][]any{{"config", "set", "requirepass", "new"}, {"client", "kill", "type", "normal"}, {"client", "kill", "type", "pubsub"}} {
			assert.Succeed(t, admin.Do(background, command...).Err())
		}
	}
	select {
	case err := <-ran:
		t.Fatalf("the campaign has ended: %v", err)
	case <-time.After(1500 * time.Millisecond):
	}
	password.Store("new")
	if err := leader.Unlock(background); err != nil {
		t.Log(err) // it may have come before the nodes were up again: then the lease runs out
	}
	select {
	case err := <-ran:
		assert.NoError(t, err)
	case <-time.After(time.Minute):
		t.Error("it does not lead")
	}
}
