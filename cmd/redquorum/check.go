package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

const checkManual = `Asks the nodes whether an owner still has the lock NAME. The owner is that of
--owner, or REDQUORUM_OWNER, which 'redquorum run' sets for its command. It says
nothing if the owner has it. NAME may be several names of one lock, with commas
between, as in REDQUORUM_NAME: then the owner has to have them all.

The answer was true when the nodes gave it. The lease may end before you act on
it. So this makes a late write unlikely, and a resource that compares fencing
tokens excludes it.

'redquorum run' removes REDQUORUM_NODES from the environment of its command. Use
--nodes there.

Exit status: 0 if a majority of nodes has the owner, or
  69   too few nodes are usable
  76   the owner does not have the lock, or does not have it any more
  78   permanent error on too many nodes: see 'redquorum help run'
  2    usage

example:
  redquorum check "$REDQUORUM_NAME" --nodes a,b,c && upload   # under 'run'`

type checkJSON struct {
	Name    string `json:"name"`
	Owner   string `json:"owner"`
	Verdict string `json:"verdict"` // held, not-held, or no-quorum
	Error   string `json:"error,omitempty"`
}

func checkVerb() *cobra.Command {
	cmd, fs := newVerb("check NAME", "ask whether an owner still has a lock", checkManual)
	flag := fs.String("owner", "", "the `owner` of the lease, as run --verbose, status and the library show it (default $REDQUORUM_OWNER)")
	asJSON := fs.Bool("json", false, "print one JSON object")
	return asksAbout(cmd, func(ctx context.Context, c *command, _ *nodeFlags, l *quorum.Locker, name string) error {
		owner := *flag
		if !fs.Changed("owner") {
			owner = os.Getenv("REDQUORUM_OWNER")
		}
		if owner == "" {
			return cli.Usage("no owner: give it with --owner, or in REDQUORUM_OWNER")
		}
		err := checkAll(ctx, l, name, owner)
		if !*asJSON {
			return failed(err)
		}
		found := checkJSON{name, owner, "held", ""}
		if err != nil {
			found.Verdict, found.Error = "no-quorum", err.Error()
			if errors.Is(err, quorum.ErrNotHeld) {
				found.Verdict = "not-held"
			}
		}
		return cmp.Or(c.printJSON(found), failed(err))
	})
}

// checkAll tries one name first, then those that its commas separate.
func checkAll(ctx context.Context, l *quorum.Locker, name, owner string) error {
	err := l.Check(ctx, name, owner)
	if !errors.Is(err, quorum.ErrNotHeld) || !strings.Contains(name, ",") {
		return err
	}
	for one := range strings.SplitSeq(name, ",") {
		if node.CheckName(one) != nil {
			return err // it is one name
		}
		if err := l.Check(ctx, one, owner); err != nil {
			return err
		}
	}
	return nil
}
