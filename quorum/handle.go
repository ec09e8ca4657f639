package quorum

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/redquorum/redquorum/node"
)

// A Handle is what another process needs to take a lease over with
// [Locker.Resume]. It can be sent as JSON.
//
// With it go the bounds of the lease: one of [WithFixedLease] is not renewed by whoever
// resumes it either, and a MaxHold does not begin anew. How much of them has passed since
// the handle was made is told by the time of day, as no other clock is common to two
// machines; so their times of day are assumed to agree. Where the one of Resume is ahead
// the lease ends earlier by that much, and if no more was left of its bound than that,
// Resume returns ErrNotHeld. Where it is behind the lease ends later by that much, but
// never later than if no time had passed between the handle and Resume.
type Handle struct {
	Name  string        `json:"name"`
	Names []string      `json:"names,omitempty"` // all of them, if there are several
	Mode  string        `json:"mode,omitempty"`  // "read" or "write"
	Owner string        `json:"owner"`
	Token node.Token    `json:"token"` // the fencing token
	Lease time.Duration `json:"lease_ns"`

	// RawNames are all names, if one of them is not UTF-8, which JSON cannot tell; then
	// these count, and not Name and Names.
	RawNames [][]byte `json:"raw_names,omitempty"`

	// High is the highest token that was used for the lease: that of the last
	// node that was given it again after it had lost it.
	High node.Token `json:"high"`

	// FixedLeft is what was left of the lease when the handle was made, if it is never
	// renewed, and HoldLeft what was left of its MaxHold; 0 if it has no such bound. At is
	// the time of day then, if it has one.
	FixedLeft time.Duration `json:"fixed_left_ns,omitempty"`
	HoldLeft  time.Duration `json:"hold_left_ns,omitempty"`
	At        time.Time     `json:"at,omitzero"`
}

// Handle returns the lease's handle. Two processes that use one handle at the
// same time hold the lock together: hand over with [Lease.Detach].
func (le *Lease) Handle() Handle {
	h := le.h
	now := h.l.clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	handle := Handle{
		Name: h.claim.Name, Names: slices.Clone(h.claim.names), Owner: h.claim.Owner, Token: h.claim.Token,
		Lease: h.lease, High: h.high,
	}
	if !utf8.ValidString(h.claim.title()) {
		for name := range h.claim.each() {
			handle.RawNames = append(handle.RawNames, []byte(name))
		}
	}
	if h.mode != node.Exclusive {
		handle.Mode = h.mode.String()
	}
	// Nothing left is not the same as no bound.
	if h.fixed {
		handle.FixedLeft = max(1, h.until.Sub(now))
	}
	if h.maxHold > 0 {
		handle.HoldLeft = min(max(1, h.limit.Sub(now)), longest)
	}
	if h.fixed || h.maxHold > 0 {
		handle.At = h.l.clock.Wall().Round(0).UTC() // without its monotonic reading, which means nothing elsewhere
	}
	return handle
}

// restore puts names back that JSON has changed.
func (h *Handle) restore() {
	if len(h.RawNames) == 0 {
		return
	}
	h.Name, h.Names = string(h.RawNames[0]), nil
	for _, more := range h.RawNames[1:] {
		h.Names = append(h.Names, string(more))
	}
}

// check says what is wrong with a handle, which may come from anywhere.
func (h *Handle) check() error {
	switch {
	case h.Owner == "":
		return fmt.Errorf("quorum: handle of %q has no owner", h.Name)
	case h.Owner == node.ModeField:
		return fmt.Errorf("quorum: handle of %q has the owner mode, which is what locks of readers and writers have beside owners", h.Name)
	case h.Token <= 0 || h.Token > node.MaxToken:
		return fmt.Errorf("quorum: handle of %q has the token %d; it must be more than 0, and at most %d", h.Name, h.Token, node.MaxToken)
	case h.High < 0 || h.High > node.MaxToken:
		return fmt.Errorf("quorum: handle of %q has the highest token %d; it must not be negative, nor more than %d", h.Name, h.High, node.MaxToken)
	case (h.FixedLeft != 0 || h.HoldLeft != 0) && h.At.IsZero():
		return fmt.Errorf("quorum: handle of %q has a bound, and no time of day", h.Name)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"Lease", h.Lease}, {"FixedLeft", h.FixedLeft}, {"HoldLeft", h.HoldLeft}} {
		if d.value < 0 || d.value > longest {
			return fmt.Errorf("quorum: %s of the handle of %q is %v; it must not be negative, nor more than %v", d.name, h.Name, d.value, longest)
		}
	}
	return nil
}

// age takes from the bounds what has passed of them by now, a time of day. The error is
// why nothing that can be relied on is left.
func (h *Handle) age(now time.Time, rate float64) error {
	passed := max(0, now.Sub(h.At))
	if h.HoldLeft > 0 {
		if h.HoldLeft -= passed; h.HoldLeft <= 0 {
			return fmt.Errorf("%w, by the time of day", ErrMaxHold)
		}
	}
	if h.FixedLeft > 0 {
		if h.FixedLeft -= passed; h.FixedLeft <= 2*drift(h.FixedLeft, rate) {
			return errors.New("its fixed lease is over, by the time of day")
		}
		h.Lease = h.FixedLeft
	}
	return nil
}

// bound makes settings, of the options given to Resume, no laxer than the lease was.
func (h *Handle) bound(s *settings) {
	if h.FixedLeft > 0 {
		s.fixed, s.lease = true, min(s.lease, h.FixedLeft)
	}
	if h.HoldLeft > 0 && (s.maxHold == 0 || s.maxHold > h.HoldLeft) {
		s.maxHold = h.HoldLeft
	}
}
