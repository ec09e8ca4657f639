// A method of Lease, and type Handle.

package quorum

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/core"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// A Handle is what another process needs to take a lease over with [Locker.Resume]. It is
// opaque text of letters, digits and ".", "-" and "_", which can be sent and stored as it
// is, and begins with the version of its format. Any program that has it can take the
// lease, once, with a Locker that has the same Options.Prefix.
//
// The lease's bounds go with it: a fixed lease stays fixed, and a MaxHold does not begin
// again. How much of them has passed is measured by the time of day, as two machines have
// no other clock in common. If the resuming machine's clock is ahead, the lease ends
// earlier by that much, or Resume returns ErrNotHeld; if it is behind, the lease ends
// later by that much, but never later than if no time had passed between the handle and
// Resume. The rest of a minimum hold (see [WithMinHold]) counts from Resume, so that no
// clock ends it early.
type Handle string

// A Handle of this version begins with these. Base64 of the JSON of terms follows.
const (
	handlePrefix  = "redquorum"
	handleVersion = "1"
)

type terms struct {
	Names []string      `json:"names"`
	Mode  node.Mode     `json:"mode,omitempty"`
	Owner string        `json:"owner"`
	Token node.Token    `json:"token"` // the fencing token
	High  node.Token    `json:"high"`  // the highest that was used for the lease: healing takes fresh ones
	Lease time.Duration `json:"lease_ns"`

	// FixedLeft is the rest of a fixed lease when the handle was made, and HoldLeft the
	// rest of its MaxHold; 0 if there is no such bound. At is the time of day then, in
	// nanoseconds since 1970.
	FixedLeft time.Duration `json:"fixed_left_ns,omitempty"`
	HoldLeft  time.Duration `json:"hold_left_ns,omitempty"`
	At        int64         `json:"at_ns"`

	// Detached says that the process that made the handle has given the lease up, and
	// that none from whose handle it has resumed it may still hold it.
	Detached bool `json:"detached,omitempty"`

	// KeepLeft is for how long the name must stay taken from when the handle was made.
	KeepLeft time.Duration `json:"keep_left_ns,omitempty"`
}

// Handle returns the lease's handle, with which another process can take the lease over
// while this one has it, or after a crash. Until this one learns of it, or its lease
// ends, both hold the lock, and nobody else does (see [Locker.Resume]). To hand over
// without that, use [Lease.Detach].
func (le *Lease) Handle() Handle {
	at := le.l.core.Clock.Wall()
	in := le.l.core.Step()
	defer in.Leave()
	t := termsOf(in, le.h, at)
	return t.handle()
}

// termsOf are those of a handle of a hold that is made at a time of day, read for it:
// another process counts from there.
func termsOf(in core.Step, h *core.Hold, at time.Time) terms {
	left := in.Bounds(h)
	return terms{Names: slices.Collect(h.Claim.Each()), Mode: left.Mode, Owner: h.Claim.Owner, Token: h.Claim.Token,
		High:  left.High,
		Lease: h.Lease, FixedLeft: left.Fixed, HoldLeft: min(left.Hold, longest), KeepLeft: left.Kept,
		At: at.UnixNano()}
}

func (t *terms) handle() Handle {
	text, _ := json.Marshal(t) // of numbers and texts alone it never fails
	return Handle(handlePrefix + handleVersion + "." + base64.RawURLEncoding.EncodeToString(text))
}

// parse returns what a handle says, which may come from anywhere, or what is wrong with
// it.
func (from Handle) parse() (t terms, err error) {
	rest, ok := strings.CutPrefix(string(from), handlePrefix)
	version, body, found := strings.Cut(rest, ".")
	switch {
	case !ok || !found:
		return t, fmt.Errorf("quorum: the text is not a handle: it does not begin with %q",
			handlePrefix+handleVersion+".")
	case version != handleVersion:
		return t, fmt.Errorf("quorum: the handle has version %.10q; this program reads version %s", version,
			handleVersion)
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if err != nil {
		return t, fmt.Errorf("quorum: the handle is damaged: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields() // one could be a bound
	if err := d.Decode(&t); err != nil {
		return t, fmt.Errorf("quorum: the handle is damaged: %w", err)
	}
	if d.InputOffset() != int64(len(text)) {
		return t, errors.New("quorum: the handle is damaged: something follows it")
	}
	return t, t.check()
}

func (t *terms) title() string { return strings.Join(t.Names, ",") }

func (t *terms) check() error {
	switch {
	case len(t.Names) == 0:
		return errors.New("quorum: the handle has no name")
	case t.Owner == "":
		return fmt.Errorf("quorum: handle of %q has no owner", t.title())
	case t.Owner == node.ModeField:
		return fmt.Errorf("quorum: handle of %q has the owner mode, which is a reserved field of readers' and writers' locks", t.title())
	case t.Mode > node.Write:
		return fmt.Errorf("quorum: handle of %q has the mode %d, which this program does not know", t.title(), t.Mode)
	case t.Token <= 0 || t.High < t.Token || t.High > node.MaxToken:
		return fmt.Errorf("quorum: handle of %q has the token %d and the highest token %d; "+
			"the first must be more than 0, and the second not below it, nor above %d", t.title(), t.Token, t.High,
			node.MaxToken)
	case t.Lease <= 0:
		return fmt.Errorf("quorum: handle of %q has a lease of %v; it must be more than 0", t.title(), t.Lease)
	case min(t.FixedLeft, t.HoldLeft, t.KeepLeft) < 0 || max(t.Lease, t.FixedLeft, t.HoldLeft, t.KeepLeft) > longest:
		return fmt.Errorf("quorum: handle of %q has a time that is negative, or more than %v", t.title(), longest)
	case t.At <= 0:
		return fmt.Errorf("quorum: handle of %q has no time of day", t.title())
	}
	return nil
}

// age subtracts the time passed until now, a time of day, from the bounds. It returns an
// error if nothing is left.
func (t *terms) age(now time.Time, rate float64) error {
	passed := max(0, now.Sub(time.Unix(0, t.At)))
	if t.HoldLeft > 0 {
		if t.HoldLeft -= passed; t.HoldLeft <= 0 {
			return fmt.Errorf("%w, by the time of day", ErrMaxHold)
		}
	}
	if t.FixedLeft > 0 {
		if t.FixedLeft -= passed; t.FixedLeft <= 2*vote.Drift(t.FixedLeft, rate) {
			return errors.New("its fixed lease is over, by the time of day")
		}
		t.Lease = t.FixedLeft
	}
	return nil
}

// bound tightens s, the call of Resume, to the bounds of the lease. Its name
// may have to stay taken in any mode, for a process that held it before; and for no
// longer than maxLease, as no lease is longer, and no minimum hold.
func (t *terms) bound(s *call, maxLease time.Duration) {
	s.Keep = max(s.Keep, min(t.KeepLeft, maxLease))
	if t.FixedLeft > 0 {
		s.Fixed, s.Lease = true, min(s.Lease, t.FixedLeft)
	}
	if t.HoldLeft > 0 && (s.MaxHold == 0 || s.MaxHold > t.HoldLeft) {
		s.MaxHold = t.HoldLeft
	}
}
