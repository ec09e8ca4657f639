package chaos_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/chaos"
)

// asClient makes this test program a client.
const asClient = "--client"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == asClient {
		if err := chaos.Client(context.Background(), os.Stdin, os.Stdout, nil); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	tests.Parallel(8)
	os.Exit(m.Run())
}

func config(t *testing.T, stretch int) chaos.Config {
	return chaos.Config{Self: []string{os.Args[0], asClient}, Dir: t.TempDir(), Stretch: stretch}
}

// variant returns a scenario's plan with a client.
func variant(t *testing.T, id, client string) *faults.Plan {
	t.Helper()
	s, ok := sim.FindScenario(id)
	assert.Must(t, ok, "%v", id)
	v, _ := sim.FindVariant(client)
	return s.Plan(v)
}

// Real processes come to the verdict of the simulator: of some scenarios, with the kinds
// of faults that differ most.
func TestScenariosOnRealProcesses(t *testing.T) {
	tests.NeedLong(t)
	tests.NeedServer(t)
	cases := []string{"S13 plain", "S13 redquorum", "S55 plain", "S05 redquorum", "S14 plain", "S19 plain", "S23 redquorum", "S25 redquorum", "S28 plain", "S39 redquorum", "S52 redquorum", "S60 redquorum", "S61 plain", "S61 redquorum", "S62 redquorum", "S63 redquorum", "S64 plain", "S65 redquorum", "S66 redquorum", "S68 redquorum"}
	for _, c := range cases {
		t.Run(c, func(t *testing.T) {
			t.Parallel()
			id, client, _ := strings.Cut(c, " ")
			p := variant(t, id, client)
			want := sim.Run(p, nil).Verdict
			o := comesTo(t, p, want)
			assert.That(t, o.Grants != 0 && o.Server != "", "%d grants on %q", o.Grants, o.Server)
		})
	}
}

// comesTo carries out a plan until it comes to a verdict, in the end more slowly: a
// process that was late may have been any. If the last run was late nevertheless, nothing
// can be said. In S28 a connection must live through a cut, and that is so in most runs
// that are quick, and in none that is slow.
func comesTo(t *testing.T, p *faults.Plan, want sim.Verdict) *chaos.Outcome {
	t.Helper()
	for i := 0; ; i++ {
		stretch := []int{2, 3, 2, 3, 2, 6, 12}[i]
		o, err := chaos.Run(t.Context(), p, config(t, stretch))
		switch {
		case err != nil:
			t.Fatal(err)
		case o.Verdict == want:
			return o
		case stretch < 10:
		case o.Late > time.Duration(stretch)*time.Millisecond:
			t.Skipf("the machine is too busy: %v late", o.Late)
		default:
			t.Fatalf("%s, and simulated %s:\n%s\n%v", o.Verdict, want, strings.Join(o.Story(40), "\n"), o.Violations)
		}
	}
}

// Drawn work adds to the set, and the fenced one loses nothing.
func TestDrawnWork(t *testing.T) {
	tests.NeedLong(t)
	tests.NeedServer(t)
	tests.NeedSeconds(t)
	t.Parallel()
	p := faults.New(3, 3)
	p.Length = 3 * time.Second
	p.Lock.Guard = false
	p.Events = []faults.Event{{At: time.Second, Verb: faults.Pause, For: 1500 * time.Millisecond, Procs: faults.Procs{Clients: faults.Of(0)}},
		{At: 2 * time.Second, Verb: faults.Kill, For: 500 * time.Millisecond, Procs: faults.Procs{Clients: faults.Of(1)}}}
	dir := config(t, 1)
	o, err := chaos.Run(t.Context(), p, dir)
	assert.Succeed(t, err)
	assert.That(t, o.Verdict == sim.Sound || o.Verdict == sim.Outside, "%s: %v", o.Verdict, o.Violations)
	if len(o.Set) != 2 || !o.Set[0].Fenced || o.Set[0].Added == 0 || o.Set[0].Lost > 0 || o.Set[1].Added == 0 {
		t.Errorf("%+v", o.Set)
	}
	for _, log := range []string{"faults.jsonl", "c1-1.jsonl", "c2-1.jsonl", "c2-2.jsonl", "c3-1.jsonl"} {
		text, err := os.ReadFile(filepath.Join(dir.Dir, log))
		assert.That(t, err == nil && len(text) != 0, "%s: %v", log, err)
	}
}

// A client's process that fails, such as by a panic, fails the run.
func TestClientFails(t *testing.T) {
	tests.NeedServer(t)
	t.Parallel()
	p := faults.New(1, 1)
	p.Length, p.Lock.Guard = 100*time.Millisecond, false
	c := config(t, 1)
	c.Self = []string{"sh", "-c", "read order; echo ready; read beginning; echo panic: no >&2; exit 3"}
	assert.Says(t, assert.ErrorOf(chaos.Run(t.Context(), p, c)), "status 3: panic: no")
}

// When a run is interrupted nothing is left of it, not even a stopped process.
func TestInterrupted(t *testing.T) {
	tests.NeedLong(t)
	tests.NeedServer(t)
	if runtime.GOOS != "linux" {
		t.Skip("it looks for processes in /proc")
	}
	p := faults.New(3, 2)
	p.Lock.Guard = false
	for _, e := range []faults.Event{{Verb: faults.Pause, Procs: faults.Procs{Nodes: faults.Of(0)}}, {Verb: faults.Pause, Procs: faults.Procs{Clients: faults.Of(0)}}} {
		e.At, e.For = 100*time.Millisecond, 5*time.Second
		p.Events = append(p.Events, e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c := config(t, 1)
	time.AfterFunc(1500*time.Millisecond, cancel)
	assert.Is(t, assert.ErrorOf(chaos.Run(ctx, p, c)), context.Canceled)
	for _, about := range children(t, c.Dir) {
		t.Errorf("a process is left: %s", about)
	}
}

// children returns the processes that have a file of the folder open, or belong to
// servers of it.
func children(t *testing.T, dir string) (found []string) {
	t.Helper()
	fds := assert.Got(filepath.Glob("/proc/[0-9]*/fd/*"))(t)
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, dir) && !strings.HasPrefix(fd, fmt.Sprintf("/proc/%d/", os.Getpid())) {
			found = append(found, fd+" -> "+to)
		}
	}
	return found
}

// A plan that cannot be carried out is refused with all the reasons, and nothing is
// started.
func TestAble(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"lock client=plain mistake=half", "lock mistake=half"},
		{"work nest=10% hand=1% break=5%", "work break=: its clients do not do that; work hand=: its clients do not do that"},
		{"work hand=10%\nat 0s lock c* x", ""},
		{"at 0s lock c1,c2 x\nat 1s detach c1\nat 2s resume c2 x", "detach: its clients do not do that; resume: its clients do not do that"},
		{"at 0s break c* x\nat 0s inspect c* x", "break: its clients do not do that"},
		{"at 1s pause n1 for 1s\nat 1s cut c*-n*", ""},
	} {
		p := assert.Got(faults.Parse("redquorum plan 1\nnodes 3\nclients 2\n" + c.text + "\n"))(t)
		err := chaos.Able(p, chaos.Config{})
		if got := fmt.Sprint(err); c.want == "" && err != nil || !strings.Contains(got, c.want) && c.want != "" {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
		chaos.Reduce(p)
		assert.That(t, !strings.HasPrefix(c.text, "work") || chaos.Able(p, chaos.Config{}) == nil, "%s: not reduced", c.text)
	}
	p := faults.New(3, 2)
	p.Events = []faults.Event{{Verb: faults.Step, Offset: time.Second, Procs: faults.Procs{Nodes: 1}}}
	_, err := chaos.Run(t.Context(), p, chaos.Config{Server: "/no/such/server"})
	assert.That(t, err != nil, "it has a server that is not there")
}

// The clocks of servers are those that the plan gives them.
func TestServersClock(t *testing.T) {
	tests.NeedServer(t)
	tests.NeedLong(t)
	t.Parallel()
	p := faults.New(1, 1)
	p.Events = []faults.Event{{Verb: faults.Step, Offset: time.Second, At: time.Second, Procs: faults.Procs{Nodes: 1}}}
	if err := chaos.Able(p, chaos.Config{}); err != nil {
		t.Skip(err)
	}
	for _, id := range []string{"S08", "S11"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			comesTo(t, variant(t, id, "redquorum"), sim.Outside)
		})
	}
}
