package replicas_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/replicas"
)

func TestRead(t *testing.T) {
	for line, want := range map[string]string{
		"slave0:ip=a,port=1,state=online,offset=10,lag=2":     "1 1 1",
		"slave0:ip=a,port=1,state=online,offset=9,lag=2":      "1 1 0",
		"slave0:ip=a,port=1,state=online,offset=10,lag=3":     "1 0 1",
		"slave0:ip=a,port=1,state=wait_bgsave,offset=0,lag=0": "1 0 0",
		"slave0:ip=a,port=0,state=online,offset=10,lag=0":     "0 0 0",
		"slave0:ip=a,port=1,state=online":                     "1 0 0",
		"slave0:ip=a,port=1,state=online,offset=x,lag=y":      "1 0 0",
		"slave_priority:100":                                  "0 0 0",
		"role:slave":                                          "0 0 0",
		"slave0:ip=a,port=1,state=online,offset=10,lag=1\nslave1:ip=a,port=1,state=online,offset=9,lag=5": "1 1 1",
		"slave0:ip=a,port=1,state=online,offset=10,lag=1\nslave1:ip=a,port=2,state=online,offset=9,lag=5": "2 1 1",
	} {
		s := replicas.Read(line+"\n", 10)
		assert.Equal(t, fmt.Sprint(s.Listed, s.Present, s.Have), want, line)
	}
}

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		said replicas.Said
		want replicas.Verdict
	}{
		{replicas.Said{Primary: true, Listed: 2, Have: 1}, replicas.Enough},
		{replicas.Said{Primary: true, Listed: 1, Have: 1}, replicas.Enough},
		{replicas.Said{Primary: true, Listed: 2, Present: 2}, replicas.TooFew},
		{replicas.Said{Primary: true}, replicas.TooFew},
		{replicas.Said{Primary: true, Listed: 3, Have: 3}, replicas.TooMany},
		{replicas.Said{Listed: 2, Have: 2}, replicas.Moved},
	} {
		assert.Equal(t, replicas.Count(2).Judge(tt.said), tt.want, fmt.Sprintf("%+v", tt.said))
	}
}

func TestNeeded(t *testing.T) {
	for count, need := range []int{0, 1, 1, 2, 2, 3} {
		c := replicas.Count(count)
		assert.That(t, c.Needed() == need && c.Aged() == (need < count), "of %d: %d, %v", count, c.Needed(), c.Aged())
	}
}

// Whichever replicas have it, as many as are needed follow since Youngest at the latest.
func TestYoungest(t *testing.T) {
	for count := 1; count <= 5; count++ {
		c := replicas.Count(count)
		all := make([]clock.Instant, count)
		for i := range all {
			all[i] = clock.Instant(10 * (i + 1))
		}
		for have := c.Needed(); have <= count; have++ {
			worst := clock.Instant(0)
			for set := range 1 << count {
				var those []clock.Instant
				for i, at := range all {
					if set>>i&1 == 1 {
						those = append(those, at)
					}
				}
				if len(those) == have {
					worst = max(worst, those[c.Needed()-1])
				}
			}
			may := slices.Clone(all)
			slices.Reverse(may)
			assert.Equal(t, c.Youngest(1000, have, may), worst, fmt.Sprintf("%d of %d have it", have, count))
		}
		assert.Equal(t, c.Youngest(1000, count+1, all), 1000, "more have it than may")
	}
}

// An age is in whole seconds, and what was known before stays.
func TestSince(t *testing.T) {
	const now = clock.Instant(time.Hour)
	assert.Equal(t, replicas.Since(now, time.Minute, clock.Never), now.Add(-59*time.Second), "nothing is known")
	assert.Equal(t, replicas.Since(now, time.Minute, 7), 7, "it was seen before")
	assert.Equal(t, replicas.Since(now, 0, math.MaxInt64), now, "it has just come")
}
