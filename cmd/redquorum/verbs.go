package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/internal/terminal"
)

const (
	exitOK    = cli.OK
	exitError = cli.Failed
	exitUsage = cli.BadUsage

	exitInterrupted = cli.Interrupted // main ends by SIGINT then
)

const rootManual = `Locks on a majority of independent Redis masters.

example:
  redquorum run nightly --nodes a,b,c -- ./report.sh`

const nodesManual = `Nodes are given by --nodes, or by REDQUORUM_NODES, as URLs separated by commas:
  redis://host:6379
  rediss://user:password@host:6380/0       TLS, and a user of database 0
  rediss://10.0.0.1:6380?sni=redis.local   a certificate for another name
  redis://host:6379?dial_timeout=5s        a server that is far away
  unix:///run/redis.sock
  redis://host:6379?replicas=2             a primary with two replicas
  sentinel://host1:26379,host2:26379/NAME?replicas=2
or, without user and database, as host or host:6379. valkey:// and valkeys://
are the same as redis:// and rediss://. Sentinel knows a primary by a NAME; with
TLS the URL begins with rediss+sentinel://. Clusters are not supported.

Several settings after the ? have an & between them. Percent-encode special
characters in a user or password, a comma as %2C. Or put them into files, for
--user-file and --password-file, and ?sentinel_password_file=PATH for Sentinels.
`

func newRoot() *cobra.Command {
	root, fs := newVerb("redquorum", "locks on a majority of independent Redis masters", rootManual)
	root.Version = version() + ", " + runtime.Version()
	root.SetVersionTemplate("redquorum {{.Version}}\n")
	nodes := &cobra.Command{Use: "nodes", Short: "how servers are named", Long: nodesManual, Hidden: true}
	nodes.SetUsageTemplate("{{.Long}}") // there is no call
	manual, itsVersion := manVerb(), versionVerb()
	manual.Hidden, itsVersion.Hidden = true, true // the page of all has to fit a screen
	root.AddCommand(runVerb(), holdVerb(), listVerb(), statusVerb(), checkVerb(), askVerb(), breakVerb(), doctorVerb(),
		demoVerb(), simVerb(), chaosVerb(), benchVerb(), completionVerb(), manual, itsVersion, nodes)
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Short, help.Example = "help about a command; 'help nodes': how servers are named", "  redquorum help run"
	help.Long = "Prints what a command does, its flags and its exit statuses."
	root.InitDefaultHelpFlag()
	root.InitDefaultVersionFlag()
	fs.VisitAll(func(f *pflag.Flag) { f.Hidden = true })
	return root
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		cli.Run(ctx, newRoot(), args, stderr, stderr)
		return exitUsage
	}
	return cli.Run(ctx, newRoot(), args, stdout, stderr)
}

type command struct {
	args           []string
	stdout, stderr io.Writer // what goes to stderr does not control a terminal
	screen         io.Writer // stderr, for what does
}

// newVerb ends the manual with examples.
func newVerb(use, short, manual string) (*cobra.Command, *pflag.FlagSet) {
	long, example, _ := strings.Cut(manual, "\n\nexample:\n")
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Example: example}
	return cmd, cmd.Flags()
}

// does gives a context that ends with no signal: it would miss one that was caught
// before.
func does(cmd *cobra.Command, do func(context.Context, *command) error) *cobra.Command {
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		stderr := cmd.ErrOrStderr()
		err := do(cmd.Context(), &command{args, cmd.OutOrStdout(), terminal.Plain(stderr), stderr})
		if err != nil {
			return flagged{err}
		}
		return nil
	}
	return cmd
}

// print prints one JSON object, or a text that fits where it goes to.
func (c *command) print(asJSON bool, value any, text func(to io.Writer) string) error {
	if asJSON {
		return c.printJSON(value)
	}
	_, err := io.WriteString(c.stdout, text(c.stdout))
	return err
}

// printJSON escapes all that printable does not let through.
func (c *command) printJSON(value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, r := range string(text) {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	_, err = fmt.Fprintln(c.stdout, b.String())
	return err
}

// A discovery is the exit status of a verb that has found what it looked for, whatever
// signal comes.
type discovery struct{ error }

func (d discovery) Unwrap() error { return d.error }

// doesUntilSignal ends with the first signal to end, with exitInterrupted, as not all is
// done. The verb takes no arguments, unless its Args say more.
func doesUntilSignal(cmd *cobra.Command, do func(context.Context, *command) error) *cobra.Command {
	if cmd.Args == nil {
		cmd.Args = cli.NoArgs
	}
	return does(cmd, func(ctx context.Context, c *command) error {
		ctx, stop := cli.UntilSignal(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		err := do(ctx, c)
		if ctx.Err() != nil && !errors.As(err, new(discovery)) {
			return cli.Interrupt(err)
		}
		return err
	})
}

// release is the newest version of the changelog.
const release = "v0.1.0"

// version is the one that Go built, or else the release that the source is of or follows.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return release + "+devel"
}

func versionVerb() *cobra.Command {
	cmd, _ := newVerb("version", "print the version",
		"Prints the version of this program, and that of Go.\n\nexample:\n  redquorum version")
	return doesUntilSignal(cmd, func(_ context.Context, c *command) error {
		_, err := fmt.Fprintln(c.stdout, "redquorum", cmd.Root().Version)
		return err
	})
}

func shown(name string) string { return terminal.Cut(printable(name), cli.Longest) }

// printable makes text safe for a terminal: names, owners and servers' words are in
// others' hands, and could have escape sequences.
func printable(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	return strconv.Quote(text)
}
