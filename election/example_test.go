package election_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/quorum"
)

// One of several programs leads until it is done, and then resigns.
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

// The program ends in order at SIGTERM, whether it leads or waits.
func ExampleElection_Run() {
	servers, err := embedded.Start(3)
	if err != nil {
		panic(err)
	}
	defer servers.Close()
	locker, err := quorum.New(servers.Nodes(), quorum.Options{})
	if err != nil {
		panic(err)
	}
	defer locker.Close()
	other, err := locker.Lock(context.Background(), "scheduler") // another program leads
	if err != nil {
		panic(err)
	}
	defer other.Unlock(context.Background())

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	err = election.New(locker, "scheduler", election.Options{}).Run(ctx, func(ctx context.Context, lease *quorum.Lease) error {
		<-ctx.Done() // work, with lease.Token()
		return ctx.Err()
	})
	if errors.Is(err, context.Canceled) {
		err = nil // of a program that waits, the error says who leads
	}
	fmt.Println(err)
	// Output: <nil>
}
