package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/internal/terminal"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/quorum"
)

func TestUsageErrors(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "redquorum [command]"},
		{"lock", `unknown command "lock" for "redquorum"`},
		{"help lock", `unknown command "lock" for "redquorum"`},
		{"run -- true", "the lock's name is missing"},
		{"run -- job -- true", "the lock's name is missing"},
		{"run", "the lock's name is missing"},
		{"run job true", "the command is missing: run \"job\" -- COMMAND"},
		{"run job", "the command is missing: run \"job\" -- COMMAND"},
		{"run job --", "the command is missing"},
		{"run --name x true", "the command is missing: run \"x\" -- COMMAND"},
		{"run redquorum_x -- true", "redquorum_x"},
		{"hold --name", "flag needs an argument: --name"},
		{"status a --name b", "unexpected argument \"b\""},
		{"run --name x", "the command is missing"},
		{"run --name x --name= -- true", "the lock's name is empty"},
		{"run --name x --name redquorum_fence:{x} -- true", `the lock's name "redquorum_fence:{x}" is reserved`},
		{"status redquorum_fence:{x} --nodes redis://h:1", "must not begin with redquorum_ or redisson_, nor contain :rwlock_timeout:"},
		{"status \xff --nodes redis://h:1", "is not UTF-8"},
		{"break redquorum_fence:{x} --yes --nodes redis://h:1", "is reserved"},
		{"run --name x --read --write -- true", "exclude each other"},
		{"run --name x --fair --write -- true", "exclude each other"},
		{"run --name x --name y --read -- true", "--fair, --read and --write are for one name"},
		{"run --name x -- true", "no nodes: give their URLs with --nodes, or in REDQUORUM_NODES; or --embedded 3, to try the command"},
		{"run --name x -c true -- true", "-c and COMMAND exclude each other"},
		{"run --name x --term-grace 0s -- true", "--term-grace is 0s; it must be more than 0"},
		{"run --name x --embedded 3 --term-grace 16s -- true", "--term-grace is 16s; it must be at most half of the lease or --max-hold, 30s"},
		{"run --name x --embedded 3 --max-hold 4s --term-grace 3s -- true", "at most half of the lease or --max-hold, 4s"},
		{"run --name x --conflict-exit-code 256 -- true", "--conflict-exit-code is 256; it must be from 0 to 255"},
		{"run --name x --colour -- true", "unknown flag: --colour"},
		{"run --name x --lease 30 -- true", `invalid argument "30" for "--lease" flag: time: missing unit in duration "30"`},
		{"run --name x --lease -1s -- true", "--lease is -1s"},
		{"run --name x --embedded 3 --lease 1m -- true", "lease of 1m0s is longer than --max-lease, 30s; to use such leases, raise --max-lease in"},
		{"run --name x --embedded 4 -- true", "odd number"},
		{"run --name x --embedded -1 -- true", "want an odd number"},
		{"run --name x --embedded 3 --quorum 1 -- true", "--quorum is 1 of 3 nodes; it must be more than half of them"},
		{"run --name x --embedded 3 --quorum 0 -- true", "want a number of nodes, or all"},
		{"run --name x --embedded 3 --quorum most -- true", "want a number of nodes, or all"},
		{"run --name x --embedded 0 -- true", "want an odd number"},
		{"run --name x --embedded three -- true", "want an odd number"},
		{"run --name x --embedded 3 --nodes redis://h -- true", "exclude each other"},
		{"run --name x --embedded 3 --lease 300h --max-lease 300h -- true", "--max-lease is 300h0m0s; it must be more than 0, and at most 24h0m0s"},
		{"run --name x --try --wait 1s -- true", "exclude each other"},
		{"run --name x --wait -1s -- true", "--wait is -1s"},
		{"run --name x --max-hold 0s -- true", "--max-hold is 0s"},
		{"run --name x --min-hold 0s -- true", "--min-hold is 0s; it must be more than 0, and at most 23h0m0s"},
		{"run --name x --min-hold 24h -- true", "--min-hold is 24h0m0s"},
		{"run --name x --min-hold 1m --read -- true", "--min-hold cannot be combined with --read or --write"},
		{"run --name x --embedded 3 --min-hold 1m --max-lease 1m -- true", "--min-hold is 1m0s; it needs a --max-lease of at least 1m0.602s"},
		{"hold", "the lock's name is missing"},
		{"hold redquorum_x", "is reserved"},
		{"hold x y --fair", "--fair, --read and --write are for one name"},
		{"hold x", "no nodes"},
		{"list x y", `unexpected argument "y"`},
		{"list", "no nodes"},
		{"list x --names-from -", "a pattern and --names-from exclude each other"},
		{"list --names-from=", "--names-from names no file"},
		{"status", "the lock's name is missing"},
		{"status x", "no nodes"},
		{"status x y", `unexpected argument "y"`},
		{"status x --nodes h@h:6379", "not a URL, such as redis://host:6379"},
		{"run --name x --embedded 1 --lease 10ms -- true", "--lease is 10ms; it must be at least 100ms"},
		{"run --name x --embedded 1 --timeout 1us -- true", "--timeout is 1µs"},
		{"run --name x --embedded 1 --max-hold 1ms -- true", "--max-hold is 1ms; it must be at least 100ms"},
		{"status x --max-lease -1s --nodes redis://h", "--max-lease is -1s"},
		{"status x --nodes redis://h:1,redis://h:1,redis://h:2", "listed twice"},
		{"status x --nodes redis://h:1,redis://h:2,redis://h:1,redis://h:2", "listed twice"},
		{"run --name x --nodes redis://h:1,redis://h:2 -- true", "2 nodes survive the loss of no more nodes than 1 would: list an odd number\n"},
		{"demo --nodes redis://h:1,redis://h:2", "list an odd number\n"},
		{"demo --nodes redis://h:1,redis://h:1,redis://h:2", "listed twice"},
		{"break x --nodes redis://h", "add --yes"},
		{"break --yes", "the lock's name is missing"},
		{"doctor", "no nodes"},
		{"doctor now", `unexpected argument "now"`},
		{"doctor --nodes redis://h:1,h:", `server 2 of 2, "h:...": not a URL, such as redis://host:6379, nor host:port`},
		{"status x --nodes h/1", "not a URL, such as redis://host:6379, nor host:port"},
		{"demo --for 1h", "--for is 1h0m0s"},
		{"bench --n 2", "2 nodes survive the loss of no more nodes than 1 would"},
		{"demo --nodes h@h", "not a URL"},
		{"stauts a", "Did you mean this?\n\tstatus\n"},
		{"statu a", "\tstatus\n"},
		{"Doctor", "\tdoctor\n"},
		{"run --nmae x -- y", "unknown flag: --nmae; did you mean --name or --note?"},
		{"run --conflict-exitcode 0 -- y", "; did you mean --conflict-exit-code?"},
		{"status x -nodes y", "; did you mean --nodes?"},
		{"run a --embedded 1 --on-ask TREM -- true", "want the name of a signal"},
		{"ask", "the lock's name is missing"},
		{"hold x --lease 0s", "--lease is 0s; it must be at least 100ms\n"},
		{"run x --embedded 65 -- true", "want an odd number, at most 63"},
		{"status x --nodes h --max-lease 0s", "--max-lease is 0s; it must be more than 0"},
		{"hold x --nodes h --label \x01", "--label is"},
		{"doctor --nodes h --name redquorum_x", "is reserved"},
		{"doctor --nodes h --name=", "name is empty"},
		{"sim --seeds 1 --jobs x", `invalid argument "x" for "--jobs" flag: invalid syntax`},
		{"hold z -- true", "hold runs no command: use 'redquorum run \"z\" -- COMMAND"},
		{"break x --yes --nodes=", "want the URLs of the nodes"},
		{"break --yes --nodes h --name x --name y", `unexpected argument "y"`},
		{"status x --nodes redis://a --nodes redis://b --nodes redis://c", "--nodes is there 3 times: give all nodes in one"},
		{"doctor --nodes a,,b", "server 2 of 3"},
		{"bench --nodes redis://h?replicas=2", "only single servers"},
		{"doctor --nodes http://h", "nor sentinel or rediss+sentinel"},
	} {
		want(t, exitUsage, c.want, strings.Fields(c.args)...)
	}
	for _, verb := range []string{"hold x", "status x", "list", "doctor"} {
		want(t, exitUsage, "node h:6379 is a primary with replicas: it needs the restart guard after a failover, without --no-guard\n",
			append(strings.Fields(verb), "--nodes", "redis://h?replicas=1", "--no-guard")...)
	}
	want(t, exitUsage, "--note", "hold", "b", "--nodes", "redis://h", "--note", "two\nlines")
	want(t, exitUsage, "the pattern is missing or empty", "list", "", "--nodes", "redis://h")
	want(t, exitUsage, ": line 3: the lock's name \"redquorum_x\" is reserved", "list", "--nodes", "redis://h", "--names-from",
		fileOf(t, "a\n\nredquorum_x\n"))
	t.Setenv("REDQUORUM_OWNER", "o")
	want(t, exitUsage, "no owner", "check", "x", "--owner", "", "--nodes", "redis://h")
	t.Setenv("REDQUORUM_MAX_LEASE", "soon")
	want(t, exitUsage, `REDQUORUM_MAX_LEASE is "soon"`, "status", "x", "--nodes", "redis://h")
}

// Scripts rely on the names in JSON.
func TestJSONNames(t *testing.T) {
	for want, printed := range map[string]any{
		`{"names":["a"],"owner":"o","token":1}`:                             holdJSON{[]string{"a"}, "o", 1},
		`{"name":"a","owner":"o","verdict":"held","error":"e"}`:             checkJSON{"a", "o", "held", "e"},
		`{"node":"n","severity":"info","finding":"f","means":"m","do":"d"}`: finding{"n", fine, "f", "m", "d"},
		`{"nodes":null,"findings":null,"verdict":"sound"}`:                  diagnosis{Verdict: "sound"},
		`{"node":"n","rtt_ms":1,"server":"redis","version":"8","role":"r","run_id":"i","uptime_s":1,"clock_offset_ms":1,"replicas":1,"error":"e","abstains_ms":1}`: patient{
			Node: "n", RTT: new(1.0), Server: "redis", Version: "8", Role: "r", RunID: "i", Uptime: new(int64(1)), Offset: new(1.0), Replicas: 1, Error: "e", Abstains: 1},
		`{"name":"a","verdict":"v","owner":"o","owners":null,"mode":"m","waiting":null,"more":{"owners":0,"waiting":0},"labels":null,"notes":null,"held_by":1,"quorum":1,"nodes":null,"settings":null}`: statusJSON{
			Name: "a", Verdict: "v", Owner: "o", Mode: "m", HeldBy: 1, Quorum: 1},
		`{"node":"n","state":"s","owner":"o","owners":null,"mode":"m","waiting":null,"ttl_ms":1,"fence":1,"string":"s","abstains_ms":1,"error":"e","refuses_writes":"r"}`: nodeStatusJSON{
			Node: "n", State: "s", Owner: "o", Mode: "m", TTL: 1, Fence: 1, String: "s", Abstaining: 1, Error: "e", Refused: "r"},
		`{"verdict":"v","locks":null,"unread":[{"node":"n","error":"e"}],"read":1,"needed":1}`: listJSON{Verdict: "v", Unread: []unreadJSON{{"n", "e"}}, Read: 1, Needed: 1},
		`{"name":"a","state":"s","mode":"m","owner":"o","label":"l","note":"n","owners":null,"more_owners":0,"left_ms":1,"waiting":1,"held_by":1,"nodes":1}`: lockJSON{
			Name: "a", State: "s", Mode: "m", Owner: "o", Label: "l", Note: "n", Left: 1, Waiting: 1, HeldBy: 1, Nodes: 1},
	} {
		got, err := json.Marshal(printed)
		assert.That(t, string(got) == want && err == nil, "%s, %v; want %s", got, err, want)
	}
}

func TestHelp(t *testing.T) {
	want(t, exitOK, "redquorum v", "version")
	want(t, exitOK, "redquorum v", "--version")
	root := newRoot()
	screen := want(t, exitOK, "help", "help")
	tests.Says(t, screen, "\n  run  ", "\n  help  ")
	assert.That(t, strings.Count(screen, "\n") < 24, "all commands do not fit a screen:\n%s", screen)
	tests.Narrow(t, want(t, exitOK, nodesManual, "help", "nodes"), terminal.Page)
	for _, cmd := range cli.All(root) {
		if cmd.Name() == "nodes" { // a topic
			continue
		}
		words := strings.Fields(cmd.CommandPath())[1:]
		page := want(t, exitOK, "Examples:\n  "+cmd.CommandPath(), append(words, "--help")...)
		usage, rest, _ := strings.Cut(page, "\nExamples:\n")
		begin, _, _ := strings.Cut(cmd.Long, "\n")
		first := strings.HasPrefix(usage, "Usage:\n") && strings.Count(rest, begin) == 1 && strings.Index(rest, begin) < 600
		assert.That(t, first, "%q: usage, examples and what it does do not come first:\n%s", words, page)
		assert.Equal(t, want(t, exitOK, "Examples:", append([]string{"help"}, words...)...), page, words)
		tests.Narrow(t, page, terminal.Page)
		for line := range strings.Lines(page) {
			assert.That(t, !strings.Contains(line, "\t") && strings.Count(line, "(default") <= 1, "%q: %s", words, line)
		}
	}
}

// An example does not raise MaxLease, which services on the same nodes would report as
// different. And cron sends a mail for each printed line, so a host that skips the job
// prints none.
func TestExamplesOfMinHold(t *testing.T) {
	pages := []string{runManual}
	for _, path := range assert.Got(filepath.Glob("../../docs/*.md"))(t) {
		pages = append(pages, string(assert.Got(os.ReadFile(path))(t)))
	}
	holds := regexp.MustCompile(`--min-hold,? (\d\w*)`)
	skips := regexp.MustCompile(`(?m)^[0-9*]+( [0-9*]+){4} .*redquorum run.*`)
	all := strings.Join(pages, "\n")
	examples, lines := holds.FindAllStringSubmatch(all, -1), skips.FindAllString(all, -1)
	assert.Must(t, len(examples) >= 5 && len(lines) > 0, "%d examples, %q", len(examples), lines)
	for _, m := range examples {
		d := assert.Got(time.ParseDuration(m[1]))(t)
		assert.That(t, leaseOf(d) <= quorum.Defaults().MaxLease, "%s raises MaxLease", m[0])
	}
	for _, line := range lines {
		tests.Says(t, line, " --conflict-exit-code 0 ")
	}
}

const secret = "s3kr1t"

// No error shows a password.
func TestSecrets(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	urls := []string{
		"redis://user:" + secret + "@127.0.0.1:1",
		"redis://user:" + secret + "@127.0.0.1:port",
		"redis://user:" + secret + "%zz@127.0.0.1:1",
		"redis://user:" + secret + " @127.0.0.1:1",
		"redis://user:" + secret + "@/127.0.0.1:1@",
		"http://user:" + secret + "@127.0.0.1:1",
		"://user:" + secret + "@127.0.0.1:1",
		"redis://127.0.0.1:1/x?password=" + secret,
		"user:" + secret + "@127.0.0.1:1",
		"redis://user:" + secret + ",x@127.0.0.1:1",
		"redis://user:x," + secret + "@127.0.0.1:1",
		"redis://:" + secret + ",x@127.0.0.1:1",
		"redis://user:1/" + secret + ",x@127.0.0.1:1",
		"redis://user:1?" + secret + ",x@127.0.0.1:1",
		"redis://user:x@" + secret + "/,x@127.0.0.1:1",
		"unix://user:" + secret + ",x@/run/redis.sock",
	}
	for _, url := range urls[:tests.Times(4, len(urls))] {
		for _, args := range [][]string{
			{"run", "--name", "x", "--try", "--nodes", url, "--", "true"},
			{"hold", "x", "--try", "--nodes", url},
			{"list", "--nodes", url},
			{"status", "x", "--nodes", url},
			{"status", "x", "--json", "--nodes", url},
			{"break", "x", "--yes", "--nodes", url},
			{"doctor", "--nodes", url},
			{"doctor", "--json", "--nodes", url},
			{"demo", "--nodes", url}, {"bench", url}, {"bench", "--n", url},
			{"lock", url}, {url}, {"help", url}, {"sim", url},
			{"status", "x", url}, {"break", url}, {"doctor", url}, {"demo", url},
			{"run", "--name", "x", "--lease", url, "--", "true"},
			{"run", "--name", "x", "--try", url},
			{"run", "--name", "x", "--embedded", "1", "--try", secret + "@127.0.0.1:1"},
			{"run", "--name", "x", "--embedded", "1", "--try", "/" + secret + "@127.0.0.1:1"},
			{"status", "x", "--max-lease", url},
			{"doctor", "--" + url},
		} {
			if status, stdout, stderr := redquorum(t, args...); status == exitOK || strings.Contains(stdout+stderr, secret) {
				t.Errorf("%q: status %d\n%s%s", args, status, stdout, stderr)
			}
		}
	}
}

func TestSecretsInTheEnvironment(t *testing.T) {
	const url = "redis://user:" + secret + "@127.0.0.1:1"
	t.Setenv("REDQUORUM_NODES", url)
	for _, args := range [][]string{
		{"help"}, {"run", "--help"}, {"status", "--help"}, {"doctor", "--help"}, {"demo", "--help"}, {"break", "--help"},
		{"run", "--name", "x", url},
		{"status", "x"}, {"status", "x", url}, {"doctor", url}, {"demo", url}, {url}, {"help", url},
	} {
		_, stdout, stderr := redquorum(t, args...)
		assert.That(t, !strings.Contains(stdout+stderr, secret), "%q:\n%s%s", args, stdout, stderr)
	}
}

// No verb lets a server's error text control the terminal.
func TestServersDoNotControlTheTerminal(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	nodes := serve(t, func(c net.Conn) {
		for in := make([]byte, 4096); ; {
			n, err := c.Read(in)
			if err != nil {
				return
			}
			commands := bytes.Count(in[:n], []byte("*"))
			_, _ = io.WriteString(c, strings.Repeat("-WRONGPASS \x1b[31mrot und größer\x1b]0;title\a\x9b\r\n", commands))
		}
	})
	for _, args := range [][]string{
		{"run", "--name", "x", "--try", "--nodes", nodes, "--", "true"},
		{"break", "x", "--yes", "--nodes", nodes},
		{"status", "x", "--nodes", nodes},
		{"list", "--nodes", nodes},
		{"doctor", "--nodes", nodes},
		{"bench", "--nodes", nodes, "--for", "100ms", "--rounds", "1"},
	} {
		all := ""
		for range 10 { // on a busy machine the server's answer may come too late
			_, stdout, stderr := redquorum(t, args...)
			if all = stdout + stderr; !strings.Contains(all, "no answer in time") {
				break
			}
		}
		assert.That(t, !strings.ContainsAny(all, "\x1b\a\r") && utf8.ValidString(all), "%s: %q", args[0], all)
		tests.Says(t, all, "größer")
	}
}

// The version is the newest of the changelog, and what contrib's modules require. The
// container has the Go of go.mod.
func TestVersion(t *testing.T) {
	first := func(file, pattern string) string {
		found := regexp.MustCompile("(?m)" + pattern).FindStringSubmatch(textOf(t, filepath.Join("..", "..", file)))
		assert.Must(t, found != nil, "%s has no %s", file, pattern)
		return found[1]
	}
	newest := first("CHANGELOG.md", `^## \[(\d.*)\] - \d{4}-\d\d-\d\d$`)
	assert.That(t, release == "v"+newest, "the release is %s, and the newest in the changelog %s", release, newest)
	modules, err := filepath.Glob(filepath.Join("..", "..", "contrib", "*", "go.mod"))
	assert.Must(t, err == nil && len(modules) != 0, "contrib has no modules %v", err)
	for _, module := range modules {
		if !regexp.MustCompile(`(?m)^(require |\t)github\.com/redquorum/redquorum ` + regexp.QuoteMeta(release) + `$`).MatchString(textOf(t, module)) {
			t.Errorf("%s does not require %s", module, release)
		}
	}
	cited := first("CITATION.cff", `^version: (.*)$`)
	assert.That(t, release == "v"+cited, "the release is %s, and CITATION.cff has %s", release, cited)
	image, tested := first("Dockerfile", `^FROM (golang:\S+)`), first(".github/workflows/ci.yml", `(golang:\S+)$`)
	assert.That(t, image == tested, "the container is built with %s, and tested with %s", image, tested)
	have, want := first("Dockerfile", `^FROM golang:(\d+\.\d+)`), first("go.mod", `^go (\d+\.\d+)`)
	assert.That(t, have == want, "the container has Go %s, and go.mod asks for %s", have, want)
}

func TestNameEitherWay(t *testing.T) {
	urls := parallelNodes(t, 3)
	for _, args := range [][]string{
		{"run", "a", "--nodes", urls, "--", "sh", "-c", "echo $REDQUORUM_NAME"},
		{"run", "--nodes", urls, "a", "--try", "--", "sh", "-c", "echo $REDQUORUM_NAME"},
		{"run", "--nodes", urls, "a", "-c", "echo $REDQUORUM_NAME"},
		{"run", "a", "--nodes", urls, "-c", "echo $REDQUORUM_NAME"},
		{"run", "--nodes", urls, "--name=a", "--", "sh", "-c", "echo $REDQUORUM_NAME"},
	} {
		if out := ends(t, 0, args...); !strings.Contains("\n"+out, "\na\n") { // on a busy machine it says that it waits
			t.Errorf("%q: %s", args, out)
		}
	}
	out := start(t, "run", "a", "b", "--nodes", urls, "--name", "c", "--", "sh", "-c", "echo $REDQUORUM_NAME -- $0", "--").exits(0)
	assert.That(t, strings.Contains(out, "a,b,c -- --\n"), "%v", out)
	for _, name := range [][]string{{"a"}, {"--name", "a"}} {
		p := start(t, append([]string{"hold", "--nodes", urls}, name...)...)
		p.says("holding a: ")
		want(t, exitOK, "a is held", append([]string{"status", "--nodes", urls}, name...)...)
		want(t, exitOK, "removed the lock", append([]string{"break", "--yes", "--nodes", urls}, name...)...)
	}
}

func TestLongNames(t *testing.T) {
	urls := parallelNodes(t, 3)
	long := strings.Repeat("long", 10_000)
	hold(t, newLocker(t, urls), long)
	for _, args := range [][]string{
		{"run", long, "--try", "--nodes", urls, "--", "true"},
		{"run", long, "--wait", "1200ms", "--nodes", urls, "--", "true"},
		{"hold", long, "--wait", "1200ms", "--nodes", urls},
		{"break", long, "--nodes", urls},
		{"status", long, "--nodes", urls},
		{"break", long, "--yes", "--nodes", urls},
		{"status", long, "--nodes", urls},
		{"run", long, "--try", "--verbose", "--nodes", urls, "--", "true"},
		{"run", long, "--nodes", urls},
		{"status", "a", long},
		{long},
		{"run", "a", "--embedded", "1", "--", long},
	} {
		p := start(t, args...)
		_ = p.cmd.Wait()
		for line := range strings.Lines(p.out.String()) {
			assert.That(t, len(line) <= 3000, "%.100q: %d bytes: %.300s...", args, len(line), line)
		}
	}
}

// The exit status tells of the signal, unless the verb had found something before.
func TestVerbsAreInterrupted(t *testing.T) {
	urls := parallelNodes(t, 3)
	plan := fileOf(t, "redquorum plan 1\nlength 1s\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range []string{"list", "status x", "doctor", "ask x", "break x --yes", "check x --owner 5f2b0cd1-5d5e-4c3a-9c38-0d6fb4d2c8e1:1",
		"demo", "sim", "sim explore --json", "sim shrink " + plan, "bench"} {
		if verb, _, _ := strings.Cut(args, " "); !slices.Contains([]string{"demo", "sim", "bench"}, verb) {
			args += " --nodes " + urls
		}
		var stdout, stderr bytes.Buffer
		status := run(ctx, strings.Fields(args), &stdout, &stderr)
		assert.That(t, status == exitInterrupted, "%s: status %d, %s%s", args, status, &stdout, &stderr)
		assert.That(t, !strings.Contains(stdout.String(), "unsafe"), "a verdict that nobody has come to: %s", &stdout)
	}
	for end, status := range map[error]int{cli.Exit(7): exitInterrupted, discovery{cli.Exit(7)}: 7} {
		root := &cobra.Command{Use: "program"}
		root.AddCommand(doesUntilSignal(&cobra.Command{Use: "do"}, func(context.Context, *command) error { return end }))
		assert.Equal(t, cli.Run(ctx, root, []string{"do"}, io.Discard, io.Discard), status, end)
	}
}

// The text of a flag may have its default, and pflag adds one that it takes for none of
// zero.
func TestDefaultsAreSaidOnce(t *testing.T) {
	for _, cmd := range cli.All(newRoot()) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			alone := pflag.NewFlagSet("", pflag.ContinueOnError)
			alone.AddFlag(f)
			usage := alone.FlagUsages()
			assert.That(t, strings.Count(usage, "(default ") <= 1, "%s: %s", cmd.CommandPath(), usage)
		})
	}
}

func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip(err)
	}
	return path
}

func outputOf(t *testing.T, args ...string) (text, file string) {
	t.Helper()
	text = want(t, exitOK, "redquorum", args...)
	return text, fileOf(t, text)
}

func TestCompletion(t *testing.T) {
	for line, words := range map[string]string{
		"st":                    "status",
		"run --term":            "--term-grace",
		"run --lease ":          ":4",
		"run --name x -- no-su": ":0", // files
		"run --cacert ":         ":0",
		"sim explore --out ":    ":16", // folders
		"sim m":                 "manual matrix",
		"sim scenario --cl":     "--client",
		"sim scenario S24":      "S24",
		"completion ":           "bash zsh fish powershell",
		"help de":               "demo",
		"list --a":              "--all",
	} {
		_, stdout, _ := redquorum(t, append([]string{"__completeNoDesc"}, strings.Split(line, " ")...)...)
		got, directive, _ := strings.Cut("\n"+stdout, "\n:")
		if got = strings.Join(strings.Fields(got), " "); got == "" {
			got = ":" + strings.TrimSpace(directive)
		}
		assert.That(t, got == words, "%q: %q, want %q", line, got, words)
	}
	want(t, exitUsage, `the shell is "sh"; it must be bash, zsh, fish or powershell`, "completion", "sh")
	want(t, exitUsage, "the shell is missing", "completion")
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		want(t, exitOK, "__complete", "completion", shell)
	}
}

func TestManPage(t *testing.T) {
	text, file := outputOf(t, "man")
	tests.Says(t, text, "\n.SH REDQUORUM SIM SCENARIO\n",
		"\n.SH SYNOPSIS\n.nf\nredquorum run NAME... [flags] \\-\\- COMMAND [ARG...]\n")
	assert.That(t, roff(`.x \n`) == `\&.x \en` && roff("'x") == `\&'x`, "a line is taken for a command of roff")
	t.Run("man", func(t *testing.T) {
		cmd := exec.Command(tool(t, "man"), "-P", "cat", "--warnings", "-l", file)
		cmd.Env = append(os.Environ(), "MANWIDTH=80", "LC_ALL=C.UTF-8")
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil && strings.Contains(errs.String(), "option") {
			t.Skip("this man takes other options: ", errs.String())
		}
		if err != nil || errs.Len() > 0 || !strings.Contains(string(out), "redquorum run nightly --wait 10s -- ./report.sh") {
			t.Errorf("%v: %s", err, errs.String())
		}
		tests.Narrow(t, string(out), 80)
	})
	t.Run("mandoc", func(t *testing.T) {
		out, err := exec.Command(tool(t, "mandoc"), "-Tlint", "-W", "error", file).CombinedOutput()
		assert.That(t, err == nil, "%v: %s", err, out)
	})
}
