package chaos

import (
	"context"
	"encoding/binary"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
)

// faceVariable names the file that a preloaded clock reads.
const faceVariable = "REDQUORUM_CLOCK"

// A face is what the preloaded clock of a server shows: see preload/clock.c.
type face struct {
	path    string
	file    *os.File
	version uint64
	shown   faults.Day
}

func newFace(path string) (*face, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	f := &face{path: path, file: file}
	return f, f.show(faults.Day{}, 0)
}

// show moves the clock. begun is an instant of CLOCK_MONOTONIC, the plan's beginning.
func (f *face) show(d faults.Day, begun time.Duration) error {
	f.shown = d
	f.version += 2
	var words [5 * 8]byte
	for i, n := range []int64{int64(f.version), int64(d.Ahead), int64(d.Rate) * 1000, int64(begun + d.Since),
		int64(d.Gained)} {
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
		if d := p.DayOf(mine, at); d != f.shown {
			_ = f.show(d, mono)
		}
		next, ok := p.NextChange(mine, at)
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
