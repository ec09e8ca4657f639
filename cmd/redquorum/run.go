package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

const runManual = `
usage: redquorum run --name NAME [--name NAME ...] [flags] -- COMMAND [ARG...]

Takes the lock NAME, runs COMMAND, and releases the lock when COMMAND has ended.
The lock is renewed for as long as COMMAND runs, or until --max-hold. With several
names it takes all of them or none. With --read it shares the lock with others
that read; with --write it has it alone, and those that read wait for it as well.
A NAME is text in UTF-8. It must not begin with redquorum_ or redisson_, nor contain
:rwlock_timeout:, because other locks have keys under such names.

COMMAND runs in a process group of its own, with the standard streams passed
through. In its environment are REDQUORUM_NAME (several with commas between),
REDQUORUM_TOKEN (a fencing token: higher than that of every earlier holder, or of
every earlier writer with --read) and REDQUORUM_OWNER; REDQUORUM_NODES is removed
from it, for the passwords. INT, TERM, HUP and QUIT are passed on to the group.
If the lock cannot be renewed, or --max-hold is near, all that COMMAND has started
gets TERM while there is time left, and KILL before the lease ends.

When COMMAND ends by itself, what it has left in the background has a second to end.
Then it gets TERM, and KILL five seconds later; the lock is held meanwhile. So leave
daemons to a service manager: a command cannot start one that outlives the lock.

A helper process does the same where redquorum itself is stopped or killed. Neither
reaches processes of other users (sudo, setuid programs) or processes that another
service starts (docker, systemd-run, at). Where both redquorum and its helper are
killed, only COMMAND itself is killed. All this is so on Linux. Elsewhere redquorum
reaches COMMAND's process group alone, not what timeout, setsid or "set -m" move out of
it, and ends nothing while both processes are stopped or after both were killed.

Where standard input and output are a terminal COMMAND gets it, without Ctrl-Z.
Passwords in --nodes can be seen in the list of processes (ps): put them in
REDQUORUM_NODES, which COMMAND cannot read there on Linux.

Exit status: that of COMMAND (128 + the signal if one killed it), or
  69   too few nodes answered, or had a vote, for anybody to get the lock
  71   the system refused a process or a file, or /proc is missing: COMMAND has not begun
  75   others hold the lock, or TERM, HUP or QUIT ended the wait for it
  76   the lock was lost, --max-hold has passed, or the helper process was killed:
       COMMAND was ended
  78   waiting cannot help: so many nodes refuse the user or the password, have a
       certificate that does not verify, have something else under that name, lack
       what a lock needs, have no fencing token left, or are one server
  126  COMMAND cannot be executed
  127  COMMAND was not found
  130  INT ended COMMAND, or the wait: this process ends by the signal, too, so that a
       shell ends its loop
  2    usage

example:
  redquorum run --name nightly --wait 10s -- ./report.sh
`

const (
	exitNoQuorum      = 69 // EX_UNAVAILABLE of sysexits.h
	exitHeld          = 75 // EX_TEMPFAIL
	exitOS            = 71 // EX_OSERR
	exitLost          = 76
	exitConfig        = 78 // EX_CONFIG
	exitNotExecutable = 126
	exitNotFound      = 127
)

// runFlags are what run was asked for.
type runFlags struct {
	nodeFlags
	names   []string
	fair    bool
	read    bool
	write   bool
	quorum  int // of the nodes; 0: a majority
	lease   time.Duration
	wait    time.Duration // negative: until it is free
	try     bool
	maxHold time.Duration
	command []string
}

func runVerb(ctx context.Context, c *command) int {
	f, status, ok := c.runFlags()
	if !ok {
		return status
	}
	// Until the lock is released: none of these is to end this process before, or ctx.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, heeded(os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP)...)
	defer signal.Stop(signals)
	broken := make(chan os.Signal, 1) // where nobody reads what this process says, it goes on
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	path, err := exec.LookPath(f.command[0])
	if err != nil {
		return failCommand(c.stderr, f.command[0], err)
	}
	longest, err := f.limit()
	if err != nil {
		return c.fail("run", err)
	}
	f.lease = cmp.Or(f.lease, min(quorum.Defaults().Lease, cmp.Or(longest, quorum.Defaults().MaxLease)))
	trouble := new(trouble)
	l, done, err := f.locker(quorum.Options{Lease: f.lease, MaxHold: f.maxHold, Quorum: f.quorum, Observe: trouble.observe})
	if err != nil {
		return c.fail("run", err)
	}
	defer done()

	waiting, end := untilSignal(ctx, signals)
	lease, err := f.acquire(waiting, c, l)
	by := end()
	switch {
	case err != nil:
		fmt.Fprintf(c.stderr, "redquorum run: %s\n", inFlags(err))
		if by == nil {
			return notAcquired(err)
		}
		return gaveUp(by)
	case by != nil: // it came with the lock
		_ = lease.Unlock(ctx)
		return gaveUp(by)
	}
	status = c.supervise(path, &f, lease, trouble, signals)
	if err := lease.Unlock(ctx); err != nil {
		fmt.Fprintf(c.stderr, "redquorum run: %v\n", err)
		if errors.Is(err, quorum.ErrNotHeld) {
			return exitLost
		}
	}
	return status
}

// gaveUp is the exit status when a signal has ended the wait for the lock.
func gaveUp(by os.Signal) int {
	if by == os.Interrupt {
		return exitInterrupted
	}
	return exitHeld
}

// untilSignal returns a context that a signal ends, until end is called, which returns the
// signal if one has.
func untilSignal(ctx context.Context, signals <-chan os.Signal) (waiting context.Context, end func() os.Signal) {
	waiting, cancel := context.WithCancel(ctx)
	stop, by := make(chan struct{}), make(chan os.Signal, 1)
	go func() {
		defer close(by)
		select {
		case s := <-signals:
			cancel()
			by <- s
		case <-stop:
		}
	}()
	return waiting, func() os.Signal {
		close(stop)
		defer cancel()
		return <-by
	}
}

func (c *command) runFlags() (f runFlags, status int, ok bool) {
	fs := c.flags("run", runManual)
	f.register(fs)
	f.registerPrefix(fs)
	f.registerEmbedded(fs)
	fs.Func("name", "the lock's `name`; give it several times for one lock of several names", func(s string) error {
		f.names = append(f.names, s)
		return node.CheckName(s)
	})
	fs.BoolVar(&f.fair, "fair", false, "wait in line: who asked first is served first, among all that do so")
	fs.BoolVar(&f.read, "read", false, "share the lock with others who read")
	fs.BoolVar(&f.write, "write", false, "exclude those who read, too")
	fs.Func("quorum", "how many nodes must grant the lock: a `number` above half of them, or \"all\" (default: a majority)", func(s string) (err error) {
		if s == "all" {
			f.quorum = quorumAll
			return nil
		}
		if f.quorum, err = strconv.Atoi(s); err != nil || f.quorum < 1 {
			return errors.New("want a number of nodes, or all")
		}
		return nil
	})
	fs.DurationVar(&f.lease, "lease", 0, "how long the lock lasts without renewal, should this process die; at most --max-lease\n(default 30s)")
	fs.DurationVar(&f.wait, "wait", 0, "how long to wait for the lock (default: until it is free)")
	fs.BoolVar(&f.try, "try", false, "do not wait for the lock")
	fs.DurationVar(&f.maxHold, "max-hold", 0, "how long to hold the lock at most")
	if status, ok = c.parse(fs); !ok {
		return f, status, false
	}
	f.command = fs.Args()
	set := make(map[string]bool)
	fs.Visit(func(fl *flag.Flag) { set[fl.Name] = true })
	var err error
	switch {
	case len(f.names) == 0:
		err = usageError("--name is missing")
	case f.fair && (f.read || f.write) || f.read && f.write:
		err = usageError("--fair, --read and --write exclude each other")
	case len(f.names) > 1 && (f.fair || f.read || f.write):
		err = usageError("--fair, --read and --write are for one --name")
	case len(f.command) == 0:
		err = usageError("the command is missing: ... -- COMMAND [ARG...]")
	case strings.Contains(f.command[0], "://"):
		err = usageError("the command is a URL; those of nodes follow --nodes")
	case f.try && set["wait"]:
		err = usageError("--try and --wait exclude each other")
	case set["wait"] && f.wait < 0:
		err = usageError("--wait is %v; it must not be negative", f.wait)
	case set["lease"] && f.lease < shortest:
		err = usageError("--lease is %v; it must be at least %v, for the command to be stopped in time", f.lease, shortest)
	case set["max-hold"] && f.maxHold < shortest:
		err = usageError("--max-hold is %v; it must be at least %v, for the command to be stopped in time", f.maxHold, shortest)
	}
	if err != nil {
		return f, c.fail("run", err), false
	}
	if !set["wait"] {
		f.wait = -1
	}
	return f, exitOK, true
}

// acquire takes the lock, and says in one line what it waits for when that takes a while.
func (f *runFlags) acquire(ctx context.Context, c *command, l *quorum.Locker) (*quorum.Lease, error) {
	opts := []quorum.Option{quorum.WithNames(f.names[1:]...)}
	switch {
	case f.fair:
		opts = append(opts, quorum.WithFair())
	case f.read:
		opts = append(opts, quorum.WithRead())
	case f.write:
		opts = append(opts, quorum.WithWrite())
	}
	if f.try {
		return l.TryLock(ctx, f.names[0], opts...)
	}
	waiting, stop := context.WithCancel(ctx)
	told := make(chan struct{})
	slow := time.AfterFunc(time.Second, func() {
		defer close(told)
		what, taken := "nodes: too few are usable", ""
		for _, name := range f.names {
			r, err := l.Inspect(waiting, name)
			if err != nil || waiting.Err() != nil {
				return
			}
			if r.Verdict != "free" { // else it is not that which it waits for
				what, taken = "the lock", taken+"; "+headline(r)
			}
		}
		fmt.Fprintf(c.stderr, "redquorum run: waiting for %s%s\n", what, taken)
	})
	defer func() {
		stop()
		if !slow.Stop() {
			<-told
		}
	}()
	if f.wait >= 0 {
		opts = append(opts, quorum.WithWait(f.wait))
	}
	return l.Lock(ctx, f.names[0], opts...)
}

// notAcquired is the exit status for an err of acquire: whether it is worth
// trying again, and whether anybody has to see to the nodes first.
func notAcquired(err error) int {
	if errors.Is(err, quorum.ErrHeld) {
		return exitHeld
	}
	if e, ok := errors.AsType[*quorum.Error](err); ok && e.Permanent() {
		return exitConfig
	}
	return exitNoQuorum
}

// failCommand says why the command, named so, could not be started.
func failCommand(stderr io.Writer, name string, err error) int {
	reason := err
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(inner) {
		reason = inner // the outer ones quote the name
	}
	fmt.Fprintf(stderr, "redquorum run: the command %s: %v\n", quoted(name), reason)
	for _, full := range []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, full) {
			return exitOS
		}
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return exitNotFound
	}
	return exitNotExecutable
}

// shortest is the shortest lease in which a command can be stopped before it ends.
const shortest = 100 * time.Millisecond

// margins says how long before the end of a lease of that length a command gets
// TERM and KILL. A lease in good health never comes near: it is renewed at a
// third.
func margins(lease time.Duration) (term, kill time.Duration) {
	kill = min(max(lease/10, 20*time.Millisecond), time.Second)
	return kill + min(lease/6, 10*time.Second), kill
}

// say writes a line, but does not wait for a reader for long: there is more to do.
func say(w io.Writer, format string, args ...any) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		fmt.Fprintf(w, "redquorum run: "+format+"\n", args...)
	}()
	select {
	case <-said:
	case <-time.After(100 * time.Millisecond):
	}
}

// A supervision is a command that runs for as long as the lease lasts.
type supervision struct {
	stderr     io.Writer
	lease      *quorum.Lease
	trouble    *trouble
	maxHold    time.Duration
	term, kill time.Duration // before the end of the lease
	warden     *warden
	signals    <-chan os.Signal
	passed     <-chan os.Signal // to the group; none until the command has begun
	status     int              // the command's, or -1 if it has not ended
	asked      bool             // the command was, to stop
	gone       bool             // all that it has started
}

// supervise runs the command for as long as the lease lasts.
func (c *command) supervise(path string, f *runFlags, lease *quorum.Lease, trouble *trouble, signals <-chan os.Signal) int {
	// What the kernel does when this process is killed, it does when this thread ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	whole := f.lease
	if f.maxHold > 0 {
		whole = min(whole, f.maxHold)
	}
	s := &supervision{stderr: c.stderr, lease: lease, trouble: trouble, maxHold: f.maxHold, signals: signals, status: -1}
	s.term, s.kill = margins(whole)
	if lease.Remaining() <= s.term { // it was handed on, and lasts for as long only when it is renewed
		if err := lease.Extend(context.Background(), f.lease); err != nil {
			say(c.stderr, "%v", err)
			return exitLost
		}
	}
	env := append(withoutNodes(os.Environ()), "REDQUORUM_NAME="+strings.Join(lease.Names(), ","),
		fmt.Sprintf("REDQUORUM_TOKEN=%d", lease.Token()), "REDQUORUM_OWNER="+lease.Owner())
	hideEnvironment()
	tty, ignored := commandTerminal()
	signal.Ignore(ignored) // as the command then does, too
	var err error
	s.warden, err = startWarden(path, f.command, env, tty, s.leaseEnd(), s.kill)
	signal.Reset(ignored)
	if err != nil {
		say(c.stderr, "the command was not started: %v", err)
		return exitOS
	}
	if tty != noTerminal {
		signal.Ignore(syscall.SIGTTOU) // or what this process has to say would stop it
	}
	status := s.watch()
	if tty != noTerminal {
		takeTerminalBack(tty, s.warden.group)
	}
	if status == exitInterrupted {
		interruptOurs(tty)
	}
	return status
}

// leaseEnd is the instant of machineTime at which the lease ends.
func (s *supervision) leaseEnd() time.Duration {
	now := machineTime() // before the lease is asked: the instant is never too late
	return now + s.lease.Remaining()
}

// watch returns the exit status when nothing of the command is left.
func (s *supervision) watch() int {
	look := time.NewTicker(max(s.kill/4, time.Millisecond))
	defer look.Stop()
	for {
		select {
		case r, more := <-s.warden.reports:
			if !more {
				return s.over()
			}
			s.note(r)
		case sent := <-s.passed:
			s.warden.order(orderSignal, int64(sent.(syscall.Signal)))
		case <-look.C:
		case <-s.lease.Context().Done():
		}
		switch left := s.lease.Remaining(); {
		case left <= s.kill, machineTime() >= s.warden.until: // the warden ends it, too, also where the lease was renewed late
			return s.end()
		case left <= s.term && !s.asked:
			s.asked = true
			s.warden.order(orderAsk, 0)
			say(s.stderr, "the lock ends in %v, the command is asked to stop: %v", left.Round(time.Millisecond), s.trouble.reason(s.lease, s.maxHold))
		}
		s.warden.watch(s.leaseEnd())
	}
}

// note takes a report of the warden.
func (s *supervision) note(r message) {
	switch r.what {
	case reportBegan:
		s.warden.group, s.passed = int(r.number), s.signals
	case reportEnded:
		s.status = int(r.number)
	case reportGone:
		s.gone = true
	}
}

// end ends the command before the lease does.
func (s *supervision) end() int {
	s.asked = true
	s.warden.order(orderEnd, 0)
	patience := time.After(unkillable + time.Second)
	for more := true; more; {
		var r message
		select {
		case r, more = <-s.warden.reports:
			s.note(r)
		case <-patience:
			more = false
		}
	}
	status := s.over()
	say(s.stderr, "the lock is as good as lost, what is left of the command is killed: %v", s.trouble.reason(s.lease, s.maxHold))
	return status
}

// over returns the exit status when the warden has ended.
func (s *supervision) over() int {
	if !s.gone {
		if s.warden.group == 0 {
			say(s.stderr, "the helper process ended before the command began")
		} else {
			say(s.stderr, "the helper process was killed, and so is what is left of the command")
		}
		if !s.warden.endAlone() {
			say(s.stderr, "%s", cannotKill)
		}
	}
	switch {
	case s.status < 0 && s.warden.group == 0 && !s.asked:
		return exitOS // it has not begun
	case s.asked, !s.gone:
		return exitLost
	}
	return s.status
}

// withoutNodes removes the nodes' URLs from an environment: the command has no
// need of the passwords in them.
func withoutNodes(env []string) []string {
	return slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "REDQUORUM_NODES=") })
}

// trouble remembers why the lease was not renewed.
type trouble struct {
	last atomic.Pointer[error]
}

func (t *trouble) observe(e quorum.Event) {
	switch e.Kind {
	case quorum.EventExtendFailed:
		t.last.Store(&e.Err)
	case quorum.EventExtended:
		t.last.Store(nil)
	}
}

// reason is why the lease ends, or has ended.
func (t *trouble) reason(lease *quorum.Lease, maxHold time.Duration) error {
	last := t.last.Load()
	switch err := context.Cause(lease.Context()); {
	case err != nil:
		return err
	case last != nil:
		return *last
	case maxHold > 0:
		return fmt.Errorf("--max-hold is %v", maxHold)
	}
	return errors.New("it was not renewed in time")
}

func exitStatus(s syscall.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}
