package bench

import (
	"context"
	"errors"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
)

func TestMetricsOfOverload(t *testing.T) {
	p := pressure{Calm: 3 * time.Second, Load: 4 * time.Second}
	var r pressed
	r.Locks = make([]int, p.seconds())
	for s, n := range []int{1, 4, 6, 5, 3, 7, 8, 2, 9, 1, 50} { // the last second comes after the end
		for range n {
			r.note(true, time.Duration(s)*time.Second, -time.Millisecond)
		}
	}
	r.note(false, 0, overdueAfter)
	r.note(false, 0, time.Second)
	r.Lost = 2
	want := Metrics{"locks-before/s": 5, "locks-least/s": 3, "locks-after/s": 9, "lost": 2, "overdue": 1,
		"overdue-max-ns": 1e9}
	assert.That(t, maps.Equal(r.metrics(p), want), "%v", r.metrics(p))
}

// A deaf client ignores contexts, and loses what it holds.
type deaf struct{ took time.Duration }

func (d deaf) Lock(context.Context, string, time.Duration) (Held, error) {
	time.Sleep(d.took)
	return d, nil
}

func (d deaf) Keep(context.Context, string, time.Duration) (Held, error) { return d, nil }
func (deaf) Unlock(context.Context) error                                { return errors.New("lost") }
func (deaf) Close() error                                                { return nil }

func TestPressureNotesWhatIsLostAndOverdue(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	client := deaf{overdueAfter + 300*time.Millisecond}
	p := pressure{Held: 3, Few: 1, Many: 2, Within: 100 * time.Millisecond, From: clock.System().Now(),
		Calm: time.Second, Load: time.Second}
	held := assert.Got(p.hold(ctx, client))(t)
	all := p.press(ctx, client, held)
	assert.That(t, all.Lost == 3 && all.Overdue > 3 && all.Latest > overdueAfter && all.Locks[0] > 0, "%+v", all)
}

// Eight processes ask three servers that are slowed, which run again afterwards.
func TestOverloadOfRealServers(t *testing.T) {
	tests.NeedSeconds(t)
	tests.NeedServer(t)
	t.Parallel()
	ctx := t.Context()
	f := assert.Got(newField(ctx, &Config{Servers: Spawned}, 3))(t)
	defer f.close()
	self := assert.Got(os.Executable())(t)
	s := &setting{field: f, links: new(links), self: []string{self, "as-program", "--child"}, contestant: Redquorum(),
		nodes: 3,
		which: onslaughts[0].name, window: 4 * time.Second, prefix: "x-", lease: benchLease}
	m := assert.Got(s.overload(ctx))(t)
	assert.That(t, m["locks-before/s"] > 0 && s.locks > 0, "%v", m)
	_, err := f.clear(ctx, 3, "x-", 0)
	assert.Succeed(t, err)
}
