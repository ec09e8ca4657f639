// Package redisserver starts redis-server processes, for tests, benchmarks and
// experiments. When a [Server] is closed its data is gone. On Linux its process dies with
// the program that started it, however that ends.
package redisserver

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/process"
)

// Available returns nil if a redis-server can be started here, and otherwise says why not
// in one line.
func Available() error {
	_, err := find("")
	return err
}

func find(binary string) (path string, err error) {
	if binary == "" {
		binary = "redis-server"
	}
	path, err = exec.LookPath(binary)
	if err != nil {
		return "", fmt.Errorf("redisserver: no Redis to start: %w", err)
	}
	return path, nil
}

// A Config says how to start a server. The zero Config is a server in memory on a free
// port of the loopback interface.
type Config struct {
	// Binary is the program: a path, or a name to look up on the PATH. By
	// default redis-server.
	Binary string
	// Unix makes the server listen on a Unix socket instead of a TCP port.
	Unix bool
	// AppendOnly makes the server write every change to the disk before it answers, so
	// that Restart keeps the data.
	AppendOnly bool
	// Args are further arguments, such as "--maxmemory", "64mb". They override others.
	Args []string
	// Env are additional variables for its environment, such as "LD_PRELOAD=clock.so".
	Env []string
}

// A Server is one redis-server process and its directory. It is safe for concurrent use.
type Server struct {
	config Config
	binary string
	dir    string
	addr   string

	mu      sync.Mutex
	process *process.Process // nil when none runs
	closed  bool
}

var errClosed = errors.New("redisserver: server is closed")

// These bound how long a server may take to answer, and how often it tries another port.
const (
	startTimeout = 15 * time.Second
	portTries    = 10
)

// Start starts a server and returns when it answers.
func Start(config Config) (*Server, error) {
	binary, err := find(config.Binary)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "redisserver-")
	if err != nil {
		return nil, fmt.Errorf("redisserver: %w", err)
	}
	s := &Server{config: config, binary: binary, dir: dir}
	for range portTries {
		if s.addr, err = s.freeAddr(); err != nil {
			break
		}
		if err = s.start(); !errors.Is(err, errAddrInUse) {
			break
		}
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

// StartN starts n servers, or none if one of them fails.
func StartN(n int, config Config) ([]*Server, error) {
	servers := make([]*Server, 0, n)
	for range n {
		s, err := Start(config)
		if err != nil {
			for _, started := range servers {
				started.Close()
			}
			return nil, err
		}
		servers = append(servers, s)
	}
	return servers, nil
}

// Addr returns the host and port, or the path of the Unix socket, also after a restart.
func (s *Server) Addr() string { return s.addr }

// URL returns redis://host:port or unix://path.
func (s *Server) URL() string {
	if s.config.Unix {
		return "unix://" + s.addr
	}
	return "redis://" + s.addr
}

// PID returns the process's number, 0 if none runs.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return 0
	}
	return s.process.PID()
}

// Kill ends the process at once, as a crash does, and returns when it is gone.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
}

func (s *Server) kill() {
	if s.process != nil {
		s.process.Kill()
		s.process = nil
	}
}

// Stop makes the process stand still: connections stay, and nothing answers.
func (s *Server) Stop() error { return s.signal(process.Stop) }

// Cont lets a stopped process go on, with the commands that came meanwhile.
func (s *Server) Cont() error { return s.signal(process.Cont) }

func (s *Server) signal(sig os.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return errors.New("redisserver: server is not running")
	}
	if sig == nil {
		return fmt.Errorf("redisserver: stopping a process: %w", errors.ErrUnsupported)
	}
	return s.process.Signal(sig)
}

// Restart kills the process if one runs, starts another at the same address, and returns
// when it answers. If empty, the data is gone; otherwise it has what was on the disk:
// everything with AppendOnly, nothing by default.
func (s *Server) Restart(empty bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.kill()
	if empty {
		if err := removeContents(s.dir); err != nil {
			return fmt.Errorf("redisserver: %w", err)
		}
	}
	// A free port may for a moment be a client's own end of a connection.
	var err error
	for range portTries {
		if err = s.start(); !errors.Is(err, errAddrInUse) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// Upgrade gives the server another program for its next Restart: a path, or a name to
// look up on the PATH.
func (s *Server) Upgrade(binary string) error {
	path, err := find(binary)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.binary = path
	return nil
}

// Close kills the process and removes its directory. It may be called twice.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
	if s.closed {
		return nil
	}
	s.closed = true
	return os.RemoveAll(s.dir)
}

func removeContents(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, entry.Name())))
	}
	return err
}

func (s *Server) freeAddr() (string, error) {
	if s.config.Unix {
		return filepath.Join(s.dir, "redis.sock"), nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("redisserver: no free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (s *Server) args() []string {
	args := []string{"--dir", s.dir, "--save", "", "--daemonize", "no"}
	if s.config.Unix {
		args = append(args, "--port", "0", "--unixsocket", s.addr)
	} else {
		_, port, _ := net.SplitHostPort(s.addr)
		args = append(args, "--port", port, "--bind", "127.0.0.1")
	}
	if s.config.AppendOnly {
		args = append(args, "--appendonly", "yes", "--appendfsync", "always")
	} else {
		args = append(args, "--appendonly", "no")
	}
	return append(args, s.config.Args...)
}

var errAddrInUse = errors.New("redisserver: address in use")

// launch starts a process whose output goes to a file.
func (s *Server) launch(out string) (*process.Process, error) {
	output, err := os.Create(out)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	cmd := exec.Command(s.binary, s.args()...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.Env = append(os.Environ(), s.config.Env...)
	return process.Start(cmd)
}

func (s *Server) start() error {
	out := filepath.Join(s.dir, "output")
	p, err := s.launch(out)
	if err != nil {
		return fmt.Errorf("redisserver: %w", err)
	}
	for end := time.Now().Add(startTimeout); time.Now().Before(end); {
		if s.answers(p.PID(), out) {
			s.process = p
			return nil
		}
		select {
		case <-p.Exited():
			return failed("it ended", out)
		case <-time.After(5 * time.Millisecond):
		}
	}
	p.Kill()
	return failed(fmt.Sprintf("no answer in %v", startTimeout), out)
}

func failed(what, out string) error {
	said, _ := os.ReadFile(out)
	// a member of a cluster also needs port + 10,000
	for _, unusable := range []string{"Address already in use", "ort number too high"} {
		if bytes.Contains(said, []byte(unusable)) {
			return errAddrInUse
		}
	}
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	return fmt.Errorf("redisserver: cannot start: %s: %s", what, lines[len(lines)-1])
}

// answers reports whether the process with this number and output serves at the address.
func (s *Server) answers(pid int, out string) bool {
	network := "tcp"
	if s.config.Unix {
		network = "unix"
	}
	conn, err := net.DialTimeout(network, s.addr, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte(s.auth() + "PING\r\nINFO server\r\nQUIT\r\n")); err != nil {
		return false
	}
	var reply bytes.Buffer
	reply.ReadFrom(conn) // to the end: QUIT closes the connection
	said, _ := os.ReadFile(out)
	return ready(reply.String(), pid, said)
}

// auth returns the command with the password of Args, "" if there is none.
func (s *Server) auth() (command string) {
	for i, arg := range s.config.Args {
		if arg == "--requirepass" && i+1 < len(s.config.Args) {
			password := s.config.Args[i+1]
			command = fmt.Sprintf("*2\r\n$4\r\nAUTH\r\n$%d\r\n%s\r\n", len(password), password)
		}
	}
	return command
}

// ready requires that the replies to AUTH, PING and INFO name the process: another
// program may have the same port. If the server wants another password, the process must
// have said that it is ready.
func ready(reply string, pid int, said []byte) bool {
	reply = strings.TrimPrefix(reply, "+OK\r\n")
	if strings.HasPrefix(reply, "-NOAUTH") {
		return bytes.Contains(said, []byte("Ready to accept connections"))
	}
	return strings.HasPrefix(reply, "+PONG") && strings.Contains(reply, "\nprocess_id:"+strconv.Itoa(pid)+"\r")
}
