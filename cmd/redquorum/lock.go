package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

type lockFlags struct {
	nodeFlags
	verb     string
	names    []string
	fair     bool
	read     bool
	write    bool
	quorum   int // of the nodes; 0: a majority
	lease    time.Duration
	timeout  time.Duration // 0: the default
	wait     time.Duration // negative: until it is free
	try      bool
	maxHold  time.Duration
	minHold  time.Duration // only of run
	raised   bool          // it has raised --max-lease
	conflict int           // the exit status where others hold the lock
	label    string
	note     string
	verbose  bool // only of run

	failed   atomic.Pointer[error] // why the last attempt to get the lock did
	accepted atomic.Bool           // servers have taken the credentials before
}

// silent is true for a job that may be skipped: cron would send a mail.
func (f *lockFlags) silent() bool { return f.conflict == exitOK && !f.verbose }

// observe remembers why an attempt failed, reports news of nodes, and passes the event
// on.
func (f *lockFlags) observe(c *command, to func(quorum.Event)) func(quorum.Event) {
	return func(e quorum.Event) {
		if text := newsOfNode(e); text != "" && (f.verbose || e.Kind == quorum.EventSettingsDiffer) {
			sayAs(c.stderr, f.verb, "%s", text)
		}
		if e.Kind == quorum.EventAttemptFailed {
			f.failed.Store(&e.Err)
			if errors.Is(e.Err, quorum.ErrHeld) {
				f.accepted.Store(true)
			}
		}
		to(e)
	}
}

// newsOfNode is "" if the event is about something else.
func newsOfNode(e quorum.Event) string {
	switch e.Kind {
	case quorum.EventNodeFailed:
		return fmt.Sprintf("node %s failed: %s", e.Node, inFlags(e.Err))
	case quorum.EventNodeRecovered:
		return fmt.Sprintf("node %s answers again", e.Node)
	case quorum.EventNodeAbstains:
		return fmt.Sprintf("node %s started recently, and is ignored for %v", e.Node, e.Took.Round(time.Millisecond))
	case quorum.EventSettingsDiffer:
		return fmt.Sprintf("node %s: %s: both may hold one lock", e.Node, inFlags(e.Err))
	}
	return ""
}

func (f *lockFlags) refusal() error {
	if err := f.failed.Load(); err != nil && !errors.Is(*err, quorum.ErrHeld) {
		return *err
	}
	return nil
}

func (f *lockFlags) register(fs *pflag.FlagSet) {
	f.nodeFlags.register(fs)
	f.registerPrefix(fs)
	fs.Func("name", "the lock's `name`, which may also stand alone; several are one lock", f.addName)
	fs.BoolVar(&f.fair, "fair", false, "first come, first served among all callers that use --fair")
	fs.BoolVar(&f.read, "read", false, "share the lock with other readers")
	fs.BoolVar(&f.write, "write", false, "exclude readers, too")
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
	fs.DurationVar(&f.lease, "lease", 0, "how long the lock lasts without renewal, if this process dies; at most --max-lease (default 30s)")
	fs.DurationVar(&f.timeout, "timeout", 0,
		"how long nodes have to answer; raise it for nodes that are far away (default 500ms)")
	fs.DurationVar(&f.wait, "wait", 0, "how long to wait for the lock (default: until it is free)")
	fs.BoolVar(&f.try, "try", false, "do not wait for the lock")
	fs.DurationVar(&f.maxHold, "max-hold", 0, "how long to hold the lock at most")
	fs.StringVar(&f.label, "label", "", "the `text` by which status, list and errors of others name this program (default: the host, the process ID and the command)")
	fs.StringVar(&f.note, "note", "", "a `text` that status, list and errors of others show next to the label: what the lock is for")
	fs.IntVar(&f.conflict, "conflict-exit-code", exitHeld,
		"the exit `status` if others hold the lock and the wait is over; with 0 nothing is said about that")
}

func (f *lockFlags) addName(name string) error {
	f.names = append(f.names, name)
	return node.CheckName(name)
}

func (f *lockFlags) title() string { return strings.Join(f.names, ",") }

func (f *lockFlags) take(fs *pflag.FlagSet, names []string) error {
	for _, name := range names {
		if err := f.addName(name); err != nil {
			return cli.Usage("%w", err)
		}
	}
	if len(f.names) == 0 {
		return cli.Usage("the lock's name is missing")
	}
	return f.check(fs)
}

// shortestLease leaves time to stop a command before it ends.
const shortestLease = 100 * time.Millisecond

func (f *lockFlags) check(fs *pflag.FlagSet) error {
	inTime := ""
	if f.verb == "run" {
		inTime = ", for the command to be stopped in time"
	}
	switch {
	case f.fair && (f.read || f.write) || f.read && f.write:
		return cli.Usage("--fair, --read and --write exclude each other")
	case len(f.names) > 1 && (f.fair || f.read || f.write):
		return cli.Usage("--fair, --read and --write are for one name")
	case f.try && fs.Changed("wait"):
		return cli.Usage("--try and --wait exclude each other")
	case fs.Changed("wait") && f.wait < 0:
		return cli.Usage("--wait is %v; it must not be negative", f.wait)
	case fs.Changed("lease") && f.lease < shortestLease:
		return cli.Usage("--lease is %v; it must be at least %v%s", f.lease, shortestLease, inTime)
	case fs.Changed("max-hold") && f.maxHold < shortestLease:
		return cli.Usage("--max-hold is %v; it must be at least %v%s", f.maxHold, shortestLease, inTime)
	case printable(f.label) != f.label:
		return cli.Usage("--label is %s; it must be printable", cli.Quoted(f.label))
	case printable(f.note) != f.note || len(f.note) > 256:
		return cli.Usage("--note is %s; it must be printable, and have at most 256 bytes", cli.Quoted(f.note))
	case f.conflict < 0 || f.conflict > 255:
		return cli.Usage("--conflict-exit-code is %d; it must be from 0 to 255", f.conflict)
	}
	if !fs.Changed("wait") {
		f.wait = -1
	}
	return nil
}

// locker also sets the lease if no flag has.
func (f *lockFlags) locker(c *command, observe func(quorum.Event)) (l *quorum.Locker, done func(), err error) {
	longest, err := f.limit()
	if err != nil {
		return nil, nil, err
	}
	needed := leaseOf(f.minHold)
	switch {
	case f.minHold == 0:
	case longest == 0: // all programs that run the job have the same flags
		longest = max(quorum.Defaults().MaxLease, needed)
		f.maxLease, f.raised = longest, longest == needed
	case longest < needed:
		return nil, nil, cli.Usage("--min-hold is %v; it needs a --max-lease of at least %v", f.minHold, needed)
	}
	usual := min(quorum.Defaults().Lease, cmp.Or(longest, quorum.Defaults().MaxLease))
	if f.minHold > 0 {
		// this process ends with its command: the rest of the lease is added
		usual = max(min(usual, f.minHold), shortestLease)
	}
	f.lease = cmp.Or(f.lease, usual)
	return f.nodeFlags.locker(quorum.Options{Lease: f.lease, Timeout: f.timeout, MaxHold: f.maxHold, Quorum: f.quorum,
		Label: f.label, Observe: f.observe(c, observe)})
}

// leaseOf is the least --max-lease for a minimum hold.
func leaseOf(minHold time.Duration) time.Duration {
	return minHold + time.Duration(float64(minHold)*quorum.Defaults().Drift) + 2*time.Millisecond
}

// inFlags names flags where the library's errors name options.
func (f *lockFlags) inFlags(err error) string {
	text := inFlags(err)
	if f.raised {
		text = strings.ReplaceAll(text, "see --max-lease", "see --min-hold, --max-lease")
	}
	return text
}

// defaultLabel names the host, the process and what it does.
func (f *lockFlags) defaultLabel(does string) {
	if f.label != "" {
		return
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	f.label = fmt.Sprintf("%.40s pid %d redquorum %.20s", host, os.Getpid(), does)
}

func (f *lockFlags) shortest() time.Duration { return min(f.lease, cmp.Or(f.maxHold, f.lease)) }

// endSignals end the wait for a lock, and hold. None ends this process before the
// release.
var endSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP}

// fromTerminal are those that a terminal sends to a whole job, and the shell's SIGCONT.
var fromTerminal = []os.Signal{os.Interrupt, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGWINCH, syscall.SIGCONT}

func continues(s syscall.Signal) bool {
	return s != syscall.SIGKILL && s != syscall.SIGCONT && s != syscall.SIGWINCH
}

// catch returns signals as they come, until stop is called.
func catch(these []os.Signal) (signals chan os.Signal, stop func()) {
	signals = make(chan os.Signal, 64)
	signal.Notify(signals, notIgnored(these...)...)
	broken := make(chan os.Signal, 1) // where nobody reads what this process says, it goes on
	signal.Notify(broken, syscall.SIGPIPE)
	return signals, func() {
		signal.Stop(signals)
		signal.Stop(broken)
	}
}

// acquire says why if it does not get the lock, and returns the exit status.
func (f *lockFlags) acquire(ctx context.Context, c *command, l *quorum.Locker,
	signals <-chan os.Signal) (*quorum.Lease, int) {
	waiting, end := untilSignal(ctx, signals)
	lease, err := f.lock(waiting, c, l)
	by := end()
	switch own := (heldOutside{}); {
	case errors.As(err, &own):
		fmt.Fprintf(c.stderr, "redquorum %s: %v\n", f.verb, own)
		return nil, exitConfig
	case err != nil:
		if by != nil || !f.silent() || !errors.Is(err, quorum.ErrHeld) {
			text := f.inFlags(err)
			if by != nil {
				text = strings.ReplaceAll(text, context.Canceled.Error(),
					"ended by "+unix.SignalName(by.(syscall.Signal)))
			}
			fmt.Fprintf(c.stderr, "redquorum %s: %s\n", f.verb, text)
		}
		if by == nil {
			return nil, f.notAcquired(err)
		}
		return nil, gaveUp(by)
	case by != nil: // it came with the lock
		_ = lease.Unlock(ctx)
		return nil, gaveUp(by)
	}
	return lease, exitOK
}

// outerOwners are the owners of the runs around this process, the nearest first.
func outerOwners() (owners []string) {
	for _, list := range []string{os.Getenv("REDQUORUM_OWNER"), os.Getenv("REDQUORUM_OUTER")} {
		for owner := range strings.SplitSeq(list, ",") {
			if owner != "" {
				owners = append(owners, owner)
			}
		}
	}
	return owners
}

// heldOutside is the error that an outer run holds the name: it waits for this process.
type heldOutside struct{ name string }

func (h heldOutside) Error() string {
	return fmt.Sprintf("%s is held by the 'redquorum run' that started this process, and that waits for this process: leave one of them out, or use another name", shown(h.name))
}

func (f *lockFlags) checkOuter(r *quorum.Report) error {
	outer := outerOwners()
	if f.read && r.Mode == node.Read || !slices.ContainsFunc(r.Owners, func(owner string) bool { return slices.Contains(outer, owner) }) {
		return nil
	}
	return heldOutside{r.Name}
}

func gaveUp(by os.Signal) int {
	if by == os.Interrupt {
		return exitInterrupted
	}
	return exitHeld
}

// untilSignal returns a context that a signal ends, until end is called, which returns
// the signal.
func untilSignal(ctx context.Context, signals <-chan os.Signal) (waiting context.Context, end func() os.Signal) {
	waiting, cancel := context.WithCancel(ctx)
	stop, by := make(chan struct{}), make(chan os.Signal, 1)
	go func() {
		defer close(by)
		for {
			select {
			case s := <-signals:
				if slices.Contains(endSignals, s) {
					cancel()
					by <- s
					return
				}
			case <-stop:
				return
			}
		}
	}()
	return waiting, func() os.Signal {
		close(stop)
		defer cancel()
		return <-by
	}
}

// lock says from time to time what it waits for.
func (f *lockFlags) lock(ctx context.Context, c *command, l *quorum.Locker) (*quorum.Lease, error) {
	opts := []quorum.Option{quorum.WithNames(f.names[1:]...), quorum.WithNote(f.note)}
	switch {
	case f.fair:
		opts = append(opts, quorum.WithFair())
	case f.read:
		opts = append(opts, quorum.WithRead())
	case f.write:
		opts = append(opts, quorum.WithWrite())
	}
	if f.minHold > 0 {
		opts = append(opts, quorum.WithMinHold(f.minHold))
	}
	if len(outerOwners()) > 0 {
		for _, name := range f.names {
			if r, err := l.Inspect(ctx, name); err == nil {
				if err := f.checkOuter(r); err != nil {
					return nil, err
				}
			}
		}
	}
	if f.try {
		return l.TryLock(ctx, f.names[0], opts...)
	}
	ctx, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	defer time.AfterFunc(timeToReplace, func() {
		if err := f.failed.Load(); err != nil && !f.accepted.Load() && refused(*err) {
			refuse(errors.New("the files were not replaced meanwhile"))
		}
	}).Stop()
	waiting, stop := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := f.sayWaiting(waiting, c, l); err != nil {
			refuse(err)
		}
	}()
	defer func() {
		stop()
		<-over
	}()
	if f.wait >= 0 {
		opts = append(opts, quorum.WithWait(f.wait))
	}
	return l.Lock(ctx, f.names[0], opts...)
}

// sayWaiting reports until ctx ends, or until the wait turns out to be in vain: the nodes
// may not have answered before.
func (f *lockFlags) sayWaiting(ctx context.Context, c *command, l *quorum.Locker) error {
	begun := time.Now()
	for i := 0; ; i++ {
		after := toldAfter(i)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(begun.Add(after))):
		}
		text := "waiting"
		if i > 0 {
			text = fmt.Sprintf("still waiting after %v", after)
		}
		reasons, trouble, err := f.reasons(ctx, l)
		if err != nil || ctx.Err() != nil {
			return err
		}
		if trouble || !f.silent() {
			fmt.Fprintf(c.stderr, "redquorum %s: %s%s\n", f.verb, text, reasons)
		}
	}
}

func toldAfter(i int) time.Duration {
	switch i {
	case 0:
		return time.Second
	case 1:
		return 10 * time.Second
	}
	return time.Duration(i-1) * time.Minute
}

// reasons says of each name why it cannot be had, and whether there is more to it than a
// holder. The error is that of checkOuter.
func (f *lockFlags) reasons(ctx context.Context, l *quorum.Locker) (text string, trouble bool, err error) {
	var all []string
	for _, name := range f.names {
		if r, err := l.Inspect(ctx, name); err == nil && r.Verdict != quorum.VerdictFree {
			if err := f.checkOuter(r); err != nil {
				return "", false, err
			}
			if r.Verdict == quorum.VerdictHeld && r.Ours(r.Owner) { // and it does not count: too few replicas have it
				all, trouble = append(all, shown(name)+" is held by nobody else, and too few nodes confirm it"), true
				continue
			}
			all = append(all, headline(r))
			trouble = trouble || r.Verdict == quorum.VerdictNoQuorum
		}
	}
	text = " for " + shown(f.title())
	if len(all) > 0 {
		text = ": " + strings.Join(all, "; ")
	}
	if err := f.refusal(); err != nil {
		return text + "; the last attempt failed: " + f.inFlags(err), true, nil
	}
	return text, trouble, nil
}

// timeToReplace is how long credentials that were never accepted are tried: somebody may
// be replacing the files. Afterwards waiting goes on.
const timeToReplace = 3 * time.Second

func refused(err error) bool {
	e, ok := errors.AsType[*quorum.Error](err)
	if !ok {
		return false
	}
	others := 0
	for _, n := range e.Nodes {
		if !node.Permanent(n.Err) && !errors.Is(n.Err, node.ErrAuth) {
			others++
		}
	}
	return others < e.Quorum
}

// notAcquired is the exit status for an error of lock: whether to try again, or to see to
// the nodes first.
func (f *lockFlags) notAcquired(err error) int {
	if errors.Is(err, quorum.ErrHeld) {
		return f.conflict
	}
	if e, ok := errors.AsType[*quorum.Error](err); ok && e.Permanent() || !f.accepted.Load() && refused(err) {
		return exitConfig
	}
	return exitNoQuorum
}

// notReleased says why the lock may not be released. It returns the given status if the
// lock was held to the end.
func (f *lockFlags) notReleased(c *command, err error, status int) int {
	fmt.Fprintf(c.stderr, "redquorum %s: %s\n", f.verb, inFlags(err))
	if errors.Is(err, quorum.ErrNotHeld) {
		return exitLost
	}
	return status
}

// briefly calls done, which closes a Locker after its release, and returns after a moment
// also if a node hangs. A majority has confirmed the release by then. That node alone
// would keep the lock until the lease ends.
func briefly(done func()) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		done()
	}()
	select {
	case <-closed:
	case <-time.After(20 * time.Millisecond):
	}
}

func since(begun time.Time) time.Duration { return time.Since(begun).Round(time.Millisecond) }
