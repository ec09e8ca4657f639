package spec

import (
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
)

type hand struct{ at Time }

func (h *hand) Time() Time { return h.at }

// A story is a run of one name on three nodes. All clocks show the same.
type story struct {
	*Run
	hand *hand
	x, y *client
}

type client struct{ *hand }

func tell() *story {
	s := &story{hand: new(hand)}
	s.x, s.y = &client{s.hand}, &client{s.hand}
	rules := &Rules{
		Quorum: 2, Window: 300, VotesFrom: 900, KeepsFrom: 300,
		Early: 5, Longest: 900,
		Allowed:     func(t Time) Time { return t - 10 },
		Lives:       func(c *Claim) Time { return c.Length },
		Nanoseconds: true,
	}
	s.Run = NewRun(rules, s.hand.Time, s.hand, s.hand, s.hand)
	return s
}

func (s *story) asks(owner string, by *client) { s.Asks(owner, Claim{Name: owner, Length: 900}, by) }

// holds lets x have the name since just now, by n1 and n2.
func (s *story) holds(t *testing.T) {
	s.asks("x", s.x)
	s.must(t, s.Grants(0, "x", 900), s.Grants(1, "x", 900), s.Wins("x"))
}

// extends lets x send a round, which those nodes execute at once.
func (s *story) extends(t *testing.T, nodes ...int) {
	s.Begins("x", s.x, 900)
	for _, n := range nodes {
		s.must(t, s.Keeps(n, "x", s.x, s.hand.at, 900, 900))
	}
}

// together lets x send two rounds at once, where three nodes are needed. Those nodes
// execute the first, n1 and n2 the second, which is longer.
func (s *story) together(t *testing.T, nodes ...int) {
	s.holds(t)
	s.must(t, s.Grants(2, "x", 900))
	s.Rules.Quorum = 3
	s.extends(t, nodes...)
	s.Begins("x", s.x, 950)
	for n := range 2 {
		s.must(t, s.Keeps(n, "x", s.x, s.hand.at, 950, 950))
	}
}

func (s *story) must(t *testing.T, all ...error) {
	t.Helper()
	for _, err := range all {
		assert.Succeed(t, err)
	}
}

// The specification refuses, in its own words, only what it does not allow.
func TestRun(t *testing.T) {
	for _, c := range []struct {
		what string
		tell func(t *testing.T, s *story) error
		want string // "": it is allowed
	}{
		{"one after the other", func(t *testing.T, s *story) error {
			s.holds(t)
			s.hand.at += 200
			s.extends(t, 0, 1)
			s.must(t, s.Extends("x", s.x, 0), s.Relies("x", 890))
			s.hand.at += 500
			s.Leaves("x")
			s.must(t, s.Releases(0, "x"), s.Releases(1, "x"))
			s.asks("y", s.y)
			s.must(t, s.Grants(0, "y", 900), s.Grants(1, "y", 900))
			return s.Wins("y")
		}, ""},
		{"the key has ended", func(t *testing.T, s *story) error {
			s.holds(t)
			s.hand.at += 900
			s.asks("y", s.y)
			s.must(t, s.Grants(0, "y", 900), s.Grants(1, "y", 900))
			return s.Wins("y")
		}, ""},
		{"too few nodes", func(t *testing.T, s *story) error {
			s.asks("x", s.x)
			s.must(t, s.Grants(1, "x", 900))
			return s.Wins("x")
		}, "Win(x): n2 voted for it, 2 needed"},
		{"a young node", func(t *testing.T, s *story) error {
			s.Restarts(2, false)
			s.hand.at += 899
			s.asks("x", s.x)
			s.hand.at += 10
			s.must(t, s.Grants(1, "x", 900), s.Grants(2, "x", 900))
			return s.Wins("x")
		}, "Win(x): n2 voted for it, 2 needed; too soon after a restart: n3"},
		{"a node that is old enough", func(t *testing.T, s *story) error {
			s.Restarts(2, false)
			s.hand.at += 900
			s.asks("x", s.x)
			s.must(t, s.Grants(1, "x", 900), s.Grants(2, "x", 900))
			return s.Wins("x")
		}, ""},
		{"a server that took over votes as soon as it is old enough", func(t *testing.T, s *story) error {
			s.Restarts(2, true)
			s.hand.at += 800
			s.asks("x", s.x)
			s.hand.at += 100
			s.must(t, s.Grants(1, "x", 900), s.Grants(2, "x", 900))
			return s.Wins("x")
		}, ""},
		{"after the window", func(t *testing.T, s *story) error {
			s.asks("x", s.x)
			s.must(t, s.Grants(0, "x", 900), s.Grants(1, "x", 900))
			s.hand.at += 300
			return s.Wins("x")
		}, "Win(x): 300ns after its start the window of 300ns is over"},
		{"nobody asked", func(t *testing.T, s *story) error { return s.Grants(0, "x", 900) }, "Acquire(x): nobody has asked for it"},
		{"another's key", func(t *testing.T, s *story) error {
			s.holds(t)
			s.hand.at += 100
			s.asks("y", s.y)
			return s.Grants(1, "y", 900)
		}, "Acquire(y): n2 has the key of x, for 800ns"},
		{"another's key that is about to end", func(t *testing.T, s *story) error {
			s.holds(t)
			s.hand.at += 900 - s.Rules.Early
			s.asks("y", s.y)
			return s.Grants(1, "y", 900)
		}, ""},
		{"a short key", func(t *testing.T, s *story) error {
			s.asks("x", s.x)
			return s.Grants(1, "x", 899)
		}, "Acquire(x): n2 keeps the key for 899ns, less than 900ns"},
		{"several read", func(t *testing.T, s *story) error {
			for _, owner := range []string{"x", "y"} {
				s.Asks(owner, Claim{Name: owner, Length: 900, Reads: true}, s.x)
				s.must(t, s.Grants(0, owner, 900), s.Grants(1, owner, 900), s.Wins(owner))
			}
			s.asks("z", s.y)
			return s.Grants(0, "z", 900)
		}, "Acquire(z): n1 has the key of x, for 900ns"},
		{"a writer that goes on to read as its key ends", func(t *testing.T, s *story) error {
			s.holds(t)
			s.hand.at += 899
			s.GoesOnReading("x")
			s.Shares(0, "x")
			s.Asks("y", Claim{Name: "y", Length: 900, Reads: true}, s.y)
			s.must(t, s.Grants(0, "y", 900))
			s.hand.at += s.Rules.Early
			s.Leaves("x")
			return s.Releases(0, "x")
		}, ""},
		{"a release of what is held", func(t *testing.T, s *story) error {
			s.holds(t)
			return s.Releases(0, "x")
		}, "Release(x): it is held"},
		{"a release where nothing is", func(t *testing.T, s *story) error {
			s.holds(t)
			s.Leaves("x")
			return s.Releases(2, "x")
		}, "Release(x): n3 does not have the key"},
		{"a renewal by too few", func(t *testing.T, s *story) error {
			s.holds(t)
			s.extends(t, 0)
			return s.Extends("x", s.x, 0)
		}, "Confirm(x): the round counts n1, 2 needed"},
		{"a renewal by a node that has just restarted, and was healed", func(t *testing.T, s *story) error {
			s.holds(t)
			s.Restarts(1, false)
			s.hand.at += 299
			s.must(t, s.Grants(1, "x", 900))
			s.extends(t, 0, 1)
			return s.Extends("x", s.x, 0)
		}, "Confirm(x): the round counts n1, 2 needed; too soon after a restart: n2"},
		{"more than a majority is needed", func(t *testing.T, s *story) error {
			s.holds(t)
			s.Rules.Quorum = 3
			s.extends(t, 0, 1)
			return s.Extends("x", s.x, 0)
		}, "Confirm(x): the round counts n1 and n2, 3 needed"},
		{"more than a majority is needed, and one has just restarted", func(t *testing.T, s *story) error {
			s.holds(t)
			s.Rules.Quorum = 3
			s.Restarts(2, false)
			s.must(t, s.Grants(2, "x", 900))
			s.extends(t, 0, 1, 2)
			return s.Extends("x", s.x, 0)
		}, "Confirm(x): the round counts n1 and n2, 3 needed; too soon after a restart: n3"},
		{"of two that began together one counts, and the longer one has a majority", func(t *testing.T, s *story) error {
			s.together(t, 0, 1, 2)
			return s.Extends("x", s.x, 0)
		}, ""},
		{"of two that began together neither counts, and both have a majority", func(t *testing.T, s *story) error {
			s.together(t, 0, 2)
			return s.Extends("x", s.x, 0)
		}, "Confirm(x): the round counts n1 and n2, 3 needed"},
		{"a reliance on the longer of two that began together, which does not count", func(t *testing.T, s *story) error {
			s.together(t, 0, 1, 2)
			s.must(t, s.Extends("x", s.x, 0))
			return s.Relies("x", 891)
		}, "lease(x): its client relies on it for 891ns, and it is held, for 890ns"},
		{"a renewal that nobody has begun", func(t *testing.T, s *story) error {
			s.holds(t)
			s.extends(t, 0, 1)
			s.hand.at += 5
			return s.Extends("x", s.x, 4)
		}, "Confirm(x): there is no such round"},
		{"a renewal after the end", func(t *testing.T, s *story) error {
			s.holds(t)
			s.hand.at += 880
			s.extends(t, 0, 1)
			s.hand.at += 10
			return s.Extends("x", s.x, 10)
		}, "Confirm(x): it is over, and not valid"},
		{"a short renewal whose time is over", func(t *testing.T, s *story) error {
			s.holds(t)
			s.Begins("x", s.x, 50)
			s.must(t, s.Keeps(0, "x", s.x, 0, 50, 900), s.Keeps(1, "x", s.x, 0, 50, 900))
			s.hand.at += 60
			return s.Extends("x", s.x, 60)
		}, ""},
		{"an extend that shortens", func(t *testing.T, s *story) error {
			s.holds(t)
			s.Begins("x", s.x, 500)
			return s.Keeps(0, "x", s.x, 0, 500, 500)
		}, "Extend(x): n1 keeps the key for 500ns, and kept it for 900ns before"},
		{"an extend that creates", func(t *testing.T, s *story) error {
			s.holds(t)
			s.Begins("x", s.x, 900)
			return s.Keeps(2, "x", s.x, 0, 900, 900)
		}, "Extend(x): n3 does not have the key"},
		{"too long a reliance", func(t *testing.T, s *story) error {
			s.holds(t)
			s.hand.at += 100
			return s.Relies("x", 791)
		}, "lease(x): its client relies on it for 791ns, and it is held, for 790ns"},
		{"a lease that goes on elsewhere", func(t *testing.T, s *story) error {
			s.holds(t)
			s.must(t, s.Detaches("x"))
			s.hand.at += 100
			s.Resumes("y", "x", Claim{Name: "y", Length: 900}, s.y)
			s.must(t, s.Grants(0, "y", 900), s.Grants(1, "y", 900))
			s.hand.at += 50
			s.must(t, s.Wins("y"))
			return s.Relies("y", 840)
		}, ""},
		{"a lease that is resumed while its process lives", func(t *testing.T, s *story) error {
			s.holds(t)
			s.hand.at += 100
			s.Resumes("y", "x", Claim{Name: "y", Length: 500}, s.y)
			s.must(t, s.Grants(0, "y", 800), s.Grants(1, "y", 800), s.Wins("y"))
			s.Leaves("y")
			s.hand.at += 789
			return s.Releases(0, "y")
		}, "Release(y): it is kept"},
		{"one that is detached, and resumed again, meanwhile", func(t *testing.T, s *story) error {
			s.holds(t)
			s.Resumes("y", "x", Claim{Name: "y", Length: 900}, s.y)
			s.must(t, s.Grants(0, "y", 900), s.Grants(1, "y", 900), s.Wins("y"))
			s.hand.at += 500
			s.Begins("y", s.y, 900)
			s.must(t, s.Keeps(0, "y", s.y, 500, 900, 900), s.Keeps(1, "y", s.y, 500, 900, 900), s.Detaches("y"))
			s.Resumes("z", "y", Claim{Name: "z", Length: 900}, s.x)
			s.must(t, s.Grants(0, "z", 900), s.Grants(1, "z", 900), s.Wins("z"))
			s.Leaves("z")
			s.hand.at += 395 // more than x's lease may last
			return s.Releases(0, "z")
		}, "Release(z): it is kept"},
		{"a key that was free is not resumed", func(t *testing.T, s *story) error {
			s.holds(t)
			s.Resumes("y", "x", Claim{Name: "y", Length: 900}, s.y)
			return s.Grants(2, "y", 900)
		}, "Acquire(y): n3 does not have the key of x, whose lease it resumes"},
		{"a resumed lease whose former owner is released", func(t *testing.T, s *story) error {
			s.holds(t)
			s.must(t, s.Grants(2, "x", 900))
			s.Resumes("y", "x", Claim{Name: "y", Length: 900}, s.y)
			s.must(t, s.Grants(0, "y", 900), s.Grants(1, "y", 900), s.Wins("y"), s.Releases(2, "x"))
			s.Leaves("x")
			return s.Releases(0, "x")
		}, "Release(x): n1 does not have the key"},
		{"a Resume that fails", func(t *testing.T, s *story) error {
			s.holds(t)
			s.Resumes("y", "x", Claim{Name: "y", Length: 900}, s.y)
			s.must(t, s.Grants(0, "y", 900))
			s.Leaves("y")
			s.must(t, s.GivesBack(0, "y"))
			s.extends(t, 0, 1)
			return s.Extends("x", s.x, 0)
		}, ""},
		{"resumed after the window", func(t *testing.T, s *story) error {
			s.holds(t)
			s.must(t, s.Detaches("x"))
			s.Resumes("y", "x", Claim{Name: "y", Length: 900}, s.y)
			s.must(t, s.Grants(0, "y", 900), s.Grants(1, "y", 900))
			s.hand.at += 300
			return s.Wins("y")
		}, "Win(y): 300ns after its start the window of 300ns is over"},
		{"a hand-over", func(t *testing.T, s *story) error {
			s.holds(t)
			s.Asks("y", Claim{Name: "y", Length: 500, Offer: true}, s.y)
			s.hand.at += 200
			s.Leaves("x")
			s.must(t, s.Releases(0, "x"), s.Grants(0, "y", 300), s.Releases(1, "x"), s.Grants(1, "y", 300), s.Wins("y"))
			return s.Relies("y", 290)
		}, ""},
		{"a release within the minimum hold", func(t *testing.T, s *story) error {
			s.Asks("x", Claim{Name: "x", Length: 900, MinHold: 500}, s.x)
			s.must(t, s.Grants(0, "x", 900), s.Grants(1, "x", 900), s.Wins("x"))
			s.Leaves("x")
			s.hand.at += 499
			return s.Releases(0, "x")
		}, "Release(x): it is kept"},
		{"a release after the minimum hold", func(t *testing.T, s *story) error {
			s.Asks("x", Claim{Name: "x", Length: 900, MinHold: 500}, s.x)
			s.must(t, s.Grants(0, "x", 900), s.Grants(1, "x", 900), s.Wins("x"))
			s.Leaves("x")
			s.hand.at += 500
			return s.Releases(0, "x")
		}, ""},
		{"another while a name is kept", func(t *testing.T, s *story) error {
			s.Asks("x", Claim{Name: "x", Length: 100, MinHold: 500}, s.x)
			s.must(t, s.Grants(0, "x", 100), s.Grants(1, "x", 100), s.Wins("x"))
			s.hand.at += 101
			s.asks("y", s.y)
			s.must(t, s.Grants(0, "y", 900), s.Grants(1, "y", 900))
			return s.Wins("y")
		}, "Exclusive: y is valid for 890ns more, and x is kept, for 399ns more"},
		{"a hand-over to a waiter with a minimum hold", func(t *testing.T, s *story) error {
			s.Asks("y", Claim{Name: "y", Length: 500, MinHold: 400, Offer: true}, s.y)
			return s.Grants(0, "y", 500)
		}, "Acquire(y): n1 hands it over, for the rest of its place, and it has a minimum hold of 400ns"},
		{"a killed client relies on nothing", func(t *testing.T, s *story) error {
			s.holds(t)
			s.Dies(s.x)
			return s.Relies("x", 1)
		}, "lease(x): its client relies on it for 1ns, and it is over, for 0s"},
		{"a node that remembers", func(t *testing.T, s *story) error {
			s.holds(t)
			s.Restarts(0, false)
			s.Remembers(0, "x", 900)
			s.asks("y", s.y)
			return s.Grants(0, "y", 900)
		}, "Acquire(y): n1 has the key of x, for 900ns"},
		{"two at once, each by nodes that have forgotten the other", func(t *testing.T, s *story) error {
			s.holds(t)
			s.Rules.VotesFrom = 0
			s.Restarts(0, false)
			s.Restarts(1, false)
			s.asks("y", s.y)
			s.must(t, s.Grants(0, "y", 900), s.Grants(1, "y", 900))
			return s.Wins("y")
		}, "Exclusive: x is valid for 890ns more, and y is held, for 890ns more"},
	} {
		t.Run(c.what, func(t *testing.T) {
			got := ""
			if err := c.tell(t, tell()); err != nil {
				got = err.Error()
			}
			assert.That(t, got == c.want, "%s, want %s", got, c.want)
		})
	}
}

// A lease lasts by its client's clock and a key by its node's.
func TestRunByItsOwnClocks(t *testing.T) {
	now, slow, fast := new(hand), new(hand), new(hand)
	rules := &Rules{Quorum: 1, Window: int64(time.Hour), Allowed: func(t Time) Time { return t }, Lives: func(*Claim) Time { return 0 }}
	r := NewRun(rules, now.Time, fast)
	x := &client{slow}
	r.Asks("x", Claim{Name: "x", Length: 100}, x)
	assert.Succeed(t, r.Grants(0, "x", 100))
	assert.Succeed(t, r.Wins("x"))
	now.at, slow.at, fast.at = 100, 90, 110
	assert.NoError(t, r.Relies("x", 10))
	assert.That(t, !r.Has(0, "x"), "the node has it still")
	r.Asks("y", Claim{Name: "y", Length: 100}, &client{now})
	assert.Succeed(t, r.Grants(0, "y", 100))
	if err := r.Wins("y"); err == nil || !strings.HasPrefix(err.Error(), "Exclusive: ") {
		t.Errorf("a clock that runs too fast by a fifth: %v", err)
	}
}
