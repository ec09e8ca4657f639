// Package cli adds to cobra what the command lines of this module have in common: exit
// statuses, errors that show no password, and pages of 80 columns.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redquorum/redquorum/internal/terminal"
)

const (
	OK       = 0
	Failed   = 1
	BadUsage = 2

	Interrupted = 130 // as a shell calls a program that SIGINT has ended
)

type status struct {
	code int
	err  error // what is printed, if anything
}

func (s *status) Error() string {
	if s.err == nil {
		return fmt.Sprint("exit status ", s.code)
	}
	return s.err.Error()
}

// Exit returns an exit status without a message.
func Exit(code int) error {
	if code == OK {
		return nil
	}
	return &status{code, nil}
}

// Fail returns an error with an exit status other than [Failed], unless the error has
// one.
func Fail(code int, err error) error {
	if err == nil || errors.As(err, new(*status)) {
		return err
	}
	return &status{code, err}
}

// Interrupt returns the end of a command by a signal. An error keeps its text, but not
// its exit status.
func Interrupt(err error) error {
	if s, ok := errors.AsType[*status](err); ok {
		err = s.err
	}
	return &status{Interrupted, err}
}

func Usage(format string, args ...any) error { return &status{BadUsage, fmt.Errorf(format, args...)} }

// An Output keeps the first error in printing. A command may end while it still prints.
type Output struct {
	io.Writer
	lost atomic.Pointer[error]
}

// Err is the first error.
func (o *Output) Err() error {
	if err := o.lost.Load(); err != nil {
		return *err
	}
	return nil
}

func (o *Output) Unwrap() io.Writer { return o.Writer }

func (o *Output) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if err != nil {
		o.lost.CompareAndSwap(nil, &err)
	}
	return n, err
}

// Run executes a command line, prints its error, and returns the exit status. Lost output
// is an error.
func Run(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SetArgs(append([]string{}, args...)) // nil would be those of the process
	out := &Output{Writer: stdout}
	root.SetOut(out)
	root.SetErr(stderr)
	prepare(root)
	begun := false
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		err := cmd.ValidateFlagGroups()
		begun = err == nil
		return err
	}
	cmd, err := root.ExecuteContextC(ctx)
	lost := out.Err()
	if err == nil && lost == nil {
		return OK
	}
	end, ok := errors.AsType[*status](err)
	switch {
	case ok && end.err == nil: // it has said what there is to say
		end = &status{end.code, lost}
	case ok:
	case lost != nil && (err == nil || !begun): // also of help and version, before any command has begun
		end = &status{Failed, lost}
	case begun:
		end = &status{Failed, err}
	default:
		end = &status{BadUsage, errors.New(shown(err))}
	}
	if end.err != nil {
		const longest = 2000 // names of locks are long, or many
		w := terminal.Plain(stderr)
		fmt.Fprintf(w, "%s: %s\n", cmd.CommandPath(), terminal.Cut(end.err.Error(), longest))
		if end.code == BadUsage {
			fmt.Fprintf(w, "see '%s --help'\n", cmd.CommandPath())
		}
	}
	return end.code
}

func init() {
	cobra.EnableCommandSorting = false
	cobra.AddTemplateFunc("reflow", func(width int, text string) string {
		if text = strings.TrimRight(text, "\n"); width == terminal.Page { // as it was written
			return text
		}
		return strings.TrimRight(terminal.Reflow(text, width), "\n")
	})
}

// usage is cobra's template of a page, for so many columns: how it is called and examples
// come first, then what it does, then the flags.
func usage(itself string, width int) string {
	const example = "{{.Example}}{{end}}"
	page, _, _ := strings.Cut(itself, "{{if .HasAvailableSubCommands}}\n\nUse ")
	return strings.NewReplacer(
		example, fmt.Sprintf("%s{{with (or .Long .Short)}}\n\n{{reflow %d .}}{{end}}", example, width),
		".FlagUsages", fmt.Sprint(".FlagUsagesWrapped ", width)).Replace(page) + "\n"
}

func prepare(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return Usage("%s%s", shown(err), hint(cmd, err)) })
	itself := root.UsageTemplate()
	root.SetUsageTemplate(usage(itself, terminal.Page))
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		root.SetUsageTemplate(usage(itself, terminal.PageOf(cmd.OutOrStdout())))
		fmt.Fprint(cmd.OutOrStdout(), cmd.UsageString())
	})
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	if root.HasSubCommands() {
		root.InitDefaultHelpCmd()
		help, _, _ := root.Find([]string{"help"})
		help.Run, help.RunE = nil, showHelp
	}
	for _, cmd := range All(root) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			switch value, _ := pflag.UnquoteUsage(f); value { // what follows fails only where there is no such flag
			case "file":
				_ = cmd.RegisterFlagCompletionFunc(f.Name, Files)
			case "folder":
				_ = cmd.MarkFlagDirname(f.Name)
			}
		})
	}
}

func All(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		all = append(all, All(sub)...)
	}
	return all
}

func Files(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// showHelp fails if there is no such command.
func showHelp(help *cobra.Command, args []string) error {
	cmd, _, err := help.Root().Find(args)
	if err != nil {
		return Usage("%s", shown(err))
	}
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	return cmd.Help()
}

func shown(err error) string {
	if secretive(err.Error()) {
		return "there is a URL, or a part of one, where none belongs (not shown: it may have a password)"
	}
	return goWords.ReplaceAllString(strings.TrimSpace(err.Error()), "")
}

// goWords begin errors of package strconv, which quote the text again.
var goWords = regexp.MustCompile(`strconv\.Parse[A-Za-z]+: parsing "[^"]*": `)

func hint(cmd *cobra.Command, err error) string {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return ""
	}
	known := &cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		known.AddCommand(&cobra.Command{Use: "--" + f.Name, Run: func(*cobra.Command, []string) {}})
	})
	return didYouMean(known, "--"+cmp.Or(unknown.GetSpecifiedShortnames(), unknown.GetSpecifiedName()))
}

func didYouMean(cmd *cobra.Command, word string) string {
	like := cmd.SuggestionsFor(word)
	if len(like) == 0 {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", strings.Join(like, " or "))
}

// NoArgs refuses arguments.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	return Usage("unexpected argument %s%s", Quoted(args[0]), didYouMean(cmd, args[0]))
}

// One wants one argument.
func One(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 || args[0] == "" {
			return Usage("%s is missing or empty", what)
		}
		return NoArgs(cmd, args[1:])
	}
}

// CanWrite returns why a file cannot be written, before there is something to write. It
// creates those that do not exist.
func CanWrite(paths ...string) error {
	for _, path := range paths {
		if info, err := os.Stat(path); path == "" || err == nil && !info.Mode().IsRegular() && !info.IsDir() {
			continue // the reader of a pipe would take it for the end
		}
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
		if err != nil {
			return err
		}
		file.Close()
	}
	return nil
}

// Count returns a number of things; one is the word for a single one.
func Count[N int | uint64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// secretive reports whether text may have a URL in it, or the rest of one, which may have
// a password.
func secretive(text string) bool { return strings.Contains(text, "://") || strings.Contains(text, "@") }

// Longest is how many characters of a name are shown: it may have hundreds of thousands.
const Longest = 200

func Quoted(arg string) string {
	if secretive(arg) {
		return "(not shown: it may have a password)"
	}
	return strconv.Quote(terminal.Cut(arg, Longest))
}

// UntilSignal returns a context that ends with the first signal. A second one ends the
// program as usual. Ignored signals, as under nohup, stay ignored.
func UntilSignal(ctx context.Context, signals ...os.Signal) (_ context.Context, stop func()) {
	caught := slices.DeleteFunc(slices.Clone(signals), signal.Ignored)
	if len(caught) == 0 { // NotifyContext would take it for all
		return context.WithCancel(ctx)
	}
	ctx, cancel := signal.NotifyContext(ctx, caught...)
	context.AfterFunc(ctx, cancel)
	return ctx, cancel
}
