package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/internal/assert"
)

func TestCanWrite(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]bool{"": true, dir + "/new": true, "/dev/null": true, dir: false, dir + "/no/file": false} {
		err := CanWrite("", path)
		assert.That(t, (err == nil) == want, "%q: %v", path, err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// A command's error in printing is reported, whatever the command does with it.
func TestRunOutputIsLost(t *testing.T) {
	for _, c := range []struct {
		args   string
		err    error
		status int
		said   string
	}{
		{"do", nil, Failed, "program do: no space left\n"},
		{"do", Exit(7), 7, "program do: no space left\n"},
		{"do", Fail(7, errors.New("failed")), 7, "program do: failed\n"},
		{"do --help", nil, Failed, "program do: no space left\n"},
		{"help do", nil, Failed, "program help: no space left\n"},
		{"--version", nil, Failed, "program: no space left\n"},
	} {
		do := &cobra.Command{Use: "do", RunE: func(cmd *cobra.Command, _ []string) error { cmd.OutOrStdout().Write(nil); return c.err }}
		root := &cobra.Command{Use: "program", Version: "1"}
		root.AddCommand(do)
		var talk strings.Builder
		status := Run(t.Context(), root, strings.Fields(c.args), full{}, &talk)
		assert.That(t, status == c.status && talk.String() == c.said, "%q, %v: status %d, %q", c.args, c.err, status, &talk)
	}
}

// A command may end before it has printed everything, as hold does. That is no data race.
func TestRunEndsWhilePrinting(t *testing.T) {
	began, printed := make(chan bool), make(chan bool)
	do := &cobra.Command{Use: "do", RunE: func(cmd *cobra.Command, _ []string) error {
		go func() {
			close(began)
			fmt.Fprint(cmd.OutOrStdout(), "text")
			close(printed)
		}()
		<-began
		return nil
	}}
	assert.Equal(t, Run(t.Context(), do, nil, io.Discard, io.Discard), OK)
	<-printed
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		args   string
		err    error
		status int
		said   string
	}{
		{args: "do"},
		{"do", errors.New("\x1b failed"), Failed, "program do: \\x1b failed\n"},
		{"do", Exit(7), 7, ""},
		{"do", Exit(OK), OK, ""},
		{"do", Fail(7, errors.New("failed")), 7, "program do: failed\n"},
		{"do", Fail(7, nil), OK, ""},
		{"do", Fail(7, Usage("wrong")), BadUsage, "program do: wrong\nsee 'program do --help'\n"},
		{"do", fmt.Errorf("more: %w", Exit(7)), 7, ""},
		{"do", Interrupt(nil), Interrupted, ""},
		{"do", Interrupt(Exit(7)), Interrupted, ""},
		{"do", Interrupt(Fail(7, errors.New("failed"))), Interrupted, "program do: failed\n"},
		{args: "do x", status: BadUsage, said: "unexpected argument \"x\"\nsee"},
		{args: "do redis://u:secret@h", status: BadUsage, said: "unexpected argument (not shown"},
		{args: "redis://u:secret@h", status: BadUsage, said: "not shown"},
		{args: "help redis://u:secret@h", status: BadUsage, said: "not shown"},
		{args: "help dance", status: BadUsage, said: "program help: unknown command \"dance\""},
		{args: "do --secret@", status: BadUsage, said: "not shown"},
		{args: "do --often secret@h", status: BadUsage, said: "not shown"},
		{args: "do --oftne 3", status: BadUsage, said: "program do: unknown flag: --oftne; did you mean --often?\n"},
		{args: "do -often 3", status: BadUsage, said: "; did you mean --often?\n"},
		{args: "dp", status: BadUsage, said: "program: unknown command \"dp\" for \"program\"\n\nDid you mean this?\n\tdo\n"},
		{args: strings.Repeat("long", 10_000), status: BadUsage, said: "…\nsee"},
	} {
		do := &cobra.Command{Use: "do", Args: NoArgs, RunE: func(*cobra.Command, []string) error { return c.err }}
		do.Flags().Int("often", 1, "how `often`")
		root := &cobra.Command{Use: "program"}
		root.AddCommand(do)
		var out, talk strings.Builder
		status := Run(t.Context(), root, strings.Fields(c.args), &out, &talk)
		if said := talk.String(); status != c.status || !strings.Contains(said, c.said) || c.said == "" && said != "" || strings.Contains(said, "secret") || len(said) > 2100 {
			t.Errorf("%.50q, %v: status %d, %q", c.args, c.err, status, said)
		}
	}
}

func TestWithPort(t *testing.T) {
	for host, want := range map[string]string{
		"a":                   "a:6379",
		"redis-1.example.com": "redis-1.example.com:6379",
		"10.0.0.1":            "10.0.0.1:6379",
		"::1":                 "[::1]:6379",
		"[::1]":               "[::1]:6379",
		"fe80::1%lo":          "[fe80::1%lo]:6379",
		"[fe80::1%lo]":        "[fe80::1%lo]:6379",
		"[fe80::1%lo]:7000":   "[fe80::1%lo]:7000",
		"[::1]:7000":          "[::1]:7000",
		"a:7000":              "a:7000",
		"a:":                  "a:",
		"redis://a":           "redis://a",
		"u@a":                 "u@a",
		"":                    "",
	} {
		assert.Equal(t, withPort(host), want, host)
	}
}

// An error shows which node is meant, and nothing that may be a password.
func TestMasked(t *testing.T) {
	const s = "s3kr1t"
	for _, c := range []struct{ list, want string }{
		{"10.0.0.1:70000", `, "10.0.0.1:70000"`},
		{"10.0.0.1:" + s, `, "10.0.0.1:..."`},
		{"http://10.0.0.1:80/" + s, `, "http://10.0.0.1:80..."`},
		{"redis://u:" + s + "@h:port", `, "redis://***@h:..."`},
		{"redis://u:" + s + "@h:1/x", `, "redis://***@h:1..."`},
		{"redis://u:" + s, `, "redis://u:..."`},
		{"redis://h:1?password=" + s, `, "redis://h:1..."`},
		{"redis://h:1?password=x@" + s, ""},
		{"redis://u:1," + s + ",x@h", ""},
		{"redis://u:x@" + s + "/,x@h", ""},
	} {
		urls := strings.Split(c.list, ",")
		got := masked(urls, urls[0])
		assert.That(t, got == c.want && !strings.Contains(got, s), "%s: %s, want %s", c.list, got, c.want)
	}
	assert.Says(t, assert.ErrorOf(Servers(List("10.0.0.1, 10.0.0.2:70000,10.0.0.3"))), `server 2 of 3, "10.0.0.2:70000": not a URL`)
}

func TestSentinelsOfOneURLStayTogether(t *testing.T) {
	got := List("sentinel://me:pw@s1:1, s2:2,s3:3/main?replicas=2,redis://a:1?replicas=1, b:2,rediss+sentinel://s1/main?replicas=1,c:3")
	want := []string{"sentinel://me:pw@s1:1,s2:2,s3:3/main?replicas=2", "redis://a:1?replicas=1", "b:2", "rediss+sentinel://s1/main?replicas=1", "c:3"}
	assert.That(t, slices.Equal(got, want), "%q, want %q", got, want)
	if servers, err := Nodes(got); err != nil || servers[0].Replicas != 2 || servers[0].Addr != "main@s1:1" || servers[2].Replicas != 0 {
		t.Errorf("%+v, %v", servers, err)
	}
	for list, wrong := range map[string]string{got[1]: "only single servers", got[0]: "only single servers", "a,,b": "server 2 of 3, \"\": nothing", "a,": "server 2 of 2",
		"http://h": "sentinel"} {
		_, err := Servers(List(list))
		assert.That(t, err != nil && strings.Contains(err.Error(), wrong), "%s: %v, want %s", list, err, wrong)
	}
	assert.That(t, List(" ") == nil, "a blank list has servers")
}

func TestProduct(t *testing.T) {
	for _, tt := range []struct {
		fields        map[string]string
		name, version string
	}{
		{map[string]string{"redis_version": "8.2.3"}, "Redis", "8.2.3"},
		{map[string]string{"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "9.1.2"}, "Valkey", "9.1.2"},
		{nil, "Redis", ""},
	} {
		if name, version := Product(tt.fields); name != tt.name || version != tt.version {
			t.Errorf("%v: %s %s, want %s %s", tt.fields, name, version, tt.name, tt.version)
		}
	}
}

// A narrow terminal gets narrow pages, each flag on lines of its own.
func TestUsageFits(t *testing.T) {
	do := &cobra.Command{Use: "do", Example: "  do", Long: strings.Repeat(strings.Repeat("word ", 10)+"\n", 3) + "\nend\n",
		Run: func(*cobra.Command, []string) {}}
	do.Flags().BoolP("all", "a", false, strings.Repeat("text ", 20))
	do.Flags().Bool("json", false, "print JSON")
	itself := do.UsageTemplate()
	for _, width := range []int{40, 60, 80} {
		do.SetUsageTemplate(usage(itself, width))
		page := do.UsageString()
		for line := range strings.Lines(page) {
			assert.That(t, len(line) <= width+1, "%d columns: %q", width, line)
		}
		whole := strings.HasPrefix(page, "Usage:\n  do [flags]\n\nExamples:\n  do\n\nword ") && strings.Contains(page, "\n\nend\n\nFlags:\n  -a, --all") &&
			strings.HasSuffix(page, "\n      --json   print JSON\n")
		assert.That(t, whole, "%s", page)
	}
}
