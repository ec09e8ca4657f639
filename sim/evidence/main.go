// Evidence runs the checks of this tree and writes one static page with what they say. Each figure has the
// command that makes it. A check that cannot run here says why in its row.
//
//	go run ./sim/evidence --out site            # hours
//	go run ./sim/evidence --out site --short    # minutes: fewer seeds, shorter storms, one row of the model
//
// The folder gets index.html and history.jsonl, to which each run appends a line. The page also has the
// runs that are in it already. --playground is the address of the playground, for the plan of the last find.
// Both are written after each check, and the same command at the same commit goes on with a run that was
// interrupted.
//
// The exit status is 0 if nothing was found, 1 if a check has failed, 2 if the page lacks checks or is missing.
package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"html/template"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

//go:embed page.html
var skeleton string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	failed, err := run(ctx, os.Args[1:])
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "evidence:", err)
		os.Exit(2)
	case failed:
		os.Exit(1)
	}
}

// A figure is what one check says.
type figure struct {
	Group   string  `json:"group"`             // seeds, storms, model, mutants, traces, finds, bench
	What    string  `json:"what"`              // is checked
	Command string  `json:"command"`           // that makes it
	Text    string  `json:"text,omitempty"`    // what it says
	Number  float64 `json:"number,omitempty"`  // the same, for the history
	Failed  bool    `json:"failed,omitempty"`  // the check has found something
	Missing string  `json:"missing,omitempty"` // why it could not run
	Link    string  `json:"link,omitempty"`
	Seconds float64 `json:"seconds"`
}

// A record is one run, a line of the history.
type record struct {
	At      time.Time `json:"at"`
	Commit  string    `json:"commit"`
	Short   bool      `json:"short"`
	Figures []figure  `json:"figures"`
}

// A column of the history is a group of figures.
type column struct{ Group, Title, Format string }

var columns = []column{
	{"seeds", "seeds", "%.0f"}, {"storms", "minutes of storms", "%.1f"}, {"model", "states", "%.0f"}, {"traces", "protections", "%.0f"},
	{"mutants", "mutants killed", "%.0f"}, {"bench", "of redsync's time", "%.2f"},
}

// Sum is what a run has for a column.
func (r record) Sum(c column) string {
	sum, there := 0.0, false
	for _, f := range r.Figures {
		if f.Group == c.Group && f.Missing == "" {
			sum, there = sum+f.Number, true
		}
	}
	if !there {
		return "–"
	}
	return fmt.Sprintf(c.Format, sum)
}

// Failed reports whether a check of the run has failed.
func (r record) Failed() bool {
	return slices.ContainsFunc(r.Figures, func(f figure) bool { return f.Failed })
}

// NotRun counts the checks that could not run.
func (r record) NotRun() (n int) {
	for _, f := range r.Figures {
		if f.Missing != "" {
			n++
		}
	}
	return n
}

func run(ctx context.Context, args []string) (failed bool, err error) {
	flags := flag.NewFlagSet("evidence", flag.ContinueOnError)
	out := flags.String("out", "site", "the `folder` of the page")
	short := flags.Bool("short", false, "minutes instead of hours")
	servers := flags.String("servers", "redis-server", "the programs of servers, separated by commas")
	playground := flags.String("playground", "playground/index.html", "the `address` of the playground")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if flags.NArg() > 0 {
		return false, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err := os.MkdirAll(*out, 0o777); err != nil {
		return false, err
	}
	path := filepath.Join(*out, "history.jsonl")
	history, err := readHistory(path)
	if err != nil {
		return false, err
	}
	commit := "unknown"
	if said, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=10", "HEAD").Output(); err == nil {
		commit = strings.TrimSpace(string(said))
	}
	plan := func(at time.Time) []check { return checks(*short, strings.Split(*servers, ","), *playground, at) }
	history, all := begin(history, record{At: time.Now().UTC().Truncate(time.Second), Commit: commit, Short: *short}, plan)
	now := &history[len(history)-1]
	for i, c := range all {
		if f := &now.Figures[i]; f.Missing == interrupted {
			fmt.Fprintln(os.Stderr, c.Command)
			if done := c.run(ctx); ctx.Err() == nil {
				*f = done
			}
		}
		if err := errors.Join(writeHistory(path, history), write(filepath.Join(*out, "index.html"), history)); err != nil {
			return false, err
		}
		if ctx.Err() != nil {
			return false, errors.New("interrupted; the same command goes on")
		}
	}
	return now.Failed(), nil
}

// interrupted is what a figure lacks until its check has run.
const interrupted = "the run was interrupted before"

// begin adds a run to the history. It goes on with the last one if that was interrupted and has the same checks.
func begin(history []record, now record, plan func(time.Time) []check) ([]record, []check) {
	if n := len(history); n > 0 {
		last := history[n-1]
		all := plan(last.At)
		same := slices.EqualFunc(last.Figures, all, func(f figure, c check) bool { return f.Command == c.Command })
		if same && last.Commit == now.Commit && slices.ContainsFunc(last.Figures, func(f figure) bool { return f.Missing == interrupted }) {
			return history, all
		}
	}
	all := plan(now.At)
	for _, c := range all {
		f := c.figure
		f.Missing = cmp.Or(f.Missing, interrupted)
		now.Figures = append(now.Figures, f)
	}
	return append(history, now), all
}

// readHistory reads the runs that there were, the first first.
func readHistory(path string) (all []record, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for line := range bytes.Lines(text) {
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, len(all)+1, err)
		}
		all = append(all, r)
	}
	return all, err
}

func writeHistory(path string, all []record) error {
	var b bytes.Buffer
	for _, r := range all {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		b.Write(append(line, '\n'))
	}
	// A run that is killed must not cut off what is there.
	if err := os.WriteFile(path+".new", b.Bytes(), 0o666); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// write writes the page of the last run, with all of them.
func write(path string, history []record) error {
	page := template.Must(template.New("").Parse(skeleton))
	last := history[len(history)-1]
	newest := slices.Clone(history)
	slices.Reverse(newest)
	var b bytes.Buffer
	if err := page.Execute(&b, map[string]any{"Last": last, "History": newest, "Columns": columns}); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o666)
}
