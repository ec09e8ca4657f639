package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

const holdManual = `Takes the lock NAME, or one lock of several names, prints one line when it has
it, and holds it until INT or TERM. It runs no command: it is for maintenance by
hand, and for scripts that wait for the line. Whatever relies on the lock must
stop when this process has ended. 'redquorum run' enforces that for a command.
It says so when somebody asks for the lock, with 'redquorum ask NAME', and goes
on.

Exit status: 0 if INT, TERM, HUP or QUIT ended it and the lock was released, or
  69   too few nodes are usable for anybody to get the lock
  75   others hold the lock (see --conflict-exit-code), or TERM, HUP or QUIT
       ended the wait for it
  76   the lock was lost, or --max-hold has passed
  78   permanent error on too many nodes: see 'redquorum help run'
  130  INT ended the wait
  1    the line could not be printed
  2    usage

example:
  redquorum hold nightly orders/42 --max-hold 1h`

type holdJSON struct {
	Names []string   `json:"names"`
	Owner string     `json:"owner"`
	Token node.Token `json:"token"`
}

func holdVerb() *cobra.Command {
	cmd, fs := newVerb("hold NAME...", "hold a lock until Ctrl-C, without a command", holdManual)
	f := lockFlags{verb: "hold"}
	f.register(fs)
	asJSON := fs.Bool("json", false, "print the line as a JSON object")
	return does(cmd, func(ctx context.Context, c *command) error {
		if cmd.ArgsLenAtDash() > 0 {
			return cli.Usage("hold runs no command: use 'redquorum run %s -- COMMAND [ARG...]'", cli.Quoted(c.args[0]))
		}
		c.stderr = impatient{c.stderr}
		err := f.take(fs, c.args)
		if err != nil {
			return err
		}
		signals, stop := catch(endSignals)
		defer stop()
		f.defaultLabel("hold")
		l, done, err := f.locker(c, func(quorum.Event) {})
		if err != nil {
			return err
		}
		defer briefly(done)
		lease, status := f.acquire(ctx, c, l, signals)
		if lease == nil {
			return cli.Exit(status)
		}
		printed := make(chan error, 1) // perhaps nobody reads it
		go func() {
			printed <- c.print(*asJSON, holdJSON{lease.Names(), lease.Owner(), lease.Token()}, func(io.Writer) string {
				return fmt.Sprintf("holding %s: owner %s, token %d\n", printable(f.title()), lease.Owner(),
					lease.Token())
			})
		}()
		for asked := lease.Asked(); err == nil; {
			select {
			case err = <-printed:
				continue
			case <-asked:
				asked = nil
				fmt.Fprintln(c.stderr, "redquorum hold: somebody asks for the lock: end this process to release it")
				continue
			case <-signals:
			case <-ctx.Done():
			case <-lease.Context().Done():
			}
			break
		}
		if unlocked := lease.Unlock(ctx); unlocked != nil {
			return cli.Exit(f.notReleased(c, unlocked, exitOK))
		}
		return err
	})
}
