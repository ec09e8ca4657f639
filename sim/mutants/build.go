package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if mod == "" || mod == os.DevNull {
		return "", errors.New("run it inside of the module")
	}
	return filepath.Dir(mod), nil
}

// apply returns the changed text of each file. It is an error if an edit does not fit
// exactly once: the list must follow the source.
func (m *Mutant) apply(s *source) (map[string]string, error) {
	var changes []change
	for _, e := range m.Edits {
		c, err := s.find(e)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.ID, err)
		}
		changes = append(changes, c)
	}
	// From the end of each file, so that earlier places stay right.
	slices.SortFunc(changes, func(a, b change) int { return b.from - a.from })
	files := make(map[string]string)
	for _, c := range changes {
		text, changed := files[c.file]
		if !changed {
			text = s.files[c.file]
		}
		files[c.file] = text[:c.from] + c.new + text[c.to:]
	}
	return files, nil
}

// overlay writes the changed files into dir, and returns the arguments that make the go
// command use them.
func (m *Mutant) overlay(root, dir string) ([]string, error) {
	files, err := m.apply(newSource(root))
	if err != nil {
		return nil, err
	}
	replace := make(map[string]string)
	for name, text := range files {
		changed := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			return nil, err
		}
		replace[filepath.Join(root, name)] = changed
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	list := filepath.Join(dir, "overlay.json")
	return []string{"-overlay", list}, os.WriteFile(list, b, 0o600)
}

type Outcome struct {
	*Mutant
	Killed    bool
	Seed      uint64  // the first that killed it
	Invariant string  // or the test, hang, panic or crash
	What      string  // the violation
	Seconds   float64 // of the probe, without its build
	Refused   *uint64 // the first seed whose run the specification does not allow; nil: none
}

// fine reports whether the mutant was killed as expected.
func (o *Outcome) fine() bool { return o.Killed == (o.ID != engine.ID) }

func (m *Mutant) try(ctx context.Context, root string, seeds uint64) (*Outcome, error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	o := &Outcome{Mutant: m}
	if m.Expect == Tests || m.Folder != "" {
		args, err := m.overlay(root, dir)
		if err != nil {
			return nil, err
		}
		return o, o.test(ctx, filepath.Join(root, filepath.FromSlash(m.Folder)), args)
	}
	probe := filepath.Join(dir, "probe")
	if err := m.build(ctx, root, dir, probe); err != nil {
		return nil, err
	}
	if err := o.probe(ctx, probe, seeds); err != nil || !o.Killed {
		return o, err
	}
	alone := &Outcome{}
	if err := alone.probe(ctx, probe, seeds, "-by", specification); err != nil {
		return nil, err
	}
	o.Seconds += alone.Seconds
	if alone.Invariant == specification {
		o.Refused = &alone.Seed
	}
	return o, nil
}

func (m *Mutant) build(ctx context.Context, root, dir, probe string) error {
	args, err := m.overlay(root, dir)
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", append(append([]string{"build", "-o", probe}, args...),
		"./sim/mutants/probe")...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s does not build: %w\n%s", m.ID, err, out)
	}
	return nil
}

// specification is the invariant that stands for folder spec.
const specification = "I16"

func (o *Outcome) probe(ctx context.Context, program string, seeds uint64, args ...string) error {
	began := time.Now()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, append(args, "-to", strconv.FormatUint(seeds-1, 10))...)
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	survived := false
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		line := lines.Text()
		if seed, err := strconv.ParseUint(line, 10, 64); err == nil {
			o.Seed = seed
		} else if rest, ok := strings.CutPrefix(line, "killed "); ok {
			o.Killed = true
			o.Invariant, o.What, _ = strings.Cut(rest, " ")
		} else if line == "survived" {
			survived = true
		}
	}
	err = cmd.Wait()
	o.Seconds = time.Since(began).Seconds()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !o.Killed && !survived: // not even its panics could be caught
		o.Killed, o.Invariant = true, "crash"
		o.What, _, _ = strings.Cut(stderr.String(), "\n")
	default:
		return err
	}
	return nil
}

var (
	failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	// among the violations of a run
	refusal = regexp.MustCompile(specification + `: (".*?)(?: [0-9.]+[µm]?s I[0-9]|\])`)
)

func (o *Outcome) test(ctx context.Context, dir string, args []string) error {
	began := time.Now()
	args = append(append([]string{"test", "-count=1", "-failfast", "-timeout=2m"}, args...), strings.Fields(o.Tests)...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "REDQUORUM_LONG=1")
	out, err := cmd.CombinedOutput()
	o.Seconds = time.Since(began).Seconds()
	if strings.Contains(string(out), "[build failed]") {
		return fmt.Errorf("%s does not build:\n%s", o.ID, out)
	}
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	o.Killed, o.Invariant = true, "crash"
	if m := refusal.FindSubmatch(out); m != nil {
		o.What = string(m[1])
	}
	if m := failedTest.FindAllStringSubmatch(string(out), -1); m != nil {
		o.Invariant = m[0][1]
	} else if strings.Contains(string(out), "test timed out") {
		o.Invariant = "hang"
	}
	return nil
}
