package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/clock"
)

// A warden is another process of this program, which kills a command's group when
// the lock is about to end. It does so where this process cannot: because it is
// stopped, or was killed, in which case the warden does it at once.
type warden struct {
	cmd   *exec.Cmd
	pipe  io.WriteCloser // ends with this process
	group int
	until clock.Instant // what it was told last
	gone  chan struct{} // closed when it has ended
}

// What processes of this program call each other with. It is not for people.
const (
	wardenVerb = "warden"
	gateVerb   = "gate"
)

// self makes another process of this program, also where its file was replaced since.
func self(args ...string) (*exec.Cmd, error) {
	path, err := "/proc/self/exe", error(nil)
	if runtime.GOOS != "linux" {
		path, err = os.Executable()
	}
	cmd := exec.Command(path, args...)
	cmd.Args[0] = os.Args[0]
	return cmd, err
}

func startWarden(stderr io.Writer) (w *warden, err error) {
	w = &warden{gone: make(chan struct{})}
	if w.cmd, err = self(wardenVerb); err != nil {
		return nil, err
	}
	w.cmd.Dir, w.cmd.Env, w.cmd.Stderr = "/", withoutNodes(os.Environ()), stderr
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // out of reach of the terminal's signals
	if w.pipe, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err = w.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = w.cmd.Wait()
		close(w.gone)
	}()
	return w, nil
}

// watch has the group killed when left is over, unless it is called again, or
// dismiss. A warden knows nothing of instants of another process.
func (w *warden) watch(group int, left time.Duration) {
	const exact = 10 * time.Millisecond
	until := clock.System().Now().Add(left)
	if group == w.group && until.Sub(w.until).Abs() < exact {
		return
	}
	w.group, w.until = group, until
	_, _ = fmt.Fprintln(w.pipe, group, int64(left)) // it fails only if the warden is gone
}

// dismiss ends the warden, also one that is stopped.
func (w *warden) dismiss() {
	_ = w.cmd.Process.Kill()
	<-w.gone
}

// An order is what a warden is told.
type order struct {
	group int // 0: nothing is to be watched
	until clock.Instant
}

// wardenMain is the warden's process.
func wardenMain(in io.Reader, stderr io.Writer) int {
	// It ends with the command, and has a word to say whoever has the terminal.
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTTOU)
	now := clock.System()
	orders := make(chan order)
	go func() {
		defer close(orders)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			var group int
			var left time.Duration
			if _, err := fmt.Sscan(lines.Text(), &group, &left); err == nil {
				orders <- order{group, now.Now().Add(left)}
			}
		}
	}()
	var watched order
	for {
		var look <-chan time.Time
		if watched.group != 0 {
			// Timers of the runtime do not count a suspension of the machine.
			look = time.After(min(time.Second, watched.until.Sub(now.Now())))
		}
		select {
		case next, told := <-orders:
			if !told {
				watched.carryOut(stderr, "redquorum itself was killed")
				return exitOK
			}
			watched = next
		case <-look:
			if now.Now() >= watched.until {
				watched.carryOut(stderr, "the lock ends, and redquorum is stopped")
				watched = order{}
			}
		}
	}
}

// carryOut kills the group, and says so if there was anything left of it.
func (o *order) carryOut(stderr io.Writer, why string) {
	if o.group != 0 && syscall.Kill(-o.group, syscall.SIGKILL) == nil {
		fmt.Fprintf(stderr, "redquorum run: what is left of the command is killed: %s\n", why)
	}
}

// A gate is a process that becomes the command when it is told to, and ends if nobody is
// left to tell it. So the warden knows of the command before that does anything.
type gate struct {
	cmd     *exec.Cmd
	in, out *os.File // the process's ends of the pipes
	open    *os.File // tells it
	begun   *os.File // ends when it has become the command, or has ended
}

func newGate(path string, command []string) (*gate, error) {
	g := new(gate)
	var err error
	if g.in, g.open, err = os.Pipe(); err != nil {
		return nil, err
	}
	if g.begun, g.out, err = os.Pipe(); err != nil {
		return nil, err
	}
	g.cmd, err = self(append([]string{gateVerb, strconv.Itoa(int(g.in.Fd())), strconv.Itoa(int(g.out.Fd())), path}, command...)...)
	return g, err
}

// start starts the process. Its pipes have the numbers that they have here, as those from 3
// on may be the caller's own, for the command.
func (g *gate) start() (*group, error) {
	for _, f := range []*os.File{g.in, g.out} {
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
			return nil, err
		}
	}
	group, err := startGroup(g.cmd)
	_, _ = g.in.Close(), g.out.Close()
	return group, err
}

// pass lets the command begin. The channel is closed when it has, or has ended.
func (g *gate) pass() <-chan struct{} {
	_, _ = g.open.Write([]byte{1}) // it fails only if the process was killed
	begun := make(chan struct{})
	go func() {
		_, _ = g.begun.Read(make([]byte, 1))
		close(begun)
	}()
	return begun
}

func (g *gate) close() {
	for _, f := range []*os.File{g.in, g.out, g.open, g.begun} {
		_ = f.Close()
	}
}

// gateMain is the process that becomes the command.
func gateMain(args []string, stderr io.Writer) int {
	if len(args) < 4 {
		return exitUsage
	}
	var pipes [2]int
	for i := range pipes {
		n, err := strconv.Atoi(args[i])
		if err != nil {
			return exitUsage
		}
		syscall.CloseOnExec(n)
		pipes[i] = n
	}
	if n, _ := syscall.Read(pipes[0], make([]byte, 1)); n != 1 {
		return exitError // redquorum was killed
	}
	path, command := args[2], args[3:]
	err := syscall.Exec(path, command, os.Environ())
	if errors.Is(err, syscall.ENOEXEC) { // it says of nothing that it is for anything else
		err = syscall.Exec("/bin/sh", append([]string{"sh", path}, command[1:]...), os.Environ())
	}
	return failCommand(stderr, command[0], err)
}
