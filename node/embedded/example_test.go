package embedded_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/quorum"
)

// Two programs compete for a name, and go on without one server.
func Example() {
	set, err := embedded.Start(3)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer set.Close()
	one, _ := quorum.New(set.Nodes(), quorum.Options{})
	defer one.Close()
	nodes, _ := set.Dial()
	other, _ := quorum.New(nodes, quorum.Options{})
	defer other.Close()

	ctx := context.Background()
	lease, err := one.Lock(ctx, "orders/42")
	fmt.Println(err)
	set.Server(0).Kill()
	_, err = other.TryLock(ctx, "orders/42")
	fmt.Println(errors.Is(err, quorum.ErrHeld))
	fmt.Println(lease.Unlock(ctx))
	// Output:
	// <nil>
	// true
	// <nil>
}
