package redisserver_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node/redisserver"
)

// asParent makes this program a parent of a server: see TestServerDiesWithItsParent.
const asParent = "REDISSERVER_TEST_PARENT"

func init() {
	if os.Getenv(asParent) != "" {
		runtime.LockOSThread() // to the first thread, the one that never ends
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(asParent) != "" {
		parent()
	}
	goleak.VerifyTestMain(m)
}

func TestAnswersAndEnds(t *testing.T) {
	for _, unix := range []bool{false, true} {
		t.Run(fmt.Sprintf("unix=%v", unix), func(t *testing.T) {
			s := start(t, redisserver.Config{Unix: unix})
			assert.Equal(t, ask(t, s, "PING"), "+PONG", "PING")
			assert.That(t, strings.HasSuffix(s.URL(), s.Addr()), "URL %s does not end with address %s", s.URL(), s.Addr())
			pid := s.PID()
			for range 2 {
				assert.NoError(t, s.Close())
			}
			assert.That(t, !alive(pid), "process %d is alive after Close", pid)
			assert.That(t, s.PID() == 0, "a closed server has a PID")
			err := s.Restart(true)
			assert.That(t, err != nil, "a closed server restarts")
		})
	}
}

func TestKillAndRestart(t *testing.T) {
	for _, c := range []struct {
		name       string
		appendOnly bool
		empty      bool
		want       string
	}{
		{"in memory", false, false, "$-1"},
		{"append-only, data kept", true, false, "$1"},
		{"append-only, emptied", true, true, "$-1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, redisserver.Config{AppendOnly: c.appendOnly})
			addr, pid := s.Addr(), s.PID()
			ask(t, s, "SET k v")
			s.Kill()
			s.Kill()
			assert.That(t, !alive(pid), "process %d is alive after Kill", pid)
			if conn, err := net.Dial("tcp", addr); err == nil {
				conn.Close()
				t.Error("a killed server accepts connections")
			}
			assert.Succeed(t, s.Restart(c.empty))
			assert.That(t, s.Addr() == addr && s.PID() != pid && s.PID() != 0,
				"after the restart: address %s (was %s), PID %d (was %d)", s.Addr(), addr, s.PID(), pid)
			assert.Equal(t, ask(t, s, "GET k"), c.want, "GET after the restart")
		})
	}
}

func TestStopAndCont(t *testing.T) {
	s := start(t, redisserver.Config{})
	assert.Succeed(t, s.Stop())
	assert.Is(t, assert.ErrorOf(try(s, "PING", 100*time.Millisecond)), os.ErrDeadlineExceeded, "a stopped server")
	assert.Succeed(t, s.Cont())
	assert.Equal(t, ask(t, s, "PING"), "+PONG", "PING after Cont")
	assert.Succeed(t, s.Stop())
	s.Kill() // a stopped process must be killable
	err := s.Stop()
	assert.That(t, err != nil, "Stop of a killed server succeeds")
}

func TestArgsWin(t *testing.T) {
	s := start(t, redisserver.Config{Args: []string{"--requirepass", "secret"}})
	got := ask(t, s, "PING")
	assert.That(t, strings.HasPrefix(got, "-NOAUTH"), "PING without the password: %s", got)
}

func TestBadArgsFailWithTheServersWords(t *testing.T) {
	need(t)
	s, err := redisserver.Start(redisserver.Config{Args: []string{"--no-such-thing", "1"}})
	if err == nil {
		s.Close()
		t.Fatal("started")
	}
	assert.That(t, strings.Contains(err.Error(), "Bad directive"), "error %q does not say what is wrong", err)
}

func TestMissingBinary(t *testing.T) {
	assert.Is(t, assert.ErrorOf(redisserver.Start(redisserver.Config{Binary: "no-such-redis"})), exec.ErrNotFound, "error")
	t.Setenv("PATH", "")
	err := redisserver.Available()
	assert.That(t, err != nil && !strings.Contains(err.Error(), "\n"), "Available with an empty PATH: %v, want one line", err)
}

func TestStartN(t *testing.T) {
	need(t)
	servers := assert.Got(redisserver.StartN(3, redisserver.Config{}))(t)
	seen := map[string]bool{}
	for _, s := range servers {
		seen[s.Addr()] = true
		s.Close()
	}
	assert.That(t, len(seen) == 3, "three servers at %d addresses", len(seen))
}

// A program that has started a server is killed, and can do nothing about it.
func TestServerDiesWithItsParent(t *testing.T) {
	need(t)
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a child that its parent died")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asParent+"=1", "TMPDIR="+t.TempDir())
	out := assert.Got(cmd.StdoutPipe())(t)
	assert.Succeed(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, bad := strconv.Atoi(strings.TrimSpace(line))
	time.Sleep(200 * time.Millisecond) // the thread that started the server must not have gone
	lived := bad == nil && alive(pid)
	cmd.Process.Kill()
	cmd.Wait()
	assert.Must(t, err == nil && bad == nil && lived, "the child said %q (%v), and its server was alive: %v", line, err, lived)
	for end := time.Now().Add(10 * time.Second); alive(pid); time.Sleep(time.Millisecond) {
		assert.Must(t, !time.Now().After(end), "server %d outlives its parent", pid)
	}
}

// parent starts a server on a thread that then ends, says its PID, and waits to be
// killed.
func parent() {
	started := make(chan struct{})
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		defer close(started)
		s, err := redisserver.Start(redisserver.Config{})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		defer fmt.Println(s.PID())
	}()
	<-started
	time.Sleep(time.Minute)
	os.Exit(1)
}

func need(t *testing.T) {
	t.Helper()
	tests.NeedServer(t)
}

func start(t *testing.T, config redisserver.Config) *redisserver.Server {
	t.Helper()
	need(t)
	s := assert.Got(redisserver.Start(config))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

func ask(t *testing.T, s *redisserver.Server, command string) string {
	t.Helper()
	reply, err := try(s, command, 5*time.Second)
	assert.Must(t, err == nil, "%s: %v", command, err)
	return reply
}

func try(s *redisserver.Server, command string, timeout time.Duration) (string, error) {
	network := "tcp"
	if filepath.IsAbs(s.Addr()) {
		network = "unix"
	}
	conn, err := net.Dial(network, s.Addr())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(timeout))
	fmt.Fprintf(conn, "%s\r\n", command)
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}

// alive is false for zombies, which can still be sent signals.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil {
		_, state, _ := strings.Cut(string(stat), ") ")
		return !strings.HasPrefix(state, "Z")
	}
	return syscall.Kill(pid, 0) == nil
}

func TestRestartWithAPasswordWaitsForTheData(t *testing.T) {
	need(t)
	const password = `it is "secret"`
	s := start(t, redisserver.Config{Args: []string{
		"--requirepass", "other", "--requirepass", password,
		"--key-load-delay", "5000", "--rdbcompression", "no", "--loading-process-events-interval-bytes", "1024",
	}})
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: password, MaxRetries: -1, DisableIdentity: true})
	defer c.Close()
	for i := range 50 {
		assert.Succeed(t, c.Set(t.Context(), strconv.Itoa(i), strings.Repeat("x", 1024), 0).Err())
	}
	assert.Succeed(t, c.Save(t.Context()).Err())
	assert.Succeed(t, s.Restart(false))
	c.Ping(t.Context()) // over the connection that was broken
	n, err := c.DBSize(t.Context()).Result()
	assert.That(t, n == 50 && err == nil, "after the restart: %d keys, %v", n, err)
}
