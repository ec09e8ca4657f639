// Mutants puts bugs into the engine, one at a time, and counts the seeds until an
// invariant is broken.
//
//	go run ./sim/mutants                 # all, at most 1000 seeds each
//	go run ./sim/mutants --only M07      # one
//	go run ./sim/mutants --canary        # the sturdiest few, for each commit
//	go run ./sim/mutants --seeds 3000 --record  # writes kills.txt
//	go run ./sim/mutants --stack --only M07  # on the production stack, by the tests of sim/pipes
//	go run ./sim/mutants --spec          # the protections of spec, by the plans of spec/plans
//
// The compiler sees the change, not the working tree (go build -overlay). It exits with 1
// if a bug stays unseen that should not, or is seen much later than kills.txt of the last
// commit says.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ok, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "mutants:", err)
		}
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

type config struct {
	seeds         uint64
	jobs          int
	only          string
	canary, stack bool
	spec, record  bool
}

func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	var c config
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.Uint64Var(&c.seeds, "seeds", 1000, "how many seeds each mutant runs at most")
	flags.IntVar(&c.jobs, "jobs", 2, "how many run at the same time")
	flags.StringVar(&c.only, "only", "", "these mutants alone, by ID, joined by commas")
	flags.BoolVar(&c.canary, "canary", false, "a few sturdy mutants and few seeds, for each commit")
	flags.BoolVar(&c.stack, "stack", false, "let the tests of sim/pipes look for them, on the production stack, and no seeds; spec is 0 if the specification refuses a run")
	flags.BoolVar(&c.spec, "spec", false, "play spec/plans: each protection of the specification is needed; a missing plan is looked for among the seeds")
	flags.BoolVar(&c.record, "record", false, "write "+kills)
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if flags.NArg() > 0 {
		return false, fmt.Errorf("unexpected argument %q: name mutants with -only", flags.Arg(0))
	}
	root, err := moduleRoot()
	if err != nil {
		return false, err
	}
	if c.spec {
		return c.playSpec(ctx, root, out)
	}
	list, err := c.choose()
	if err != nil {
		return false, err
	}
	src := newSource(root)
	for _, m := range list { // before anything is built
		if _, err := m.apply(src); err != nil {
			return false, err
		}
	}
	fmt.Fprintf(out, tableFormat, "", "mutant", "seed", "killed by", "spec", "s")
	sound, err := c.try(ctx, engine, root)
	if err != nil {
		return false, err
	}
	if !sound.fine() {
		return false, fmt.Errorf("the engine as it is breaks %s with seed %d, so mutants prove nothing: %s",
			sound.Invariant, sound.Seed, sound.What)
	}
	outcomes, err := c.all(ctx, root, list, func(o *Outcome) { tableRow(out, o) })
	if err != nil {
		return false, err
	}
	s := summarize(outcomes)
	fmt.Fprintf(out, "\n%s\n", s)
	if c.record {
		return s.wrong == nil, s.write(filepath.Join(root, kills))
	}
	var worse []string
	if before, err := lastKills(root); err != nil {
		fmt.Fprintln(os.Stderr, "mutants: nothing to compare with:", err)
	} else if !c.stack {
		worse = s.worseThan(before, c.seeds)
	}
	for _, text := range worse {
		fmt.Fprintln(os.Stderr, text)
	}
	return len(s.wrong)+len(worse) == 0, nil
}

const canarySeeds = 50

// engine is no mutant.
var engine = new(Mutant)

func mutantOf(id string) *Mutant {
	for _, m := range mutants {
		if m.ID == id {
			return m
		}
	}
	return nil
}

func (c *config) choose() (list []*Mutant, err error) {
	if c.canary {
		c.seeds = min(c.seeds, canarySeeds)
	}
	only := strings.FieldsFunc(c.only, func(r rune) bool { return r == ',' })
	for _, id := range only {
		if mutantOf(id) == nil {
			return nil, fmt.Errorf("there is no mutant %s", id)
		}
	}
	for _, m := range mutants {
		if len(m.Edits) > 0 && (!c.canary || slices.Contains(canaries, m.ID)) &&
			(len(only) == 0 || slices.Contains(only, m.ID)) {
			list = append(list, m)
		}
	}
	if c.seeds == 0 {
		return nil, errors.New("--seeds must be at least 1")
	}
	return list, nil
}

// all tells of each outcome as it comes, and returns them in the order of the list.
func (c *config) all(ctx context.Context, root string, list []*Mutant, tell func(*Outcome)) ([]*Outcome, error) {
	var mu sync.Mutex
	var tasks errgroup.Group
	tasks.SetLimit(max(1, c.jobs))
	outcomes := make([]*Outcome, len(list))
	for i, m := range list {
		tasks.Go(func() error {
			o, err := c.try(ctx, m, root)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			outcomes[i] = o
			tell(o)
			return nil
		})
	}
	return outcomes, errors.Join(tasks.Wait(), ctx.Err())
}

func (c *config) try(ctx context.Context, m *Mutant, root string) (*Outcome, error) {
	if c.stack {
		here := *m
		here.Tests, here.Folder = "-short -vet=off -run TestOurs .", "sim/pipes"
		m = &here
	}
	o, err := m.try(ctx, root, c.seeds)
	if c.stack && err == nil && o.What != "" { // the tests have no seeds
		o.Refused = &o.Seed
	}
	return o, err
}

const tableFormat = "%-5s %-72s %6s  %-26s %6s %6s\n"

func tableRow(w io.Writer, o *Outcome) {
	seed, by := "-", "survives"
	if o.Killed {
		by = o.Invariant
		if o.Expect != Tests {
			seed = fmt.Sprint(o.Seed)
		}
	}
	if !o.fine() {
		by += "  <-- wrong"
	}
	fmt.Fprintf(w, tableFormat, o.ID, o.Bug, seed, by, o.refused("-"), fmt.Sprintf("%.1f", o.Seconds))
}

func (o *Outcome) refused(none string) string {
	if o.Refused == nil {
		return none
	}
	return fmt.Sprint(*o.Refused)
}
