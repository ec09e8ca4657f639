package model_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
)

const ms = time.Millisecond

func acquire(name, owner string, token node.Token, ttl time.Duration) node.Command {
	return node.Command{
		Kind:   node.Acquire,
		Claims: []node.Claim{{Name: name, Owner: owner, Token: token}},
		TTL:    ttl, Retention: 24 * time.Hour, Deadline: clock.Never,
	}
}

func release(name, owner string, token node.Token) node.Command {
	return node.Command{
		Kind: node.Release, Claims: []node.Claim{{Name: name, Owner: owner, Token: token}}, Retention: 24 * time.Hour,
	}
}

func apply(t *testing.T, s *model.Server, now model.Time, cmd node.Command, want node.Status) node.Reply {
	t.Helper()
	r, _ := s.Apply(now, cmd)
	assert.Must(t, r.Status == want, "at %d: %v %+v: got %v (%v), want %v", now, cmd.Kind, cmd.Claims, r.Status, r.Err, want)
	return r
}

// A key of p milliseconds is there until more than p have passed.
func TestExpiry(t *testing.T) {
	for _, c := range []struct {
		ttl  time.Duration
		last model.Time // when it is there for the last time, if it began at 100
	}{
		{10 * ms, 110},
		{10*ms - 1, 110},
		{10*ms + 1, 111},
		{1, 101},
	} {
		for after := model.Time(-1); after <= 1; after++ {
			var s model.Server
			apply(t, &s, 100, acquire("n", "a", 1, c.ttl), node.Granted)
			now, want := c.last+after, node.Refused
			if after > 0 {
				want = node.Granted
			}
			_, held := s.Holds(now, "n", "a")
			assert.That(t, held == (after <= 0), "TTL %v, at %d: held %v", c.ttl, now, held)
			r := apply(t, &s, now, acquire("n", "b", 2, time.Hour), want)
			left := time.Duration(c.last-now) * ms
			assert.That(t, want != node.Refused || r.TTL == left, "TTL %v, at %d: %v left, want %v", c.ttl, now, r.TTL, left)
		}
	}
}

func TestRestart(t *testing.T) {
	for _, c := range []struct {
		loss         model.Loss
		kept, synced bool // whether what came after the Sync and before it is there
	}{
		{model.LoseNothing, true, true},
		{model.LoseUnsynced, false, true},
		{model.LoseEverything, false, false},
	} {
		var s model.Server
		apply(t, &s, 0, acquire("early", "a", 1, time.Hour), node.Granted)
		apply(t, &s, 0, acquire("gone", "a", 1, time.Hour), node.Granted)
		s.HSet(0, "early", "x", "1")
		s.Sync()
		before := s.Dump(0)
		apply(t, &s, 0, acquire("late", "a", 1, time.Hour), node.Granted)
		apply(t, &s, 0, release("gone", "a", 2), node.Released)
		apply(t, &s, 0, release("early", "a", 2), node.Released)
		s.HSet(0, "early", "y", "1")
		after := s.Dump(0)

		s.Restart(c.loss)
		var want []model.Entry
		switch {
		case c.kept:
			want = after
		case c.synced:
			want = before
		}
		got := s.Dump(0)
		assert.That(t, reflect.DeepEqual(got, want), "loss %d:\n got %+v\nwant %+v", c.loss, got, want)
		s.Restart(model.LoseUnsynced) // what came through one restart comes through the next
		got = s.Dump(0)
		assert.That(t, reflect.DeepEqual(got, want), "loss %d, then another restart:\n got %+v\nwant %+v", c.loss, got, want)
	}
}

func TestNeverSyncedIsAllLost(t *testing.T) {
	var s model.Server
	apply(t, &s, 0, acquire("n", "a", 1, time.Hour), node.Granted)
	s.Restart(model.LoseUnsynced)
	assert.Equal(t, s.Len(0), 0)
}

func TestDump(t *testing.T) {
	var s model.Server
	apply(t, &s, 100, acquire("n", "a", 7, 10*ms), node.Granted)
	s.Set("b", "text")
	s.HSet(100, "a", "y", "2")
	s.HSet(100, "a", "x", "1")
	want := []model.Entry{
		{Key: "a", Type: "hash", Fields: []node.Field{{Name: "x", Value: "1"}, {Name: "y", Value: "2"}}, Expires: model.Never},
		{Key: "b", Type: "string", Value: "text", Expires: model.Never},
		{Key: "n", Type: "hash", Fields: []node.Field{{Name: "a", Value: "1"}}, Expires: 110},
		{Key: "redquorum_fence:{n}", Type: "string", Value: "7", Expires: 100 + 24*3600*1000},
	}
	got := s.Dump(110)
	assert.That(t, reflect.DeepEqual(got, want), "\n got %+v\nwant %+v", got, want)
	assert.Equal(t, s.Len(110), 4)
	n, dumped := s.Len(111), len(s.Dump(111))
	assert.That(t, n == 3 && dumped == 3, "after the lock's expiry %d keys, and %d in the dump, want 3", n, dumped)
	s.FlushAll()
	assert.Equal(t, s.Len(100), 0)
}

// An expired key is back for the rest of its time, unless somebody looked, or Expire did.
func TestClockSetBack(t *testing.T) {
	for _, looked := range []bool{false, true} {
		var s model.Server
		apply(t, &s, 0, acquire("n", "a", 1, 10*ms), node.Granted)
		if looked {
			s.Expire(11)
		}
		_, held := s.Holds(5, "n", "a")
		assert.That(t, held != looked, "looked %v: held %v", looked, held)
	}
}

func TestInspectGivesACopy(t *testing.T) {
	var s model.Server
	apply(t, &s, 0, acquire("n", "a", 1, time.Hour), node.Granted)
	inspect := node.Command{Kind: node.Inspect, Claims: []node.Claim{{Name: "n"}}}
	apply(t, &s, 0, inspect, node.Done).State.Fields[0].Name = "b"
	assert.Equal(t, apply(t, &s, 0, inspect, node.Done).State.Fields[0].Name, "a", "owner")
}

func TestNoAllocations(t *testing.T) {
	var s model.Server
	claims := []node.Claim{{Name: "n", Owner: "a"}}
	got := testing.AllocsPerRun(100, func() {
		claims[0].Token++
		s.Sync()
		s.Apply(0, node.Command{Kind: node.Acquire, Claims: claims, TTL: time.Hour, Retention: time.Hour})
		s.Apply(0, node.Command{Kind: node.Release, Claims: claims, Retention: time.Hour})
	})
	assert.That(t, got == 0, "%v allocations to acquire and release", got)
}

// The same commands have the same replies whatever the clock shows, also below zero.
func TestOriginOfTime(t *testing.T) {
	history := func(origin model.Time) (replies []node.Reply, left []model.Entry) {
		var s model.Server
		token := node.Token(0)
		do := func(kind node.Kind, mode node.Mode, owner string, ticket node.Token, after model.Time) {
			if kind == node.Acquire {
				token++
			}
			r, _ := s.Apply(origin+after, node.Command{
				Kind: kind, Mode: mode, Claims: []node.Claim{{Name: "n", Owner: owner, Token: token}}, TTL: 300 * ms,
				Retention: time.Hour, Wait: &node.Wait{Waiter: node.NewWaiter("w"+owner, 1, mode), Ticket: ticket, PlaceTTL: 100 * ms},
			})
			replies = append(replies, r)
		}
		do(node.Acquire, node.Read, "a", 1, 0)
		do(node.Acquire, node.Read, "b", 2, 50)
		do(node.Acquire, node.Write, "c", 3, 60) // a and b read
		do(node.Acquire, node.Read, "x", 4, 65)  // c waits
		do(node.Inspect, node.Exclusive, "", 0, 70)
		do(node.Release, node.Read, "a", 0, 80)
		do(node.Acquire, node.Write, "c", 3, 90) // b reads
		do(node.Release, node.Read, "b", 0, 100)
		do(node.Acquire, node.Write, "c", 3, 110)
		do(node.Downgrade, node.Exclusive, "c", 0, 120)
		do(node.Acquire, node.Write, "d", 5, 130) // c reads, and x waits
		do(node.Acquire, node.Write, "d", 5, 420) // c and x are dead
		do(node.Release, node.Write, "d", 0, 430)
		do(node.Acquire, node.Exclusive, "e", 6, 440)
		do(node.Acquire, node.Exclusive, "f", 7, 450)
		do(node.Acquire, node.Read, "g", 8, 460)
		do(node.Release, node.Exclusive, "e", 6, 470)
		do(node.Inspect, node.Exclusive, "", 0, 480)
		left = s.Dump(origin + 490)
		for i := range left {
			left[i].Expires -= origin
		}
		return replies, left
	}
	wantReplies, wantLeft := history(1_000_000)
	for _, origin := range []model.Time{0, -1, -100, -1_000_000_000} {
		replies, left := history(origin)
		for i := range wantReplies {
			assert.That(t, reflect.DeepEqual(replies[i], wantReplies[i]), "from %d on, command %d: got %+v, want %+v", origin, i, replies[i], wantReplies[i])
		}
		assert.That(t, reflect.DeepEqual(left, wantLeft), "from %d on: got %+v, want %+v", origin, left, wantLeft)
	}
}

// A replica may refuse, never says yes, and no question changes anything.
func TestReplica(t *testing.T) {
	claim := func(name, owner string) []node.Claim { return []node.Claim{{Name: name, Owner: owner, Token: 5}} }
	hour := func(kind node.Kind, mode node.Mode, name, owner string) node.Command {
		return node.Command{Kind: kind, Mode: mode, Claims: claim(name, owner), TTL: time.Hour, Retention: time.Hour}
	}
	inLine := func(cmd node.Command, patience time.Duration) node.Command {
		cmd.Wait = &node.Wait{Ticket: 9, Waiter: "waiter", PlaceTTL: patience}
		return cmd
	}
	var master, s model.Server
	apply(t, &master, 100, acquire("n", "a", 1, time.Minute), node.Granted)
	apply(t, &master, 100, hour(node.Acquire, node.Read, "r", "a"), node.Granted)
	s.Load(master.Dump(100))
	s.Refuse(node.ErrReadOnly)
	before := s.Dump(100)
	for _, c := range []struct {
		what string
		cmd  node.Command
		want node.Status
	}{
		{"acquire", acquire("m", "a", 1, time.Hour), node.Unknown},
		{"acquire again", acquire("n", "a", 1, time.Hour), node.Unknown},
		{"acquire what another has", acquire("n", "b", 2, time.Hour), node.Refused},
		{"acquire with an old token", acquire("n", "b", 1, time.Hour), node.Refused},
		{"in line", inLine(acquire("n", "b", 2, time.Hour), time.Hour), node.Unknown},
		{"in line, without a place", inLine(acquire("n", "b", 2, time.Hour), 0), node.Refused},
		{"in line, to read", inLine(hour(node.Acquire, node.Read, "r", "b"), time.Hour), node.Unknown},
		{"read", hour(node.Acquire, node.Read, "r", "b"), node.Unknown},
		{"read again", hour(node.Acquire, node.Read, "r", "a"), node.Unknown},
		{"write what is read", hour(node.Acquire, node.Write, "r", "b"), node.Refused},
		{"extend", hour(node.Extend, node.Exclusive, "n", "a"), node.Unknown},
		{"extend what another has", hour(node.Extend, node.Exclusive, "n", "b"), node.Done},
		{"extend a reader", hour(node.Extend, node.Read, "r", "a"), node.Unknown},
		{"downgrade", hour(node.Downgrade, node.Exclusive, "r", "b"), node.Unknown},
		{"release", release("n", "a", 1), node.Unknown},
		{"release what another has", release("n", "b", 2), node.Unknown},
		{"break", hour(node.Break, node.Exclusive, "n", ""), node.Unknown},
		{"inspect", hour(node.Inspect, node.Exclusive, "n", ""), node.Done},
	} {
		r, published := s.Apply(100, c.cmd)
		if r.Status != c.want || (r.Err != nil) != (c.want == node.Unknown) || r.Err != nil && !errors.Is(r.Err, node.ErrReadOnly) {
			t.Errorf("%s: %v, %v; want %v", c.what, r.Status, r.Err, c.want)
		}
		assert.That(t, len(published) == 0, "%s: published %v", c.what, published)
		after := s.Dump(100)
		assert.Must(t, reflect.DeepEqual(after, before), "%s: %+v, was %+v", c.what, after, before)
	}
	s.Refuse(nil)
	apply(t, &s, 100, acquire("n", "a", 1, time.Hour), node.Granted)
	apply(t, &s, 100, hour(node.Release, node.Read, "r", "a"), node.Released)
}

func TestLoad(t *testing.T) {
	var from, s model.Server
	apply(t, &from, 100, acquire("n", "a", 1, time.Minute), node.Granted)
	wait := acquire("n", "b", 2, time.Minute)
	wait.Wait = &node.Wait{Ticket: 1, Waiter: "w:1", PlaceTTL: time.Minute, Offer: 9}
	apply(t, &from, 100, wait, node.Refused)
	apply(t, &s, 100, acquire("old", "a", 1, time.Minute), node.Granted)
	s.Load(from.Dump(100))
	s.Restart(model.LoseUnsynced)
	a, b := from.Dump(100), s.Dump(100)
	assert.Must(t, reflect.DeepEqual(a, b), "loaded %+v, want %+v", b, a)
	s.Ears = ears{listening: "w:1"}
	done := release("n", "a", 1)
	done.HandOver = 5
	if _, published := s.Apply(100, done); !slices.Equal(published, []model.Notice{
		{Name: "n"}, {Name: "n", To: "w:1", Turn: node.Turn{Name: "n", Owner: node.Offer("b"), Token: 5}},
	}) {
		t.Errorf("published %+v", published)
	}
}

// ears are of one watched name, and one waiter whose process listens.
type ears struct{ watched, listening string }

func (e ears) Watched(name string, mode node.Mode) bool { return name == e.watched }
func (e ears) Listens(waiter string) bool               { return waiter == e.listening }

// Notices come in the order of publication, each on its channel.
func TestNotices(t *testing.T) {
	shared := func(kind node.Kind, mode node.Mode, owner string, token node.Token) node.Command {
		return node.Command{Kind: kind, Mode: mode, Claims: []node.Claim{{Name: "n", Owner: owner, Token: token}}, TTL: time.Hour, Retention: time.Hour}
	}
	waits := func(ticket node.Token, waiter string, cmd node.Command) node.Command {
		cmd.Wait = &node.Wait{Ticket: ticket, Waiter: waiter, PlaceTTL: time.Minute}
		return cmd
	}
	free, told := model.Notice{Name: "n", Mode: node.Write}, model.Notice{Name: "n", To: "r:1:read", Turn: node.Turn{Name: "n", Waiter: "r:1:read"}}
	for _, c := range []struct {
		what   string
		ears   model.Ears
		end    node.Command
		others bool
		want   []model.Notice
	}{
		{"nobody listens", nil, shared(node.Release, node.Write, "w", 1), false, []model.Notice{free}},
		{"a waiter listens", ears{listening: "r:1:read"}, shared(node.Release, node.Write, "w", 1), false, []model.Notice{free, told}},
		{"another does", ears{watched: "n"}, shared(node.Release, node.Write, "w", 1), true, []model.Notice{free}},
		{"a break", ears{"n", "r:1:read"}, shared(node.Break, node.Exclusive, "", 1), false, []model.Notice{free, told}},
		{"a downgrade", ears{"n", "r:1:read"}, shared(node.Downgrade, node.Exclusive, "w", 1), false, []model.Notice{free, told}},
		{"nothing", ears{"n", "r:1:read"}, shared(node.Release, node.Write, "x", 1), false, nil},
	} {
		s := model.Server{Ears: c.ears}
		apply(t, &s, 0, shared(node.Acquire, node.Write, "w", 1), node.Granted)
		apply(t, &s, 0, waits(1, "r:1:read", shared(node.Acquire, node.Read, "r", 2)), node.Refused)
		reply, published := s.Apply(0, c.end)
		assert.That(t, reply.Line.Others == c.others && slices.Equal(published, c.want),
			"%s: others: %v, published %+v, want %+v", c.what, reply.Line.Others, published, c.want)
	}
}
