package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/internal/terminal"
	"github.com/redquorum/redquorum/sim"
)

const (
	exitUnsound   = 1
	exitStuck     = 3
	exitSimFailed = 5
)

const simManual = `Runs the engine of this program in a simulated world: nodes crash, lose their
data, hang and have a wrong time of day; networks lose, delay and repeat
messages; processes stop at the worst instant. A seed, or a plan, always gives
the same run. Each run is checked against sixteen invariants, such as mutual
exclusion. With no subcommand, explores random seeds for 30 s.

Exit status: 0 sound, 1 safety broken, 3 liveness broken, 2 usage, 5
the result could not be written, 130 interrupted.

example:
  redquorum sim`

// simVerb explores if there is no subcommand.
func simVerb() *cobra.Command {
	cmd := simExplore("sim", "run the same lock through every failure, in virtual time", simManual)
	cmd.AddCommand(simRun(), simExplore("explore", "many runs, until one goes wrong", exploreManual), simShrink(),
		simReplay(), simManualVerb(),
		simScenario(), simMatrix())
	return cmd
}

// doesSim gives errors a status of their own, also that of an output that cannot be
// written.
func doesSim(cmd *cobra.Command, do func(context.Context, *command) error) *cobra.Command {
	return doesUntilSignal(cmd, func(ctx context.Context, c *command) error {
		out := &cli.Output{Writer: c.stdout}
		c.stdout = out
		err := do(ctx, c)
		if lost := out.Err(); lost != nil {
			err = lost
		}
		return cli.Fail(exitSimFailed, err)
	})
}

// endsWithContext ends a word that does not look at ctx. Its run is virtual, and nothing
// is lost.
func endsWithContext(do func(context.Context, *command) error) func(context.Context, *command) error {
	return func(ctx context.Context, c *command) error {
		done := make(chan error, 1)
		go func() { done <- do(ctx, c) }()
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return cli.Exit(exitInterrupted)
		}
	}
}

func statusOfVerdict(v sim.Verdict) int {
	switch v {
	case sim.Unsafe:
		return exitUnsound
	case sim.Stuck:
		return exitStuck
	}
	return exitOK
}

type planFlags struct {
	profile faults.Profile
	lock    faults.Lock
	kinds   []string
	fs      *pflag.FlagSet
}

func (f *planFlags) register(fs *pflag.FlagSet) {
	f.fs = fs
	fs.IntVar(&f.profile.Nodes, "nodes", 0, "the number `N` of nodes (default: drawn from the seed)")
	fs.IntVar(&f.profile.Clients, "clients", 0, "the number `N` of clients that compete (default: drawn from the seed)")
	fs.DurationVar(&f.profile.Length, "length", 0,
		"for how long faults happen, in virtual `time` (default: drawn from the seed)")
	fs.BoolVar(&f.profile.Outside, "outside", false,
		"also faults that no lock with a lease can survive; a violation is then no bug")
	fs.BoolVar(&f.profile.Replicas, "replicas", false, "each node is a primary with replicas, and there are failovers")
	fs.BoolVar(&f.profile.Machines, "machines", false,
		"also servers that lack disk, memory or processor, and connections that break")
	fs.Func("client", "`redquorum|plain`: plain is textbook Redlock and nothing else", func(s string) error {
		if f.lock.Client = faults.Client(s); f.lock.Client != faults.Redquorum && f.lock.Client != faults.Plain {
			return errors.New("want redquorum or plain")
		}
		return nil
	})
	fs.IntVar(&f.lock.Need, "need", 0, "the number `N` of nodes that must grant (default: drawn from the seed)")
	fs.Func("kinds", "of what kinds the locks are: plain, or a `list` of "+strings.Join(lockKinds[1:], ",")+". Joint ones are of names on all nodes and of the name far, on all but the last two; in a chain one is waited for while another is held (default: drawn from the seed)", func(s string) error {
		f.kinds = strings.Split(s, ",")
		for _, kind := range f.kinds {
			if !slices.Contains(lockKinds, kind) {
				return fmt.Errorf("want plain, or some of %s", strings.Join(lockKinds[1:], ","))
			}
		}
		if len(f.kinds) > 1 && slices.Contains(f.kinds, "plain") {
			return errors.New("plain is without all of the others")
		}
		return nil
	})
	for name, b := range map[string]struct {
		to   *bool
		what string
	}{
		"guard": {&f.lock.Guard, "whether recently restarted nodes are ignored"},
		"renew": {&f.lock.Renew, "whether leases renew themselves"},
		"fence": {&f.lock.Fence, "whether the resource checks tokens"},
	} {
		fs.Func(name, b.what+": `on|off`", func(s string) error {
			if *b.to = s == "on"; s != "on" && s != "off" {
				return errors.New("want on or off")
			}
			return nil
		})
	}
}

// lockKinds are for --kinds. Plain locks have one name and one owner.
var lockKinds = []string{"plain", "readwrite", "fair", "several", "joint", "chain"}

func (f *planFlags) check() error {
	switch p := f.profile; {
	case p.Nodes < 0 || p.Nodes > faults.MaxNodes || f.fs.Changed("nodes") && p.Nodes == 0:
		return cli.Usage("--nodes is %d; it must be 1 to %d", p.Nodes, faults.MaxNodes)
	case p.Clients < 0 || p.Clients > faults.MaxClients || f.fs.Changed("clients") && p.Clients == 0:
		return cli.Usage("--clients is %d; it must be 1 to %d", p.Clients, faults.MaxClients)
	case f.fs.Changed("client") && f.lock.Client == faults.Plain && (f.fs.Changed("need") || f.fs.Changed("kinds")):
		return cli.Usage("--need and --kinds are not for --client plain: it has one kind of lock")
	case p.Replicas && (f.fs.Changed("nodes") || f.fs.Changed("need")):
		return cli.Usage("--nodes and --need are not for --replicas: the number of servers is drawn, and a majority of nodes decides")
	case p.Replicas && slices.Contains(f.kinds, "joint"):
		return cli.Usage("--kinds joint is not for --replicas: joint locks are for nodes that are one server")
	case f.lock.Need < 0 || f.lock.Need > faults.MaxNodes || f.fs.Changed("need") && f.lock.Need == 0:
		return cli.Usage("--need is %d; it must be more than half of the nodes, and at most all", f.lock.Need)
	case f.fs.Changed("need") && f.fs.Changed("nodes") && (f.lock.Need > p.Nodes || f.lock.Need <= p.Nodes/2):
		return cli.Usage("--need is %d; it must be more than half of %d nodes, and at most all", f.lock.Need, p.Nodes)
	case p.Length < 0 || p.Length > faults.MaxLength || f.fs.Changed("length") && p.Length == 0:
		return cli.Usage("--length is %v; it must be more than 0 and at most %v", p.Length, faults.MaxLength)
	}
	return nil
}

func (f *planFlags) any() bool {
	for _, name := range []string{"nodes", "clients", "length", "client", "guard", "renew", "fence", "need", "kinds"} {
		if f.fs.Changed(name) {
			return true
		}
	}
	return false
}

func (f *planFlags) adjust(p *faults.Plan) {
	l, w := &p.Lock, &p.Work
	if f.fs.Changed("kinds") {
		for _, share := range w.Kinds() {
			*share = 0
		}
	}
	for _, kind := range lockKinds { // in this order
		if !slices.Contains(f.kinds, kind) {
			continue
		}
		switch kind {
		case "readwrite":
			w.Read, w.Write, w.Down = faults.Percent(60), faults.Percent(40), faults.Percent(30)
		case "fair":
			w.Fair = faults.Percent(100)
			w.Read, w.Write = w.Read/2, w.Write/2 // the others are in line
		case "several":
			w.Several, w.Names = faults.Percent(50), max(w.Names, 3)
		case "joint":
			p.MakeJoint(faults.Percent(30))
		case "chain":
			w.Chain, w.Names = faults.Percent(50), max(w.Names, 3)
		}
	}
	if f.fs.Changed("need") {
		l.Need = min(max(f.lock.Need, p.Nodes/2+1), p.Nodes) // of a plan that may have fewer nodes
	}
	if f.fs.Changed("client") {
		if l.Client = f.lock.Client; l.Client == faults.Plain {
			p.MakePlain()
		}
	}
	if f.fs.Changed("guard") {
		l.Guard = f.lock.Guard
	}
	if f.fs.Changed("renew") {
		l.Renew = f.lock.Renew
	}
	if f.fs.Changed("fence") {
		l.Fence = f.lock.Fence
	}
}

// seedRange reads A-B, or A.
func seedRange(s string) (from, to uint64, err error) {
	a, b, two := strings.Cut(s, "-")
	if from, err = strconv.ParseUint(a, 10, 64); err == nil {
		if to = from; two {
			to, err = strconv.ParseUint(b, 10, 64)
		}
	}
	if err != nil || to < from {
		return 0, 0, cli.Usage("--seeds is %q; want a range such as 1-1000", s)
	}
	return from, to, nil
}

const exploreManual = `Draws a plan from each seed, runs it, and stops at the first violation that no
fault excuses. Its plan is shrunk and written to a file. It prints the grants
that the violation is about, the faults that made it possible, the protection
that is off, if that is the cause, and the command that plays the plan again.
With --bugs N it goes on until it has found N, each with a file of its own. If
it finds none it says how many of the situations that a lock must survive have
occurred. If it misses one of them in 20000 seeds or more, that is an error.

Exit status: 0 sound, 1 safety broken or a situation missed, 3 liveness broken,
2 usage, 5 the result could not be written.

example:
  redquorum sim explore --for 10m --jobs 2
  redquorum sim explore --seeds 1-10000 --guard off`

func simExplore(use, short, manual string) *cobra.Command {
	cmd, fs := newVerb(use, short, manual)
	var plans planFlags
	plans.register(fs)
	seeds := fs.String("seeds", "", "which seeds, such as `1-1000` (default: from the time of day on)")
	length := fs.Duration("for", 30*time.Second, "for how long, unless --seeds ends it")
	jobs := fs.Int("jobs", runtime.GOMAXPROCS(0), "`N` runs at the same time")
	bugs := fs.Int("bugs", 1, "stop at the `N`th violation that no fault excuses")
	asJSON := fs.Bool("json", false, "print one JSON object at the end")
	situations := fs.Bool("situations", false, "list the situations, and in how many runs each occurred")
	dir := fs.String("out", ".", "write failing plans to this `folder`, which is made if need be")
	return doesSim(cmd, func(ctx context.Context, c *command) error {
		err := plans.check()
		campaign := sim.Campaign{Profile: plans.profile, Adjust: plans.adjust, Jobs: *jobs,
			From: uint64(time.Now().Unix()) * 1_000_000, To: math.MaxUint64 - 1}
		if err == nil && *seeds != "" {
			campaign.From, campaign.To, err = seedRange(*seeds)
		}
		switch {
		case err != nil:
		case *jobs < 1:
			err = cli.Usage("--jobs is %d; it must be at least 1", *jobs)
		case *bugs < 1:
			err = cli.Usage("--bugs is %d; it must be at least 1", *bugs)
		case *length <= 0:
			err = cli.Usage("--for is %v; it must be more than 0", *length)
		default:
			campaign.Bugs = *bugs
			err = os.MkdirAll(*dir, 0o777) // now, and not when there is something to save
		}
		if err != nil {
			return err
		}
		exploring := ctx
		if *seeds == "" || fs.Changed("for") {
			var cancel context.CancelFunc
			exploring, cancel = context.WithTimeout(ctx, *length)
			defer cancel()
		} else {
			*length = 0
		}
		// A run leaves much garbage and keeps little: collect by size, not by growth.
		debug.SetGCPercent(-1)
		debug.SetMemoryLimit(128 << 20)
		bar := progress{Bar: terminal.Bar{W: c.screen, Live: terminal.Is(c.screen) && !*asJSON}, length: *length,
			from: campaign.From, to: campaign.To}
		campaign.Progress = bar.show
		report := sim.Explore(exploring, campaign)
		bar.Clear()
		var found []string
		for _, f := range report.Found {
			path, err := savePlan(ctx, *dir, f, plans.profile)
			if err != nil {
				return err
			}
			found = append(found, path)
		}
		err = c.print(*asJSON, newExploreReport(report), func(w io.Writer) string {
			text := newProse(w)
			explain(text, report, found)
			writeReport(text, report, *situations)
			return text.String()
		})
		if err != nil {
			return err
		}
		if len(report.Found) == 0 {
			if report.Seeds >= enough && len(report.Missed()) > 0 && !plans.any() {
				return cli.Exit(exitUnsound)
			}
			return nil
		}
		return discovery{cli.Exit(statusOfVerdict(report.Found[0].Verdict))}
	})
}

// enough seeds reach every situation if nothing narrows them: a campaign that misses one
// is broken.
const enough = 20_000

const shrinkTime = 10 * time.Second

// savePlan shrinks a failing plan until ctx ends, and writes it. It keeps as many nodes
// and clients as were asked for.
func savePlan(ctx context.Context, dir string, f sim.Found, asked faults.Profile) (string, error) {
	p, err := faults.Parse(f.Plan)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, shrinkTime)
	defer cancel()
	small := sim.ShrinkBy(ctx, p, func(q *faults.Plan) *sim.Result {
		if asked.Nodes != 0 && q.Nodes != p.Nodes || asked.Clients != 0 && q.Clients != p.Clients {
			return new(sim.Result) // it is not looked at
		}
		return sim.Run(q, nil)
	})
	path := fmt.Sprintf("%s%credquorum-seed-%d.plan", strings.TrimRight(dir, "/"), os.PathSeparator, f.Seed)
	what := f.What
	if v := sim.Run(small, nil).Worst(); v != nil {
		what = v.What // which may be about other clients and names
	}
	comment := fmt.Sprintf("# %s: %s\n# shrunk from seed %d, which had %d events\n", f.Invariant, what, f.Seed,
		len(p.Events))
	return path, os.WriteFile(path, []byte(comment+small.String()), 0o666)
}

// explain tells how the first run fails, and names the others' files.
func explain(told *prose, report *sim.Report, files []string) {
	if len(files) == 0 {
		return
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return
	}
	p, err := faults.Parse(string(text))
	if err != nil {
		return
	}
	r := sim.Run(p, nil, sim.WithTrace())
	v := r.Worst()
	told.write(red, "  ", fmt.Sprintf("%s VIOLATED by seed %d: %s", v.Invariant, report.Found[0].Seed,
		sim.Invariants[v.Invariant]))
	told.WriteByte('\n')
	told.write("", "", v.What)
	told.WriteByte('\n')
	told.story(r.Story(10))
	if cause := r.Cause(); cause != "" {
		told.WriteByte('\n')
		told.write("", "  ", "cause: "+cause)
	}
	fmt.Fprintf(told, "\nplan: %s (%d events)\nplay it again: redquorum sim replay %s\n\n", files[0], len(p.Events),
		files[0])
	for i, f := range report.Found[1:] {
		told.write(red, "  ", fmt.Sprintf("%s VIOLATED by seed %d: %s", f.Invariant, f.Seed, f.What))
		fmt.Fprintf(told, "plan: %s\n\n", files[i+1])
	}
}

// writeReport ends with the verdict. all lists each situation.
func writeReport(b *prose, r *sim.Report, all bool) {
	word, color := "sound", green
	if len(r.Found) > 0 { // then it is that which matters
		word, color = "NOT SOUND", red
	} else {
		writeSituations(b, r, all)
	}
	if r.Outside > 0 {
		b.write(yellow, "", cli.Count(r.Outside, "run")+
			" failed after a fault that no lock with a lease can survive (expected)")
	}
	b.write(color, "", fmt.Sprintf("%s: %s, %d events, %d locks granted; %s of virtual time in %v (%.0f seeds/s)", word,
		cli.Count(r.Seeds, "seed"), r.Events, r.Grants, sim.Years(r.Virtual), r.Wall.Round(10*time.Millisecond),
		float64(r.Seeds)/r.Wall.Seconds()))
}

func writeSituations(b *prose, r *sim.Report, all bool) {
	if all {
		b.WriteString("situations, and in how many runs they occurred\n")
		for m, n := range r.Reached {
			b.item(fmt.Sprintf("%10d  ", n), sim.Mark(m).String())
		}
		b.WriteByte('\n')
	}
	missed := r.Missed()
	text := fmt.Sprintf("%d of %d situations occurred", len(r.Reached)-len(missed), len(r.Reached))
	if len(missed) > 0 {
		text += "; the runs prove nothing about the others"
	}
	if !all {
		text += " (--situations lists them)"
	}
	b.write("", "", text)
}

type progress struct {
	terminal.Bar
	length   time.Duration
	from, to uint64
}

func (p *progress) show(r *sim.Report) {
	part := float64(r.Seeds) / (float64(p.to-p.from) + 1)
	if p.length > 0 {
		part = max(part, r.Wall.Seconds()/p.length.Seconds())
	}
	p.Draw(part, fmt.Sprintf("%d seeds, %.0f/s, %d violations, %s of virtual time, %d of %d situations",
		r.Seeds, float64(r.Seeds)/max(r.Wall.Seconds(), 1e-9),
		len(r.Found), sim.Years(r.Virtual), len(r.Reached)-len(r.Missed()), len(r.Reached)))
}

// follow shows a text, and the part of length that has passed, twice a second until end
// is called.
func (p *progress) follow(ctx context.Context, length time.Duration, text func() string) (end func()) {
	if !p.Live {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	began, done := time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			took := time.Since(began)
			p.Draw(min(1, took.Seconds()/max(length.Seconds(), 1e-9))*min(1, length.Seconds()),
				fmt.Sprintf("%v, %s", took.Round(time.Second), text()))
			select {
			case <-time.After(500 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	return func() {
		cancel()
		<-done
		p.Clear()
	}
}
