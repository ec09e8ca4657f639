package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/quorum"
)

const runManual = `Takes the lock NAME, runs COMMAND, and releases the lock when COMMAND has ended.
The lock is renewed for as long as COMMAND runs, or until --max-hold. With
several names, as in "run a b -- job", it takes all of them or none; a,b is one
name. With --read it shares the lock with other readers. With --write it has the
lock alone, and readers wait for it as well. A NAME is text in UTF-8. It must
not begin with redquorum_ or redisson_, nor contain :rwlock_timeout:, because
other locks have keys under such names.

While it waits, it says on standard error what it waits for, and why its last
attempt failed: after 1 s, after 10 s, and then every minute. With
--conflict-exit-code 0, for jobs that may be skipped, it says nothing while
others hold the lock. With --verbose it also says when it has the lock, as which
owner, when it has released it, and what happens to single nodes meanwhile.

COMMAND has the standard streams of this process. In its environment are
REDQUORUM_NAME (several with commas between), REDQUORUM_TOKEN (a fencing token:
higher than that of every earlier holder, or of every earlier writer with
--read) and REDQUORUM_OWNER. REDQUORUM_NODES is removed, as it may have
passwords. A run inside of COMMAND that would wait for its own lock is refused;
REDQUORUM_OUTER has the owners of the runs around it.

COMMAND gets the signals that this process gets, such as TERM, USR1 or WINCH,
and is continued if it was stopped. While this process waits for the lock, INT,
TERM, HUP and QUIT end the wait, and others do nothing. While the system loads
COMMAND's file, which may hang on a network file system, signals wait, too. On
Linux COMMAND uses the terminal as without redquorum: it can ask there whatever
is redirected, and Ctrl-Z, bg and fg stop and continue all of it. Nobody renews
the lock of a job that is stopped. So continue it within half of the lease, or
COMMAND is killed. When COMMAND was killed, the terminal gets its modes back.
Without a terminal COMMAND runs in a process group of its own. On other systems
it always does, and gets the terminal if this process has it and is not in a
pipeline; Ctrl-Z is switched off.

If the lock cannot be renewed, or --max-hold is near, all that COMMAND has
started gets TERM, and KILL before the lease ends. --term-grace is the time
between the two. When COMMAND ends by itself, what it has left in the background
has a second to end. Then it gets TERM, and KILL after --term-grace. The lock is
held meanwhile. So leave daemons to a service manager: a command cannot start
one that outlives the lock.

With --on-ask COMMAND gets that signal when somebody asks for the lock, with
'redquorum ask NAME' or Locker.Ask. It may finish, or go on: the lock is held
until it ends.

A helper process enforces this even if redquorum is stopped or killed. It cannot
reach processes that run as another user (sudo, setuid programs) or that another
service starts (docker, systemd-run, at). If both processes are killed, only
COMMAND itself is killed. All this is so on Linux. On other systems redquorum
reaches only COMMAND's process group, not what timeout, setsid or "set -m" move
out of it, and nothing is enforced while both processes are stopped, after both
were killed, or while the system loads COMMAND's file.

With --min-hold the lock stays taken for that time from its acquisition, also if
COMMAND ends earlier, fails or cannot be started. So a job that several hosts
start at the same time, each by its own clock, runs once. Choose more than the
clocks and --wait may differ by, and less than the interval. If COMMAND ends
near the end of --min-hold, the lock may stay taken for up to --lease longer.
With --min-hold the default of --lease is at most --min-hold.

A --min-hold of about 30s or more raises --max-lease, unless that is set: nodes
that restarted are then ignored for --min-hold. All programs on these nodes
should then get the same --max-lease, such as REDQUORUM_MAX_LEASE=61s for a
--min-hold of 1m. Otherwise they report that another program has other settings.

Passwords in --nodes can be seen in the list of processes (ps). Put them in
REDQUORUM_NODES, which COMMAND cannot read there on Linux, or use
--password-file.

Exit status: that of COMMAND (128 + the signal if one killed it), or
  69   too few nodes are usable for anybody to get the lock
  71   the system refused a process or a file, or /proc is missing; COMMAND has
       not begun
  75   others hold the lock (see --conflict-exit-code), or TERM, HUP or QUIT
       ended the wait for it
  76   the lock was lost, --max-hold has passed, or the helper process was
       killed; COMMAND was ended
  78   permanent error on too many nodes: bad credentials, untrusted
       certificate, wrong key type, unsupported server, no fencing token left,
       duplicate servers, or a run that would wait for the one that started it
  126  COMMAND cannot be executed
  127  COMMAND was not found
  130  INT ended COMMAND, or the wait; this process ends by the signal, too, so
       that a shell ends its loop
  2    usage

example:
  redquorum run nightly --wait 10s -- ./report.sh
  redquorum run nightly --try -c 'dump | gzip >dump.gz'
  redquorum run job --min-hold 25s --wait 5s -- ./job
  redquorum run import --on-ask TERM -- ./import`

const (
	exitNoQuorum      = 69 // EX_UNAVAILABLE of sysexits.h
	exitHeld          = 75 // EX_TEMPFAIL
	exitOS            = 71 // EX_OSERR
	exitLost          = 76
	exitConfig        = 78 // EX_CONFIG
	exitNotExecutable = 126
	exitNotFound      = 127
)

type runFlags struct {
	lockFlags
	shell   string
	grace   time.Duration  // between TERM and KILL; 0: the default
	onAsk   syscall.Signal // 0: requests to finish are not looked at
	command []string
}

func runVerb() *cobra.Command {
	cmd, fs := newVerb("run NAME... [flags] -- COMMAND [ARG...]", "run a command while holding a lock", runManual)
	f := &runFlags{lockFlags: lockFlags{verb: "run"}}
	f.register(fs)
	f.registerEmbedded(fs)
	fs.StringVarP(&f.shell, "command", "c", "", "instead of COMMAND: a `text` that /bin/sh -c runs")
	fs.DurationVar(&f.grace, "term-grace", 0,
		"how long the command has between TERM and KILL, at most half of the lease (default: a sixth of the lease, 10s at most)")
	fs.DurationVar(&f.minHold, "min-hold", 0, "how long the lock stays taken at least, though COMMAND ends earlier")
	fs.Func("on-ask", "the `signal`, such as TERM or USR1, that the command gets when somebody asks the holder to finish", func(s string) error {
		f.onAsk = unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(s), "SIG"))
		if f.onAsk == 0 {
			return errors.New("want the name of a signal")
		}
		return nil
	})
	fs.BoolVar(&f.verbose, "verbose", false, "say when the lock is acquired, with its owner and token, when it is released, and which nodes fail")
	cmd.ValidArgsFunction = cli.Files // of the command
	return does(cmd, func(ctx context.Context, c *command) error {
		names := c.args
		if dash := cmd.ArgsLenAtDash(); dash >= 0 {
			names, f.command = c.args[:dash], c.args[dash:]
		}
		if err := f.takeCommand(fs, names); err != nil {
			return err
		}
		return f.run(ctx, c)
	})
}

// takeCommand looks at the flags after the command was set.
func (f *runFlags) takeCommand(fs *pflag.FlagSet, names []string) error {
	if err := f.take(fs, names); err != nil {
		return err
	}
	shell := fs.Changed("command")
	switch {
	case shell && len(f.command) > 0:
		return cli.Usage("-c and COMMAND exclude each other")
	case shell:
		f.command = []string{"/bin/sh", "-c", f.shell}
	case len(f.command) == 0:
		return cli.Usage("the command is missing: run %s -- COMMAND [ARG...]", cli.Quoted(f.names[0]))
	case strings.Contains(f.command[0], "://"):
		return cli.Usage("the command is a URL; those of nodes follow --nodes")
	case fs.Changed("term-grace") && f.grace <= 0:
		return cli.Usage("--term-grace is %v; it must be more than 0", f.grace)
	case fs.Changed("min-hold"):
		return f.checkMinHold()
	}
	return nil
}

func (f *runFlags) run(ctx context.Context, c *command) error {
	c.stderr = impatient{c.stderr}
	signals, stop := catch(passable())
	defer stop()
	path, err := findCommand(f.command[0])
	if err != nil {
		return cli.Exit(failCommand(c.stderr, f.command[0], "", err))
	}
	trouble := new(trouble)
	f.defaultLabel("run " + filepath.Base(f.command[0]))
	l, done, err := f.locker(c, trouble.observe)
	if err != nil {
		return err
	}
	leave := done
	defer func() { leave() }()
	if whole := f.shortest(); f.grace > whole/2 {
		return cli.Usage("--term-grace is %v; it must be at most half of the lease or --max-hold, %v", f.grace, whole)
	}

	begun := time.Now()
	lease, status := f.acquire(ctx, c, l, signals)
	if lease == nil {
		return cli.Exit(status)
	}
	if f.verbose {
		say(c.stderr, "acquired %s after %v: owner %s, token %d", shown(f.title()), since(begun), lease.Owner(),
			lease.Token())
	}
	begun = time.Now()
	status = c.supervise(path, f, lease, trouble, signals)
	if err := lease.Unlock(ctx); err != nil {
		if status == exitLost { // that has been said
			return cli.Exit(status)
		}
		return cli.Exit(f.notReleased(c, err, status))
	}
	leave = func() { briefly(done) }
	if f.verbose {
		if left := f.minHold - time.Since(begun); left > 0 {
			say(c.stderr, "done with %s after %v; it stays taken for %v more", shown(f.title()), since(begun),
				left.Round(time.Millisecond))
		} else {
			say(c.stderr, "released %s after %v", shown(f.title()), since(begun))
		}
	}
	return cli.Exit(status)
}

// longestMinHold leaves --max-lease below its bound.
const longestMinHold = 23 * time.Hour

func (f *runFlags) checkMinHold() error {
	switch {
	case f.minHold <= 0 || f.minHold > longestMinHold:
		return cli.Usage("--min-hold is %v; it must be more than 0, and at most %v", f.minHold, longestMinHold)
	case f.read || f.write:
		return cli.Usage("--min-hold cannot be combined with --read or --write")
	}
	return nil
}

// margins is how long before the end of a lease a command gets TERM and KILL. A healthy
// lease is renewed at a third. The grace between the two is at most half of the lease, 0
// for the default.
func margins(lease, grace time.Duration) (term, kill time.Duration) {
	kill = min(max(lease/10, 20*time.Millisecond), time.Second)
	return kill + cmp.Or(grace, min(lease/6, 10*time.Second)), kill
}

func say(w io.Writer, format string, args ...any) { sayAs(w, "run", format, args...) }

func sayAs(w io.Writer, verb, format string, args ...any) {
	fmt.Fprintf(w, "redquorum "+verb+": "+format+"\n", args...)
}

type supervision struct {
	stderr     io.Writer
	lease      *quorum.Lease
	trouble    *trouble
	maxHold    time.Duration
	term, kill time.Duration // before the end of the lease
	warden     *warden
	signals    <-chan os.Signal
	passed     <-chan os.Signal // to the group, once the command has begun
	onAsk      syscall.Signal
	requests   <-chan struct{} // the first request to finish, once the command has begun
	status     int             // the command's, or -1
	asked      bool            // the command was, to stop
	gone       bool            // all that it has started
}

func (c *command) supervise(path string, f *runFlags, lease *quorum.Lease, trouble *trouble,
	signals <-chan os.Signal) int {
	// For the kernel the end of this thread is the end of the parent.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	s := &supervision{stderr: c.stderr, lease: lease, trouble: trouble, maxHold: f.maxHold, signals: signals,
		onAsk: f.onAsk, status: -1}
	s.term, s.kill = margins(f.shortest(), f.grace)
	// a lock that was handed over lasts until it is renewed
	if lease.Remaining() <= max(s.term, f.shortest()/2) {
		if err := lease.Extend(context.Background(), f.lease); err != nil {
			say(c.stderr, "%s", inFlags(err))
			return exitLost
		}
	}
	env := append(withoutLock(os.Environ()), "REDQUORUM_NAME="+strings.Join(lease.Names(), ","),
		fmt.Sprintf("REDQUORUM_TOKEN=%d", lease.Token()), "REDQUORUM_OWNER="+lease.Owner())
	if outer := outerOwners(); len(outer) > 0 {
		env = append(env, "REDQUORUM_OUTER="+strings.Join(outer, ","))
	}
	env, path, command := asMainProcess(env, path, f.command)
	hideEnvironment()
	terminal := openConsole()
	in, ignored := commandPlace(terminal)
	for _, s := range ignored {
		signal.Ignore(s) // as the command then does, too
	}
	var err error
	s.warden, err = startWarden(path, command, env, in, f.grace, s.leaseEnd(), s.kill)
	if err != nil {
		say(c.stderr, "the command was not started: %v", err)
		return exitOS
	}
	// Its own output must not stop this process. Ctrl-Z stops it after the command, which
	// may restore the screen first.
	signal.Ignore(syscall.SIGTTOU, syscall.SIGTSTP)
	status := s.watch()
	if status == exitLost || status == exitOS || status > 128 { // it had no time to, if it had begun
		terminal.restore()
	} else {
		terminal.takeBack()
	}
	if in == foreground && status == exitInterrupted {
		// The terminal has sent Ctrl-C to the command's group alone; a script around this
		// process should end as well.
		_ = syscall.Kill(0, syscall.SIGINT)
	}
	return status
}

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
		case <-s.requests:
			s.requests = nil
			s.warden.order(orderSignal, int64(s.onAsk))
			say(s.stderr, "somebody asks for the lock: the command gets %s", unix.SignalName(s.onAsk))
		case <-look.C:
		case <-s.lease.Context().Done():
		}
		switch left := s.lease.Remaining(); {
		case left <= s.kill, machineTime() >= s.warden.until: // the warden ends it, too, also where the lease was renewed late
			return s.end()
		case left <= s.term && !s.asked:
			s.asked = true
			s.warden.order(orderAsk, 0)
			say(s.stderr, "the lock ends in %v, the command is asked to stop: %s", left.Round(time.Millisecond),
				inFlags(s.trouble.reason(s.lease, s.maxHold)))
		}
		s.warden.watch(s.leaseEnd())
	}
}

func (s *supervision) note(r message) {
	switch r.what {
	case reportBegan:
		s.warden.group, s.passed = int(r.number), s.signals
		if s.onAsk != 0 {
			s.requests = s.lease.Asked()
		}
	case reportStopped:
		stopLike(s.warden.group)
	case reportEnded:
		s.status = int(r.number)
	case reportGone:
		s.gone = true
	}
}

func (s *supervision) end() int {
	said := s.asked // and why
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
	if said {
		say(s.stderr, "the command's remaining processes are killed")
	} else {
		say(s.stderr, "the command's remaining processes are killed: %s", inFlags(s.trouble.reason(s.lease, s.maxHold)))
	}
	return status
}

// over returns the exit status when the warden has ended.
func (s *supervision) over() int {
	if !s.gone && s.warden.group == 0 && s.status < 0 && !s.asked {
		if by := s.ended(); by != nil { // and has ended the warden as well, which was not ready for it
			s.warden.endAlone()
			say(s.stderr, "the command was not started: ended by %s", unix.SignalName(by.(syscall.Signal)))
			return gaveUp(by)
		}
	}
	if !s.gone {
		if s.warden.group == 0 {
			say(s.stderr, "the helper process ended before the command began")
		} else {
			say(s.stderr, "the helper process was killed, and so are the command's remaining processes")
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

// ended returns a signal that comes within a moment, or nil.
func (s *supervision) ended() os.Signal {
	for moment := time.After(100 * time.Millisecond); ; {
		select {
		case by := <-s.signals:
			if slices.Contains(endSignals, by) {
				return by
			}
		case <-moment:
			return nil
		}
	}
}

// withoutLock removes the nodes' URLs, whose passwords the command does not need, and
// what an outer run says of its lock.
func withoutLock(env []string) []string {
	return slices.DeleteFunc(env, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"REDQUORUM_NODES", "REDQUORUM_NAME", "REDQUORUM_TOKEN", "REDQUORUM_OWNER",
			"REDQUORUM_OUTER"}, name)
	})
}

// asMainProcess makes the command the main process for sd_listen_fds and
// sd_watchdog_enabled. Without WATCHDOG_PID any process of the service may notify, but
// LISTEN_PID must be the command's own, which a shell knows.
func asMainProcess(env []string, path string, command []string) ([]string, string, []string) {
	own := fmt.Sprint(os.Getpid())
	env = slices.DeleteFunc(env, func(v string) bool {
		return v == "WATCHDOG_PID="+own || strings.HasPrefix(v, "LISTEN_PIDFDID=")
	})
	if !slices.Contains(env, "LISTEN_PID="+own) {
		return env, path, command
	}
	const script = `LISTEN_PID=$$; export LISTEN_PID; exec "$0" "$@"`
	return env, "/bin/sh", append([]string{"sh", "-c", script, path}, command[1:]...)
}

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
