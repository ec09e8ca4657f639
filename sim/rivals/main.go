// Rivals carries out the plans of package sim with redquorum's production stack and with
// other locks, each unchanged. It is a module of its own, to keep those from users of
// redquorum.
//
//	go run . run S13 redsync                 # the story of a scenario with a lock
//	go run . run PLAN redsync --html FILE    # of a plan in a file, and its page
//	go run . page                            # writes docs/evidence/rivals.md
//	go run . shift redsync                   # each scenario 200 times, with other times
//	go run . explore redsync --seeds 1000    # drawn plans; what breaks the lock is shrunk and kept
//	go run . real S13 redsync                # the same as run, but on real servers
//	go run . check redsync                   # repeats on real servers all that broke the lock
//	go run . check S13 seed3.plan redsync    # or only some of it
//
// Otherwise a run is in virtual time, as package pipes has it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	goredislib "github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/pipes"
)

func main() {
	testing.Init()
	_ = flag.CommandLine.Parse(nil) // of package testing, whose bubbles need a test
	args, out := os.Args[1:], os.Stdout
	os.Stdout = nil // it would say PASS
	run := testing.InternalTest{Name: "rivals", F: func(t *testing.T) {
		in := func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }
		if err := command(args, out, in); err != nil {
			fmt.Fprintln(os.Stderr, "rivals:", err)
			os.Exit(2)
		}
	}}
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{run}, nil, nil)
}

func init() { goredislib.SetLogger(quiet{}) }

// quiet silences go-redis, which reports each failed connection.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

var errUsage = errors.New("want: run SCENARIO|PLAN LOCK [--html FILE], page, shift LOCK [--times N], explore LOCK [--from N] [--seeds N], " +
	"real SCENARIO|PLAN LOCK [--server FILE] [--stretch N] [--long] [--html FILE], or check [ID ...] LOCK [--server FILE]")

func command(args []string, out io.Writer, in bubble) error {
	if len(args) == 0 {
		return errUsage
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	html := flags.String("html", "", "write the page of the run to this file")
	times := flags.Uint64("times", 200, "how often to shift each plan")
	seeds := flags.Uint64("seeds", 1000, "how many plans to draw")
	from := flags.Uint64("from", 0, "the first seed")
	how := real{}
	flags.StringVar(&how.server, "server", "redis-server", "the program of the real servers")
	flags.IntVar(&how.stretch, "stretch", 5, "how many times as long all times of a plan are on real servers")
	flags.BoolVar(&how.long, "long", false, "let a plan on real servers go on for a lease after its last event")
	words := args[1:]
	n := 0
	for n < len(words) && !strings.HasPrefix(words[n], "-") {
		n++
	}
	if err := flags.Parse(words[n:]); err != nil {
		return err
	}
	words = words[:n]
	if args[0] == "page" && n == 0 {
		return os.WriteFile(pagePath, []byte(page(table(in))), 0o644)
	}
	if n == 0 || contestantOf(words[n-1]) == nil {
		return fmt.Errorf("%w; LOCK is %s", errUsage, lockNames())
	}
	c := contestantOf(words[n-1])
	switch {
	case args[0] == "run" && n == 2:
		return c.run(in, words[0], *html, out)
	case args[0] == "real" && n == 2:
		return c.runReal(&how, words[0], *html, out)
	case args[0] == "check" && n > 0:
		return how.check(c, in, words[:n-1], out)
	case args[0] == "client" && n == 1: // a process of the two above
		return c.beChild(os.Stdin, out)
	case args[0] == "shift" && n == 1:
		return c.shift(in, *times, out)
	case args[0] == "explore" && n == 1:
		return c.explore(in, *from, *seeds, out)
	}
	return errUsage
}

func lockNames() string {
	var names []string
	for _, c := range contestants {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}

// named takes a scenario or a file.
func (c *contestant) named(what string) (p *faults.Plan, s *sim.Scenario, lacks []string, err error) {
	if s, known := sim.FindScenario(what); known {
		p, lacks = c.plan(&s)
		return p, &s, lacks, nil
	}
	text, err := os.ReadFile(what)
	if err == nil {
		if p, err = faults.Parse(string(text)); err == nil {
			lacks = pipes.Missing(p)
		}
	}
	return p, nil, lacks, err
}

func (c *contestant) run(in bubble, what, html string, out io.Writer) error {
	p, s, lacks, err := c.named(what)
	if err != nil {
		return err
	}
	if len(lacks) > 0 {
		return fmt.Errorf("%s cannot be carried out here: it needs %s", what, strings.Join(lacks, ", "))
	}
	r, lacks := c.try(in, p)
	if len(lacks) > 0 {
		return fmt.Errorf("%s has no %s", c.name, strings.Join(lacks, ", "))
	}
	return c.show(r, s, html, out)
}

func (c *contestant) runReal(how *real, what, html string, out io.Writer) error {
	p, s, _, err := c.named(what)
	if err != nil {
		return err
	}
	r, err := how.run(c, p)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s, at most %v late\n", r.Server, r.Late.Round(time.Millisecond))
	return c.show(r.Result, s, html, out)
}

func (c *contestant) show(r *sim.Result, s *sim.Scenario, html string, out io.Writer) error {
	fmt.Fprintf(out, "%s: %s\n", c.title(), r.Verdict)
	for _, line := range r.Story(60) {
		fmt.Fprintln(out, line)
	}
	if html == "" {
		return nil
	}
	f, err := os.Create(html)
	if err != nil {
		return err
	}
	if s != nil {
		err = s.WriteHTML(f, r)
	} else {
		err = r.WriteHTML(f)
	}
	return errors.Join(err, f.Close())
}

// shift tries each scenario in which the lock is sound with other times. It keeps how
// often each goes wrong, the first that does, and in the last line all that never do.
func (c *contestant) shift(in bubble, times uint64, out io.Writer) error {
	var lines, never []string
	for _, s := range sim.Scenarios() {
		o := c.scenario(in, &s)
		if len(o.lacks) > 0 || o.result.Verdict != sim.Sound {
			continue // there is nothing more to find out
		}
		broken, kept := 0, false
		for by := uint64(1); by <= times; by++ {
			p := shifted(o.plan, by)
			r, lacks := c.try(in, p)
			if len(lacks) > 0 || !wrong(r) {
				continue
			}
			broken++
			if !kept {
				kept = true
				if err := c.keep(in, s.ID, fmt.Sprintf("%s with other times", s.ID), c.shrink(in, p)); err != nil {
					return err
				}
			}
		}
		line := fmt.Sprintf("%s %d/%d", s.ID, broken, times)
		fmt.Fprintln(out, line)
		if kept {
			lines = append(lines, line)
		} else {
			never = append(never, s.ID)
		}
	}
	lines = append(lines, fmt.Sprintf("0/%d %s", times, strings.Join(never, " ")))
	return os.WriteFile(filepath.Join("testdata", "shifts", file(c)+".txt"),
		[]byte(c.title()+"\n"+strings.Join(lines, "\n")+"\n"), 0o644)
}

func file(c *contestant) string { return strings.NewReplacer("/", "-", " ", "-").Replace(c.name) }

func (c *contestant) shrink(in bubble, p *faults.Plan) *faults.Plan {
	return sim.ShrinkBy(context.Background(), p, func(p *faults.Plan) *sim.Result {
		r, lacks := c.try(in, p)
		if len(lacks) > 0 {
			r.Violations, r.Verdict = nil, sim.Sound
		}
		return r
	})
}

func (c *contestant) keep(in bubble, id, from string, p *faults.Plan) error {
	r, _ := c.try(in, p)
	if r.Worst() == nil {
		return nil // it does not come to the same each time
	}
	folder := filepath.Join("testdata", "plans", file(c))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("# %s, from %s\n# %s: %s\n%s", c.title(), from, r.Verdict, r.Worst().Invariant, p)
	return os.WriteFile(filepath.Join(folder, id+".plan"), []byte(text), 0o644)
}

// explore keeps the first plan of each way in which the lock breaks.
func (c *contestant) explore(in bubble, from, seeds uint64, out io.Writer) error {
	found := make(map[string]bool)
	for seed := from; seed < from+seeds; seed++ {
		p := strip(faults.Generate(seed, faults.Profile{}), c)
		r, lacks := c.try(in, p)
		if v := r.Worst(); len(lacks) > 0 || v == nil || v.Outside != "" || found[v.Invariant] && c.name != ours {
			continue
		}
		found[r.Worst().Invariant] = true
		fmt.Fprintf(out, "seed %d: %s %v\n", seed, r.Verdict, r.Worst())
		if err := c.keep(in, fmt.Sprintf("seed%d", seed), fmt.Sprintf("seed %d", seed), c.shrink(in, p)); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%d plans\n", seeds)
	return nil
}
