package quorum

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
)

// verdictByTrying finds the verdict of votes by trying every way in which the
// pending nodes may still answer. At an extension abstaining nodes may make up what is needed beyond a
// majority.
func verdictByTrying(votes []vote, need int, extends bool) verdict {
	granted, abstaining, open := 0, 0, 0
	for _, v := range votes {
		switch v {
		case voteGranted:
			granted++
		case voteAbstaining:
			abstaining++
		case votePending:
			open++
		}
	}
	all, none := true, true
	for yes := 0; yes <= open; yes++ {
		if granted+yes >= need || extends && granted+yes >= majority(len(votes)) && granted+abstaining+yes >= need {
			none = false
		} else {
			all = false
		}
	}
	switch {
	case all:
		return won
	case none:
		return lost
	}
	return undecided
}

func TestVerdictFallsWhenNoFurtherAnswerCanChangeIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "nodes")
		votes := rapid.SliceOfN(rapid.SampledFrom([]vote{votePending, voteGranted, voteRefused, voteUnknown, voteAbstaining}), n, n).Draw(t, "votes")
		need, extends := rapid.IntRange(majority(n), n).Draw(t, "need"), rapid.Bool().Draw(t, "extends")
		tally := tally{nodes: n, need: need, extends: extends}
		for _, v := range votes {
			if v != votePending {
				tally.add(v)
			}
		}
		if got, want := tally.verdict(), verdictByTrying(votes, need, extends); got != want && !(extends && got == undecided) {
			t.Fatalf("verdict of %v, %d needed, is %d, want %d", votes, need, got, want)
		}
	})
}

func TestAnyTwoMajoritiesShareANode(t *testing.T) {
	for n := 1; n <= 63; n++ {
		if m := majority(n); 2*m <= n || 2*(m-1) > n {
			t.Errorf("majority(%d) = %d", n, m)
		}
	}
}

func TestValidityIsLeaseLessElapsedLessDrift(t *testing.T) {
	const start = clock.Instant(1000)
	for _, c := range []struct {
		lease, want time.Duration
	}{
		{time.Second, 988 * time.Millisecond},
		{30 * time.Second, 29698 * time.Millisecond},
		{100 * time.Millisecond, 97 * time.Millisecond},
	} {
		assert.Equal(t, validUntil(start, c.lease, 0.01).Sub(start), c.want, c.lease)
	}
}

// A holder and a node, each off by half of the allowed drift in the bad
// direction: the holder must give up before the node drops the key (S07).
func TestDriftCoversClocksThatDisagreeByTheRatio(t *testing.T) {
	for _, lease := range []time.Duration{10 * time.Millisecond, time.Second, time.Hour} {
		believes := validUntil(0, lease, 0.01).Sub(0)
		holderTime := time.Duration(float64(believes) * 1.005) // its clock is slow
		keyTime := time.Duration(float64(lease) * 0.995)       // the node's is fast
		assert.That(t, holderTime < keyTime, "lease %v: believed for %v, on the nodes for %v", lease, holderTime, keyTime)
	}
}

func TestGuardOutlastsTheLongestLease(t *testing.T) {
	const born = clock.Instant(5e9)
	if got := guardEnd(born, 30*time.Second, 0.01).Sub(born); got <= 30*time.Second {
		t.Errorf("a restarted node votes again after %v", got)
	}
}

func TestFreeInIsTheSoonestMajority(t *testing.T) {
	ms := time.Millisecond
	assert.Equal(t, freeIn([]time.Duration{900 * ms, 0, 30 * ms, 400 * ms, 20 * ms}, 3), 30*ms)
}

// However long attempts take, the doubled pauses after them do not overflow.
func TestPauseOfLongAttempts(t *testing.T) {
	for first := firstPause; first < longest; first += first / 2 {
		got := pause(0, 16, first, longest, 0)
		assert.That(t, got >= first/2, "after attempts of %v a waiter sleeps for %v", first, got)
	}
}

func TestPauseIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		poll := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(10*time.Second)).Draw(t, "poll"))
		free := time.Duration(rapid.Int64Range(-1, int64(time.Hour)).Draw(t, "free"))
		tries := rapid.IntRange(0, 100).Draw(t, "tries")
		first := time.Duration(rapid.Int64Range(int64(firstPause), int64(time.Second)).Draw(t, "first"))
		random := rapid.Float64Range(0, 0.9999).Draw(t, "random")
		got := pause(free, tries, first, poll, random)
		if most := max(poll, 8*first); got <= 0 || got > most+most/20+2*expiryMargin {
			t.Fatalf("pause(%v, %d, %v, %v, %v) = %v", free, tries, first, poll, random, got)
		}
		assert.Must(t, free <= 0 || free >= poll || got >= free, "pause(%v, %d, %v, %v, %v) = %v: too early", free, tries, first, poll, random, got)
	})
}
