package election_test

import (
	"context"
	"fmt"

	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/quorum"
)

// One of several programs. It leads until it is done, and then resigns.
func Example() {
	servers, err := embedded.Start(3)
	if err != nil {
		panic(err)
	}
	defer servers.Close()
	locker, err := quorum.New(servers.Nodes(), quorum.Options{Label: "host-a"})
	if err != nil {
		panic(err)
	}
	defer locker.Close()

	campaign := election.New(locker, "scheduler", election.Options{})
	err = campaign.Run(context.Background(), func(ctx context.Context, lease *quorum.Lease) error {
		leader, err := campaign.Leader(ctx)
		fmt.Println(leader.Identity, "leads:", leader.Owner == lease.Owner())
		return err
	})
	fmt.Println(err, campaign.IsLeader(context.Background()))
	// Output:
	// host-a leads: true
	// <nil> not the leader of "scheduler": lease is not held
}
