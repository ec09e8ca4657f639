// Bugs shows bugs of the track record: it takes the sources from before the fix, builds their simulator, and
// has it run the plan that is kept. Then it runs the plan on the engine of this tree.
//
//	go run ./sim/bugs partial-votes      # one, with what the old simulator says
//	go run ./sim/bugs --all              # each plan of docs/evidence/track-record.md, in a table
//
// A plan may have words that the simulator from before the fix does not know: it is then too old. One that
// does not break the old engine may need what its simulator could not do yet.
//
// It needs tar, and git with the whole history, and takes some ten seconds for each plan. The exit status is 0 if
// every plan is sound on this tree, 1 if one is not, 2 if nobody can tell.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/sim"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	sound, err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "bugs:", err)
		os.Exit(2)
	case !sound:
		os.Exit(1)
	}
}

// A bug is a plan of the track record.
type bug struct {
	plan, what string
	fixed      string // the commit

	before outcome     // on the tree before it
	output string      // of that
	says   string      // what of it tells why
	now    sim.Verdict // on this tree
}

// An outcome is what became of a plan on an old tree.
type outcome string

const (
	broken  outcome = "broken"
	sound   outcome = "sound"   // and yet the bug was there
	tooOld  outcome = "too old" // its simulator does not know the plan's words
	unbuilt outcome = "not built"
)

func run(ctx context.Context, args []string, out io.Writer) (fixed bool, err error) {
	flags := flag.NewFlagSet("bugs", flag.ContinueOnError)
	every := flags.Bool("all", false, "every plan of the track record")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	root, err := git(ctx, ".", "rev-parse", "--show-toplevel")
	if err != nil {
		return false, err
	}
	h := history{root: strings.TrimSpace(string(root))}
	page, err := os.ReadFile(filepath.Join(h.root, "docs", "evidence", "track-record.md"))
	if err != nil {
		return false, err
	}
	all := bugsOf(string(page))
	if name := strings.TrimSuffix(flags.Arg(0), ".plan"); !*every {
		all = slices.DeleteFunc(all, func(b *bug) bool { return b.plan != name })
	}
	if len(all) == 0 || *every == (flags.NArg() == 1) || flags.NArg() > 1 {
		return false, errors.New("want the name of one plan of docs/evidence/track-record.md, such as partial-votes, or --all")
	}
	if h.dir, err = os.MkdirTemp("", "redquorum-bugs-"); err != nil {
		return false, err
	}
	defer os.RemoveAll(h.dir)
	for _, b := range all {
		if err := h.show(ctx, b); err != nil {
			return false, err
		}
		fmt.Fprintf(os.Stderr, "%s, before %s: %s; now: %s\n", b.plan, b.fixed, b.before, b.now)
	}
	fixed = !slices.ContainsFunc(all, func(b *bug) bool { return b.now == sim.Unsafe || b.now == sim.Stuck })
	if !*every {
		fmt.Fprintf(out, "%s\n\n", all[0].output)
	}
	return fixed, table(out, all)
}

var (
	planLink = regexp.MustCompile(`\[plan\]\([^)]*/([^)/]*)\.plan\)`)
	aCommit  = regexp.MustCompile("^`[0-9a-f]{7,40}`$")
)

// bugsOf returns the plans that keep bugs found, each with the commit that has fixed its bug.
func bugsOf(page string) (all []*bug) {
	for row := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(row), "| "), " | ")
		if len(cells) != 5 || !aCommit.MatchString(cells[2]) {
			continue
		}
		for _, link := range planLink.FindAllStringSubmatch(cells[4], -1) {
			all = append(all, &bug{plan: link[1], what: cells[0], fixed: strings.Trim(cells[2], "`")})
		}
	}
	return all
}

// A history is where old trees come from, and go to.
type history struct{ root, dir string }

// show runs one plan on both trees.
func (h *history) show(ctx context.Context, b *bug) error {
	path := filepath.Join(h.root, "sim", "testdata", "bugs", b.plan+".plan")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	p, err := faults.Parse(string(text))
	if err != nil {
		return err
	}
	b.now = sim.Run(p, nil).Verdict
	program, err := h.build(ctx, b.fixed+"~1")
	if err != nil {
		b.before, b.says = unbuilt, strings.ReplaceAll(err.Error(), "\n", " ")
		if errors.Is(err, errNoHistory) {
			return err
		}
		return ctx.Err()
	}
	b.replay(ctx, program, path)
	return ctx.Err()
}

var errNoHistory = errors.New("the history of this clone lacks it: git fetch --unshallow")

// build builds the command of a commit, once.
func (h *history) build(ctx context.Context, commit string) (program string, err error) {
	dir := filepath.Join(h.dir, commit)
	program = filepath.Join(dir, "redquorum.exe")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	sources, err := git(ctx, h.root, "archive", "--format=tar", commit)
	if err != nil {
		return "", fmt.Errorf("%s: %w", commit, errNoHistory)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	for _, words := range [][]string{{"tar", "-x"}, {"go", "build", "-trimpath", "-o", program, "./cmd/redquorum"}} {
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Dir, cmd.Stdin = dir, bytes.NewReader(sources)
		if said, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(said))
		}
	}
	return program, nil
}

// replay runs the plan on an old tree.
func (b *bug) replay(ctx context.Context, program, plan string) {
	const longest = 2 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "sim", "replay", plan)
	said, _ := cmd.CombinedOutput()
	b.output = strings.TrimSpace(string(said))
	b.says = why(b.output)
	switch status := cmd.ProcessState.ExitCode(); {
	case ctx.Err() != nil:
		b.before, b.says = tooOld, fmt.Sprintf("it ran for %v", longest)
	case status == 0:
		b.before = sound
	case status == 1 || status == 3: // safety, liveness
		b.before = broken
	default:
		b.before = tooOld
	}
}

var violation = regexp.MustCompile(`VIOLATION (.*)`)

// why returns the last violation in what a simulator says, or else its last paragraph. Both are one line.
func why(output string) string {
	if all := violation.FindAllStringSubmatch(output, -1); len(all) > 0 {
		return all[len(all)-1][1]
	}
	return strings.Join(strings.Fields(output[strings.LastIndex(output, "\n\n")+1:]), " ")
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// table shows the plans, and counts them.
func table(out io.Writer, all []*bug) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	count := make(map[outcome]int)
	fmt.Fprintln(w, "plan\tfixed by\tbefore it\tnow\twhat was said before it")
	for _, b := range all {
		count[b.before]++
		says := []rune(b.says)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", b.plan, b.fixed, b.before, b.now, string(says[:min(len(says), 90)]))
	}
	fmt.Fprintf(w, "\n%d plans: before the fix %d broke the engine, %d did not, %d were too old to tell, %d were not built\n", len(all),
		count[broken], count[sound], count[tooOld], count[unbuilt])
	return w.Flush()
}

// git returns what git prints.
func git(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("git %s: %s", args[0], lastLine(string(exit.Stderr)))
	}
	return out, err
}
