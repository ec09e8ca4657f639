package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A check is a command, and what its output means.
type check struct {
	figure
	needs string // a program, which may be missing
	read  func(f *figure, out string) error
}

// kinds are the ways in which seeds draw plans, as flags of sim explore.
var kinds = []string{"", "--kinds plain", "--kinds readwrite", "--kinds fair", "--kinds several", "--kinds joint", "--kinds chain", "--machines", "--replicas"}

// checks are what a run consists of. Each run has other seeds.
func checks(short bool, servers []string, playground string, now time.Time) (all []check) {
	pick := func(quick, long string) string {
		if short {
			return quick
		}
		return long
	}
	seeds, _ := strconv.Atoi(pick("100", "10000"))
	first := now.Unix() / 3600 * 10000
	for _, kind := range kinds {
		command := strings.TrimSpace(fmt.Sprintf("go run ./cmd/redquorum sim explore --json --seeds %d-%d %s", first, first+int64(seeds)-1, kind))
		what := "Plans from seeds"
		if kind != "" {
			what += ", " + strings.TrimPrefix(strings.TrimPrefix(kind, "--kinds "), "--")
		}
		all = append(all, check{figure: figure{Group: "seeds", What: what, Command: command},
			read: func(f *figure, out string) error { return f.readSeeds(out, playground) }})
	}
	for _, server := range servers {
		all = append(all, check{figure: figure{Group: "storms", What: "Plans from seeds on real servers",
			Command: "go run ./cmd/redquorum chaos --json --for " + pick("30s", "20m") + " --server " + server}, needs: server, read: (*figure).readStorm})
	}
	all = append(all,
		check{figure: figure{Group: "model", What: "The specification, by TLC", Command: "spec/check" + pick(" free", "")}, needs: "java", read: (*figure).readModel},
		check{figure: figure{Group: "traces", What: "Protections of the specification, and runs that it refuses without each", Command: "go run ./sim/mutants --spec"},
			read: (*figure).readTraces},
		check{figure: figure{Group: "mutants", What: "Bugs put into the engine", Command: "go run ./sim/mutants" + pick(" --canary", " --seeds 1000")}, read: (*figure).readMutants},
		check{figure: figure{Group: "bench", What: "Time of a lock and its unlock, five nodes, next to redsync", Command: "go run -C bench/peers . --spawn --n 5 --workload latency --contestants redquorum,redsync --json" +
			pick(" --for 1s --rounds 3", " --for 10s --rounds 5")}, needs: "redis-server", read: (*figure).readBench},
		check{figure: figure{Group: "finds", What: "The last plan that was kept because it broke the engine",
			Command: "git log --diff-filter=A --name-only --format=%cs -- sim/testdata/bugs"}, needs: "git",
			read: func(f *figure, out string) error { return f.readFind(out, "docs/evidence/track-record.md", playground) }})
	if short {
		for i := range all {
			if all[i].Group == "traces" {
				all[i].Missing = "left out of a short run"
			}
		}
	}
	return all
}

// run runs the command. Its output is read also if it fails: a check that finds something does.
func (c check) run(ctx context.Context) figure {
	f := c.figure
	if f.Missing != "" {
		return f
	}
	if c.needs != "" {
		if _, err := exec.LookPath(c.needs); err != nil {
			f.Missing = c.needs + " is not installed here"
			return f
		}
	}
	begun := time.Now()
	words := strings.Fields(c.Command)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	var said strings.Builder
	cmd.Stderr, cmd.WaitDelay = &said, 10*time.Second // its own commands may go on when it is interrupted
	out, err := cmd.Output()
	f.Seconds = time.Since(begun).Seconds()
	exit := (*exec.ExitError)(nil)
	f.Failed = errors.As(err, &exit)
	if err == nil || f.Failed {
		err = c.read(&f, string(out))
	}
	if err != nil {
		f.Missing = strings.TrimSuffix(err.Error()+": "+last(said.String()), ": ")
	}
	return f
}

func last(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func (f *figure) readSeeds(out, playground string) error {
	var r struct {
		Seeds, Outside uint64
		Virtual        float64 `json:"virtual_seconds"`
		Violations     []struct{ What, Plan string }
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return err
	}
	f.Number = float64(r.Seeds)
	f.Text = fmt.Sprintf("%d seeds, %.1f hours of virtual time, %d violations", r.Seeds, r.Virtual/3600, len(r.Violations))
	if len(r.Violations) > 0 {
		f.Text += ": " + r.Violations[0].What
		f.Link = inPlayground(playground, r.Violations[0].Plan)
	}
	return nil
}

// inPlayground is the address at which the playground shows a plan.
func inPlayground(address, plan string) string {
	return address + "#" + url.Values{"plan": {plan}, "left": {"plain"}, "right": {"redquorum"}}.Encode()
}

func (f *figure) readStorm(out string) error {
	var r struct {
		Plans, Grants int
		Seconds       float64
		Server        string
		Found         []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return err
	}
	f.Number = r.Seconds / 60
	f.What += ", " + r.Server
	f.Text = fmt.Sprintf("%.1f minutes: %d plans, %d locks granted, %d violations", f.Number, r.Plans, r.Grants, len(r.Found))
	return nil
}

func (f *figure) readModel(out string) error {
	rows := 0
	for line := range strings.Lines(out) {
		cells := strings.Split(line, "|") // | off | sizes | what breaks | steps | states |
		if len(cells) != 7 {
			continue
		}
		if states, err := strconv.ParseFloat(strings.TrimSpace(cells[5]), 64); err == nil {
			rows++
			f.Number += states
		}
	}
	if rows == 0 {
		return errors.New("no row was checked")
	}
	f.Text = fmt.Sprintf("%d rows as they must be, %.0f distinct states", rows, f.Number)
	if f.Failed {
		f.Text = fmt.Sprintf("%d rows, and not all are as they must be", rows)
	}
	return nil
}

func (f *figure) readTraces(out string) error {
	f.Number = float64(strings.Count(out, ".plan\n"))
	if f.Number == 0 {
		return errors.New("no plan was played")
	}
	f.Text = fmt.Sprintf("%.0f protections: each has a run that breaks without it", f.Number)
	return nil
}

var killed = regexp.MustCompile(`killed (\d+) of (\d+).*`)

func (f *figure) readMutants(out string) (err error) {
	found := killed.FindStringSubmatch(out)
	if found == nil {
		return errors.New("no summary")
	}
	f.Text = found[0]
	f.Number, err = strconv.ParseFloat(found[1], 64)
	return err
}

func (f *figure) readBench(out string) error {
	var r struct {
		Redis string
		Cells []struct {
			Contestant string
			Median     map[string]float64
		}
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return err
	}
	took := make(map[string]float64)
	for _, c := range r.Cells {
		took[c.Contestant] = c.Median["pair-p50-ns"] / 1e6
	}
	if took["redquorum"] == 0 || took["redsync"] == 0 {
		return errors.New("one of the two was not measured")
	}
	f.Number = took["redquorum"] / took["redsync"]
	f.Text = fmt.Sprintf("%.2f times redsync's: %.3f ms and %.3f ms on %s", f.Number, took["redquorum"], took["redsync"], r.Redis)
	return nil
}

// readFind takes the first plan that is in a row of a bug. The record's false alarms of the simulator have plans, too, in
// rows of four cells.
func (f *figure) readFind(out, record, playground string) error {
	rows, err := os.ReadFile(record)
	if err != nil {
		return err
	}
	date := ""
	for line := range strings.FieldsSeq(out) {
		if !strings.HasSuffix(line, ".plan") {
			date = line
			continue
		}
		for row := range strings.Lines(string(rows)) {
			if strings.Count(row, " | ") != 4 || !strings.Contains(row, line+")") {
				continue
			}
			plan, err := os.ReadFile(line)
			if err != nil {
				return err
			}
			f.Text = line + ", kept on " + date
			f.Link = inPlayground(playground, string(plan))
			return nil
		}
	}
	return errors.New("the history of this clone has no plan of a bug")
}
