package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/quorum"
)

// The programs of docs/migrating.md, after the move.

// A program for redsync becomes this.
func Example_fromRedsync() {
	locker, err := quorum.New(exampleNodes(), quorum.Options{Lease: 8 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()
	ctx := context.Background()

	lease, err := locker.Lock(ctx, "orders/42", quorum.WithWait(5*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	ship(lease.Context(), 42)
	if err := lease.Unlock(ctx); errors.Is(err, quorum.ErrNotHeld) { // not if only the release is not confirmed
		fmt.Println("not alone to the end:", err)
	}
	// Output: order 42 is shipped
}

// A program for bsm/redislock becomes this.
func Example_fromRedislock() {
	locker, err := quorum.New(exampleNodes()[:1], quorum.Options{}) // one server, as before
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()
	ctx := context.Background()

	lease, err := locker.TryLock(ctx, "orders/42")
	if errors.Is(err, quorum.ErrHeld) {
		fmt.Println("somebody else has it")
		return
	} else if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Unlock(ctx)
	ship(lease.Context(), 42)
	// Output: order 42 is shipped
}

// A program for rueidislock becomes this.
func Example_fromRueidislock() {
	locker, err := quorum.New(exampleNodes(), quorum.Options{Lease: 5 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()

	err = locker.Do(context.Background(), "orders/42", func(ctx context.Context, _ *quorum.Lease) error {
		ship(ctx, 42) // ctx ends when the lock is lost
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: order 42 is shipped
}

func ship(ctx context.Context, order int) {
	if ctx.Err() == nil {
		fmt.Printf("order %d is shipped\n", order)
	}
}
