package clock

import "golang.org/x/sys/unix"

// bootInstant reads CLOCK_MONOTONIC, which on macOS counts sleep, unlike Go's own
// monotonic clock.
func bootInstant() Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("clock: cannot read CLOCK_MONOTONIC: " + err.Error())
	}
	return Instant(ts.Nano())
}
