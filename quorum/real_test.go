package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/node/redisserver"
	"github.com/redquorum/redquorum/quorum"
)

// The tests of this file run on redis-server processes that are killed, stopped
// and restarted under the engine.

// servers starts n redis-servers for one test.
func servers(t testing.TB, n int) []*redisserver.Server {
	t.Helper()
	return tests.Servers(t, n, redisserver.Config{})
}

func urls(all []*redisserver.Server) (urls []string) {
	for _, s := range all {
		urls = append(urls, s.URL())
	}
	return urls
}

// connect makes a Locker on servers that were just started, and so would all
// abstain: without the guard, unless o has a MaxLease.
func connect(t testing.TB, all []*redisserver.Server, o quorum.Options) *quorum.Locker {
	t.Helper()
	nodes, err := redisnode.Dial(urls(all)...)
	succeed(t, err)
	o.NoRestartGuard = o.NoRestartGuard || o.MaxLease == 0
	l := must[*quorum.Locker](t)(quorum.New(nodes, o))
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// keys counts the lock keys on all servers that answer.
func keys(t testing.TB, all []*redisserver.Server, pattern string) (n int) {
	t.Helper()
	for _, s := range all {
		c := redis.NewClient(&redis.Options{Addr: s.Addr()})
		found, err := c.Keys(background, pattern).Result()
		succeed(t, err)
		n += len(found)
		_ = c.Close()
	}
	return n
}

// info returns the number that follows what in a section of a server's INFO, 0 if it is
// not there.
func info(t testing.TB, s *redisserver.Server, section, what string) (number float64) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer c.Close()
	text, err := c.Info(background, section).Result()
	succeed(t, err)
	if _, after, found := strings.Cut(text, "\n"+what); found {
		fmt.Sscan(strings.NewReplacer(",", " ").Replace(after[:min(50, len(after))]), &number)
	}
	return number
}

// One and two bad nodes of five are not felt, three are a clear error, and
// everything recovers by itself, without a task or memory left over.
func TestRealBadNodes(t *testing.T) {
	tests.NeedLong(t)
	all := servers(t, 5)
	l := connect(t, all, quorum.Options{})
	// pairs returns how many locks and unlocks lasted for a timeout or longer.
	pairs := func(n int) (slow int) {
		t.Helper()
		for i := range n {
			start := time.Now()
			lease := lock(t, l, fmt.Sprint("pair", i%7))
			unlock(t, lease)
			if time.Since(start) >= quorum.Defaults().Timeout {
				slow++
			}
		}
		return slow
	}
	pairs(200)
	tasks := runtime.NumGoroutine()
	for _, bad := range []struct {
		name        string
		break_, fix func(*redisserver.Server) error
	}{
		{"hung", (*redisserver.Server).Stop, (*redisserver.Server).Cont},
		{"killed", func(s *redisserver.Server) error { s.Kill(); return nil },
			func(s *redisserver.Server) error { return s.Restart(true) }},
	} {
		for n := 1; n <= 3; n++ {
			succeed(t, bad.break_(all[n-1]))
			if n < 3 {
				// A node that was waited for would cost a timeout each time; a
				// machine that is busy does now and then.
				atMost(t, pairs(1000), 50, "of 1000 locks and unlocks took a timeout", fmt.Sprint(n), bad.name)
				continue
			}
			start := time.Now()
			_, err := l.TryLock(background, "none")
			expect(t, err, quorum.ErrNoQuorum, "three", bad.name)
			atMost(t, time.Since(start), quorum.Defaults().Timeout+5*time.Second, "the error took, with three", bad.name)
		}
		for _, s := range all[:3] {
			succeed(t, bad.fix(s))
		}
		assert.Eventually(t, "all five hold again", func() bool {
			lease, err := l.TryLock(background, "again")
			if err != nil {
				return false
			}
			defer lease.Unlock(background)
			r, err := l.Inspect(background, "again")
			return err == nil && r.HeldBy == 5
		})
		pairs(100)
	}
	assert.Eventually(t, "no more tasks than at first", func() bool { return runtime.NumGoroutine() <= tasks+2 })
	assert.Eventually(t, "no key left", func() bool { return keys(t, all, "pair*") == 0 })
}

// No key stays behind, at whatever moment an acquisition is canceled.
func TestRealCancelledAcquisitionsLeaveNoKey(t *testing.T) {
	tests.NeedLong(t)
	all := servers(t, 5)
	l := connect(t, all, quorum.Options{})
	const tasks, rounds = 8, 1250
	var acquired, cancelled atomic.Int64
	var wg sync.WaitGroup
	for task := range tasks {
		wg.Go(func() {
			for i := range rounds {
				ctx, cancel := context.WithTimeout(background, time.Duration(rand.Int64N(int64(4*time.Millisecond))))
				lease, err := l.Lock(ctx, fmt.Sprint("orphan", (task+i)%5))
				if err == nil {
					acquired.Add(1)
					unlock(t, lease)
				} else {
					cancelled.Add(1)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	t.Logf("%d acquired, %d canceled", acquired.Load(), cancelled.Load())
	ensure(t, acquired.Load() != 0 && cancelled.Load() != 0, "the test did not reach both outcomes")
	assert.Eventually(t, "no key left", func() bool { return keys(t, all, "orphan*") == 0 })
}

// All servers stop: what the holder believes ends before any of them can drop
// its key, and its context ends. The grace keeps the keys for as long as it takes
// to look at them.
func TestRealLossBeforeAnyKeyExpires(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	const grace = 20 * time.Second
	all := servers(t, 5)
	l := connect(t, all, quorum.Options{Lease: 2 * time.Second, Grace: grace})
	lease := lock(t, l, "loss")
	time.Sleep(1500 * time.Millisecond) // renewed at least once
	for _, s := range all {
		succeed(t, s.Stop())
	}
	believed := time.Now().Add(lease.Remaining()) // or a little longer
	<-lease.Context().Done()
	expect(t, context.Cause(lease.Context()), quorum.ErrLost)
	for _, s := range all {
		succeed(t, s.Cont())
	}
	for i, s := range all {
		c := redis.NewClient(&redis.Options{Addr: s.Addr(), ReadTimeout: 10 * time.Second})
		left, err := c.PTTL(background, "loss").Result()
		succeed(t, err)
		if end := time.Now().Add(left - grace); left < 0 || end.Before(believed) {
			t.Errorf("node %d would have dropped the key %v before the belief ended (%v left)", i+1, believed.Sub(end), left)
		}
		_ = c.Close()
	}
}

// A server that restarts empty abstains; five that restart at once are an
// outage of MaxLease, and no more.
func TestRealRestartGuard(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	all := servers(t, 3)
	l := connect(t, all, quorum.Options{Lease: time.Second, MaxLease: 2 * time.Second})
	assert.Eventually(t, "fresh servers vote after MaxLease", func() bool {
		lease, err := l.TryLock(background, "guard")
		if err == nil {
			_ = lease.Unlock(background)
		}
		return err == nil
	})
	for _, s := range all[:2] {
		succeed(t, s.Restart(true))
	}
	var details *quorum.Error
	assert.Eventually(t, "both are reached again", func() bool {
		_, err := l.TryLock(background, "guard")
		abstaining := 0
		if errors.As(err, &details) {
			for _, n := range details.Nodes {
				if n.Vote == "abstaining" {
					abstaining++
				}
			}
		}
		return abstaining == 2
	})
	start := time.Now()
	lock(t, l, "guard")
	within(t, time.Since(start), time.Second, 10*time.Second, "after the restart it took")
}

func TestRealSameServerTwice(t *testing.T) {
	t.Parallel()
	all := servers(t, 2)
	_, port, _ := strings.Cut(all[0].Addr(), ":")
	nodes, err := redisnode.Dial(all[0].URL(), all[1].URL(), "redis://localhost:"+port)
	succeed(t, err)
	l := must[*quorum.Locker](t)(quorum.New(nodes, quorum.Options{NoRestartGuard: true}))
	defer l.Close()
	inspect(t, l, "x")
	expect(t, errorOf(l.Lock(background, "x")), quorum.ErrSameServer)
}

// The environment that makes the test binary one process of
// TestRealProcessesCountExactly.
const workerNodes, workerDir = "REDQUORUM_TEST_NODES", "REDQUORUM_TEST_DIR"

func TestMain(m *testing.M) {
	tests.Parallel(8)
	if nodes := os.Getenv(workerNodes); nodes != "" {
		if err := increment(strings.Split(nodes, ","), os.Getenv(workerDir)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// increments is how often each process counts.
func increments() int { return tests.Times(100, 500) }

const (
	processes = 8
	// workerLease is far longer than a critical section on a slow machine, and
	// than the time for which harass takes a node away.
	workerLease = 3 * time.Second
)

// increment adds to the number in a file, by reading and writing it under the
// lock, and writes its token to another file, in the same critical section.
func increment(urls []string, dir string) error {
	nodes, err := redisnode.Dial(urls...)
	if err != nil {
		return err
	}
	l, err := quorum.New(nodes, quorum.Options{Lease: workerLease, MaxLease: workerLease})
	if err != nil {
		return err
	}
	defer l.Close()
	tokens, err := os.OpenFile(filepath.Join(dir, "tokens"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer tokens.Close()
	file := filepath.Join(dir, "count")
	for range increments() {
		err := l.Do(background, "count", func(ctx context.Context, lease *quorum.Lease) error {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(string(text))
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(tokens, lease.Token()); err != nil {
				return err
			}
			return os.WriteFile(file, []byte(strconv.Itoa(n+1)), 0)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Eight processes increment a number in a file while servers are killed,
// stopped and restarted empty, one or two at a time: the count is exact, and
// tokens strictly rise.
func TestRealProcessesCountExactly(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	all := servers(t, 5)
	dir := t.TempDir()
	for name, text := range map[string]string{"count": "0", "tokens": ""} {
		succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	ctx, cancel := context.WithTimeout(background, 12*time.Minute) // far more than on an idle machine
	defer cancel()
	var wg sync.WaitGroup
	for range processes {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), workerNodes+"="+strings.Join(urls(all), ","), workerDir+"="+dir)
		cmd.Stderr = os.Stderr
		succeed(t, cmd.Start())
		wg.Go(func() {
			expect(t, cmd.Wait(), nil, "a process failed")
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	faults := harass(t, all, done)
	t.Logf("%d faults", faults)
	text, err := os.ReadFile(filepath.Join(dir, "count"))
	ensure(t, err == nil && string(text) == strconv.Itoa(processes*increments()), "the count is %q, want %d (%v)", text, processes*increments(), err)
	f, err := os.Open(filepath.Join(dir, "tokens"))
	succeed(t, err)
	defer f.Close()
	var last, n node.Token
	for {
		var token node.Token
		if _, err := fmt.Fscanln(f, &token); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		more(t, token, last, "tokens rise")
		last = token
		n++
	}
	equal(t, int(n), processes*increments(), "tokens")
}

// harass breaks servers, in turn, until done: at most two at a time are not
// there or abstain.
func harass(t *testing.T, all []*redisserver.Server, done <-chan struct{}) (faults int) {
	pause := func(d time.Duration) bool {
		select {
		case <-done:
			return false
		case <-time.After(d):
			return true
		}
	}
	for i := 0; pause(700 * time.Millisecond); i++ {
		a, b := all[i%5], all[(i+1)%5]
		faults += 2
		expect(t, a.Stop(), nil)
		b.Kill()
		more := pause(300 * time.Millisecond)
		expect(t, errors.Join(a.Cont(), b.Restart(true)), nil)
		if !more {
			return faults
		}
		pause(workerLease + 1100*time.Millisecond) // the guard, and a second by which uptime is coarse
	}
	return faults
}

// The cost of a reader's release on the servers does not grow with the readers that stay,
// and the cost of a writer's attempt does not either.
func TestManyReaders(t *testing.T) {
	t.Parallel()
	const readers = 4000
	all := servers(t, 3)
	// No lease is renewed meanwhile, and no Unlock fails as the machine is slow.
	o := quorum.Options{Lease: 10 * time.Minute, MaxLease: 10 * time.Minute, Timeout: time.Minute, NoRestartGuard: true}
	l, other := connect(t, all, o), connect(t, all, o)
	calls := func(command string) (n int) {
		for _, s := range all {
			n += int(info(t, s, "commandstats", "cmdstat_"+command+":calls="))
		}
		return n
	}
	costs := func(what string, commands int, do func()) {
		t.Helper()
		before := map[string]int{}
		limits := map[string]int{"hgetall": 0, "hscan": 2 * commands, "pttl": 8 * commands}
		for command := range limits {
			before[command] = calls(command)
		}
		do()
		for command, limit := range limits {
			atMost(t, calls(command)-before[command], limit*len(all), "calls of", command, "by", what)
		}
	}
	leases := crowd(t, l, readers)
	assert.Eventually(t, "the slowest server has all readers too", func() bool {
		return keys(t, all, "{bench}:*:rwlock_timeout:1") == readers*len(all)
	})
	costs("writers that are refused", 100, func() {
		for range 100 {
			taken(t, other, "bench", quorum.WithWrite())
		}
	})
	costs("readers that leave", readers, func() {
		atMost(t, leave(leases), 0, "readers that could not unlock")
	})
	unlock(t, lock(t, other, "bench", quorum.WithWrite()))
}
