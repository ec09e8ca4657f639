//go:build !linux && !darwin

package clock

import "time"

var processStart = time.Now()

func bootInstant() Instant { return Instant(time.Since(processStart)) }
