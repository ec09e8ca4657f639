// Package election lets several programs elect one leader, by a lock of package quorum.
//
//	campaign := election.New(locker, "scheduler", election.Options{})
//	err := campaign.Run(ctx, func(ctx context.Context, lease *quorum.Lease) error {
//		return schedule(ctx, lease.Token()) // ctx ends when this program no longer leads
//	})
//	if errors.Is(err, context.Canceled) {
//		err = nil // the program is to end: if it did not lead, the error says so
//	}
//
// A leader is known by the label of its Locker: see [quorum.Options.Label]. Its term is
// the fencing token of its lease, [quorum.Lease.Token], which is higher than that of
// every earlier leader.
//
// # What is guaranteed
//
// An election is a lock of its name, and has the guarantees of package quorum, no more
// and no less. Under the same assumptions:
//
//   - At most one lease of the name is valid at any time, so at most one program leads.
//   - The function that [Election.Run] calls gets a context that ends before another
//     program can lead. No answer from any server is needed for that.
//   - If the program is to end, or the function returns, the lock is released after the
//     function has returned. So the next leader does not begin while the last one still
//     stops.
//
// A lost lease is different: it ends by itself. Then the function has
// quorum.Options.Grace to stop after its context has ended. A program that pauses, or
// ignores its context, may go on for longer. Only the resource can refuse its late work,
// by the term: see docs/fencing.md.
//
// docs/election.md compares this with client-go and etcd.
package election
