package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redquorum/redquorum/internal/terminal"
)

// The exit statuses that do not belong to one verb.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2

	exitInterrupted = 130 // main ends by SIGINT, as a shell calls it
)

// A verb is one subcommand. Its function returns the exit status.
type verb struct {
	name, summary string
	run           func(context.Context, *command) int
}

// A command is one call of a verb.
type command struct {
	args           []string
	stdout, stderr io.Writer // what goes to stderr does not control a terminal
	screen         io.Writer // stderr, for what does
	failed         int       // the status of errors that are not in its usage; 0 is exitError
}

func verbs() []verb {
	return []verb{
		{"run", "run a command while holding a lock", runVerb},
		{"hold", "hold a lock until Ctrl-C, without a command", holdVerb},
		{"list", "list the locks that are held", listVerb},
		{"status", "show who holds a lock, on which nodes, for how long", statusVerb},
		{"break", "remove a lock, even if it is held", breakVerb},
		{"doctor", "check whether servers are fit to hold locks", doctorVerb},
		{"demo", "watch workers compete for a lock while nodes fail", demoVerb},
		{"sim", "run the same lock through every failure, in virtual time", simVerb},
		{"chaos", "carry out plans of failures on real servers", chaosVerb},
		{"bench", "measure locks by number of nodes, and recommend one", benchVerb},
		{"completion", "print a script to complete verbs and flags in a shell", completionVerb},
		{"man", "print the manual page", manVerb},
		{"version", "print the version", versionVerb},
	}
}

// run is the whole program: it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return exitUsage
	}
	name, rest := args[0], args[1:]
	switch name {
	case "-version", "--version":
		name = "version"
	case "help", "-h", "-help", "--help":
		if len(rest) == 0 {
			usage(stdout)
			return exitOK
		}
		if name, rest = rest[0], rest[1:]; name != "sim" {
			rest = nil // only sim has words of its own
		}
		rest = append(rest, "--help")
	}
	for _, v := range verbs() {
		if v.name == name {
			return v.run(ctx, &command{args: rest, stdout: stdout, stderr: terminal.Plain(stderr), screen: stderr})
		}
	}
	if strings.HasPrefix(name, "-") && !secretive(name) {
		fmt.Fprintf(stderr, "redquorum: the verb comes first, and flags such as %s after it; 'redquorum help' lists the verbs\n", quoted(name))
		return exitUsage
	}
	fmt.Fprintf(stderr, "redquorum: there is no verb %s%s; 'redquorum help' lists them\n", quoted(name), didYouMean(name, nextWords("help", helpPages())))
	return exitUsage
}

func usage(w io.Writer) {
	fmt.Fprint(w, "Locks on a majority of independent Redis masters.\n\nusage: redquorum VERB [flags] ...\n\n")
	for _, v := range verbs() {
		fmt.Fprintf(w, "  %-10s %s\n", v.name, v.summary)
	}
	fmt.Fprint(w, `
'redquorum help VERB' has the rest. Nodes are given by --nodes, or by
REDQUORUM_NODES, as URLs separated by commas:
  redis://host:6379
  rediss://user:password@host:6380/0
  unix:///run/redis.sock
or, without user and database, as host or host:6379.
Percent-encode special characters in a user or password, a comma as %2C.

Start with: redquorum demo
`)
}

// release is the newest version that the changelog has.
const release = "v0.1.0"

// version is that of this program: the one with which Go built it or, if Go did not know it, the release
// that its source is of or follows.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return release + "+devel"
}

const versionManual = `
usage: redquorum version

example:
  redquorum version
`

func versionVerb(_ context.Context, c *command) int {
	fs := c.flags("version", versionManual)
	if status, ok := c.parse(fs); !ok {
		return status
	}
	fmt.Fprintln(c.stdout, "redquorum", version()+",", runtime.Version())
	return exitOK
}

// errUsage marks an error in how the verb was called.
var errUsage = errors.New("usage")

func usageError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errUsage, fmt.Sprintf(format, args...))
}

// flags makes the flag set of a verb, with its manual.
func (c *command) flags(name, manual string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {
		w := fs.Output()
		width := terminal.PageOf(w)
		fmt.Fprint(w, terminal.Manual(strings.TrimLeft(manual, "\n"), width))
		if list := terminal.Flags(fs, width); list != "" {
			fmt.Fprintf(w, "\nflags:\n%s", list)
		}
	}
	return fs
}

// parse reads the flags. If it returns false the verb is over, with the status.
func (c *command) parse(fs *flag.FlagSet) (status int, ok bool) {
	err := fs.Parse(c.args)
	if errors.Is(err, flag.ErrHelp) {
		fs.SetOutput(c.stdout)
		fs.Usage()
		return exitOK, false
	}
	if err != nil && secretive(err.Error()) {
		return c.fail(fs.Name(), usageError("a flag that takes no URL was given one, or a part of one")), false
	}
	if err != nil {
		return c.fail(fs.Name(), usageError("%s%s", printable(twoDashes.Replace(err.Error())), hint(fs, err))), false
	}
	return exitOK, true
}

// twoDashes writes flags in errors of package flag as the manual does.
var twoDashes = strings.NewReplacer("flag -", "flag --", "not defined: -", "not defined: --", "an argument: -", "an argument: --")

// hint is what package flag does not say: about a time that it cannot read, and about a flag that it does not know.
func hint(fs *flag.FlagSet, err error) (text string) {
	if unknown, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); ok {
		var known []string
		fs.VisitAll(func(f *flag.Flag) { known = append(known, "--"+f.Name) })
		return didYouMean("--"+unknown, known)
	}
	fs.VisitAll(func(f *flag.Flag) {
		if g, ok := f.Value.(flag.Getter); ok && strings.HasSuffix(err.Error(), "for flag -"+f.Name+": parse error") {
			if _, ok := g.Get().(time.Duration); ok {
				text = "; a time has a unit, such as 30s or 5m"
			}
		}
	})
	return text
}

// leftOver is the error of a verb that was given more than it takes.
func leftOver(arg string) error { return usageError("unexpected argument %s", quoted(arg)) }

// secretive reports whether text may have a URL in it, or the rest of one that was
// cut: these cannot be shown, as they may have a password.
func secretive(text string) bool {
	return strings.Contains(text, "://") || strings.Contains(text, "@")
}

// quoted returns an argument as it can be shown.
func quoted(arg string) string {
	if secretive(arg) {
		return "(not shown: it may have a password)"
	}
	return strconv.Quote(cut(arg, longestShown))
}

// longestShown is how many characters of a name are shown: it may have hundreds of thousands.
const longestShown = 200

// shown returns a name, or several, as a line for people has them.
func shown(name string) string { return cut(printable(name), longestShown) }

// printable returns text as a terminal can be given it: names, owners and what
// servers say are in others' hands, and could have escape sequences.
func printable(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	return strconv.Quote(text)
}

// fail prints err and returns the status that goes with it.
func (c *command) fail(verb string, err error) int {
	if errors.Is(err, errUsage) {
		text := strings.TrimPrefix(err.Error(), errUsage.Error()+": ")
		fmt.Fprintf(c.stderr, "redquorum %s: %s\nsee 'redquorum help %s'\n", verb, text, verb)
		return exitUsage
	}
	fmt.Fprintf(c.stderr, "redquorum %s: %s\n", verb, inFlags(err))
	return cmp.Or(c.failed, exitError)
}
