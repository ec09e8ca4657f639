package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

const breakManual = `
usage: redquorum break NAME --yes [--nodes URL,...] [--prefix TEXT]

Removes the lock NAME from all nodes, even if somebody holds it, and wakes
waiters. The holder learns of it only at its next renewal: until then two may
work. Without --yes nothing is done.

Exit status: 0 if a majority of nodes confirmed, 1 if not, 2 usage.

example:
  redquorum break orders/42 --yes
`

func breakVerb(ctx context.Context, c *command) int {
	fs := c.flags("break", breakManual)
	var nodes nodeFlags
	nodes.register(fs)
	nodes.registerPrefix(fs)
	yes := fs.Bool("yes", false, "really do it")
	name, status, ok := c.parseName(fs)
	if !ok {
		return status
	}
	if !*yes {
		return c.fail("break", usageError("breaking %s can let two holders work at once; add --yes to do it", quoted(name)))
	}
	l, done, err := nodes.locker(quorum.Options{Timeout: 2 * time.Second, Quorum: quorumMost})
	if err != nil {
		return c.fail("break", err)
	}
	defer done()
	before, err := l.Inspect(ctx, name)
	if err != nil {
		return c.fail("break", err)
	}
	broken, err := l.Break(ctx, name)
	if errors.Is(err, node.ErrWrongType) {
		err = fmt.Errorf("%w; redquorum removes only locks: if nobody needs this key, use DEL on each server", err)
	}
	if err != nil {
		return c.fail("break", err)
	}
	if !broken {
		fmt.Fprintf(c.stderr, "%q was free\n", cut(name, longestShown))
		return exitOK
	}
	fmt.Fprintln(c.stderr, removed(before))
	return exitOK
}

// removed says which lock was removed, and who had it.
func removed(before *quorum.Report) string {
	text := fmt.Sprintf("removed the lock %q", cut(before.Name, longestShown))
	if before.Owner == "" { // it came after the question who holds it
		return text
	}
	holder := printable(before.Owner)
	if label := before.Label(before.Owner); label != "" {
		holder = fmt.Sprintf("%s (%s)", printable(label), holder)
	}
	if more := len(before.Owners) - 1; more > 0 {
		holder += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s, held by %s, on %s", text, holder, count(before.HeldBy))
}

// parseName reads the flags, which may stand on either side of the one
// argument, the lock's name. That may follow --name instead, as for run.
func (c *command) parseName(fs *flag.FlagSet) (name string, status int, ok bool) {
	flagged := fs.String("name", "", "the lock's `name`, which may also stand alone")
	args, status, ok := c.parseArgs(fs)
	if !ok {
		return "", status, false
	}
	if setFlags(fs)["name"] {
		args = append(args, *flagged)
	}
	if name, status, ok = c.onlyOne(fs, args, "the lock's name"); !ok {
		return "", status, false
	}
	if err := node.CheckName(name); err != nil {
		return "", c.fail(fs.Name(), usageError("%v", err)), false
	}
	return name, exitOK, true
}

// parseOne reads one argument, before, after or between the flags.
func (c *command) parseOne(fs *flag.FlagSet, what string) (arg string, status int, ok bool) {
	args, status, ok := c.parseArgs(fs)
	if !ok {
		return "", status, false
	}
	return c.onlyOne(fs, args, what)
}

func (c *command) onlyOne(fs *flag.FlagSet, args []string, what string) (arg string, status int, ok bool) {
	switch {
	case len(args) > 1:
		return "", c.fail(fs.Name(), leftOver(args[1])), false
	case len(args) == 0 || args[0] == "":
		return "", c.fail(fs.Name(), usageError("%s is missing or empty", what)), false
	}
	return args[0], exitOK, true
}

// parseArgs reads the arguments, before, after or between the flags.
func (c *command) parseArgs(fs *flag.FlagSet) (args []string, status int, ok bool) {
	for {
		if status, ok = c.parse(fs); !ok || fs.NArg() == 0 {
			return args, status, ok
		}
		args, c.args = append(args, fs.Arg(0)), fs.Args()[1:]
	}
}
