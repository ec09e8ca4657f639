package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/internal/terminal"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

const breakManual = `Removes the lock NAME from all nodes, even if somebody holds it, and wakes
waiters. The holder learns of it only at its next renewal: until then two may
work. Without --yes nothing is done.

Exit status: 0 if a majority of nodes confirmed, or
  69   too few nodes are usable
  78   permanent error on too many nodes: see 'redquorum help run'
  2    usage

example:
  redquorum break orders/42 --yes`

func breakVerb() *cobra.Command {
	cmd, fs := newVerb("break NAME", "remove a lock, even if it is held", breakManual)
	yes := fs.Bool("yes", false, "really do it")
	return asksAbout(cmd, func(ctx context.Context, c *command, _ *nodeFlags, l *quorum.Locker, name string) error {
		if !*yes {
			return cli.Usage("breaking %s can let two holders work at once; add --yes to do it", cli.Quoted(name))
		}
		before, err := l.Inspect(ctx, name)
		if err != nil {
			return err
		}
		broken, err := l.Break(ctx, name)
		if errors.Is(err, node.ErrWrongType) {
			err = fmt.Errorf("%w; redquorum removes only locks: if nobody needs this key, use DEL on each server", err)
		}
		if err != nil {
			return failed(err)
		}
		if !broken {
			fmt.Fprintf(c.stderr, "%q was free\n", terminal.Cut(name, cli.Longest))
			return nil
		}
		fmt.Fprintln(c.stderr, removed(before))
		return nil
	})
}

func removed(before *quorum.Report) string {
	text := fmt.Sprintf("removed the lock %q", terminal.Cut(before.Name, cli.Longest))
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

// nameFlag lets a name stand alone or follow --name.
func nameFlag(cmd *cobra.Command) *string {
	name, given := new(string), []string(nil)
	cmd.Flags().Func("name", "the lock's `name`, which may also stand alone", func(s string) error {
		given = append(given, s)
		return nil
	})
	cmd.Args = func(_ *cobra.Command, args []string) error {
		args = append(args, given...)
		if err := cli.One("the lock's name")(cmd, args); err != nil {
			return err
		}
		*name = args[0]
		if err := node.CheckName(*name); err != nil {
			return cli.Usage("%w", err)
		}
		return nil
	}
	return name
}
