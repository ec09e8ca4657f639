package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// This file is about spec/plans: a protection of the specification has a mutant of the
// engine without it, and a plan on which that breaks the same promise as in the model.

// A Protection is a row of spec/plans/table, with a mutant or a reason.
type Protection struct {
	Name      string  // as in spec/rows
	Breaks    string  // the model's property, from spec/rows
	Mutant    *Mutant // several mutants are one here
	Invariant string  // of the simulator, that is the model's property
	Plan      string  // a path from spec/plans
	Reason    string  // why there is no mutant, or no plan
}

// protections requires that each protection of spec/rows is there once.
func protections(root string) (list []*Protection, err error) {
	breaks := make(map[string]string)
	err = eachRow(filepath.Join(root, "spec", "rows"), func(cells []string) error {
		if cells[0] != "" {
			breaks[cells[0]] = cells[1]
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = eachRow(filepath.Join(root, "spec", "plans", "table"), func(cells []string) error {
		p := &Protection{Name: cells[0], Breaks: breaks[cells[0]]}
		if p.Breaks == "" {
			return fmt.Errorf("spec/rows does not have %q, or the table has it twice", p.Name)
		}
		delete(breaks, p.Name)
		list = append(list, p)
		if cells[1] == "-" {
			p.Reason = cells[2]
			return nil
		}
		p.Mutant, p.Invariant, p.Plan = &Mutant{ID: cells[1]}, cells[2], cells[3]
		for id := range strings.FieldsSeq(p.Mutant.ID) {
			m := mutantOf(id)
			if m == nil {
				return fmt.Errorf("there is no mutant %s", id)
			}
			p.Mutant.Edits = join(p.Mutant.Edits, m.Edits)
		}
		return nil
	})
	for name := range breaks {
		err = errors.Join(err, fmt.Errorf("spec/plans/table does not have %q", name))
	}
	return list, err
}

// eachRow requires at least four cells in each line.
func eachRow(name string, do func(cells []string) error) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(line, "|")
		for i, c := range cells {
			cells[i] = strings.TrimSpace(c)
		}
		if err := do(append(cells, "", "", "")); err != nil {
			return err
		}
	}
	return nil
}

const specFormat = "%-36s %-10s %-5s %-3s %s\n"

// playSpec plays the plans on the engine with and without the protection, and prints a
// table. A missing plan is looked for among seeds, and written.
func (c *config) playSpec(ctx context.Context, root string, out io.Writer) (ok bool, err error) {
	list, err := protections(root)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "spec")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	sound := filepath.Join(dir, "sound")
	if err := engine.build(ctx, root, dir, sound); err != nil {
		return false, err
	}
	ok = true
	fmt.Fprintf(out, specFormat, "protection", "breaks", "", "", "plan, or why there is none")
	for _, p := range list {
		if len(c.only) > 0 && (p.Mutant == nil || !slices.Contains(strings.Split(c.only, ","), p.Mutant.ID)) {
			continue
		}
		id, what := "-", p.Reason
		if p.Mutant != nil {
			id, what = p.Mutant.ID, p.Plan
			if err := p.play(ctx, root, sound, c.seeds); err != nil {
				ok, what = false, what+"  <-- "+err.Error()
			}
		}
		fmt.Fprintf(out, specFormat, p.Name, p.Breaks, id, p.Invariant, what)
	}
	return ok, ctx.Err()
}

// play returns an error if the plan is not sound for the engine as it is, or if the
// engine without the protection does not break the invariant.
func (p *Protection) play(ctx context.Context, root, sound string, seeds uint64) error {
	dir, err := os.MkdirTemp("", "spec")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "probe")
	if err := p.Mutant.build(ctx, root, dir, program); err != nil {
		return err
	}
	plan, broken := filepath.Join(root, "spec", "plans", p.Plan), "killed "+p.Invariant+" "
	if _, err := os.Stat(plan); err != nil {
		err := says(ctx, broken, program, "-by", p.Invariant, "-shrink", plan, "-to", strconv.FormatUint(seeds-1, 10))
		if err != nil {
			return fmt.Errorf("there is no such plan, and no seed: %w", err)
		}
	}
	if err := says(ctx, "survived", sound, "-plan", plan); err != nil {
		return fmt.Errorf("the engine as it is: %w", err)
	}
	if err := says(ctx, broken, program, "-by", p.Invariant, "-plan", plan); err != nil {
		return fmt.Errorf("without the protection: %w", err)
	}
	return nil
}

// says checks how the last line of a probe begins.
func says(ctx context.Context, want, program string, args ...string) error {
	out, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		return err
	}
	lines := strings.Split(string(bytes.TrimSpace(out)), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, want) {
		return errors.New(last)
	}
	return nil
}
