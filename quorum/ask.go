// Methods of Locker: requests to holders.

package quorum

import (
	"context"
	"errors"

	"github.com/redquorum/redquorum/internal/claim"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/core"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// Ask asks the holders of name to finish: it closes the channels of their [Lease.Asked].
// The lock stays theirs; [Locker.Break] takes it away. All readers are asked, but of more
// than 60 only some.
//
// It returns nil if enough nodes took the request for each holder, which need not have
// heard of it. Errors match ErrNotHeld if nobody has name, or only other libraries, which
// cannot be asked; and ErrNoQuorum if too few nodes answered. It takes at most twice
// Options.Timeout.
func (l *Locker) Ask(ctx context.Context, name string) error {
	if err := l.beginAbout(ctx, "ask", name); err != nil {
		return err
	}
	defer l.core.End()
	var owners []string
	err := l.find(ctx, l.inspectMost(ctx, name, l.opts.Timeout), func(rep *Report) (known bool, err *Error) {
		owners = nil
		for _, owner := range rep.Owners {
			if !node.Foreign(owner) {
				owners = append(owners, owner)
			}
		}
		if owners == nil && rep.Verdict == VerdictHeld {
			return true, &Error{Op: "ask", Name: name, Quorum: rep.Quorum, Err: ErrNotHeld, Cause: errForeign}
		}
		known, err = rep.has(rep.Owner, "ask")
		if known && err == nil && rep.Mode == node.Read && rep.pending() {
			// there may be more readers
			return false, &Error{Op: "ask", Name: name, Quorum: rep.Quorum, Err: ErrNoQuorum}
		}
		return known, err
	})
	if err != nil {
		return err
	}
	return l.askOwners(ctx, name, owners)
}

var errForeign = errors.New("its holder is not a program with redquorum")

func (l *Locker) askOwners(ctx context.Context, name string, owners []string) (err error) {
	var rounds []*core.Round
	in := l.core.Step()
	in.NoteCall("ask", &claim.Lock{Name: name})
	for _, owner := range owners {
		token, _ := in.Token(0) // without one the nodes refuse
		c := claim.Claim{Lock: claim.Lock{Name: node.AskName(owner)}, Owner: l.core.UUID, Token: token}
		in.Send(in.All(), node.Command{Kind: node.Acquire, Claims: c.AppendTo(nil), TTL: l.opts.Timeout,
			Retention: l.opts.FenceRetention, Deadline: in.Now().Add(l.opts.Timeout)}, nil)
		rounds = append(rounds, in.AskAll(node.Release, c, 0, l.opts.Timeout))
	}
	in.Leave()
	for _, r := range rounds {
		verdict, why := r.Await(ctx), stopped(ctx)
		in := l.core.Step()
		if verdict != vote.Won && err == nil {
			f := r.Failure("ask", ErrNoQuorum, why)
			f.Name = name
			err = l.core.Words.Explain(f)
		}
		in.Done(r)
		in.Leave()
	}
	return err
}
