package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/internal/terminal"
)

// A warden is another process of this program, and the parent of the command. It ends the
// command when the lock is about to end, or when this process is killed. If the warden is
// killed, this process ends the command.
//
// On Linux each of them adopts the orphans below it, and so finds all that the command
// has started.
type warden struct {
	process *os.Process
	orders  *os.File // ends with this process
	reports <-chan message
	margin  time.Duration // before the end of the lease: then the warden acts
	until   time.Duration // when the warden acts
	alarm   alarm
	group   int          // the command's, or 0
	others  map[int]bool // children of this process that were there before
}

const wardenVerb = "warden"

// Orders to a warden and its reports, each with a number.
const (
	orderUntil  = "until"  // of machineTime: the command is ended then
	orderAsk    = "ask"    // to stop: TERM for all
	orderSignal = "signal" // for the command's group
	orderEnd    = "end"    // all now

	reportBegan   = "began"   // the command, with its group
	reportStopped = "stopped" // the command, by a signal of the terminal
	reportEnded   = "ended"   // the command, with its exit status
	reportGone    = "gone"    // all that the command has started
)

type message struct {
	what   string
	number int64
}

func readMessages(pipe *os.File) <-chan message {
	messages := make(chan message)
	go func() {
		defer close(messages)
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			var m message
			if _, err := fmt.Sscan(lines.Text(), &m.what, &m.number); err == nil {
				messages <- m
			}
		}
	}()
	return messages
}

// selfPath is this program's file, also if it was replaced.
func selfPath() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// startWarden has a warden begin the command. Its pipes keep their numbers, as those from
// 3 on may be the caller's, for the command.
func startWarden(path string, command, env []string, in place, grace, leaseEnd, kill time.Duration) (*warden, error) {
	program, err := selfPath()
	if err != nil {
		return nil, err
	}
	w := &warden{margin: kill / 2, others: make(map[int]bool)}
	if err := adoptOrphans(); err != nil {
		return nil, err
	}
	for _, pid := range ownChildren() {
		w.others[pid] = true
	}
	told, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer told.Close()
	reports, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	for _, f := range []*os.File{told, out} {
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
			return nil, err
		}
	}
	w.orders, w.reports = orders, readMessages(reports)
	w.watch(leaseEnd)
	attr := &os.ProcAttr{Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys: &syscall.SysProcAttr{Setpgid: in != among}} // else it gets what the terminal sends the command
	onParentsDeath(attr.Sys, syscall.SIGCONT) // should it be stopped then
	args := append([]string{os.Args[0], wardenVerb, fmt.Sprint(told.Fd()), fmt.Sprint(out.Fd()), fmt.Sprint(int(in)),
		fmt.Sprint(int64(grace)), path}, command...)
	if w.process, err = os.StartProcess(program, args, attr); err != nil {
		return nil, err
	}
	go w.reap()
	return w, nil
}

// reap ends zombie children, and continues a warden that was stopped.
func (w *warden) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return // there are no children
		case pid == w.process.Pid && status.Stopped():
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
}

func (w *warden) order(what string, number int64) {
	_, _ = fmt.Fprintln(w.orders, what, number) // it fails only if the warden is gone
}

// watch has the command ended before an instant of machineTime, unless it is called
// again.
func (w *warden) watch(leaseEnd time.Duration) {
	const exact = 10 * time.Millisecond
	until := leaseEnd - w.margin
	if (until - w.until).Abs() < exact {
		return
	}
	w.until = until
	w.order(orderUntil, int64(until))
	w.alarm.at(leaseEnd - w.margin/2) // after the warden has acted: else this process could go on
}

// endAlone ends what is left of the command after its warden was killed, and reports
// whether nothing is left.
func (w *warden) endAlone() bool {
	_ = w.process.Kill()
	pause := time.Millisecond
	for end, none := time.Now().Add(unkillable), 0; time.Now().Before(end); pause = min(2*pause, 100*time.Millisecond) {
		if signalDescendants(syscall.SIGKILL, w.group, w.others) > 0 {
			none = 0
		} else if none++; none == 2 { // a process that has just lost its parent may be missed once
			return true
		}
		time.Sleep(pause)
	}
	return false
}

const unkillable = 5 * time.Second

const cannotKill = "a process of the command cannot be killed: it may run as another user, by sudo or setuid"

type keeper struct {
	stderr   io.Writer
	reports  *os.File
	alarm    alarm
	place    place
	signals  chan os.Signal          // that the terminal sends the command, too
	got      map[os.Signal]time.Time // when, of those
	console  *console
	begun    <-chan message // that the command has, or cannot; nil after it
	command  int            // its process, or 0 if it has not begun
	began    time.Time      // when the command has
	ended    time.Time      // when the command has, by itself or not
	asked    bool           // what it has left behind was asked to stop
	grace    time.Duration  // between TERM and KILL, for what the command has left behind
	until    time.Duration
	killing  time.Time     // since when all is killed
	looked   time.Duration // the last call of inTime, or kill, by machineTime
	pause    time.Duration // until kill is called again
	why      string        // all is killed, to be said
	orphaned bool          // redquorum was killed
}

// wardenMain has as its arguments the numbers of its pipes, the command's place, the
// grace between TERM and KILL or 0, the path of the command, and the command.
func wardenMain(args []string) int {
	if len(args) < 6 {
		return exitUsage
	}
	var numbers [4]int
	for i := range numbers {
		n, err := strconv.Atoi(args[i])
		if err != nil {
			return exitUsage
		}
		numbers[i] = n
	}
	for _, pipe := range numbers[:2] {
		syscall.CloseOnExec(pipe)
	}
	// Caught and not ignored, as the command would inherit that. The warden ends with the
	// command, and goes on when nobody reads its output.
	signal.Notify(make(chan os.Signal, 1), notIgnored(append(passable(), syscall.SIGPIPE)...)...)
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	k := &keeper{stderr: impatient{terminal.Plain(os.Stderr)}, reports: os.NewFile(uintptr(numbers[1]), "reports"),
		place: place(numbers[2]), grace: cmp.Or(time.Duration(numbers[3]), timeToStop),
		signals: make(chan os.Signal, 8), got: make(map[os.Signal]time.Time), console: openConsole()}
	signal.Notify(k.signals, notIgnored(fromTerminal...)...)
	if err := adoptOrphans(); err != nil {
		say(k.stderr, "%v", err)
		return exitOS
	}
	orders := readMessages(os.NewFile(uintptr(numbers[0]), "orders"))
	first, told := <-orders
	if !told {
		return exitOK // redquorum was killed, and the command has not begun
	}
	k.obey(first)
	if machineTime() < k.until {
		k.begin(args[4], args[5:])
	}
	k.keep(orders, died)
	if k.orphaned {
		k.console.restore()
	}
	k.report(reportGone, 0)
	return exitOK
}

func (k *keeper) report(what string, number int) {
	_, _ = fmt.Fprintln(k.reports, what, number) // it fails only if redquorum is gone
}

// begin starts the command. Loading its file may take long, and the runtime counts that
// thread as one that computes. So there is another one, and no garbage collection, which
// would wait for it.
func (k *keeper) begin(path string, command []string) {
	runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))
	garbage, memory := debug.SetGCPercent(-1), debug.SetMemoryLimit(math.MaxInt64)
	runtime.GC() // ends one that is under way
	attr := &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys: &syscall.SysProcAttr{Setpgid: k.place != among}}
	onParentsDeath(attr.Sys, syscall.SIGKILL)
	if k.place == foreground {
		attr.Sys.Foreground, attr.Sys.Ctty = true, k.console.fd
	}
	for none := false; !none; { // the command has not got what came before
		select {
		case <-k.signals:
		default:
			none = true
		}
	}
	begun := make(chan message)
	k.begun = begun
	go func() {
		runtime.LockOSThread() // with this thread the command ends
		p, err := os.StartProcess(path, command, attr)
		if errors.Is(err, syscall.ENOEXEC) { // it says of nothing that it is for anything else
			p, err = os.StartProcess("/bin/sh", append([]string{"sh", path}, command[1:]...), attr)
		}
		debug.SetGCPercent(garbage)
		debug.SetMemoryLimit(memory)
		signal.Ignore(syscall.SIGTTOU, syscall.SIGTSTP) // it acts even if another process has the terminal
		if err != nil {
			begun <- message{reportEnded, int64(failCommand(k.stderr, command[0], path, err))}
			return
		}
		begun <- message{reportBegan, int64(p.Pid)}
		_ = p.Release() // reap waits for it
		select {}
	}()
}

func (k *keeper) note(r message) {
	k.begun = nil
	if r.what == reportBegan {
		k.command, k.began = int(r.number), time.Now()
	}
	k.report(r.what, int(r.number))
}

// keep returns when nothing of the command is left, or what is left cannot be killed.
func (k *keeper) keep(orders <-chan message, died <-chan os.Signal) {
	for k.reap() {
		if !k.killing.IsZero() && time.Since(k.killing) > unkillable && k.begun == nil {
			say(k.stderr, "%s", cannotKill)
			return
		}
		select {
		case o, told := <-orders:
			if !told {
				orders, k.orphaned = nil, true
				k.kill("redquorum itself was killed")
				continue
			}
			k.obey(o)
		case r := <-k.begun:
			k.note(r)
		case <-died:
		case s := <-k.signals:
			k.got[s] = time.Now()
		case <-time.After(k.due() - machineTime()):
		}
		if machineTime() >= k.due() { // also where there is always something else
			k.inTime()
		}
	}
	if k.why != "" {
		say(k.stderr, "the command's remaining processes are killed: %s", k.why)
	}
}

// Background processes have time to end by themselves, and then to stop when asked,
// unless another grace is given. The lock is held meanwhile.
const (
	timeToEnd  = time.Second
	timeToStop = 5 * time.Second
)

// due is when to call inTime. The runtime's timers do not count a suspension of the
// machine.
func (k *keeper) due() time.Duration {
	if !k.killing.IsZero() {
		return k.looked + k.pause
	}
	return min(k.looked+100*time.Millisecond, k.until)
}

func (k *keeper) inTime() {
	k.looked = machineTime()
	switch left := time.Since(k.ended); {
	case !k.killing.IsZero():
		k.kill(k.why)
	case machineTime() >= k.until:
		k.kill("the lock ends, and redquorum is stopped")
	case k.ended.IsZero():
	case left >= timeToEnd+k.grace:
		k.kill("it was in the background, and does not stop")
	case left >= timeToEnd && !k.asked:
		k.asked = true
		signalDescendants(syscall.SIGTERM, k.command, nil)
		say(k.stderr, "the command has ended; its processes in the background are asked to stop")
	}
}

func (k *keeper) obey(o message) {
	switch o.what {
	case orderUntil:
		k.until = time.Duration(o.number)
		k.alarm.at(k.until)
	case orderAsk:
		signalDescendants(syscall.SIGTERM, k.command, nil)
	case orderSignal:
		k.pass(syscall.Signal(o.number))
	case orderEnd:
		k.kill("")
	}
}

// pass sends a signal to the command's group, or to what the command has left behind.
func (k *keeper) pass(s syscall.Signal) {
	switch {
	case !k.ended.IsZero() || k.command == 0:
		signalDescendants(s, k.command, nil)
	case k.place == among && k.hasGot(s):
		if continues(s) {
			signalJob(k.command, syscall.SIGCONT)
		}
	case k.place == among:
		signalJob(k.command, s)
	default:
		_ = syscall.Kill(-k.command, s)
		if continues(s) {
			_ = syscall.Kill(-k.command, syscall.SIGCONT)
		}
	}
}

// hasGot reports whether the terminal has sent a signal to the command, too, as it does
// to the whole job. One that came while the command began is passed on: better twice than
// never.
func (k *keeper) hasGot(s syscall.Signal) bool {
	const (
		soon   = 500 * time.Millisecond // where this process is slower
		lately = 2 * time.Second        // where redquorum is. Two signals may come as one, to either
		early  = 100 * time.Millisecond
	)
	if !slices.Contains(fromTerminal, os.Signal(s)) {
		return false
	}
	for timeout := time.After(min(soon, k.until-machineTime())); ; {
		if at, ok := k.got[s]; ok && time.Since(at) < lately {
			return at.Sub(k.began) > early
		}
		select {
		case got := <-k.signals:
			k.got[got] = time.Now()
		case <-timeout:
			return false
		}
	}
}

// kill is called until nothing is left.
func (k *keeper) kill(why string) {
	if k.killing.IsZero() {
		k.killing, k.why = time.Now(), why
	}
	if k.ended.IsZero() && k.command != 0 && k.place != among {
		_ = syscall.Kill(-k.command, syscall.SIGKILL)
	}
	signalDescendants(syscall.SIGKILL, k.command, nil)
	k.looked, k.pause = machineTime(), min(max(2*k.pause, time.Millisecond), 100*time.Millisecond)
}

// reap reports how the command has ended, and returns whether anything is left.
func (k *keeper) reap() bool {
	for k.begun == nil {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return groupRemains(k.command)
		case pid == 0:
			return true
		case status.Stopped():
			if s := status.StopSignal(); pid == k.command && k.place == among && s != syscall.SIGSTOP {
				k.report(reportStopped, int(s))
			}
		case pid == k.command && k.ended.IsZero():
			k.ended = time.Now()
			k.report(reportEnded, exitStatus(status))
		}
	}
	return true // its process is not known yet
}
