package redisserver_test

import (
	"bufio"
	"errors"
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

	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node/redisserver"
)

// asParent makes this test program a mere parent of a server: see
// TestServerDiesWithItsParent.
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
			if got := ask(t, s, "PING"); got != "+PONG" {
				t.Errorf("PING: %s", got)
			}
			if !strings.HasSuffix(s.URL(), s.Addr()) {
				t.Errorf("URL %s does not end with address %s", s.URL(), s.Addr())
			}
			pid := s.PID()
			for range 2 {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
			if alive(pid) {
				t.Errorf("process %d is alive after Close", pid)
			}
			if s.PID() != 0 {
				t.Error("a closed server has a PID")
			}
			if err := s.Restart(true); err == nil {
				t.Error("a closed server restarts")
			}
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
			if alive(pid) {
				t.Errorf("process %d is alive after Kill", pid)
			}
			if conn, err := net.Dial("tcp", addr); err == nil {
				conn.Close()
				t.Error("a killed server accepts connections")
			}
			if err := s.Restart(c.empty); err != nil {
				t.Fatal(err)
			}
			if s.Addr() != addr || s.PID() == pid || s.PID() == 0 {
				t.Errorf("after the restart: address %s (was %s), PID %d (was %d)", s.Addr(), addr, s.PID(), pid)
			}
			if got := ask(t, s, "GET k"); got != c.want {
				t.Errorf("GET after the restart: %s, want %s", got, c.want)
			}
		})
	}
}

func TestStopAndCont(t *testing.T) {
	s := start(t, redisserver.Config{})
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := try(s, "PING", 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a stopped server: %v, want a timeout", err)
	}
	if err := s.Cont(); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, s, "PING"); got != "+PONG" {
		t.Errorf("PING after Cont: %s", got)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	s.Kill() // a stopped process must be killable
	if err := s.Stop(); err == nil {
		t.Error("Stop of a killed server succeeds")
	}
}

func TestArgsWin(t *testing.T) {
	s := start(t, redisserver.Config{Args: []string{"--requirepass", "secret"}})
	if got := ask(t, s, "PING"); !strings.HasPrefix(got, "-NOAUTH") {
		t.Errorf("PING without the password: %s", got)
	}
}

func TestBadArgsFailWithTheServersWords(t *testing.T) {
	need(t)
	s, err := redisserver.Start(redisserver.Config{Args: []string{"--no-such-thing", "1"}})
	if err == nil {
		s.Close()
		t.Fatal("started")
	}
	if !strings.Contains(err.Error(), "Bad directive") {
		t.Errorf("error %q does not say what is wrong", err)
	}
}

func TestMissingBinary(t *testing.T) {
	if _, err := redisserver.Start(redisserver.Config{Binary: "no-such-redis"}); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("error %v, want %v", err, exec.ErrNotFound)
	}
	t.Setenv("PATH", "")
	if err := redisserver.Available(); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("Available with an empty PATH: %v, want one line", err)
	}
}

func TestStartN(t *testing.T) {
	need(t)
	servers, err := redisserver.StartN(3, redisserver.Config{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, s := range servers {
		seen[s.Addr()] = true
		s.Close()
	}
	if len(seen) != 3 {
		t.Errorf("three servers at %d addresses", len(seen))
	}
}

// TestServerDiesWithItsParent kills a program that has started a server, so
// that it can do nothing about it.
func TestServerDiesWithItsParent(t *testing.T) {
	need(t)
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a child that its parent died")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asParent+"=1", "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, bad := strconv.Atoi(strings.TrimSpace(line))
	time.Sleep(200 * time.Millisecond) // the thread that started the server must not have gone
	lived := bad == nil && alive(pid)
	cmd.Process.Kill()
	cmd.Wait()
	if err != nil || bad != nil || !lived {
		t.Fatalf("the child said %q (%v), and its server was alive: %v", line, err, lived)
	}
	for end := time.Now().Add(10 * time.Second); alive(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("server %d outlives its parent", pid)
		}
	}
}

// parent starts a server on a thread that then dies, says its PID, and waits to
// be killed.
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
	s, err := redisserver.Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// ask sends one command and returns the first line of the reply.
func ask(t *testing.T, s *redisserver.Server, command string) string {
	t.Helper()
	reply, err := try(s, command, 5*time.Second)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
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

// alive reports whether a process runs. One that has ended but that its parent
// has not waited for is not alive, although it can still be sent signals.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil {
		_, state, _ := strings.Cut(string(stat), ") ")
		return !strings.HasPrefix(state, "Z")
	}
	return syscall.Kill(pid, 0) == nil
}

// A server with a password is not ready either while it loads its data.
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
		if err := c.Set(t.Context(), strconv.Itoa(i), strings.Repeat("x", 1024), 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(false); err != nil {
		t.Fatal(err)
	}
	c.Ping(t.Context()) // over the connection that was broken
	if n, err := c.DBSize(t.Context()).Result(); n != 50 || err != nil {
		t.Errorf("after the restart: %d keys, %v", n, err)
	}
}
