package spec

import (
	"cmp"
	"os"
	"slices"
	"strconv"
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

func begin() *story {
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

// does lets something happen: a verb, the owners that it is about, lengths, and nodes.
func (s *story) does(t *testing.T, text string) (err error) {
	words := strings.Fields(text)
	var names, flags []string
	var lengths []Time
	var nodes []int
	for _, w := range words[1:] {
		n, bad := strconv.ParseInt(w, 10, 64)
		switch {
		case bad == nil:
			lengths = append(lengths, n)
		case len(w) == 1:
			names = append(names, w)
		case w[0] == 'n':
			nodes = append(nodes, int(w[1]-'1'))
		default:
			flags = append(flags, w)
		}
	}
	length := append(lengths, 900)[0]
	owner, by := append(names, "x")[0], s.y
	if owner == "x" {
		by = s.x
	}
	claim := Claim{Name: owner, Length: length, MinHold: append(lengths, 0, 0)[1],
		Reads: slices.Contains(flags, "reads"), Offer: slices.Contains(flags, "offer")}
	each := map[string]func(n int) error{
		"grants":    func(n int) error { return s.Grants(n, owner, length) },
		"releases":  func(n int) error { return s.Releases(n, owner) },
		"returns":   func(n int) error { return s.GivesBack(n, owner) },
		"restarts":  func(n int) error { s.Restarts(n, flags != nil); return nil },
		"remembers": func(n int) error { s.Remembers(n, owner, length); return nil },
		"shares":    func(n int) error { s.Shares(n, owner); return nil },
		"renews":    func(n int) error { return s.Keeps(n, owner, by, s.hand.at, length, append(lengths, length, length)[1]) },
	}
	switch verb := words[0]; verb {
	case "holds":
		s.tell(t, "asks x; grants x n1 n2; wins x")
	case "wait":
		s.hand.at += length
	case "quorum":
		s.Rules.Quorum = int(length)
	case "votes":
		s.Rules.VotesFrom = length
	case "asks":
		s.Asks(owner, claim, by)
	case "resumes":
		s.Resumes(owner, names[1], claim, by)
	case "wins":
		err = s.Wins(owner)
	case "confirms":
		err = s.Extends(owner, by, append(lengths, 0)[0])
	case "relies":
		err = s.Relies(owner, length)
	case "leaves":
		s.Leaves(owner)
	case "reads":
		s.GoesOnReading(owner)
	case "detaches":
		err = s.Detaches(owner)
	case "dies":
		s.Dies(by)
	default:
		if verb == "renews" {
			s.Begins(owner, by, length)
		}
		for _, n := range nodes {
			err = cmp.Or(err, each[verb](n))
		}
	}
	return err
}

// tell lets all of it happen, and returns what the specification says of the last.
func (s *story) tell(t *testing.T, text string) (err error) {
	t.Helper()
	for one := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ';' || r == '\n' }) {
		assert.Succeed(t, err)
		err = s.does(t, one)
	}
	return err
}

// The specification refuses, in its own words, only what it does not allow.
func TestRun(t *testing.T) {
	text := string(assert.Got(os.ReadFile("testdata/runs.txt"))(t))
	cases := strings.Split(strings.TrimSpace(text), "\n\n")[1:] // after what it says itself
	assert.That(t, len(cases) >= 43, "%d cases", len(cases))
	for _, c := range cases {
		head, body, _ := strings.Cut(c, "\n")
		name, want, _ := strings.Cut(head, ": ")
		t.Run(name, func(t *testing.T) {
			got := "allowed"
			if err := begin().tell(t, body); err != nil {
				got = err.Error()
			}
			assert.That(t, got == want, "%s, want %s", got, want)
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
