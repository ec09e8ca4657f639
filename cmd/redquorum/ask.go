package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/quorum"
)

const askManual = `Asks the holder of the lock NAME to finish, or all readers. The lock stays the
holder's, who may do nothing about it: 'redquorum run --on-ask TERM' sends its
command a signal, 'redquorum hold' prints a line, and a program with the library
looks at Lease.Asked. A request reaches a holder that listens within a round
trip, or at its next renewal. A later holder is not asked.

Exit status: 0 if a majority of nodes took the request, or
  69   too few nodes are usable
  76   nobody holds the lock, or only programs with Redisson, which cannot be
       asked
  78   permanent error on too many nodes: see 'redquorum help run'
  2    usage

example:
  redquorum ask nightly`

func askVerb() *cobra.Command {
	cmd, _ := newVerb("ask NAME", "ask the holder of a lock to finish", askManual)
	return asksAbout(cmd, func(ctx context.Context, _ *command, _ *nodeFlags, l *quorum.Locker, name string) error {
		return failed(l.Ask(ctx, name))
	})
}

// failed gives an error the exit status that run has for it.
func failed(err error) error {
	e, ok := errors.AsType[*quorum.Error](err)
	switch {
	case errors.Is(err, quorum.ErrNotHeld):
		return cli.Fail(exitLost, err)
	case ok && e.Permanent():
		return cli.Fail(exitConfig, err)
	case errors.Is(err, quorum.ErrNoQuorum):
		return cli.Fail(exitNoQuorum, err)
	}
	return err
}
