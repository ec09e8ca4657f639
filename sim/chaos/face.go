package chaos

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
)

// faceVariable names the file that a preloaded clock reads.
const faceVariable = "REDQUORUM_CLOCK"

// A face is what the preloaded clock of a server shows, and how slow its disk is: see preload/clock.c.
type face struct {
	path    string
	file    *os.File
	version uint64
	shown   day
}

func newFace(path string) (*face, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	f := &face{path: path, file: file}
	return f, errors.Join(f.show(day{}, 0), f.slowDisk(faults.Range{}))
}

// slowDisk has each fsync take that long from now on, and ends those under way if that is 0.
func (f *face) slowDisk(d faults.Range) error {
	words := binary.NativeEndian.AppendUint64(nil, uint64(d.Min))
	_, err := f.file.WriteAt(binary.NativeEndian.AppendUint64(words, uint64(d.Max)), 5*8)
	return err
}

// show moves the clock. begun is an instant of CLOCK_MONOTONIC, the plan's beginning.
func (f *face) show(d day, begun time.Duration) error {
	f.shown = d
	f.version += 2
	var words [5 * 8]byte
	for i, n := range []int64{int64(f.version), int64(d.ahead), int64(d.rate) * 1000, int64(begun + d.since), int64(d.gained)} {
		binary.NativeEndian.PutUint64(words[8*i:], uint64(n))
	}
	odd := binary.NativeEndian.AppendUint64(nil, f.version-1)
	if _, err := f.file.WriteAt(odd, 0); err != nil {
		return err
	}
	if _, err := f.file.WriteAt(words[8:], 8); err != nil {
		return err
	}
	_, err := f.file.WriteAt(words[:8], 0)
	return err
}

// follow shows what the plan has for the host's clock until ctx ends.
func (f *face) follow(ctx context.Context, p *faults.Plan, nodes faults.Set, begun clock.Instant) {
	mine := func(procs faults.Procs) bool { return procs.Nodes&nodes != 0 }
	system := clock.System()
	mono := monotonic() - system.Now().Sub(begun)
	timer := system.NewSignal()
	for at := time.Duration(0); ; {
		if d := dayOf(p, mine, at); d != f.shown {
			_ = f.show(d, mono)
		}
		next, ok := nextChange(p, mine, at)
		if !ok || timer.Wait(ctx, begun.Add(next)) == clock.WakeEnded {
			return
		}
		at = max(next, system.Now().Sub(begun))
	}
}

// monotonic reads CLOCK_MONOTONIC.
func monotonic() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// nextChange returns when the clocks of a process change next.
func nextChange(p *faults.Plan, mine func(faults.Procs) bool, at time.Duration) (next time.Duration, ok bool) {
	change := func(when time.Duration) {
		if when > at && (!ok || when < next) {
			next, ok = when, true
		}
	}
	for i := range p.Events {
		e := &p.Events[i]
		if !movesClock(e) || !mine(e.Procs) {
			continue
		}
		change(e.At)
		change(e.At + e.For)
		if e.Verb == faults.Strobe && at >= e.At && at < min(e.At+e.For, p.Length) {
			change(e.At + ((at-e.At)/e.Every+1)*e.Every)
		}
	}
	change(p.Length)
	return next, ok
}

// movesClock reports whether a fault is about clocks. A node's time of day stands still while its
// machine sleeps.
func movesClock(e *faults.Event) bool {
	switch e.Verb {
	case faults.Skew, faults.Step, faults.Rate, faults.Strobe:
		return true
	}
	return e.Verb == faults.Suspend && e.Procs.Nodes != 0
}
