package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

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
}

// What processes of this program call each other with. It is not for people.
const (
	wardenVerb = "warden"
	gateVerb   = "gate"
)

func startWarden(stderr io.Writer) (*warden, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &warden{cmd: exec.Command(path, wardenVerb)}
	w.cmd.Dir, w.cmd.Env, w.cmd.Stderr = "/", withoutNodes(os.Environ()), stderr
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // out of reach of the terminal's signals
	if w.pipe, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return w, w.cmd.Start()
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

// dismiss ends the warden.
func (w *warden) dismiss() {
	_, _ = fmt.Fprintln(w.pipe, 0, 0)
	_ = w.pipe.Close()
	_ = w.cmd.Wait()
}

// An order is what a warden is told.
type order struct {
	group int // 0: nothing is to be watched
	until clock.Instant
}

// wardenMain is the warden's process.
func wardenMain(in io.Reader, stderr io.Writer) int {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT) // it ends with the command
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

// behindGate makes a process that becomes the command when begin is written to, and ends
// when it is closed before that. So the warden knows of it before it does anything.
func behindGate(path string, command []string) (cmd *exec.Cmd, begin *os.File, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	gate, begin, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	cmd = exec.Command(self, append([]string{gateVerb, path}, command...)...)
	cmd.ExtraFiles = []*os.File{gate}
	return cmd, begin, nil
}

// gateMain is the process that becomes the command.
func gateMain(c *command) int {
	const gate = 3 // the first of ExtraFiles
	if n, _ := os.NewFile(gate, "gate").Read(make([]byte, 1)); n == 0 {
		return exitError // redquorum was killed
	}
	syscall.CloseOnExec(gate)
	path, command := c.args[0], c.args[1:]
	return c.failCommand(command[0], syscall.Exec(path, command, os.Environ()))
}
