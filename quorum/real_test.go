package quorum_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// These tests run on redis-servers that are killed, stopped and restarted.

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

// connect has no restart guard unless o has a MaxLease, as servers that were just started
// would all abstain.
func connect(t testing.TB, all []*redisserver.Server, o quorum.Options) *quorum.Locker {
	t.Helper()
	nodes := assert.Got(redisnode.Dial(urls(all)...))(t)
	o.NoRestartGuard = o.NoRestartGuard || o.MaxLease == 0
	l := must[*quorum.Locker](t)(quorum.New(nodes, o))
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// docs/evidence/benchmarks.md has the figures.
func TestAllocationsOfAPair(t *testing.T) {
	if tests.Race {
		t.Skip("the race detector allocates, too")
	}
	all := servers(t, 5)
	observed := quorum.Options{Observe: func(quorum.Event) {}}
	for _, c := range []struct {
		nodes int
		o     quorum.Options
		most  float64
	}{{1, quorum.Options{}, 6}, {1, observed, 8}, {5, quorum.Options{}, 6}, {5, observed, 8}} {
		l := connect(t, all[:c.nodes], c.o)
		pair := func() { succeed(t, lock(t, l, "pair").Unlock(background)) }
		for range 100 {
			pair()
		}
		least := math.Inf(1) // on a busy machine some attempts are made again
		for try := 0; try < 30 && least > c.most; try++ {
			least = min(least, testing.AllocsPerRun(200, pair))
		}
		assert.That(t, least <= c.most, "%d nodes: %v allocations, want at most %v", c.nodes, least, c.most)
	}
}

func keys(t testing.TB, all []*redisserver.Server, pattern string) (n int) {
	t.Helper()
	for _, s := range all {
		c := redis.NewClient(&redis.Options{Addr: s.Addr()})
		found := assert.Got(c.Keys(background, pattern).Result())(t)
		n += len(found)
		_ = c.Close()
	}
	return n
}

// info returns the number after what in a section of INFO, 0 if it is not there.
func info(t testing.TB, s *redisserver.Server, section, what string) (number float64) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer c.Close()
	text := assert.Got(c.Info(background, section).Result())(t)
	if _, after, found := strings.Cut(text, "\n"+what); found {
		fmt.Sscan(strings.NewReplacer(",", " ").Replace(after[:min(50, len(after))]), &number)
	}
	return number
}

// One or two bad nodes of five are not felt, three are a clear error, and everything
// recovers by itself, without leaks.
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
	other := connect(t, all, quorum.Options{}) // l waits for it, and listens from then on, as it does where it was late
	held := lock(t, other, "pair0")
	time.AfterFunc(100*time.Millisecond, func() { _ = held.Unlock(background) })
	pairs(200)
	succeed(t, other.Close())
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
				// A node that was waited for would cost a timeout each time; a busy
				// machine does now and then.
				atMost(t, pairs(1000), 50, "of 1000 locks and unlocks took a timeout", fmt.Sprint(n), bad.name)
				continue
			}
			start := time.Now()
			expect(t, errorOf(l.TryLock(background, "none")), quorum.ErrNoQuorum, "three", bad.name)
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

// This environment makes the test binary a process of TestRealProcessesCountExactly.
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

func increments() int { return tests.Times(100, 500) }

const (
	processes = 8
	// workerLease is far longer than a critical section on a slow machine, and than
	// harass takes a node away.
	workerLease = 3 * time.Second
)

// increment adds to the number in a file under the lock, and writes its token to another
// file.
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

// Eight processes increment a number in a file while servers are killed, stopped and
// restarted empty. The count is exact, and tokens strictly rise.
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

// harass breaks servers in turn until done: at most two at a time are down or abstain.
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

// On the servers, the cost of a reader's release, and of a writer's attempt, does not
// grow with the readers that stay.
func TestManyReaders(t *testing.T) {
	t.Parallel()
	readers := tests.Times(1000, 4000)
	all := servers(t, 3)
	// No lease is renewed meanwhile, and no Unlock fails because the machine is slow.
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

var harassFor = flag.Duration("harass", 5*time.Second, "for how long servers are killed and stopped while locks of every kind are used")

// Locks of every kind, of several names and for readers and writers, are taken by 32
// tasks in four Lockers, while servers are killed, stopped and restarted empty. No holder
// gets what another has whose context goes on, tokens rise, everybody has turns, and no
// key is left.
func TestRealKindsWhileServersFail(t *testing.T) {
	tests.NeedLong(t)
	all := servers(t, 5)
	c := newContest(t)
	stop := time.Now().Add(*harassFor)
	var mu sync.Mutex
	turns, longest := make(map[string]int), make(map[string]time.Duration)
	for i := range 4 {
		l := connect(t, all, quorum.Options{Lease: workerLease, MaxLease: workerLease})
		for kind, take := range kindsOf(l) {
			c.tasks.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(i), uint64(len(kind))))
				for time.Now().Before(stop) {
					names := []string{"a", "b", "c"}
					rnd.Shuffle(3, func(i, k int) { names[i], names[k] = names[k], names[i] })
					asked := time.Now()
					leases, err := take(names)
					waited := time.Since(asked)
					if kind == "try" && (errors.Is(err, quorum.ErrHeld) || errors.Is(err, quorum.ErrNoQuorum)) {
						time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
						continue
					} else if err != nil {
						t.Errorf("%s: %v", kind, err)
						return
					}
					for _, le := range leases {
						c.enter(le)
					}
					if kind == "fixed" {
						<-leases[0].Context().Done()
					} else {
						time.Sleep(time.Duration(rnd.IntN(5)) * time.Millisecond)
					}
					for _, le := range leases {
						c.leave(le)
					}
					for _, le := range leases {
						err := le.Unlock(background)
						ensure(t, err == nil || kind == "fixed", "%v", err)
					}
					mu.Lock()
					turns[kind]++
					longest[kind] = max(longest[kind], waited)
					mu.Unlock()
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { c.tasks.Wait(); close(done) }()
	faults := harass(t, all, done)
	for kind := range kindsOf(nil) {
		t.Logf("%s: %d turns, the longest wait %v", kind, turns[kind], longest[kind])
		ensure(t, turns[kind] != 0 || kind == "try", "%s has had no turn", kind)
	}
	t.Logf("%d faults", faults)
	assert.Eventually(t, "no key is left", func() bool { return keys(t, all, "[abcd]") == 0 })
}

// kindsOf are the ways to lock some of three names.
func kindsOf(l *quorum.Locker) map[string]func(names []string) ([]*quorum.Lease, error) {
	one := func(options ...quorum.Option) func([]string) ([]*quorum.Lease, error) {
		return func(names []string) ([]*quorum.Lease, error) {
			le, err := l.Lock(background, names[0], options...)
			return []*quorum.Lease{le}, err
		}
	}
	shared := func(option quorum.Option) func([]string) ([]*quorum.Lease, error) {
		return func([]string) ([]*quorum.Lease, error) {
			le, err := l.Lock(background, "d", option)
			return []*quorum.Lease{le}, err
		}
	}
	return map[string]func([]string) ([]*quorum.Lease, error){
		"plain": one(),
		"fair":  one(quorum.WithFair()),
		"fixed": one(quorum.WithFixedLease(100 * time.Millisecond)), // its holder stays until the context ends
		"read":  shared(quorum.WithRead()),
		"write": shared(quorum.WithWrite()),
		"try": func(names []string) ([]*quorum.Lease, error) {
			le, err := l.TryLock(background, names[0])
			return []*quorum.Lease{le}, err
		},
		"names": func(names []string) ([]*quorum.Lease, error) {
			le, err := l.Lock(background, names[0], quorum.WithNames(names[1]))
			return []*quorum.Lease{le}, err
		},
		"joint": func(names []string) ([]*quorum.Lease, error) {
			j, err := quorum.LockAll(background, []quorum.Member{{Locker: l, Name: names[0]}, {Locker: l, Name: names[1]}})
			if err != nil {
				return nil, err
			}
			return j.Leases(), nil
		},
		"nested": func(names []string) ([]*quorum.Lease, error) {
			outer, inner := min(names[0], names[1]), max(names[0], names[1])
			le, err := l.Lock(background, outer)
			if err != nil {
				return nil, err
			}
			next, err := l.Lock(background, inner)
			if err != nil {
				return nil, fmt.Errorf("inside %s: %w", outer, err)
			}
			return []*quorum.Lease{next, le}, nil
		},
	}
}

var failoversFor = flag.Duration("failovers", 12*time.Second, "for how long replicas take over while locks are used")

// A deployment is what one node of a Locker leads to.
type deployment interface {
	dial() (node.Node, error)

	// failOver replaces the master by a server that has none of its locks.
	failOver() error

	// settled reports whether it can fail over again.
	settled() bool
}

// A server follows an empty master for a moment, at the same address. As with Sentinel,
// each change of its role closes its connections.
type demoted struct{ listed, empty *redisserver.Server }

func (d *demoted) dial() (node.Node, error) {
	nodes, err := redisnode.Dial(d.listed.URL())
	if err != nil {
		return nil, err
	}
	return nodes[0], nil
}

func (d *demoted) failOver() error {
	host, port, _ := net.SplitHostPort(d.empty.Addr())
	if err := d.follow(host, port); err != nil {
		return err
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if text, _ := say(d.listed, "info", "replication"); has(text, "master_link_status:up") {
			break
		}
	}
	return d.follow("no", "one")
}

func (d *demoted) follow(host, port string) error {
	return together(d.listed, []any{"replicaof", host, port}, []any{"client", "kill", "type", "normal"})
}

func (d *demoted) settled() bool { return true }

type cluster struct{ master, replica *redisserver.Server }

func (c *cluster) dial() (node.Node, error) {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{c.master.Addr(), c.replica.Addr()}})
	defer client.Close() // a node has its own
	return redisnode.New(client, redisnode.Options{})
}

func (c *cluster) failOver() error {
	err := together(c.replica, []any{"flushall"}, []any{"cluster", "failover", "takeover"})
	c.master, c.replica = c.replica, c.master
	return err
}

func (c *cluster) settled() bool {
	text, _ := say(c.replica, "info", "replication")
	return has(text, "master_link_status:up")
}

func newCluster(t *testing.T, all []*redisserver.Server) *cluster {
	c := &cluster{all[0], all[1]}
	id := assert.Got(say(c.master, "cluster", "myid"))(t)
	slots := []any{"cluster", "addslots"}
	for slot := range 1 << 14 {
		slots = append(slots, slot)
	}
	host, port, _ := net.SplitHostPort(c.master.Addr())
	for s, words := range map[*redisserver.Server][]any{c.master: slots, c.replica: {"cluster", "meet", host, port}} {
		succeed(t, errorOf(say(s, words...)))
	}
	assert.Eventually(t, "replication", func() bool {
		say(c.replica, "cluster", "replicate", id)
		text, _ := say(c.master, "cluster", "info")
		return has(text, "cluster_state:ok") && c.settled()
	})
	return c
}

func say(s *redisserver.Server, words ...any) (any, error) {
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, DisableIdentity: true})
	defer client.Close()
	return client.Do(background, words...).Result()
}

func together(s *redisserver.Server, commands ...[]any) error {
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, DisableIdentity: true})
	defer client.Close()
	_, err := client.TxPipelined(background, func(p redis.Pipeliner) error {
		for _, words := range commands {
			p.Do(background, words...)
		}
		return nil
	})
	return err
}

func has(text any, part string) bool {
	s, _ := text.(string)
	return strings.Contains(s, part)
}

// Servers fail over to copies without the locks, one shortly after the other, while
// programs go on and others begin, which have never met the old masters. Mutual exclusion
// holds, and tokens rise.
func TestRealFailovers(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	start := func(t *testing.T, args ...string) []*redisserver.Server {
		args = append(args, "--repl-diskless-sync-delay", "0", "--replica-read-only", "no")
		return tests.Servers(t, 6, redisserver.Config{Args: args})
	}
	t.Run("of masters under their addresses", func(t *testing.T) {
		t.Parallel()
		all := start(t)
		failovers(t, []deployment{&demoted{all[0], all[1]}, &demoted{all[2], all[3]}, &demoted{all[4], all[5]}})
	})
	t.Run("in clusters", func(t *testing.T) {
		t.Parallel()
		all := start(t, "--cluster-enabled", "yes")
		failovers(t, []deployment{newCluster(t, all[:2]), newCluster(t, all[2:4]), newCluster(t, all[4:])})
	})
}

func failovers(t *testing.T, all []deployment) {
	const lease = 3 * time.Second
	var mu sync.Mutex // of all
	var tasks sync.WaitGroup
	c := newContest(t)
	var grants atomic.Int64
	stop := time.Now().Add(lease + *failoversFor)
	for range 6 {
		tasks.Go(func() {
			for time.Now().Before(stop) { // each time a program that is new
				mu.Lock()
				var nodes []node.Node
				for _, d := range all {
					n, err := d.dial()
					if err != nil {
						t.Error(err)
						continue
					}
					nodes = append(nodes, n)
				}
				mu.Unlock()
				l, err := quorum.New(nodes, quorum.Options{Lease: lease, MaxLease: lease})
				if err != nil {
					t.Error(err)
					return
				}
				for until := time.Now().Add(rand.N(2 * lease)); time.Now().Before(until); {
					ctx, cancel := context.WithDeadline(background, until)
					le, err := l.Lock(ctx, "a")
					cancel()
					if err != nil {
						continue
					}
					c.enter(le)
					grants.Add(1)
					select {
					case <-le.Context().Done():
					case <-time.After(rand.N(lease / 2)):
					}
					c.leave(le)
					_ = le.Unlock(background)
				}
				l.Close()
			}
		})
	}
	faults := 0
	for time.Sleep(lease + time.Second); time.Now().Before(stop); time.Sleep(lease + rand.N(lease)) {
		for _, d := range all[:2] { // a majority
			assert.Eventually(t, "it can fail over", d.settled)
			mu.Lock()
			err := d.failOver()
			mu.Unlock()
			expect(t, err, nil)
			faults++
			time.Sleep(200*time.Millisecond + rand.N(300*time.Millisecond))
		}
		mu.Lock()
		rand.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
		mu.Unlock()
	}
	tasks.Wait()
	t.Logf("%d grants, %d failovers", grants.Load(), faults)
	ensure(t, grants.Load() != 0, "nobody was granted the lock")
}

// The script of docs/fencing.md refuses lower tokens. Its other statements are tested in
// contrib/fencesql and contrib/fencecheck.
func TestFencingScript(t *testing.T) {
	page := assert.Got(os.ReadFile("../docs/fencing.md"))(t)
	scripts := regexp.MustCompile("(?s)```lua\n(.*?)```").FindAllSubmatch(page, -1)
	equal(t, len(scripts), 1, "scripts in docs/fencing.md")
	options, err := redis.ParseURL(servers(t, 1)[0].URL())
	succeed(t, err)
	client := redis.NewClient(options)
	defer client.Close()
	script := redis.NewScript(string(scripts[0][1]))
	for _, c := range []struct {
		token, want int64
		value       string
	}{{7, 1, "a"}, {6, 0, "a"}, {7, 1, "b"}, {1<<53 - 2, 1, "c"}, {1<<53 - 1, 1, "d"}, {1<<53 - 2, 0, "d"}, {8, 0, "d"}} {
		written := c.value
		if c.want == 0 {
			written = "late"
		}
		n, err := script.Run(t.Context(), client, []string{"order"}, c.token, written).Int64()
		ensure(t, n == c.want && err == nil, "token %d: %d, %v", c.token, n, err)
		value, err := client.HGet(t.Context(), "order", "value").Result()
		ensure(t, value == c.value && err == nil, "after token %d: %q, %v; want %q", c.token, value, err, c.value)
	}
}
