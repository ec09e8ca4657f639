package quorum_test

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/quorum"
)

// exampleNodes stands for redisnode.Dial, and needs no server.
func exampleNodes() (nodes []node.Node) {
	for _, name := range []string{"n1", "n2", "n3"} {
		nodes = append(nodes, model.New(clock.System(), name))
	}
	return nodes
}

func Example() {
	locker, err := quorum.New(exampleNodes(), quorum.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()

	var highest node.Token // what the resource remembers
	err = locker.Do(context.Background(), "orders/42", func(ctx context.Context, lease *quorum.Lease) error {
		if lease.Token() < highest {
			return errors.New("a newer holder was here")
		}
		highest = lease.Token()
		fmt.Println("alone with order 42")
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// alone with order 42
	// <nil>
}

func ExampleLocker_TryLock() {
	locker, _ := quorum.New(exampleNodes(), quorum.Options{})
	defer locker.Close()
	ctx := context.Background()

	lease, _ := locker.TryLock(ctx, "report", quorum.WithLease(5*time.Second))
	_, err := locker.TryLock(ctx, "report")
	fmt.Println(errors.Is(err, quorum.ErrHeld))

	fmt.Println(lease.Unlock(ctx))
	// Output:
	// true
	// <nil>
}

// A program handles each error: first those of a failed acquisition, then the loss of a
// lock.
func ExampleError() {
	locker, _ := quorum.New(exampleNodes(), quorum.Options{})
	defer locker.Close()
	ctx := context.Background()
	lease, _ := locker.Lock(ctx, "report", quorum.WithFixedLease(50*time.Millisecond))

	_, err := locker.TryLock(ctx, "report")
	switch {
	case err != nil && ctx.Err() != nil: // first: the error says, too, what the last attempt met
		fmt.Println("nobody waits for it any more")
	case errors.Is(err, quorum.ErrHeld):
		fmt.Println("somebody else does it")
	case errors.Is(err, quorum.ErrNoQuorum):
		fmt.Println("too few nodes answer: try again later, and tell the operator")
	}

	<-lease.Context().Done()
	err = context.Cause(lease.Context())
	var details *quorum.Error
	fmt.Println(errors.Is(err, quorum.ErrLost), errors.As(err, &details), details.Op)

	finished := false
	err = locker.Do(ctx, "orders/42", func(context.Context, *quorum.Lease) error {
		_, err := locker.Break(ctx, "orders/42") // by an operator, in the meantime
		finished = true
		return err
	})
	fmt.Println(errors.Is(err, quorum.ErrLost), errors.Is(err, quorum.ErrNotHeld), finished)
	// Output:
	// somebody else does it
	// true true hold
	// true true true
}

// A counter counts events by kind, the held leases, and the time of waits. An expvar.Map
// is safe for concurrent use, and is shown at /debug/vars if it is made by expvar.NewMap.
type counter struct{ *expvar.Map }

func (c counter) observe(e quorum.Event) {
	c.Add(e.Kind.String(), 1) // "acquired", "lost", "extend failed", "node failed"
	switch e.Kind {
	case quorum.EventAcquired:
		c.Add("held", 1)
		c.AddFloat("seconds waited", e.Took.Seconds())
	case quorum.EventReleased, quorum.EventLost, quorum.EventDetached:
		c.Add("held", -1)
	}
}

func ExampleOptions_observe() {
	locks := counter{new(expvar.Map)}
	locker, _ := quorum.New(exampleNodes(), quorum.Options{Trace: locks.observe})
	defer locker.Close()
	for range 3 {
		_ = locker.Do(context.Background(), "report", func(context.Context, *quorum.Lease) error { return nil })
	}
	fmt.Println(locks.Get("acquired"), locks.Get("released"), locks.Get("held"))
	// Output:
	// 3 3 0
}

func ExampleLocker_Lock() {
	locker, _ := quorum.New(exampleNodes(), quorum.Options{})
	defer locker.Close()
	ctx := context.Background()

	lease, err := locker.Lock(ctx, "report", quorum.WithWait(10*time.Second), quorum.WithMaxHold(time.Hour))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Unlock(ctx)

	select {
	case <-lease.Context().Done():
		fmt.Println("stop:", context.Cause(lease.Context()))
	case <-time.After(time.Millisecond):
		fmt.Println("the work is done, with time left:", lease.Remaining() > 29*time.Second)
	}
	// Output:
	// the work is done, with time left: true
}

// Re-entry goes by the lease's context.
func ExampleLease_Context() {
	locker, _ := quorum.New(exampleNodes(), quorum.Options{})
	defer locker.Close()

	outer, _ := locker.Lock(context.Background(), "account/7")
	inner, err := locker.TryLock(outer.Context(), "account/7", quorum.WithReentry())
	fmt.Println(err, inner.Token() == outer.Token())

	_ = inner.Unlock(context.Background())
	fmt.Println(outer.Remaining() > 0)
	_ = outer.Unlock(context.Background())
	fmt.Println(outer.Remaining())
	// Output:
	// <nil> true
	// true
	// 0s
}

// A lease goes from one process to another by its handle.
func ExampleLocker_Resume() {
	locker, _ := quorum.New(exampleNodes(), quorum.Options{})
	defer locker.Close()
	ctx := context.Background()

	lease, _ := locker.Lock(ctx, "migration")
	handle, _ := lease.Detach()

	resumed, err := locker.Resume(ctx, handle)
	fmt.Println(err, resumed.Token() > lease.Token())
	// Output:
	// <nil> true
}

// A writer can go on reading, together with others.
func ExampleWithWrite() {
	locker, _ := quorum.New(exampleNodes(), quorum.Options{})
	defer locker.Close()
	ctx := context.Background()

	writing, _ := locker.Lock(ctx, "prices", quorum.WithWrite())
	_, err := locker.TryLock(ctx, "prices", quorum.WithRead())
	fmt.Println("others can read:", err == nil)

	reading, _ := locker.Lock(writing.Context(), "prices", quorum.WithRead(), quorum.WithReentry())
	_ = writing.Unlock(ctx)
	other, err := locker.TryLock(ctx, "prices", quorum.WithRead())
	fmt.Println("others can read:", err == nil)

	_ = reading.Unlock(ctx)
	_ = other.Unlock(ctx)
	// Output:
	// others can read: false
	// others can read: true
}

// Several names are one lock, with one token.
func ExampleWithNames() {
	locker, _ := quorum.New(exampleNodes(), quorum.Options{})
	defer locker.Close()
	ctx := context.Background()

	lease, _ := locker.Lock(ctx, "account/7", quorum.WithNames("account/3"))
	defer lease.Unlock(ctx)
	fmt.Println(lease.Names())
	_, err := locker.TryLock(ctx, "account/3")
	fmt.Println(errors.Is(err, quorum.ErrHeld))
	// Output:
	// [account/3 account/7]
	// true
}

// Locks of two deployments are held as one.
func ExampleDoAll() {
	north, _ := quorum.New(exampleNodes(), quorum.Options{})
	defer north.Close()
	south, _ := quorum.New(exampleNodes(), quorum.Options{})
	defer south.Close()

	both := []quorum.Member{{Locker: north, Name: "orders/42"}, {Locker: south, Name: "stock/7"}}
	err := quorum.DoAll(context.Background(), both, func(ctx context.Context, joint *quorum.MultiLease) error {
		for i, lease := range joint.Leases() {
			fmt.Println(i, lease.Names()[0], lease.Token() > 0)
		}
		return ctx.Err() // it ends when one of them is lost
	})
	fmt.Println(err)
	// Output:
	// 0 orders/42 true
	// 1 stock/7 true
	// <nil>
}

func ExampleLocker_Inspect() {
	locker, _ := quorum.New(exampleNodes(), quorum.Options{})
	defer locker.Close()
	ctx := context.Background()

	lease, _ := locker.Lock(ctx, "orders/42")
	defer lease.Unlock(ctx)
	report, _ := locker.Inspect(ctx, "orders/42")
	fmt.Println(report.Verdict, report.HeldBy, "of", len(report.Nodes), report.Owner == lease.Owner())
	// Output:
	// held 3 of 3 true
}

// Requests for shards go to their owners.
func ExampleLocker_Holders() {
	locker, _ := quorum.New(exampleNodes(), quorum.Options{})
	defer locker.Close()
	ctx := context.Background()

	lease, _ := locker.Lock(ctx, "shard/1", quorum.WithNote("10.0.0.7:8080"))
	defer lease.Unlock(ctx)
	reports, _ := locker.Holders(ctx, "shard/1", "shard/2")
	for _, report := range reports {
		fmt.Printf("%s is %s: %q\n", report.Name, report.Verdict, report.Note(report.Owner))
	}
	// Output:
	// shard/1 is held: "10.0.0.7:8080"
	// shard/2 is free: ""
}

// Five hosts start a short job at about the same time. One of them runs it.
func ExampleWithMinHold() {
	locker, _ := quorum.New(exampleNodes(), quorum.Options{})
	defer locker.Close()
	ctx := context.Background()
	job := func(context.Context, *quorum.Lease) error { fmt.Println("it runs"); return nil }

	fmt.Println(locker.Do(ctx, "report", job, quorum.WithMinHold(20*time.Second)))
	err := locker.Do(ctx, "report", job, quorum.WithMinHold(20*time.Second), quorum.WithWait(time.Millisecond)) // on another host
	fmt.Println(errors.Is(err, quorum.ErrHeld))
	// Output:
	// it runs
	// <nil>
	// true
}

// Callers that use WithFair are served in the order in which they came.
func ExampleWithFair() {
	waiting := make(chan string, 10)
	locker, _ := quorum.New(exampleNodes(), quorum.Options{Trace: func(e quorum.Event) {
		if e.Kind == quorum.EventWaiting {
			waiting <- e.Name
		}
	}})
	defer locker.Close()
	ctx := context.Background()

	lease, _ := locker.Lock(ctx, "desk", quorum.WithFair())
	var served sync.WaitGroup
	for _, who := range []string{"first", "second", "third"} {
		served.Go(func() {
			_ = locker.Do(ctx, "desk", func(context.Context, *quorum.Lease) error { fmt.Println(who); return nil }, quorum.WithFair())
		})
		<-waiting // so that the next one comes later
	}
	_ = lease.Unlock(ctx)
	served.Wait()
	// Output:
	// first
	// second
	// third
}

// Applications that share servers have different prefixes, so their names do not meet.
// Operators and other programs see the holder's label.
func ExampleOptions_prefix() {
	nodes := exampleNodes()
	shop, _ := quorum.New(nodes, quorum.Options{Prefix: "shop:", Label: "shop-7", SharedNodes: true})
	defer shop.Close()
	mail, _ := quorum.New(nodes, quorum.Options{Prefix: "mail:", SharedNodes: true})
	defer mail.Close()
	ctx := context.Background()

	_, err := shop.Lock(ctx, "report")
	fmt.Println(err)
	_, err = mail.TryLock(ctx, "report")
	fmt.Println(err)

	other, _ := quorum.New(nodes, quorum.Options{Prefix: "shop:", SharedNodes: true})
	defer other.Close()
	_, err = other.TryLock(ctx, "report")
	held, _ := errors.AsType[*quorum.Error](err)
	fmt.Println("held by", held.Holder)
	// Output:
	// <nil>
	// <nil>
	// held by shop-7
}

// A fixed lease is not renewed. Its holder can make it longer.
func ExampleLease_Extend() {
	locker, _ := quorum.New(exampleNodes(), quorum.Options{})
	defer locker.Close()
	ctx := context.Background()

	lease, _ := locker.Lock(ctx, "import", quorum.WithFixedLease(5*time.Second))
	fmt.Println(lease.Remaining() > 5*time.Second)
	fmt.Println(lease.Extend(ctx, 20*time.Second))
	fmt.Println(lease.Remaining() > 10*time.Second)
	fmt.Println(lease.Unlock(ctx))
	// Output:
	// false
	// <nil>
	// true
	// <nil>
}

// Break takes a name from a holder that hangs. It works on until its next renewal, so
// only the resource can refuse its writes, by the token.
func ExampleLocker_Break() {
	locker, _ := quorum.New(exampleNodes(), quorum.Options{})
	defer locker.Close()
	ctx := context.Background()

	hangs, _ := locker.Lock(ctx, "import")
	there, err := locker.Break(ctx, "import")
	fmt.Println(there, err)
	next, err := locker.Lock(ctx, "import")
	fmt.Println(next.Token() > hangs.Token(), err)
	// Output:
	// true <nil>
	// true <nil>
}

// A program first stops its work, and then closes the Locker, which releases what is
// still held. docs/service.md has the same for an HTTP service.
func ExampleLocker_Close() {
	locker, _ := quorum.New(exampleNodes(), quorum.Options{})
	ctx, stop := context.WithCancel(context.Background()) // or signal.NotifyContext
	started := make(chan bool)
	var work sync.WaitGroup
	work.Go(func() {
		err := locker.Do(ctx, "mailer", func(ctx context.Context, _ *quorum.Lease) error {
			close(started)
			<-ctx.Done() // it mails until it is to stop
			fmt.Println("the last mail is sent")
			return nil
		})
		fmt.Println(err)
	})
	<-started
	stop()
	work.Wait()
	fmt.Println(locker.Close())
	// Output:
	// the last mail is sent
	// <nil>
	// <nil>
}
