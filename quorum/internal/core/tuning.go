package core

import (
	"time"
)

// These numbers are choices: others would be as safe. Those with a duration of their
// own, such as firstSweep, stand where they are used.
const (
	// A renewal is due at a third of a lease, and up to a tenth of that third earlier:
	// leases that were acquired together are not renewed together.
	renewalSpread = 10

	// A lease that was handed over has little left. It is renewed after a quarter of
	// that, or of Options.Timeout: another attempt has time.
	handedOverRest = 4

	// Renewals may be put together that are due within a thirtieth of the lease, a
	// second of 30, but within a twentieth of what is left after the renewal.
	togetherOfLease = 30
	togetherOfRest  = 20

	// A renewal that failed is tried again after a fifteenth of what is left of the
	// lease, and up to half of that more: ten attempts before its end, and two leases
	// are not in step.
	retryOfRest = 15
	retrySpread = 2
	leastRetry  = time.Millisecond

	// A round that is decided waits three times as long for more answers as for the
	// deciding one, but no longer than a tenth of its timeout: nodes that are about as
	// far away answer by then.
	lingerRounds    = 3
	lingerOfTimeout = 10
	leastLinger     = time.Millisecond

	// A release is repeated up to a quarter of the pause later, so that releases do not
	// stay in step.
	sweepSpread = 4
)
