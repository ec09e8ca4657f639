// Evidence runs the checks of this tree and writes one static page with what they say. Each figure has the
// command that makes it. A check that cannot run here says why in its row.
//
//	go run ./sim/evidence --out site            # hours
//	go run ./sim/evidence --out site --short    # minutes: fewer seeds, shorter storms, one row of the model
//
// The folder gets index.html and history.jsonl, to which each run appends a line. The page also has the
// runs that are in it already. --playground is the address of the playground, for the plan of the last find.
//
// The exit status is 0 if nothing was found, 1 if a check has failed, 2 if there is no page.
package main

import (
	"bytes"
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
	now := record{At: time.Now().UTC().Truncate(time.Second), Commit: "unknown", Short: *short}
	if commit, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=10", "HEAD").Output(); err == nil {
		now.Commit = strings.TrimSpace(string(commit))
	}
	for _, c := range checks(*short, strings.Split(*servers, ","), *playground, now.At) {
		fmt.Fprintln(os.Stderr, c.Command)
		now.Figures = append(now.Figures, c.run(ctx))
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	line, err := json.Marshal(now)
	if err != nil {
		return false, err
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return false, err
	}
	_, err = file.Write(append(line, '\n'))
	if err = errors.Join(err, file.Close()); err != nil {
		return false, err
	}
	return now.Failed(), write(filepath.Join(*out, "index.html"), append(history, now))
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
