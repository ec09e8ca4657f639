package cli

import (
	"errors"
	"fmt"
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

// Whatever a command does with an error in printing, it is not lost.
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
		if status := Run(t.Context(), root, strings.Fields(c.args), full{}, &talk); status != c.status || talk.String() != c.said {
			t.Errorf("%q, %v: status %d, %q", c.args, c.err, status, &talk)
		}
	}
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
