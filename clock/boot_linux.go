package clock

import "golang.org/x/sys/unix"

// bootInstant reads CLOCK_BOOTTIME: Go's own monotonic clock is
// CLOCK_MONOTONIC, which stands still during a suspension (golang/go#24595).
func bootInstant() Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("clock: cannot read CLOCK_BOOTTIME, which Linux has had since 2.6.39: " + err.Error())
	}
	return Instant(ts.Nano())
}
