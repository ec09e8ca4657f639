package chaos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/process"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/live"
)

// A client is the parent's side of a client's process.
type client struct {
	w      *world
	number int
	jobs   chan func() // what faults do to it, one after the other

	// Of the jobs:
	proc   *process.Process // the present one; nil before the first
	stdin  io.WriteCloser
	starts int
	logs   []string // a file of each process
	faults.Process
}

// An order is what a client's process is to do. It comes on its standard input, which is
// closed when the parent is gone.
type order struct {
	Plan   string       `json:"plan"`
	Client int          `json:"client"`
	Start  int          `json:"start"` // how often it was started before
	Nodes  []live.Place `json:"nodes"`
	Store  string       `json:"store"`
	Log    string       `json:"log"`
}

// start starts a process, and waits until it is there.
func (c *client) start() error {
	w := c.w
	log := filepath.Join(w.dir, fmt.Sprintf("c%d-%d.jsonl", c.number+1, c.starts+1))
	o := order{Plan: w.p.String(), Client: c.number, Start: c.starts, Store: w.store.addr(), Log: log}
	for n, l := range w.links[c.number] {
		if w.p.Lists(c.number).Has(n) {
			o.Nodes = append(o.Nodes, live.Place{Number: n, Addr: l.addr(), Database: w.database(n)})
		}
	}
	c.starts++
	c.logs = append(c.logs, log)
	cmd := exec.Command(w.config.Self[0], w.config.Self[1:]...)
	stderr, err := os.Create(log + ".stderr")
	if err != nil {
		return err
	}
	defer stderr.Close()
	cmd.Stderr = stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if c.proc, err = process.Start(cmd); err != nil {
		return fmt.Errorf("a client's process cannot be started: %w", err)
	}
	c.stdin = stdin
	if err = json.NewEncoder(stdin).Encode(o); err == nil {
		_, err = io.ReadFull(stdout, make([]byte, len(ready)))
	}
	return ended(err)
}

// ended says that a client's process is gone, if that is the error.
func ended(err error) error {
	if err != nil {
		err = fmt.Errorf("a client's process has ended: %w", err)
	}
	return err
}

// ready is what a client's process says when it is there.
const ready = "ready\n"

// begin tells a process that is there when the plan begins.
func (c *client) begin() error {
	err := json.NewEncoder(c.stdin).Encode(c.w.begun())
	if c.Stopped > 0 { // since before it was there
		_ = c.proc.Signal(process.Stop)
	}
	return ended(err)
}

// restart starts another process in the place of one that was killed.
func (c *client) restart() {
	err := c.start()
	if err == nil {
		err = c.begin()
	}
	c.w.fail(err)
}

// work does the jobs until there are no more.
func (c *client) work() {
	for job := range c.jobs {
		job()
	}
}

// wait does something after all jobs.
func (c *client) wait(job func()) {
	done := make(chan struct{})
	c.jobs <- func() {
		defer close(done)
		job()
	}
	<-done
}

func (c *client) strike(e *faults.Event, end bool) {
	switch c.Strike(e, end) {
	case faults.Kill:
		c.kill()
	case faults.Start:
		c.restart()
	case faults.Pause, faults.Suspend: // its clock counts the time that the machine sleeps
		if c.proc != nil && c.Stopped > 0 {
			_ = c.proc.Signal(process.Stop)
		} else if c.proc != nil {
			_ = c.proc.Signal(process.Cont)
		}
	}
}

func (c *client) kill() {
	if c.proc != nil {
		c.proc.Kill()
		c.stdin.Close()
	}
}

// goOn ends all pauses.
func (c *client) goOn() {
	if !c.Dead && c.Stopped > 0 {
		c.Stopped = 0
		_ = c.proc.Signal(process.Cont)
	}
}

// join waits until the process has ended by itself. One that has failed, such as by a
// panic, cannot say what it held.
func (c *client) join(most time.Duration) {
	if c.Dead || c.proc == nil {
		return
	}
	select {
	case <-c.proc.Exited():
		if code := c.proc.ExitCode(); code != 0 {
			said, _ := os.ReadFile(c.logs[len(c.logs)-1] + ".stderr")
			c.w.fail(fmt.Errorf("the process of c%d has failed, with status %d: %s", c.number+1, code,
				said[:min(len(said), 4096)]))
		}
	case <-time.After(most):
	case <-c.w.ctx.Done():
	}
}

// end ends the process.
func (c *client) end() {
	c.Dead = true
	c.kill()
}

// readLog reads the entries that a client's process has written. The last line of one
// that was killed may be a part.
func readLog(path string) (entries []sim.Entry, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // it was killed before it began
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e sim.Entry
		if wrong := json.Unmarshal(lines.Bytes(), &e); wrong != nil {
			if lines.Scan() {
				return nil, fmt.Errorf("%s: %w", path, wrong)
			}
			break
		}
		entries = append(entries, e)
	}
	return slices.Clip(entries), err
}
