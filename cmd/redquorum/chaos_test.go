package main

import (
	"encoding/json"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/chaos"
)

func TestChaosUsageErrors(t *testing.T) {
	plan := fileOf(t, "redquorum plan 1\nnodes 3\nclients 2\nlock client=plain mistake=half\nat 0s lock c* x\n")
	for _, c := range []struct{ args, want string }{
		{"chaos", "a plan is missing: want PLAN, --seed, --scenario, --for, --sentinel or --servers"},
		{"chaos a.plan b.plan", "there is more than one of PLAN"},
		{"chaos --sentinel --scenario S13", "there is more than one of PLAN"},
		{"chaos --sentinel --groups 0", "--groups is 0"},
		{"chaos --sentinel --groups 2", "--groups is 2; it must be an odd number from 1 to 9"},
		{"chaos --seed 3 --nodes 0", "--nodes is 0"},
		{"chaos --scenario S13 --rule none", "--rule is for --sentinel"},
		{"chaos --sentinel --rule some", "--rule is \"some\"; it must be majority, none or redisson"},
		{"chaos a.plan --seed 3", "there is more than one of PLAN, --seed, --scenario, --for, --sentinel and --servers"},
		{"chaos --scenario S13 --for 1h", "there is more than one"},
		{"chaos --scenario S99", `there is no scenario "S99"`},
		{"chaos --scenario=", `there is no scenario ""`},
		{"chaos --sentinel=false", "a plan is missing"},
		{"chaos --sentinel --clients 9", "--clients is not for --sentinel"},
		{"chaos --scenario S13 --nodes 7", "--nodes is not for a plan that is there already"},
		{"chaos a.plan --clients 7", "--clients is not for a plan that is there already"},
		{"chaos --scenario S13 --client rust", "it must be redquorum or plain"},
		{"chaos --seed 3 --client plain", "--client is for one --scenario"},
		{"chaos --seed 3 --nodes 99", "--nodes is 99; it must be 1 to 15"},
		{"chaos --seed 3 --clients -1", "--clients is -1; it must be 1 to 64"},
		{"chaos --for 0s", "--for is 0s"},
		{"chaos --for 1h --jobs 0", "--jobs is 0"},
		{"chaos --for 1h --html x", "--html and --history are for a single run"},
		{"chaos --scenario all --history x", "--html and --history are for a single run"},
		{"chaos --servers= ", "--servers is empty"},
		{"chaos --servers= --for 1s --seed 3 --html x --history y", "--servers is empty"},
		{"chaos --servers a --scenario S13", "there is more than one of PLAN"},
		{"chaos --servers a --servers b --servers c", "--servers is there 3 times: give all nodes in one"},
		{"chaos --servers a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p", "--servers lists 16; it must be at most 15"},
		{"chaos --servers a,b,c --for 10000h", "--for is 10000h0m0s; with --servers it must be at most"},
		{"chaos --servers a,b,c --clients 99", "--clients is 99"},
		{"chaos --seed 3 --stretch 101", "--stretch is 101; it must be 1 to 100"},
		{"chaos nowhere.plan", "no such file"},
	} {
		want(t, exitUsage, c.want, append(strings.Fields(c.args), "--out", t.TempDir())...)
	}
	out := want(t, exitSimFailed, "--server: exec", "chaos", "--out", t.TempDir(), "--server", "/nowhere/server", "--seed", "3")
	if strings.Count(out, "nowhere") != 2 { // by package exec
		t.Error(out)
	}
	want(t, exitSimFailed, "open /nowhere/page: no such file", "chaos", "--out", t.TempDir(), "--server", os.Args[0], "--html", "/nowhere/page", plan)
	want(t, exitSimFailed, "cannot be carried out here: lock mistake=half: only the simulator's clients make it", "chaos", "--server", os.Args[0], "--out", t.TempDir(), plan)
}

// A failing run leaves a folder to look at it and to repeat it. A sound one leaves
// nothing.
func TestChaosLeavesFailingRuns(t *testing.T) {
	tests.NeedLong(t)
	tests.NeedServer(t)
	tests.NeedSeconds(t)
	t.Setenv(actAsProgram, "1")
	for _, client := range []string{"plain", "redquorum"} {
		t.Run(client, func(t *testing.T) {
			dir := t.TempDir()
			page := filepath.Join(dir, "page.html")
			status, stdout, stderr := redquorum(t, "chaos", "--scenario", "S53", "--client", client, "--stretch", "4", "--json", "--html", page, "--out", dir)
			var out struct {
				Verdict sim.Verdict
				Late    int64
				Folder  string
				Trace   []sim.Entry
			}
			err := json.Unmarshal([]byte(stdout), &out)
			assert.Must(t, err == nil, "status %d: %v: %s", status, err, stderr)
			assert.That(t, statusOfVerdict(out.Verdict) == status && len(out.Trace) != 0, "%s, and status %d", out.Verdict, status)
			tests.Says(t, textOf(t, page), "<h1>Scenario S53: A node is replaced</h1>")
			if client == "plain" && out.Verdict != sim.Unsafe && out.Late > 4e6 {
				t.Skip("the machine is too busy")
			}
			left := assert.Got(filepath.Glob(filepath.Join(dir, "redquorum-chaos-S53-*", "*")))(t)
			var names []string
			for _, path := range left {
				names = append(names, filepath.Base(path))
			}
			want := ""
			if client == "plain" {
				want = "again.sh logs plan run.html"
			}
			got := strings.Join(names, " ")
			assert.That(t, got == want && (out.Folder == "") == (want == ""), "left %q in %q, want %q", got, out.Folder, want)
			if want == "" {
				return
			}
			tests.Says(t, textOf(t, filepath.Join(out.Folder, "again.sh")),
				"redquorum chaos --stretch 4 --server 'redis-server' \"$(dirname \"$0\")/plan\"\n")
			p, err := readPlan(filepath.Join(out.Folder, "plan"))
			assert.That(t, err == nil && p.Nodes == 3, "%v, %v", p, err)
			tests.Says(t, textOf(t, page), "textbook Redlock on real servers")
		})
	}
}

// Running servers get no faults, and keep no keys of the run.
func TestChaosServers(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	servers := serverAddrs(t)
	client := clientOf(t, servers[0])
	assert.Succeed(t, client.Set(t.Context(), "x1", "somebody's", 0).Err())
	history := filepath.Join(t.TempDir(), "run.jsonl")
	var status int
	var stdout, stderr string
	unlessLate(func() (string, bool) {
		status, stdout, stderr = redquorum(t, "chaos", "--servers", strings.Join(servers, ","), "--for", "1s", "--clients", "2", "--history", history)
		return stdout + stderr, status == exitOK
	})
	assert.Must(t, status == exitOK && strings.Contains(stdout, "locks granted on 3 servers") && stderr == "", "status %d: %s%s", status, stdout, stderr)
	text := textOf(t, history)
	assert.That(t, strings.HasPrefix(text, `{"client":`), "the history: %s", text)
	assert.Eventually(t, "only what was there before", func() bool {
		keys, err := client.Keys(t.Context(), "*").Result()
		return err == nil && strings.Join(keys, " ") == "x1"
	})
}

func TestChaosServersCleansTheOthers(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	hung := tests.Server(t)
	assert.Succeed(t, hung.Stop())
	addr := tests.Server(t).Addr()
	client := clientOf(t, addr)
	assert.Succeed(t, client.Set(t.Context(), "p:"+"x1", "left", 0).Err())
	p, err := faults.Parse("redquorum plan 1\nnodes 2\nclients 1\nlength 1s\nlock timeout=10ms\n")
	assert.Succeed(t, err)
	go clean([]redisnode.Server{{Options: &redis.Options{Addr: hung.Addr()}}, {Options: &redis.Options{Addr: addr}}}, p, "p:")
	assert.Eventually(t, "the key is gone", func() bool { return client.Exists(t.Context(), "p:x1").Val() == 0 })
}

// A signal ends the run with a word at once, and its keys are deleted.
func TestChaosServersIsInterrupted(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	servers := serverAddrs(t)
	client := clientOf(t, servers[0])
	has := func(pattern string) bool {
		keys, err := client.Keys(t.Context(), pattern).Result()
		return err == nil && len(keys) > 0
	}
	if signal.Ignored(syscall.SIGINT) {
		t.Skip("SIGINT is ignored, as under nohup, and the program cannot end by it")
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if signal.Ignored(sig) {
			continue
		}
		p := start(t, "chaos", "--servers", strings.Join(servers, ","), "--for", "1m", "--clients", "2")
		assert.Eventually(t, "it has locked something", func() bool { return has("redquorum_fence:*") })
		p.signal(sig)
		p.says("redquorum chaos: interrupted; its locks are released and its keys deleted")
		p.exits(-1) // by the signal
		assert.That(t, !has("redquorum_fence:*"), "%v: fences are left", sig)
	}
}

// The page about real servers has the simulator's present verdicts.
func TestChaosPage(t *testing.T) {
	text := textOf(t, filepath.Join("..", "..", "docs", "evidence", "chaos.md"))
	all := make(map[string]string)
	scenarios := sim.Scenarios()
	for i := range scenarios {
		for k, who := range []string{"redquorum", "textbook Redlock"} {
			if verdict := newChaosRow(&scenarios[i]).Cells[k].Simulated; verdict != sim.Sound {
				all["| "+who+" | "+string(verdict)+" | "] += scenarios[i].ID + " "
			}
		}
	}
	for begin, ids := range all {
		tests.Says(t, text, begin+ids+"|\n")
	}
}

// Scenarios that cannot be played here are no disagreement.
func TestChaosTable(t *testing.T) {
	text := tableOf([]chaosRow{
		{"S01", "one", []chaosCell{{Simulated: sim.Sound, Real: sim.Sound}, {Simulated: sim.Unsafe, Real: sim.Sound}}},
		{"S70", "two", []chaosCell{{Simulated: sim.Sound, Refused: "no replicas"}, {Simulated: sim.Sound, Real: sim.Sound}}},
	}, "Redis")
	tests.Says(t, text, "| S01 | one | sound | sound | unsafe | **sound** |", "| S70 | two | sound | refused: no replicas |",
		"agree in 1 of 1 scenarios for redquorum, and in 1 of 2 for textbook Redlock.")
}

// A lost exclusion is the exit status, also if the history cannot be written.
func TestChaosUnsafeWithoutHistory(t *testing.T) {
	s, _ := sim.FindScenario("S13")
	p := scenarioPlan(&s, "plain")
	run := chaosRun{Outcome: &chaos.Outcome{Result: sim.Run(p, nil, sim.WithTrace())}, plan: p}
	var talk strings.Builder
	status := cli.Run(t.Context(), &cobra.Command{RunE: func(*cobra.Command, []string) error {
		f := chaosFlags{history: filepath.Join(t.TempDir(), "no", "file")}
		return cli.Fail(exitSimFailed, (&command{stdout: io.Discard}).showChaos(&f, &run, chaos.Config{}))
	}}, nil, io.Discard, &talk)
	assert.That(t, status == exitUnsound && strings.Contains(talk.String(), "no such file"), "status %d, %s", status, &talk)
}

func TestSetWords(t *testing.T) {
	for _, c := range []struct {
		sets []chaos.Set
		want string
	}{
		{nil, ""},
		{[]chaos.Set{{Fenced: true}, {}}, ""},
		{[]chaos.Set{{Fenced: true, Added: 9}, {}}, "; of the set's elements 0 of 9 lost fenced"},
		{[]chaos.Set{{Fenced: true, Added: 9}, {Added: 8, Lost: 1}}, "; of the set's elements 0 of 9 lost fenced, 1 of 8 lost without tokens"},
	} {
		assert.Equal(t, setWords(c.sets), c.want, c.sets)
	}
}
