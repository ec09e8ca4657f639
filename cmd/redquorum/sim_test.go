package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/sim"
)

func TestSimUsageErrors(t *testing.T) {
	bad := fileOf(t, "redquorum plan 1\nat 1s crush n1\n")
	for _, c := range []struct{ args, want string }{
		{"sim dance", `unexpected argument "dance"`},
		{"sim explor", "; did you mean explore?"},
		{"sim run --seed x", `invalid argument "x" for "--seed" flag`},
		{"sim run --nodes 99", "--nodes is 99; it must be 1 to 15"},
		{"sim run --clients 0", "--clients is 0"},
		{"sim run --client rust", "want redquorum or plain"},
		{"sim run --guard maybe", "want on or off"},
		{"sim run --kinds rusty", "want plain, or some of readwrite,fair,several,joint,chain"},
		{"sim run --kinds plain,fair", "plain is without all of the others"},
		{"sim run --need 2 --nodes 5", "--need is 2; it must be more than half of 5 nodes"},
		{"sim run --kinds fair --client plain", "are not for --client plain"},
		{"sim run --replicas --kinds fair,joint", "--kinds joint is not for --replicas"},
		{"sim run --replicas --need 2", "--nodes and --need are not for --replicas"},
		{"sim explore --replicas --nodes 3", "--nodes and --need are not for --replicas"},
		{"sim run 7", `unexpected argument "7"`},
		{"sim explore --seeds 9-3", "--seeds is \"9-3\"; want a range such as 1-1000"},
		{"sim explore --jobs 0", "--jobs is 0"},
		{"sim explore --bugs 0", "--bugs is 0"},
		{"sim --for 0s", "--for is 0s"},
		{"sim replay", "the plan's file is missing"},
		{"sim replay " + bad, `line 2: unknown verb "crush" (did you mean "crash"?)`},
		{"sim shrink nowhere.plan", "no such file"},
	} {
		want(t, exitUsage, c.want, strings.Fields(c.args)...)
	}
	want(t, exitUsage, `there is no scenario "S99"`, "sim", "scenario", "S99")
	tests.Says(t, want(t, exitSimFailed, "open /nowhere/page: no such file", "sim", "run", "--seed", "1", "--html", "/nowhere/page"), "!sound")
	want(t, exitUsage, "the scenario's name, such as S24, or list, is missing", "sim", "scenario")
	want(t, exitUsage, "it must be redquorum, plain or mistaken", "sim", "scenario", "S24", "--client", "rust")
}

// Any two flags that narrow the plans are refused together, or give valid plans.
func TestSimFlagsFit(t *testing.T) {
	var given []string
	for name, values := range map[string]string{"nodes": "1 2 3 6 15", "clients": "1 2 64", "length": "1ns 1s", "outside": "true", "replicas": "true",
		"machines": "true", "client": "plain redquorum", "need": "1 2 3 15", "kinds": strings.Join(lockKinds, " "), "guard": "off", "renew": "on off",
		"fence": "off"} {
		for value := range strings.FieldsSeq(values) {
			given = append(given, "--"+name+"="+value)
		}
	}
	for i, first := range given {
		for _, second := range given[i:] {
			var f planFlags
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			f.register(fs)
			if fs.Parse([]string{first, second}) != nil || f.check() != nil {
				continue
			}
			for seed := range uint64(20) {
				p := faults.Generate(seed, f.profile)
				f.adjust(p)
				err := p.Check()
				assert.Must(t, err == nil, "%s %s, seed %d: %v", first, second, seed, err)
			}
		}
	}
}

// Kinds come in any order, and may be repeated.
func TestSimKindsInAnyOrder(t *testing.T) {
	plan := func(kinds string) string {
		var f planFlags
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.register(fs)
		assert.Succeed(t, fs.Parse([]string{"--kinds", kinds}))
		p := faults.Generate(3, f.profile)
		f.adjust(p)
		return p.String()
	}
	want := plan("readwrite,fair")
	tests.Says(t, want, "read=30% write=20%", "fair=100%")
	for _, kinds := range []string{"fair,readwrite", "readwrite,fair,fair"} {
		assert.That(t, plan(kinds) == want, "%s is not readwrite,fair:\n%s", kinds, plan(kinds))
	}
}

// With --bugs the search goes on, and each bug has its plan.
func TestSimGoesOnAfterABug(t *testing.T) {
	dir := t.TempDir()
	// Textbook Redlock goes wrong soon, and its runs are shrunk at once.
	out := want(t, exitUnsound, "VIOLATED by seed", "sim", "explore", "--seeds", "1-2000", "--client", "plain", "--jobs", "1", "--bugs", "2", "--out", dir)
	plans, err := filepath.Glob(filepath.Join(dir, "*.plan"))
	assert.Must(t, err == nil && len(plans) == 2, "plans %q, %v; want 2", plans, err)
	tests.Says(t, out, "plan: "+plans[0], "plan: "+plans[1])
}

// A run without the guard goes wrong. It is reported and written to a file, which plays
// it again.
func TestSimFindsShrinksAndReplays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "plans")
	out := want(t, exitUnsound, "VIOLATED by seed", "sim", "explore", "--seeds", "1-2000", "--nodes", "5", "--guard", "off", "--out", dir)
	const cause = "cause: the restart guard is off (lock guard=off)\n"
	tests.Says(t, out, cause)
	again := strings.Fields(againAfter(out))
	want(t, exitUnsound, "violated at", again...)
	want(t, exitUnsound, cause, append(again, "--brief")...)
	page := filepath.Join(dir, "run.html")
	want(t, exitUnsound, "the picture is in "+page, append(again, "--brief", "--html", page)...)
	tests.Says(t, textOf(t, page), "</html>")
	path := again[len(again)-1]
	small, picture := filepath.Join(dir, "small.plan"), filepath.Join(dir, "small.html")
	want(t, exitUnsound, "the picture is in "+picture, "sim", "shrink", path, "-o", small, "--html", picture)
	tests.Says(t, textOf(t, picture), "</html>")
	want(t, exitUnsound, "unsafe:", "sim", "replay", small, "--brief")
	if _, stdout, _ := redquorum(t, "sim", "replay", small, "--steps"); !regexp.MustCompile(` lock x1? -> send n1.*: acquire x1? by `).MatchString(stdout) {
		t.Errorf("no steps of an engine:\n%s", stdout)
	}

	status, stdout, _ := redquorum(t, append(again, "--json")...)
	var r struct {
		Verdict    string
		Violations []struct{ Invariant string }
		Trace      []struct{ Kind string }
	}
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || status != exitUnsound || r.Verdict != "unsafe" ||
		len(r.Violations) == 0 || len(r.Trace) == 0 {
		t.Errorf("status %d, %v: %.300s", status, err, stdout)
	}
}

// againAfter is the command that a search names to repeat the first plan.
func againAfter(out string) (command string) {
	_, command, _ = strings.Cut(out, "play it again: redquorum ")
	command, _, _ = strings.Cut(command, "\n")
	return command
}

func TestSimCannotWrite(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "not", "there")
	plan := fileOf(t, "redquorum plan 1\nlength 1s\n")
	for _, args := range []string{"run --seed 7 --length 1s --brief --html ", "scenario S28 --html ", "replay " + plan + " --brief --html ", "shrink " + plan + " -o "} {
		want(t, exitSimFailed, "no such file", strings.Fields("sim "+args+nowhere)...)
	}
	want(t, exitSimFailed, "not a directory", "sim", "explore", "--seeds", "1-2", "--out", filepath.Join(plan, "sub"))
}

func TestSimScenarios(t *testing.T) {
	want(t, exitOK, "S24  A ghost lock\n", "sim", "scenario", "list")
	want(t, exitOK, "what protects: a fresh owner", "sim", "scenario", "s28")
	page := filepath.Join(t.TempDir(), "S28.html")
	want(t, exitUnsound, "I1 violated", "sim", "scenario", "S28", "--client", "plain", "--brief", "--html", page)
	tests.Says(t, textOf(t, page), "Scenario S28: The release of one attempt")
	want(t, exitUnsound, "I1 violated", "sim", "scenario", "S54", "--client", "mistaken", "--brief")
	want(t, exitUsage, "S28 is about no mistake", "sim", "scenario", "S28", "--client", "mistaken")
	want(t, exitUnsound, "I1 violated", "sim", "scenario", "S55", "--client", "plain", "--brief")
	want(t, exitOK, "two nodes are the same server", "sim", "scenario", "S55")
	tests.Says(t, want(t, exitOK, "S28  The release of one attempt", "sim", "matrix"), "stuck      a client waits for a lock that is free")
}

// Seed 26 has a client that lacks a node. Joint locks need the same list in all clients.
func TestSimJointListsAreTheSame(t *testing.T) {
	want(t, exitOK, "sound: 1 seed,", "sim", "explore", "--kinds", "joint", "--seeds", "26")
}

func TestSimSound(t *testing.T) {
	tests.NeedLong(t)
	said := want(t, exitOK, "sound: 50 seeds", "sim", "explore", "--seeds", "1-50")
	_, verdict, _ := strings.Cut("\n"+said, "\nsound: ")
	if strings.Count(said, "\n") > 6 || strings.Count(verdict, "\n") > 2 { // it may take two lines
		t.Errorf("the verdict is not the last of few lines:\n%s", said)
	}
	want(t, exitOK, "a message was lost\n", "sim", "explore", "--seeds", "1-50", "--situations")
	want(t, exitOK, "sound: ", "sim", "--for", "200ms")
	want(t, exitOK, "sound: ", "sim", "run", "--seed", "3", "--nodes", "3", "--clients", "2", "--length", "1s")

	want(t, exitOK, "| S28 | The release of one attempt", "sim", "matrix", "--markdown")

	_, stdout, _ := redquorum(t, "sim", "explore", "--seeds", "1-20", "--json")
	var r exploreReport
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || r.Seeds != 20 || r.Violations == nil || r.Sometimes["a vote was split"] == 0 ||
		r.VirtualSeconds < 20 || r.SeedsPerSecond <= 0 {
		t.Errorf("%v: %s", err, stdout)
	}
}

// The manual's first plan breaks the lock, as it says, and the last is sound.
func TestSimManual(t *testing.T) {
	out := want(t, exitOK, "crash NODES durable", "sim", "manual")
	parts := strings.Split(out, "redquorum plan 1\n")
	assert.Must(t, len(parts) == 3, "%d plans in\n%s", len(parts)-1, out)
	first, _, _ := strings.Cut(parts[1], "\n\n")
	for _, c := range []struct {
		plan string
		want sim.Verdict
	}{{first, sim.Unsafe}, {parts[2], sim.Sound}} {
		p, err := faults.Parse("redquorum plan 1\n" + c.plan)
		assert.Must(t, err == nil, "%v in\n%s", err, c.plan)
		r := sim.Run(p, nil)
		assert.That(t, r.Verdict == c.want, "%s is %s: %v", c.plan, r.Verdict, r.Worst())
	}
	tests.Says(t, out, "![New]")
}

// A signal ends a long run in virtual time. It goes on in this process, so it must not be
// too long.
func TestSimIsInterrupted(t *testing.T) {
	long := fileOf(t, "redquorum plan 1\nlength 1m\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range []string{"sim replay " + long, "sim run --length 1m", "sim matrix"} {
		assert.Equal(t, run(ctx, strings.Fields(args), io.Discard, io.Discard), exitInterrupted, args)
	}
	found := sim.Explore(t.Context(), sim.Campaign{To: 2000, Adjust: func(p *faults.Plan) { p.Lock.Guard = false }}).Found[0]
	path := assert.Got(savePlan(ctx, t.TempDir(), found, faults.Profile{}))(t)
	text := textOf(t, path)
	assert.That(t, strings.HasSuffix(text, "\n"+found.Plan), "it goes on to shrink, to\n%s", text)
}

func TestSimKeepsTheNodes(t *testing.T) {
	dir := t.TempDir()
	const args = "sim explore --guard off --nodes 5 --clients 2 --seeds 1-2000 --jobs 1 --out "
	want(t, exitUnsound, "VIOLATED by seed", append(strings.Fields(args), dir)...)
	for _, path := range assert.Got(filepath.Glob(filepath.Join(dir, "*.plan")))(t) {
		p := assert.Got(faults.Parse(textOf(t, path)))(t)
		assert.That(t, p.Nodes == 5 && p.Clients == 2, "%d nodes, %d clients:\n%s", p.Nodes, p.Clients, p)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestSimOutputIsFull(t *testing.T) {
	plan := fileOf(t, "redquorum plan 1\nlength 1s\n")
	for _, args := range []string{"sim manual", "sim scenario list", "sim run --brief", "sim shrink " + plan, "sim explore --seeds 1-1", "sim --seeds 1-1"} {
		var stderr bytes.Buffer
		if status := run(t.Context(), strings.Fields(args), full{}, &stderr); status != exitSimFailed || !strings.Contains(stderr.String(), "no space left") {
			t.Errorf("%s: status %d, %s", args, status, &stderr)
		}
	}
}

func TestProse(t *testing.T) {
	for _, c := range []struct {
		write func(*prose)
		want  string
	}{
		{func(p *prose) { p.write("", "  ", "one two three four five six seven eight") }, "one two three four five six\n  seven eight\n"},
		{func(p *prose) { p.painter = true; p.write(red, "", "one") }, "\x1b[31mone\x1b[0m\n"},
		{func(p *prose) { p.painter = true; p.write("", "", "one") }, "one\n"},
		{func(p *prose) { p.story([]string{"     1.000 ms  one two three four", "..."}) }, "     1.000 ms  one two three\n               four\n...\n"},
		{func(p *prose) {
			p.violations([]sim.Violation{{Invariant: "I1", At: time.Millisecond, What: "two clients hold x", Outside: "a pause"}})
		}, "I1 violated at 1.000 ms: two\n  clients hold x\n  mutual exclusion:"},
	} {
		p := &prose{width: 30}
		if c.write(p); !strings.HasPrefix(p.String(), c.want) {
			t.Errorf("%q, want %q", p, c.want)
		}
		if !p.painter {
			tests.Narrow(t, p.String(), p.width)
		}
	}
}

func TestTraceFits(t *testing.T) {
	s, _ := sim.FindScenario("S28")
	r := sim.Run(scenarioPlan(&s, "plain"), nil, sim.WithTrace())
	text := func(width int, folded bool) string {
		p := &prose{width: width}
		assert.Succeed(t, p.trace(r, folded))
		return p.String()
	}
	whole := text(60, false)
	for _, width := range []int{60, 80} {
		folded := text(width, true)
		tests.Narrow(t, folded, width)
		got, want := strings.Fields(folded), strings.Fields(whole)
		assert.That(t, strings.Join(got, " ") == strings.Join(want, " "), "%d columns: other words", width)
	}
	tests.Says(t, whole, strings.Repeat(" ", 33)+"FAULT hold c1>n3 release 1 for 155ms\n")
}
