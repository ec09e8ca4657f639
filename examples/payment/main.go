// Payment has orders that are paid once. The database keeps what is to be sent to the
// provider in an outbox, and one elected host sends it, with an idempotency key, since
// the provider cannot refuse a late call by its token.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/quorum"
)

// A database stands for tables. Each method is one transaction.
type database struct {
	mu     sync.Mutex
	fences map[string]node.Token // the highest token by lock
	paid   map[string]bool       // orders
	outbox []string              // orders to be charged, each with its name as idempotency key
}

var errLate = errors.New("a newer holder was here")

func (db *database) fenced(name string, token node.Token) error {
	if token < db.fences[name] {
		return errLate
	}
	db.fences[name] = token
	return nil
}

// pay marks an order and writes into the outbox in one transaction.
func (db *database) pay(order string, token node.Token) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if err := db.fenced(order, token); err != nil {
		return err
	}
	if !db.paid[order] { // a customer clicks twice
		db.paid[order] = true
		db.outbox = append(db.outbox, order)
	}
	return nil
}

func (db *database) next(token node.Token) (string, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if err := db.fenced("sender", token); err != nil || len(db.outbox) == 0 {
		return "", err
	}
	return db.outbox[0], nil
}

func (db *database) sent(order string, token node.Token) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if err := db.fenced("sender", token); err != nil {
		return err
	}
	if len(db.outbox) > 0 && db.outbox[0] == order {
		db.outbox = db.outbox[1:]
	}
	return nil
}

// A provider knows no tokens. It charges each idempotency key once.
type provider struct {
	mu    sync.Mutex
	keys  map[string]bool
	calls int
}

func (p *provider) charge(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	p.keys[key] = true
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	servers, err := embedded.Start(3) // in production: redisnode.Dial("redis://10.0.0.1:6379", ...)
	if err != nil {
		return err
	}
	defer servers.Close()
	locker, err := quorum.New(servers.Nodes(), quorum.Options{})
	if err != nil {
		return err
	}
	defer locker.Close()
	db := &database{fences: make(map[string]node.Token), paid: make(map[string]bool)}
	bank := &provider{keys: make(map[string]bool)}
	ctx := context.Background()

	var customers sync.WaitGroup
	for i := range 10 {
		order := fmt.Sprintf("orders/%d", i%5) // each is paid by two clicks
		customers.Go(func() {
			err := locker.Do(ctx, order, func(_ context.Context, lease *quorum.Lease) error {
				return db.pay(order, lease.Token())
			}, quorum.WithWait(10*time.Second))
			if err != nil {
				log.Print(err)
			}
		})
	}
	customers.Wait()

	// The first sender dies after it has charged, before it has said so in the database.
	crash := errors.New("the sender crashes")
	sender := election.New(locker, "sender", election.Options{})
	err = sender.Run(ctx, func(_ context.Context, lease *quorum.Lease) error {
		order, err := db.next(lease.Token())
		if err != nil {
			return err
		}
		bank.charge(order)
		return crash
	})
	if !errors.Is(err, crash) {
		return err
	}
	err = sender.Run(ctx, func(ctx context.Context, lease *quorum.Lease) error { return send(ctx, db, bank, lease.Token()) })
	fmt.Printf("%d orders are paid; the provider got %d calls, and charged %d\n", len(db.paid), bank.calls,
		len(bank.keys))
	return err
}

// send empties the outbox. The key of an order is always the same, so the provider
// charges once.
func send(ctx context.Context, db *database, bank *provider, token node.Token) error {
	for ctx.Err() == nil {
		order, err := db.next(token)
		if err != nil || order == "" {
			return err
		}
		bank.charge(order)
		if err := db.sent(order, token); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}
