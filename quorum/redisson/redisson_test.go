// Package redisson_test shares locks with Redisson itself: a Java process with the
// release that testdata/client/pom.xml names, which takes its locks on the same servers.
// It needs redis-server, java and mvn, and is skipped without. Package quorum's
// redisson_test.go has the same without Java.
package redisson_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
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

var background = context.Background()

// holderNodes makes the test binary a process that holds a lock until it is killed.
const holderNodes = "REDQUORUM_TEST_HOLDER"

// shortLease is renewed by both sides, and left behind by the killed: far longer than a
// busy machine keeps a process waiting.
const shortLease = 6 * time.Second

func TestMain(m *testing.M) {
	if nodes := os.Getenv(holderNodes); nodes != "" {
		hold(strings.Split(nodes, ","))
	}
	dir, err := os.MkdirTemp("", "redisson-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	buildDir = dir
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

func startServers(t *testing.T, n int) (all []*redisserver.Server, addrs []string) {
	t.Helper()
	needJava(t)
	all = tests.Servers(t, n, redisserver.Config{})
	for _, s := range all {
		addrs = append(addrs, s.Addr())
	}
	return all, addrs
}

// connect has no restart guard: servers that were just started would all abstain.
func connect(t *testing.T, addrs []string, o quorum.Options) *quorum.Locker {
	t.Helper()
	l := assert.Got(newLocker(addrs, o))(t)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func newLocker(addrs []string, o quorum.Options) (*quorum.Locker, error) {
	var urls []string
	for _, a := range addrs {
		urls = append(urls, "redis://"+a)
	}
	nodes, err := redisnode.Dial(urls...)
	if err != nil {
		return nil, err
	}
	o.NoRestartGuard = true
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second // on a busy machine, too, a server that works has answered by then
	}
	return quorum.New(nodes, o)
}

func lock(t *testing.T, l *quorum.Locker, name string, opts ...quorum.Option) *quorum.Lease {
	t.Helper()
	lease := assert.Got(l.Lock(background, name, append(opts, quorum.WithWait(patience))...))(t)
	return lease
}

func unlock(t *testing.T, lease *quorum.Lease) {
	t.Helper()
	assert.NoError(t, lease.Unlock(background))
}

func waits(t *testing.T, l *quorum.Locker, name string, opts ...quorum.Option) <-chan *quorum.Lease {
	got := make(chan *quorum.Lease, 1)
	go func() {
		lease, err := l.Lock(background, name, append(opts, quorum.WithWait(patience))...)
		assert.NoError(t, err)
		got <- lease
	}()
	return got
}

func lost(t *testing.T, lease *quorum.Lease) {
	t.Helper()
	<-lease.Context().Done()
	assert.Is(t, context.Cause(lease.Context()), quorum.ErrLost, "Go's lease ended with")
	assert.Is(t, lease.Unlock(background), quorum.ErrNotHeld, "Go's unlock")
}

func broken(t *testing.T, j *java, l *quorum.Locker, kind, name string, opts ...quorum.Option) {
	t.Helper()
	j.want("true", "a", "try", kind, name, patience, watchdog)
	broken, err := l.Break(background, name)
	assert.That(t, broken && err == nil, "Go broke it: %v, %v", broken, err)
	lease := lock(t, l, name, opts...)
	j.want("false", "a", "held", kind, name)
	j.isNotOwner(kind, name)
	unlock(t, lease)
}

func held(t *testing.T, l *quorum.Locker, name string, opts ...quorum.Option) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		_, err := l.TryLock(background, name, opts...)
		if errors.Is(err, quorum.ErrHeld) {
			return
		}
		// On a busy machine too few servers may answer in time to know.
		assert.Must(t, err != nil && !time.Now().After(end), "Go got %v for %q, which Java holds", err, name)
	}
}

func dial(t *testing.T, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func awaitWaiter(t *testing.T, addr, channel string) {
	t.Helper()
	c := dial(t, addr)
	assert.Eventually(t, "somebody listens to "+channel, func() bool {
		n, err := c.PubSubNumSub(background, channel).Result()
		return err == nil && n[channel] > 0
	})
}

// A sharing is a kind of lock in Java that excludes ours on as many of the first nodes;
// ours is to read or to write if a mode says so.
type sharing struct {
	kind  string
	nodes int
	mode  string
}

func (s sharing) name() string {
	name := strings.ReplaceAll(s.kind, "/", "-")
	if s.mode != "" {
		name += "-" + s.mode
	}
	return name
}

func (s sharing) options() []quorum.Option { return modeOptions(s.mode) }

func modeOptions(mode string) []quorum.Option {
	switch mode {
	case "read":
		return []quorum.Option{quorum.WithRead()}
	case "write":
		return []quorum.Option{quorum.WithWrite()}
	}
	return nil
}

func (s sharing) channel(name string) string {
	if s.mode != "" {
		return node.ReadWriteChannel(name)
	}
	return node.Channel(name)
}

// Locks of all kinds are shared, on servers that do not fail.
func TestRedisson(t *testing.T) {
	tests.NeedLong(t)
	_, addrs := startServers(t, 5)
	j := startJava(t, addrs)
	all := []sharing{{"plain", 1, ""}, {"fenced", 1, ""}, {"spin", 1, ""}, {"fair", 1, ""},
		{"multi/3", 3, ""}, {"multi/5", 5, ""}, {"red/3", 3, ""}, {"red/5", 5, ""}}
	woken := []sharing{{"plain", 1, ""}, {"fenced", 1, ""}, {"multi/3", 3, ""}, {"red/3", 3, ""}, {"red/5", 5, ""}}
	if !tests.Long() {
		all, woken = all[:1], woken[:1]
	}
	lockers := map[int]*quorum.Locker{}
	for _, n := range []int{1, 3, 5} {
		// No waiter asks again without a notice before the test is over.
		lockers[n] = connect(t, addrs[:n], quorum.Options{RetryEvery: 2 * patience})
	}
	for _, s := range all {
		l := lockers[s.nodes]
		t.Run("exclusion/"+s.name(), func(t *testing.T) { exclusion(t, j, l, s) })
		t.Run("expiry/"+s.name(), func(t *testing.T) { expiry(t, j, l, s) })
	}
	for _, s := range woken {
		t.Run("wake/"+s.name(), func(t *testing.T) { wake(t, j, lockers[s.nodes], s, addrs) })
		t.Run("count/"+s.name(), func(t *testing.T) { count(t, j, lockers[s.nodes], s) })
	}
	t.Run("force", func(t *testing.T) { force(t, j, connect(t, addrs[:1], quorum.Options{Lease: time.Second})) })
	t.Run("fairSleeps", func(t *testing.T) {
		tests.NeedLong(t)
		fairSleeps(t, j, lockers[1], dial(t, addrs[0]))
	})
	t.Run("tokens", func(t *testing.T) { tokens(t, j, lockers[1]) })
	t.Run("oneNodeIsNoMajority", func(t *testing.T) { oneNodeIsNoMajority(t, j, lockers[3]) })
}

// A side gets a lock only when the other has released it.
func exclusion(t *testing.T, j *java, l *quorum.Locker, s sharing) {
	needTime(t)
	name := "exclusion-" + s.name()
	rival := strings.Replace(s.kind, "read", "write", 1)
	for range 2 {
		j.want("true", "a", "try", s.kind, name, patience, watchdog)
		held(t, l, name, s.options()...)
		held(t, l, name)
		j.want("false", "b", "try", rival, name, 0, watchdog)
		j.want("true", "a", "unlock", s.kind, name)

		lease := lock(t, l, name, s.options()...)
		j.want("false", "a", "try", s.kind, name, 0, watchdog)
		j.want("false", "a", "held", s.kind, name)
		unlock(t, lease)
	}
}

// A lease that is not renewed ends for both sides.
func expiry(t *testing.T, j *java, l *quorum.Locker, s sharing) {
	needTime(t)
	const lease = 300 * time.Millisecond
	name := "expiry-" + s.name()
	// A wait would be the lease of a MultiLock while it is taken, twice over.
	a := j.want("true", "a", "try", s.kind, name, 0, lease)
	mine := lock(t, l, name, append(s.options(), quorum.WithFixedLease(lease))...)
	d := time.Since(a.began)
	assert.That(t, d >= lease, "Go had it %v after Java began to take it for %v", d, lease)
	from := time.Now().Add(mine.Remaining()) // when we cease to believe
	a = j.want("true", "a", "try", s.kind, name, patience, watchdog)
	assert.That(t, !a.ended.Before(from), "Java had it %v before Go's lease ended", from.Sub(a.ended))
	assert.That(t, mine.Remaining() == 0, "Go still believes")
	j.want("true", "a", "unlock", s.kind, name)
}

// A release wakes the other side's waiter, long before the lease of 30 s ends. Only the
// fastest round is held to 100 ms: the machine may be busy.
//
// Redisson's waiters can miss the message of any writer's release, which only wakes those
// that sleep already. So Java has to sleep before Go releases. A MultiLock cannot be made
// to on its other servers, and sleeps too long now and then.
func wake(t *testing.T, j *java, l *quorum.Locker, s sharing, addrs []string) {
	needTime(t)
	const rounds, within, notice = 5, 100 * time.Millisecond, 15 * time.Second
	name := "wake-" + s.name()
	goWaits, javaWaits, javaNotice := patience, patience, notice
	if s.mode == "write" && s.nodes > 1 {
		javaNotice = patience
	}
	for range rounds {
		j.want("true", "a", "try", s.kind, name, patience, watchdog)
		woken := make(chan time.Time)
		go func() {
			defer close(woken)
			lease, err := l.Lock(background, name, append(s.options(), quorum.WithWait(patience))...)
			if err != nil {
				t.Error(err)
				return
			}
			woken <- time.Now()
			unlock(t, lease)
		}()
		awaitWaiter(t, addrs[0], s.channel(name))
		released := j.want("true", "a", "unlock", s.kind, name)
		goWaits = min(goWaits, since(t, notice, released.began, <-woken))
		<-woken

		lease := lock(t, l, name, s.options()...)
		call := j.begin("a", "try", s.kind, name, patience, watchdog)
		j.want("true", "b", "asleep", s.kind, name, "a")
		start := time.Now()
		unlock(t, lease)
		javaWaits = min(javaWaits, since(t, javaNotice, start, j.end(call).ended))
		j.want("true", "a", "unlock", s.kind, name)
	}
	t.Logf("Go had it %v after Java's release, Java %v after Go's", goWaits, javaWaits)
	assert.That(t, goWaits <= within && javaWaits <= within, "that is more than %v", within)
}

// since fails the test if the time from start to end was so long that no notice came.
func since(t *testing.T, most time.Duration, start, end time.Time) time.Duration {
	t.Helper()
	d := end.Sub(start)
	assert.That(t, d <= most, "it took %v", d)
	return d
}

// Tasks of both sides add to a number in a file, and check that they are alone.
func count(t *testing.T, j *java, l *quorum.Locker, s sharing) {
	const rounds = 50
	name := "count-" + s.name()
	counted(t, j, 2*rounds, func(file string, theirs func(thread, verb, kind, name string), ours *sync.WaitGroup, i int) {
		theirs(fmt.Sprint("counter", i), "count", s.kind, name)
		ours.Go(func() {
			during(t, l, name, rounds, func() {
				before, err := add(file)
				if after, _ := os.ReadFile(file); err != nil || string(after) != strconv.Itoa(before+1) {
					t.Errorf("not alone: %d is followed by %s (%v)", before, after, err)
				}
			}, s.options()...)
		})
	})
}

// counted has two tasks of each side add to a number in a file, each half of adds.
func counted(t *testing.T, j *java, adds int, start func(file string, theirs func(thread, verb, kind, name string), ours *sync.WaitGroup, i int)) {
	needTime(t)
	file := filepath.Join(t.TempDir(), "number")
	assert.Succeed(t, os.WriteFile(file, []byte("0"), 0o600))
	var theirs []<-chan answer
	var ours sync.WaitGroup
	for i := range 2 {
		start(file, func(thread, verb, kind, name string) {
			theirs = append(theirs, j.begin(thread, verb, kind, name, file, adds/2))
		}, &ours, i)
	}
	ours.Wait()
	for _, call := range theirs {
		a := j.end(call)
		assert.That(t, a.value == "alone", "Java counted: %s", a.value)
	}
	text, err := os.ReadFile(file)
	assert.That(t, err == nil && string(text) == strconv.Itoa(2*adds), "the number is %s, want %d (%v)", text, 2*adds, err)
}

func during(t *testing.T, l *quorum.Locker, name string, rounds int, do func(), opts ...quorum.Option) {
	for range rounds {
		lease, err := l.Lock(background, name, append(opts, quorum.WithWait(patience))...)
		if err != nil {
			t.Error(err)
			return
		}
		do()
		assert.NoError(t, lease.Unlock(background))
	}
}

// add adds 1 to the number in a file, not at once.
func add(file string) (before int, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	if before, err = strconv.Atoi(string(text)); err != nil {
		return 0, err
	}
	time.Sleep(time.Millisecond)
	return before, os.WriteFile(file, []byte(strconv.Itoa(before+1)), 0o600)
}

// The other side learns of a broken lock when it looks.
func force(t *testing.T, j *java, l *quorum.Locker) {
	lease := lock(t, l, "force")
	j.want("true", "a", "force", "plain", "force")
	lost(t, lease)
	broken(t, j, l, "plain", "force")
}

// Go's release does not wake a Java thread that waits for a fair lock: it sleeps until
// the lease that it met would have ended. So docs/redisson.md says that fair locks are
// not to be mixed.
func fairSleeps(t *testing.T, j *java, l *quorum.Locker, server *redis.Client) {
	const leaseTime, early = 4 * time.Second, 3 * time.Second
	for {
		needTime(t)
		start := time.Now() // the key expires a lease after this, or later
		lease := lock(t, l, "fair-sleeps", quorum.WithFixedLease(leaseTime))
		call := j.begin("a", "lock", "fair", "fair-sleeps")
		j.want("true", "b", "asleep", "fair", "fair-sleeps", "a")
		if err := lease.Unlock(background); err == nil && time.Since(start) < early {
			n, err := server.Exists(background, "fair-sleeps").Result()
			assert.That(t, n == 0 && err == nil, "the lock is not free: %d, %v", n, err)
			a := j.end(call)
			t.Logf("Java had the lock %v after Go began to take it for %v", a.ended.Sub(start), leaseTime)
			assert.That(t, !a.ended.Before(start.Add(leaseTime)), "Go's release woke it: docs/redisson.md says that it does not")
			j.want("true", "a", "unlock", "fair", "fair-sleeps")
			return
		}
		j.end(call) // this machine was too slow to release the lock long before its lease ends
		j.want("true", "a", "unlock", "fair", "fair-sleeps")
	}
}

// Each side's tokens rise, but are not comparable: Redisson counts from 1 on one node, we
// take the time of day.
func tokens(t *testing.T, j *java, l *quorum.Locker) {
	j.want("1", "a", "token", "fenced", "tokens")
	j.want("2", "a", "token", "fenced", "tokens") // re-entry
	j.want("true", "a", "unlock", "fenced", "tokens")
	held(t, l, "tokens")
	j.want("true", "a", "unlock", "fenced", "tokens")
	first := lock(t, l, "tokens")
	unlock(t, first)
	j.want("3", "a", "token", "fenced", "tokens")
	j.want("true", "a", "unlock", "fenced", "tokens")
	second := lock(t, l, "tokens")
	unlock(t, second)
	assert.That(t, first.Token() > 3 && second.Token() > first.Token(), "Go's tokens are %d and %d", first.Token(), second.Token())
}

func oneNodeIsNoMajority(t *testing.T, j *java, l *quorum.Locker) {
	j.want("true", "a", "try", "plain", "lonely", 0, watchdog)
	lease := lock(t, l, "lonely")
	j.want("true", "a", "held", "plain", "lonely")
	assert.That(t, lease.Remaining() != 0, "Go lost it")
	unlock(t, lease)
	j.want("true", "a", "unlock", "plain", "lonely")
}

// Both sides keep what they hold for several times their leases, and get a killed
// holder's lock when its lease ends.
func TestRedissonWatchdogs(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	_, addrs := startServers(t, 3)
	j := startJava(t, addrs, fmt.Sprint("watchdog=", shortLease.Milliseconds()))
	kinds := []sharing{{"plain", 1, ""}, {"fenced", 1, ""}, {"multi/3", 3, ""}, {"red/3", 3, ""},
		{"write", 1, "read"}, {"read", 1, "write"}, {"write/3", 3, "read"}, {"read/3", 3, "write"}}
	lockers := map[int]*quorum.Locker{}
	for _, n := range []int{1, 3} {
		lockers[n] = connect(t, addrs[:n], quorum.Options{Lease: shortLease})
	}
	var leases []*quorum.Lease
	for _, s := range kinds {
		j.want("true", "a", "try", s.kind, "java-"+s.name(), patience, watchdog)
		leases = append(leases, lock(t, lockers[s.nodes], "go-"+s.name(), s.options()...))
	}
	for end := time.Now().Add(shortLease + shortLease/2); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for _, s := range kinds {
			held(t, lockers[s.nodes], "java-"+s.name(), s.options()...)
			j.want("false", "b", "try", s.kind, "go-"+s.name(), 0, watchdog)
		}
	}
	for i, s := range kinds {
		if leases[i].Remaining() == 0 {
			t.Errorf("Go lost its lock against %s: %v", s.kind, context.Cause(leases[i].Context()))
		}
		unlock(t, leases[i])
		j.want("true", "a", "unlock", s.kind, "java-"+s.name())
	}

	var holders []*exec.Cmd
	for _, s := range kinds {
		holders = append(holders, startHolder(t, addrs[:s.nodes], "kill-"+s.name(), s.mode))
	}
	for i, s := range kinds {
		j.want("false", "b", "try", s.kind, "kill-"+s.name(), 0, watchdog)
		assert.Succeed(t, holders[i].Process.Kill())
		_ = holders[i].Wait()
	}
	for _, s := range kinds {
		j.want("true", "a", "try", s.kind, "kill-"+s.name(), patience, watchdog)
	}
	assert.Succeed(t, j.cmd.Process.Kill())
	for _, s := range kinds {
		held(t, lockers[s.nodes], "kill-"+s.name(), s.options()...)
	}
	for _, s := range kinds {
		unlock(t, lock(t, lockers[s.nodes], "kill-"+s.name(), s.options()...))
	}
}

// startHolder returns when its process holds name.
func startHolder(t *testing.T, addrs []string, name, mode string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderNodes+"="+strings.Join(append([]string{name, mode}, addrs...), ","))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	assert.Succeed(t, err)
	assert.Succeed(t, cmd.Start())
	if n, err := stdout.Read(make([]byte, 1)); n != 1 {
		_ = cmd.Process.Kill()
		t.Fatalf("the holder holds nothing: %v", err)
	}
	return cmd
}

func hold(args []string) {
	l, err := newLocker(args[2:], quorum.Options{Lease: shortLease})
	if err == nil {
		_, err = l.Lock(background, args[0], modeOptions(args[1])...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print("!")
	select {}
}
