package faults_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
)

// events parses the events of a plan, one a line.
func events(t *testing.T, text string) (all []*faults.Event) {
	t.Helper()
	p := parsed(t, "nodes 3\nclients 2\n"+text)
	for i := range p.Events {
		all = append(all, &p.Events[i])
	}
	return all
}

func TestLinkSuffersTheLastFaultOfAKind(t *testing.T) {
	all := events(t, "at 0s delay c1>n1 1ms\nat 1s delay c1-n1 2ms\nat 2s cut c1<n1\nat 3s deafen c1-n1\nat 4s duplicate c1>n1 10% 3ms\nat 5s heal c1-n1\n")
	var l faults.Link[int]
	for _, e := range all[:5] {
		l.Strike(e, false)
	}
	ms := func(n time.Duration) faults.Range {
		return faults.Range{Min: n * time.Millisecond, Max: n * time.Millisecond}
	}
	want := faults.Trouble{Delay: [2]faults.Range{ms(2), ms(2)}, Cut: [2]bool{false, true}, Deaf: true, Duplicate: [2]faults.Ratio{faults.Percent(10), 0}, Later: ms(3)}
	assert.That(t, l.Trouble == want, "%+v, want %+v", l.Trouble, want)
	l.Strike(all[1], true) // it takes back only its own effect
	l.Strike(all[2], true)
	want.Delay, want.Cut = [2]faults.Range{ms(1), {}}, [2]bool{}
	assert.That(t, l.Trouble == want && !l.Suffers(all[2]) && l.Suffers(all[0]), "%+v, want %+v", l.Trouble, want)
	if l.Strike(all[5], false); l.Trouble != (faults.Trouble{}) {
		t.Errorf("healed, and %+v", l.Trouble)
	}
}

func TestLinkHolds(t *testing.T) {
	all := events(t, "at 0s hold c1>n1 acquire 1\nat 1s hold c1-n1\nat 2s release c1-n1\n")
	var l faults.Link[int]
	keeps := func(message, way int, kind string, want bool) {
		t.Helper()
		assert.Equal(t, l.Hold(way, kind, message), want, message)
	}
	l.Strike(all[0], false)
	keeps(1, faults.ToNode, "release", false)
	keeps(2, faults.ToClient, "acquire", false)
	keeps(3, faults.ToNode, "acquire", true)
	keeps(4, faults.ToNode, "acquire", false)
	l.Strike(all[1], false)
	again := l.Again()
	keeps(5, faults.ToClient, "release", true)
	free := l.Strike(all[0], true)
	assert.That(t, slices.Equal(free, []int{3}), "%v go on", free)
	if free := l.Strike(all[2], false); !slices.Equal(free, []int{5}) || l.Holds() {
		t.Errorf("%v go on", free)
	}
	if free := again.Strike(all[2], false); len(free) > 0 {
		t.Errorf("another process gets %v", free)
	}
}

func TestServerDoesWhatTheLatestFaultSays(t *testing.T) {
	all := events(t, "at 0s crash n1 second for 2s\nat 1s crash n1 empty for 2s\nat 2s demote n1 durable for 2s\nat 3s demote n1 empty for 2s\nat 4s slow n1 1ms for 2s\nat 5s slow n1 2ms for 2s\nat 6s full n1 disk\nat 7s restart n1\nat 8s pause n1 for 2s\n")
	s := faults.Server{Mode: faults.Durable}
	for i, step := range []struct {
		event int
		end   bool
		does  []faults.Verb
	}{
		{0, false, []faults.Verb{faults.Crash}},
		{1, false, nil}, // it is down
		{2, false, nil},
		{0, true, nil}, // the later one keeps it down
		{1, true, []faults.Verb{faults.Restart}},
		{2, false, []faults.Verb{faults.Demote}},
		{3, false, []faults.Verb{faults.Demote}},
		{2, true, nil},
		{3, true, []faults.Verb{faults.Promote}},
		{4, false, []faults.Verb{faults.Slow}},
		{5, false, []faults.Verb{faults.Slow}},
		{4, true, nil},
		{7, false, []faults.Verb{faults.Crash, faults.Restart}},
		{6, false, []faults.Verb{faults.Full}},
		{8, false, []faults.Verb{faults.Pause}},
	} {
		does := s.Strike(all[step.event], step.end)
		assert.That(t, slices.Equal(does, step.does), "step %d: it does %v, want %v", i, does, step.does)
	}
	if s.Slow.Max != 2*time.Millisecond || s.Mode != faults.Empty || !s.Lacks(faults.Disk) || s.Lacks(faults.Memory) || s.Stopped != 1 {
		t.Errorf("%+v", s)
	}
	s.Strike(all[0], false)
	if does := s.Heal(); !slices.Equal(does, []faults.Verb{faults.Restart, faults.Full, faults.Promote}) || s.Lacks(faults.Disk) || s.Down {
		t.Errorf("healed, it does %v: %+v", does, s)
	}
}

func TestProcessIsDeadUntilTheLatestKillEnds(t *testing.T) {
	all := events(t, "at 0s kill c1 for 2s\nat 1s kill c1 for 2s\nat 2s pause c1 for 2s\nat 3s start c1\nat 4s pause c1 for 1s\n")
	var p faults.Process
	for i, step := range []struct {
		event int
		end   bool
		does  faults.Verb
	}{
		{0, false, faults.Kill},
		{1, false, ""},
		{2, false, ""},
		{0, true, ""}, // the later one keeps it dead
		{1, true, faults.Start},
		{3, false, ""},
		{2, false, faults.Pause},
		{4, false, faults.Pause},
		{4, true, faults.Pause},
	} {
		assert.Equal(t, p.Strike(all[step.event], step.end), step.does, i)
	}
	assert.That(t, !p.Dead && p.Stopped == 1, "%+v", p)
}
