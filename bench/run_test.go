package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/bench"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node/embedded"
)

// contestants are ours, and locks with something wrong.
var contestants = []bench.Contestant{
	bench.Redquorum(),
	{Name: "leaky", Note: "leaves a key on the first node", Open: openFake(func(f *fake, name string) error {
		return f.first.Set(context.Background(), name+"-left", 1, 0).Err()
	})},
	{Name: "open", Note: "lets everybody in", Open: openFake(func(*fake, string) error { return nil })},
	{Name: "tardy", Note: "releases late, as on a busy machine", Open: openFake(func(f *fake, name string) error {
		return f.first.Set(context.Background(), name+"-late", 1, 500*time.Millisecond).Err()
	})},
	{Name: "broken", Note: "fails", Open: openFake(func(*fake, string) error { return errors.New("out of order") })},
}

// stuck ignores everything, even the end of a context.
var stuck = bench.Contestant{Name: "stuck", Note: "never ends", Open: openFake(func(f *fake, name string) error {
	_ = f.first.Set(context.Background(), name, 1, 0).Err()
	select {}
})}

// program calls the test's binary, which TestMain turns into the program.
var program = bench.Program{Name: "bench", Args: []string{asProgram}, Contestants: append(slices.Clone(contestants), stuck), Base: "open"}

const asProgram = "as-program"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asProgram {
		os.Exit(cli.Run(context.Background(), bench.Command(program), os.Args[2:], os.Stdout, os.Stderr))
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // of the children: a second for each would be most of the time
	os.Exit(m.Run())
}

// A fake locks nothing.
type fake struct {
	first *redis.Client
	lock  func(*fake, string) error
}

func openFake(lock func(*fake, string) error) func(context.Context, bench.Target) (bench.Client, error) {
	return func(_ context.Context, t bench.Target) (bench.Client, error) {
		return &fake{redis.NewClient(t.Servers[0]), lock}, nil
	}
}

func (f *fake) Lock(_ context.Context, name string, _ time.Duration) (bench.Held, error) {
	return f, f.lock(f, name)
}

func (f *fake) Keep(ctx context.Context, name string, lease time.Duration) (bench.Held, error) {
	return f.Lock(ctx, name, lease)
}

func (f *fake) Unlock(context.Context) error { return nil }
func (f *fake) Close() error                 { return f.first.Close() }

func config(t *testing.T, which ...bench.Contestant) bench.Config {
	t.Helper()
	tests.NeedSeconds(t) // to measure something
	self := assert.Got(os.Executable())(t)
	return bench.Config{Contestants: which, Nodes: []int{3}, RTT: []time.Duration{0}, Callers: []int{4}, Leases: []int{20},
		For: 200 * time.Millisecond, Rounds: 1, Servers: bench.Embedded, Self: []string{self, asProgram, "--child"}}
}

func run(t *testing.T, c bench.Config) *bench.Report {
	t.Helper()
	r := assert.Got(bench.Run(t.Context(), c))(t)
	return r
}

// good measures until there is nothing to complain of in a report, three times at most,
// and longer each time: on a busy machine a lock can time out, and a short window can be
// over before anything has happened in it.
func good(t *testing.T, c bench.Config, look func(r *bench.Report, complain func(format string, args ...any))) {
	t.Helper()
	for try := 1; ; try++ {
		var complaints []string
		look(run(t, c), func(format string, args ...any) {
			complaints = append(complaints, fmt.Sprintf(format, args...))
		})
		if len(complaints) == 0 {
			return
		}
		said := strings.Join(complaints, "\n")
		assert.Must(t, try != 3, "%v", said)
		t.Logf("try %d: %s", try, said)
		c.For *= 4
	}
}

// server starts an embedded server, and returns it with a client of its own.
func server(t *testing.T) (*embedded.Server, *redis.Client) {
	t.Helper()
	s := assert.Got(embedded.StartServer())(t)
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { client.Close(); s.Close() })
	return s, client
}

// leaves checks which keys are left on a server.
func leaves(t *testing.T, client *redis.Client, want ...string) {
	t.Helper()
	keys, err := client.Keys(t.Context(), "*").Result()
	assert.That(t, err == nil && slices.Equal(keys, want), "left are %q, %v; want %q", keys, err, want)
}

// Every workload runs on embedded nodes, with and without links, and its figures
// are there and make sense.
func TestRun(t *testing.T) {
	tests.NeedLong(t)
	c := config(t, bench.Redquorum())
	c.RTT = []time.Duration{0, time.Millisecond}
	c.Workloads = []string{"latency", "throughput", "handover", "keep"}
	told := 0
	c.Progress = func(_ string, done, of int) {
		if done == 0 {
			told = 0
		}
		assert.That(t, done == told && of == 10, "told of %d of %d after %d", done, of, told)
		told++
	}
	want := map[string][]string{
		"latency":    {"lock-p50-ns", "unlock-p50-ns", "pair-p50-ns", "client-cpu-ns/op", "server-cpu-ns/op", "allocs/op", "B/op"},
		"throughput": {"locks/s", "lock-p50-ns", "client-cpu-ns/op"},
		"handover":   {"wait-max-ns", "commands/node/op", "client-cpu-ns/op", "server-cpu-ns/op"},
		"keep":       {"client-cpu-ns/renewal", "commands/node/renewal"},
	}
	good(t, c, func(r *bench.Report, complain func(string, ...any)) {
		seen := make(map[string]bool)
		for _, cell := range r.Cells {
			seen[cell.Workload] = true
			if cell.Error != "" {
				complain("%s: %s", cell, cell.Error)
				continue
			}
			for _, name := range want[cell.Workload] {
				v, ok := cell.Median[name]
				// In so short a time a slow machine may not come to hand over a lock.
				if !(v > 0) && (cell.Workload != "handover" || !ok) || math.IsInf(v, 0) {
					complain("%s: %s is %v", cell, name, v)
				}
			}
			assert.Equal(t, cell.Median["overlaps"], 0, cell)
			if v := cell.Median["orphans/1000"]; v != 0 {
				complain("%s: %v orphans", cell, v)
			}
			if lock := cell.Median["lock-p50-ns"]; cell.RTT > 0 && cell.Workload == "latency" && lock < float64(cell.RTT) {
				t.Errorf("%s: a lock took %v", cell, lock)
			}
		}
		assert.That(t, len(seen) == len(want) && told == 10, "%d workloads ran, in %d measurements", len(seen), told)
	})
}

// The options reach the clients.
func TestRunOpensForATarget(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	callers := make(map[int]bool)
	plain := bench.Redquorum()
	c := config(t, bench.Contestant{Name: "watched", Open: func(ctx context.Context, target bench.Target) (bench.Client, error) {
		mu.Lock()
		defer mu.Unlock()
		callers[target.Callers] = true
		assert.That(t, target.Timeout == 700*time.Millisecond && target.RTT == time.Millisecond && len(target.Servers) == 3, "%+v", target)
		client, err := plain.Open(ctx, target)
		return &watched{client, t}, err
	}})
	c.RTT, c.Timeout, c.Lease = []time.Duration{time.Millisecond}, 700*time.Millisecond, 3*time.Second
	c.Workloads = []string{"latency", "throughput"}
	run(t, c)
	assert.That(t, callers[1] && callers[4], "opened for %v callers", callers)
}

// A watched client minds what leases it is asked for.
type watched struct {
	bench.Client
	t *testing.T
}

func (w *watched) Lock(ctx context.Context, name string, lease time.Duration) (bench.Held, error) {
	assert.That(w.t, lease == 3*time.Second, "a lease of %v", lease)
	return w.Client.Lock(ctx, name, lease)
}

// A case that is beyond a contestant is left out of the report.
func TestRunLeavesOutTheUnsupported(t *testing.T) {
	c := config(t, bench.Contestant{Name: "unable", Open: func(context.Context, bench.Target) (bench.Client, error) {
		return nil, fmt.Errorf("not here: %w", errors.ErrUnsupported)
	}}, bench.Redquorum())
	c.Workloads = []string{"latency"}
	r := run(t, c)
	assert.That(t, len(r.Cells) == 1 && r.Cells[0].Contestant == "redquorum", "%v", r.Cells)
}

// Bad nodes are bad for so long that what waits for them is given up meanwhile.
func TestRunWithBadNodes(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	c := config(t, bench.Redquorum())
	c.Workloads, c.For, c.Timeout = []string{"bad"}, time.Millisecond, 300*time.Millisecond
	good(t, c, func(r *bench.Report, complain func(string, ...any)) {
		for _, cell := range r.Cells {
			if !(cell.Median["pair-p50-ns"] > 0) {
				complain("%s: %s, %v", cell, cell.Error, cell.Median)
			}
		}
		least := time.Duration(len(r.Cells)) * 3 * c.Timeout
		assert.That(t, len(r.Cells) == 4 && r.Took >= least, "%d cases in %v, want 4 in %v", len(r.Cells), r.Took, least)
	})
}

// Errors of contestants are found, and are no reason to stop.
func TestRunFindsWhatIsWrong(t *testing.T) {
	c := config(t, contestants[1:]...)
	c.Workloads, c.For, c.Base = []string{"handover", "throughput"}, 400*time.Millisecond, "open"
	good(t, c, func(r *bench.Report, complain func(string, ...any)) {
		for _, cell := range r.Cells {
			m := cell.Median
			switch cell.Contestant {
			case "leaky":
				if !(m["orphans/1000"] > 0) {
					complain("%s: no orphan was found", cell)
				}
			case "open":
				if cell.Workload == "handover" && !(m["overlaps"] > 0) {
					complain("%s: nobody held at the same time: %v", cell, m)
				}
				assert.That(t, m["orphans/1000"] == 0, "%s: the orphans of another", cell)
			case "tardy":
				if m["orphans/1000"] != 0 {
					complain("%s: what is released late is no orphan", cell)
				}
			case "broken":
				assert.That(t, len(m) == 0 && strings.Contains(cell.Error, "out of order"), "%s: %v, %s", cell, m, cell.Error)
			}
		}
	})
}

// When a server dies what was measured before is not lost, nor are the others left
// with keys.
func TestRunGoesOnToTheEndOfARound(t *testing.T) {
	t.Parallel()
	var addrs []string
	var servers []*embedded.Server
	var clients []*redis.Client
	c := config(t, bench.Redquorum())
	for range 3 {
		s, client := server(t)
		clients = append(clients, client)
		servers, addrs, c.URLs = append(servers, s), append(addrs, s.Addr()), append(c.URLs, "redis://"+s.Addr())
	}
	c.Servers, c.Workloads, c.Rounds = bench.Given, []string{"latency", "throughput"}, 3
	c.Progress = func(_ string, done, of int) {
		if done == of-1 {
			servers[0].Close()
		}
	}
	r, err := bench.Run(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), addrs[0]) || strings.Contains(err.Error(), addrs[1]) || r == nil || r.Rounds != 2 {
		t.Fatalf("%v, %v", r, err)
	}
	for _, client := range clients[1:] {
		leaves(t, client)
	}
	for _, cell := range r.Cells {
		assert.That(t, len(cell.Rounds) == 2, "%s has %d rounds", cell, len(cell.Rounds))
	}
}

// Two names of one server would be one node with two votes.
func TestRunRefusesAServerTwice(t *testing.T) {
	s := tests.Server(t)
	c := config(t, bench.Redquorum())
	c.Servers, c.Nodes, c.URLs = bench.Given, []int{1}, []string{"redis://" + s.Addr(), "redis://" + s.Addr() + "/1"}
	assert.Says(t, assert.ErrorOf(bench.Run(t.Context(), c)), "nodes 1 and 2")
}

// The error of a server has no escape sequences in a report.
func TestRunShowsNoEscapes(t *testing.T) {
	t.Parallel()
	c := config(t, bench.Contestant{Name: "colored", Open: openFake(func(*fake, string) error { return errors.New("ERR \x1b[31mred") })})
	c.Nodes, c.Workloads = []int{1}, []string{"latency"}
	said := run(t, c).Cells[0].Error
	assert.That(t, said == `ERR \x1b[31mred`, "%q", said)
}

// Servers that cannot be started, or reached, are an error.
func TestRunWithoutServers(t *testing.T) {
	for _, servers := range []bench.Servers{bench.Embedded, bench.Given} {
		_, err := bench.Run(t.Context(), bench.Config{Contestants: contestants[:1], Nodes: []int{1}, RTT: []time.Duration{0},
			Rounds: 1, Servers: servers, URLs: []string{"redis://127.0.0.1:1"}, Self: []string{"/nowhere"}})
		assert.That(t, err != nil, "%s: no error", servers)
	}
}

// Servers of somebody's own are left as they were.
func TestRunLeavesNothing(t *testing.T) {
	t.Parallel()
	c := config(t, bench.Redquorum(), contestants[1])
	c.Servers, c.Nodes, c.Workloads = bench.Given, []int{1}, []string{"latency", "handover"}
	s, client := server(t)
	assert.Succeed(t, client.Set(t.Context(), "mine", 1, 0).Err())
	c.URLs = []string{"redis://" + s.Addr()}
	run(t, c)
	leaves(t, client, "mine")
}

// A password is used by every process that goes to the servers, and is in no report.
func TestRunWithPassword(t *testing.T) {
	s := tests.Server(t, "--requirepass", "secret")
	c := config(t, bench.Redquorum())
	c.Servers, c.Nodes, c.URLs, c.Workloads = bench.Given, []int{1}, []string{"redis://:secret@" + s.Addr() + "/1"}, []string{"latency", "handover"}
	c.RTT = []time.Duration{0, time.Millisecond}
	good(t, c, func(r *bench.Report, complain func(string, ...any)) {
		for _, cell := range r.Cells {
			if len(cell.Median) == 0 {
				complain("%s: %s", cell, cell.Error)
			}
		}
		text, err := json.Marshal(r)
		assert.That(t, err == nil && !strings.Contains(string(text), "secret"), "%s, %v", text, err)
	})
}

func TestRunEnds(t *testing.T) {
	t.Parallel()
	c := config(t, bench.Redquorum())
	c.Workloads = []string{"latency", "handover"}
	ctx, cancel := context.WithCancel(t.Context())
	var calls atomic.Int64
	c.Progress = func(string, int, int) {
		if calls.Add(1) == 3 {
			cancel()
		}
	}
	assert.Is(t, assert.ErrorOf(bench.Run(ctx, c)), context.Canceled, "interrupted")
	ctx, cancel = context.WithCancel(t.Context())
	c.Rounds = 3
	c.Progress = func(_ string, done, of int) {
		if done == of/c.Rounds+1 {
			cancel()
		}
	}
	r, err := bench.Run(ctx, c)
	assert.Must(t, err == nil && r.Rounds == 1, "interrupted in the second round: %v", err)
	for _, cell := range r.Cells {
		if cell.Error != "" {
			t.Log(cell.Error) // of a machine that is too slow, perhaps
		} else if len(cell.Rounds) != 1 || len(cell.Median) == 0 {
			t.Errorf("%v has %d rounds, medians %v", cell, len(cell.Rounds), cell.Median)
		}
	}
	c = config(t, bench.Redquorum())
	c.Servers, c.Nodes, c.URLs = bench.Given, []int{1}, []string{"redis://127.0.0.1:1"}
	assert.Says(t, assert.ErrorOf(bench.Run(t.Context(), c)), "node 1, 127.0.0.1:1, cannot be used", "unreachable")
}

// An interruption ends everything at once, also processes, and also where nothing
// happens.
func TestRunEndsAtOnce(t *testing.T) {
	t.Parallel()
	for _, which := range []string{"keep", "one process", "8 processes"} {
		for met := false; !met; {
			c := config(t, bench.Redquorum())
			c.Workloads, c.Nodes, c.For = []string{"keep", "handover"}, []int{1}, 24*time.Hour
			ctx, cancel := context.WithCancel(t.Context())
			c.Progress = func(what string, _, _ int) {
				if met = strings.Contains(what, which); !met {
					cancel() // it is another's turn first
				}
				time.AfterFunc(300*time.Millisecond, cancel)
			}
			assert.Is(t, assert.ErrorOf(bench.Run(ctx, c)), context.Canceled, "interrupted")
		}
	}
}

func TestRunOnRealServers(t *testing.T) {
	t.Parallel()
	tests.NeedServer(t)
	c := config(t, bench.Redquorum())
	c.Servers, c.For = bench.Spawned, 500*time.Millisecond
	c.Workloads = []string{"latency", "handover"}
	if tests.Long() {
		c.Workloads = append(c.Workloads, "fairness")
	}
	good(t, c, func(r *bench.Report, complain func(string, ...any)) {
		for _, cell := range r.Cells {
			if cell.Case == "one process" && !(cell.Median["changes/s"] > 0 && cell.Median["commands/node/op"] >= 1.9) ||
				cell.Error != "" || cell.Median["orphans/1000"] != 0 {
				complain("%s: %s, %v", cell, cell.Error, cell.Median)
			}
			assert.That(t, cell.Median["overlaps"] == 0, "%s: %v", cell, cell.Median)
		}
	})
}

// The names of a process that is killed go to another one when its leases end, and those
// of a lock that lets everybody in before.
func TestRunTakesOver(t *testing.T) {
	t.Parallel()
	c := config(t, contestants[0], contestants[2])
	c.Workloads, c.Lease = []string{"takeover"}, time.Second
	good(t, c, func(r *bench.Report, complain func(string, ...any)) {
		for _, cell := range r.Cells {
			m, ours := cell.Median, cell.Contestant == "redquorum"
			if cell.Error != "" || (m["lost"] == 0) != ours || ours && !(m["next-p50-ns"] > 5e8 && m["keep-client-cpu-ns/s"] > 0) {
				complain("%s: %s, %v", cell, cell.Error, m)
			}
		}
		assert.That(t, len(r.Cells) == 2, "%d cases", len(r.Cells))
	})
}
func main(args ...string) (status int, stdout, stderr string) {
	var out, talk bytes.Buffer
	status = cli.Run(context.Background(), bench.Command(program), args, &out, &talk)
	return status, out.String(), talk.String()
}

func TestMainRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"--n 4":                             "4 nodes survive the loss of no more nodes than 3 would",
		"--n x":                             `parsing "x": invalid syntax`,
		"--n 17":                            "numbers from 1 to 15",
		"--nodes a:1,b:1":                   "2 nodes survive",
		"--nodes a:1 --n 3":                 "--nodes lists 1",
		"--nodes a:1,a:1,b:1":               "is listed twice",
		"--nodes u:secret@h:1":              "not a URL, such as redis://host:6379",
		"--nodes redis://u:sec/ret@h:1":     "percent-encoded",
		"--nodes unix:///run/secret":        "has no port",
		"--nodes=":                          "--nodes lists none",
		"--lease 500ms":                     "want 1s to 30s",
		"--lease 31s":                       "want 1s to 30s",
		"--timeout -1s":                     "want at least 1ns",
		"--timeout 0s":                      "want at least 1ns",
		"--timeout 1s --lease 2s":           "at most a third of the lease of 2s",
		"--nodes a:1 --spawn":               "[nodes spawn] were all set",
		"--nodes a:1 --nodes b:1":           "--nodes is there 2 times",
		"--workload overload":               "with --spawn",
		"--workload latency,speed":          "there is no workload \"speed\"; there are latency, ",
		"--contestants redquorum,fast":      "there is no contestant \"fast\"; there are redquorum, leaky",
		"--rtt 5":                           `missing unit in duration "5"`,
		"--rtt 500ms":                       "longer than the Timeout of redquorum, 500ms",
		"--rtt 100ms --timeout 90ms":        "longer than the Timeout of redquorum, 90ms",
		"--rtt 600ms --timeout 2s":          "made in two, within a second",
		"--for 0s":                          "want at least 1ns",
		"--for 5":                           `missing unit in duration "5"`,
		"--rounds 0":                        "want at least 1",
		"--node-failure 0.5":                "a share such as 0.001",
		"--callers 0":                       "numbers from 1",
		"fast":                              `unexpected argument "fast"`,
		"--html /nowhere/x.html --for 10ms": "no such file",
	} {
		status, stdout, stderr := main(strings.Fields(args)...)
		wantStatus := 2
		if strings.Contains(args, "html") {
			wantStatus = 1
		}
		assert.That(t, status == wantStatus && stdout == "" && strings.Contains(stderr, want) && !strings.Contains(stderr, "secret"),
			"%s: status %d, %q, %q", args, status, stdout, stderr)
	}
}

// started runs the program in a process of its own, on a server that is returned
// when the program has left something there: it is measuring.
func started(t *testing.T, args ...string) (*exec.Cmd, *redis.Client) {
	t.Helper()
	s, client := server(t)
	cmd := exec.Command(os.Args[0], append([]string{asProgram, "--nodes", s.Addr(), "--for", "24h"}, args...)...)
	assert.Succeed(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() })
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if client.DBSize(t.Context()).Val() > 0 {
			return cmd, client
		}
		assert.Must(t, !time.Now().After(end), "it measures nothing")
	}
}

// However it is ended, nothing is left on the servers.
func TestMainHeedsSignals(t *testing.T) {
	t.Parallel()
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(sig) {
			continue // by nohup, say, which the program respects
		}
		cmd, client := started(t, "--workload", "keep", "--leases", "5", "--contestants", "redquorum")
		assert.Succeed(t, cmd.Process.Signal(sig))
		err := cmd.Wait()
		assert.That(t, cmd.ProcessState.ExitCode() == cli.Interrupted, "%v: %v", sig, err)
		leaves(t, client)
	}
}

// Where the first signal does not help the second one does.
func TestMainHeedsASecondSignal(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	cmd, _ := started(t, "--workload", "latency", "--contestants", "stuck")
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = cmd.Wait()
	}()
	for n := 0; ; n++ {
		select {
		case <-over:
			if n < 2 || cmd.ProcessState.ExitCode() != -1 { // by the signal
				t.Errorf("after %d signals: %v", n, cmd.ProcessState)
			}
			return
		case <-time.After(time.Second):
			_ = cmd.Process.Signal(os.Interrupt)
		}
	}
}

func TestMainWithoutRedis(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	status, _, stderr := main("--spawn")
	assert.That(t, status == 2 && strings.Contains(stderr, "no Redis to start"), "status %d, %q", status, stderr)
}

func TestMainHelps(t *testing.T) {
	status, stdout, _ := main("--help")
	assert.That(t, status == 0, "%v", status)
	tests.Says(t, stdout, "Usage:\n  bench [flags]", "Examples:", "--rtt", "handover", "--contestants")
}

// The formats are those of one run.
func TestMain_formats(t *testing.T) {
	file := t.TempDir() + "/page.html"
	var status int
	var stdout, stderr string
	for range 3 { // on a busy machine a lock can time out
		status, stdout, stderr = main("--n", "1", "--for", "50ms", "--rounds", "2", "--workload", "latency,throughput", "--callers", "1,2",
			"--contestants", "redquorum,open", "--html", file)
		if status == 0 {
			break
		}
	}
	if status != 0 || !strings.Contains(stdout, "x open") || !strings.Contains(stdout, "What to choose, for redquorum") ||
		!strings.Contains(stdout, "--for 50ms; lease 10s; Timeout of") || !strings.Contains(stderr, "12 measurements, about ") {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
	page, err := os.ReadFile(file)
	assert.That(t, err == nil && strings.Contains(string(page), "Latency by number of nodes"), "%.100s, %v", page, err)
	// A file stays until there is something better.
	status, _, stderr = main("--nodes", "127.0.0.1:1", "--html", file)
	assert.That(t, status == 1, "status %d, %s", status, stderr)
	page, err = os.ReadFile(file)
	assert.That(t, err == nil && strings.Contains(string(page), "</html>"), "%.100s, %v", page, err)
	all, err := os.ReadDir(filepath.Dir(file))
	assert.That(t, err == nil && len(all) == 1, "%v, %v", all, err)
	// A run in which a lock does what no lock may do is no success.
	for bad, want := range map[string]string{"leaky": "1 of 1 cases have overlaps or orphans", "broken": "out of order"} {
		status, _, stderr := main("--n", "1", "--for", "20ms", "--rounds", "1", "--workload", "latency", "--contestants", bad)
		assert.That(t, status == 1 && strings.Contains(stderr, want), "%s: status %d, %s", bad, status, stderr)
	}
}
