package redisson_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/quorum"
)

// Java is in no queue on the nodes, and yet has its turns next to Lockers that always
// want the lock, with four tasks each. A fair share is that of one of all Lockers and
// threads. Each side has half of it, Java next to two Lockers only just, so the test asks
// for two fifths, and for no wait of more than ten fair turns.
func TestBothSidesHaveTheirTurns(t *testing.T) {
	tests.NeedLong(t)
	_, addrs := startServers(t, 3)
	j := startJava(t, addrs)
	if r := reaction(t, j, connect(t, addrs[:1], quorum.Options{})); r > 3*time.Millisecond {
		t.Skipf("this machine is too busy: Java takes %v to act on a notice, and Lockers leave it 3 ms", r)
	}
	const short, long = 10 * time.Millisecond, 50 * time.Millisecond
	for _, test := range []struct {
		kind    string
		nodes   int
		hold    time.Duration
		lockers []int
	}{
		{"plain", 1, short, []int{1, 2, 4}},
		{"plain", 1, long, []int{1}},
		{"fenced", 1, short, []int{1, 2, 4}},
		{"multi/3", 3, short, []int{1, 2, 4}},
		{"write", 1, short, []int{1, 2, 4}},
	} {
		for _, lockers := range test.lockers {
			for _, threads := range []int{1, 4} {
				t.Run(fmt.Sprintf("%s, %v, %d Lockers and %d threads", test.kind, test.hold, lockers, threads), func(t *testing.T) {
					var said string
					for try := range 3 { // the machine may be busy for a while
						c := contest{t: t, name: fmt.Sprintf("%s-%v-%d-%d-%d", test.kind, test.hold, lockers, threads, try),
							hold: test.hold, until: time.Now().Add(200 * test.hold)}
						if test.kind == "write" {
							c.options = modeOptions("write")
						}
						for range lockers {
							c.enter(connect(t, addrs[:test.nodes], quorum.Options{}), 4)
						}
						var fair bool
						if said, fair = c.result(j, test.kind, threads); fair {
							t.Log(said)
							return
						}
						t.Log(said)
					}
					t.Error(said)
				})
			}
		}
	}
}

// result also lets the threads of Java take turns, and says whether all had their share.
func (c *contest) result(j *java, kind string, threads int) (said string, fair bool) {
	c.t.Helper()
	window := time.Until(c.until)
	java, longest := c.java(j, kind, threads)
	c.tasks.Wait()
	all := java
	for _, n := range c.turns {
		all += *n
	}
	sides := len(c.turns) + threads
	share := all / sides
	most := 10 * window * time.Duration(sides) / time.Duration(max(all, 1))
	least := share * 2 / 5
	fair = java >= threads*least && longest <= most
	said = fmt.Sprintf("of %d turns Java had %d, and waited for %v at most, of %v", all, java, longest, most.Round(time.Millisecond))
	for _, n := range c.turns {
		said += fmt.Sprintf("; a Locker had %d", *n)
		fair = fair && *n >= least
	}
	return said, fair
}

// reaction returns Java's median time from a release to its own lock.
func reaction(t *testing.T, j *java, l *quorum.Locker) time.Duration {
	t.Helper()
	var all []time.Duration
	for range 9 {
		lease := assert.Got(l.TryLock(background, "reaction"))(t)
		waits := j.begin("w0", "try", "plain", "reaction", time.Minute, time.Minute)
		j.do("w1", "asleep", "plain", "reaction", "w0")
		released := time.Now()
		assert.Succeed(t, lease.Unlock(background))
		all = append(all, j.end(waits).ended.Sub(released))
		j.want("true", "w0", "unlock", "plain", "reaction")
	}
	slices.Sort(all)
	return all[len(all)/2]
}

type contest struct {
	t       *testing.T
	name    string
	hold    time.Duration
	until   time.Time
	options []quorum.Option // of Go
	turns   []*int          // of each Locker
	tasks   sync.WaitGroup
}

func (c *contest) enter(l *quorum.Locker, tasks int) {
	n := new(int)
	c.turns = append(c.turns, n)
	for range tasks {
		c.tasks.Go(func() {
			ctx, cancel := context.WithDeadline(background, c.until)
			defer cancel()
			for {
				lease, err := l.Lock(ctx, c.name, c.options...)
				if err != nil {
					return
				}
				*n++ // under the lock
				time.Sleep(c.hold)
				_ = lease.Unlock(background)
			}
		})
	}
}

// java returns the turns that its threads had, and the longest wait for one.
func (c *contest) java(j *java, kind string, threads int) (turns int, longest time.Duration) {
	c.t.Helper()
	var calls []<-chan answer
	for i := range threads {
		calls = append(calls, j.begin(fmt.Sprint("w", i), "turns", kind, c.name, c.hold, c.until.UnixMilli()))
	}
	for _, call := range calls {
		var n, ms int
		assert.Succeed(c.t, assert.ErrorOf(fmt.Sscan(j.end(call).value, &n, &ms)))
		turns, longest = turns+n, max(longest, time.Duration(ms)*time.Millisecond)
	}
	return turns, longest
}
