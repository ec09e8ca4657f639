package vote

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
)

// verdictByTrying tries every way in which the pending nodes may still answer.
func verdictByTrying(votes []Vote, need int) Verdict {
	granted, open := 0, 0
	for _, v := range votes {
		switch v {
		case Granted:
			granted++
		case Pending:
			open++
		}
	}
	all, none := true, true
	for yes := 0; yes <= open; yes++ {
		if granted+yes >= need {
			none = false
		} else {
			all = false
		}
	}
	switch {
	case all:
		return Won
	case none:
		return Lost
	}
	return Undecided
}

func TestVerdictFallsWhenNoFurtherAnswerCanChangeIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "nodes")
		all := []Vote{Pending, Granted, Refused, Unknown, Abstaining}
		votes := rapid.SliceOfN(rapid.SampledFrom(all), n, n).Draw(t, "votes")
		need := rapid.IntRange(Majority(n), n).Draw(t, "need")
		tally := Tally{Nodes: n, Need: need}
		for _, v := range votes {
			if v != Pending {
				tally.Add(v)
			}
		}
		if got, want := tally.Verdict(), verdictByTrying(votes, need); got != want {
			t.Fatalf("verdict of %v, %d needed, is %d, want %d", votes, need, got, want)
		}
	})
}

func TestAnyTwoMajoritiesShareANode(t *testing.T) {
	for n := 1; n <= 63; n++ {
		m := Majority(n)
		assert.That(t, 2*m > n && 2*(m-1) <= n, "majority(%d) = %d", n, m)
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
		assert.Equal(t, ValidUntil(start, c.lease, 0.01).Sub(start), c.want, c.lease)
	}
}

// Holder and node are each off by half of the allowed drift in the bad direction: the
// holder must give up before the node drops the key (S07).
func TestDriftCoversClocksThatDisagreeByTheRatio(t *testing.T) {
	for _, lease := range []time.Duration{10 * time.Millisecond, time.Second, time.Hour} {
		believes := ValidUntil(0, lease, 0.01).Sub(0)
		holderTime := time.Duration(float64(believes) * 1.005) // its clock is slow
		keyTime := time.Duration(float64(lease) * 0.995)       // the node's is fast
		assert.That(t, holderTime < keyTime, "lease %v: believed for %v, on the nodes for %v", lease, holderTime,
			keyTime)
	}
}

func TestGuardOutlastsTheLongestLease(t *testing.T) {
	const born = clock.Instant(5e9)
	got := guardEnd(born, 30*time.Second, 0.01).Sub(born)
	assert.That(t, got > 30*time.Second, "a restarted node votes again after %v", got)
}
