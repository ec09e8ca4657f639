package clock

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Go's own monotonic clock is CLOCK_MONOTONIC, which stops during a suspension
// (golang/go#24595). CLOCK_BOOTTIME goes on, but x/sys reads it by a system call of some
// 400 ns, where time.Now takes 50: a fifth of the CPU time of a lock.
var boot = bootClock{
	cheap: func() (mono, wall time.Duration) {
		now := time.Now()
		return now.Sub(processStart), time.Duration(now.UnixNano())
	},
	dear: func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			panic("clock: cannot read CLOCK_BOOTTIME, which Linux has had since 2.6.39: " + err.Error())
		}
		return time.Duration(ts.Nano())
	},
}

var processStart = time.Now()

func bootInstant() Instant { return boot.now() }

// A bootClock reads CLOCK_BOOTTIME only when it may have moved against the monotonic
// clock. That happens at the end of a suspension, when the kernel moves the time of day
// by the same amount. So while the time of day keeps its distance from the monotonic
// clock, CLOCK_BOOTTIME does, too.
type bootClock struct {
	cheap func() (mono, wall time.Duration)
	dear  func() time.Duration
	last  atomic.Pointer[distances]
}

// distances are from the monotonic clock.
type distances struct{ wall, boot time.Duration }

// jitter bounds how far apart two readings, one after the other, may be.
const jitter = 100 * time.Microsecond

func (b *bootClock) now() Instant {
	mono, wall := b.cheap()
	last := b.last.Load()
	if last == nil || (wall-mono-last.wall).Abs() > jitter {
		b.last.CompareAndSwap(last, b.measure(last))
		last = b.last.Load() // of another task, perhaps, that was faster
		mono, _ = b.cheap()
	}
	return Instant(mono + last.boot)
}

// measure reads the distances. CLOCK_BOOTTIME never comes nearer to the monotonic clock:
// that would be an inexact reading. An interrupted reading makes the distance too long,
// and a lease end too early.
func (b *bootClock) measure(last *distances) *distances {
	var d distances
	for range 10 {
		before, _ := b.cheap()
		d.boot = b.dear() - before
		mono, wall := b.cheap()
		d.wall = wall - mono
		if mono-before < jitter {
			break
		}
	}
	if last != nil && d.boot < last.boot+jitter {
		d.boot = last.boot
	}
	return &d
}
