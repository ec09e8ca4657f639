// Package gooselock lets only one of several programs migrate a database with goose at a
// time. It is for databases whose own locks goose does not support.
//
//	provider, err := goose.NewProvider(goose.DialectClickHouse, db, migrations,
//		goose.WithSessionLocker(gooselock.New(locker, "migrate/orders")))
//	...
//	_, err = provider.Up(ctx)
//
// A program that finds the lock held waits until its context ends, and then has nothing
// left to migrate. If the lock is lost, goose cannot be stopped: its error says so at the
// end, and matches [quorum.ErrNotHeld].
package gooselock

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	"github.com/pressly/goose/v3/lock"

	"github.com/redquorum/redquorum/quorum"
)

// New returns a SessionLocker that locks name. The options apply to each lock.
func New(l *quorum.Locker, name string, opts ...quorum.Option) lock.SessionLocker {
	return &locker{l: l, name: name, opts: opts}
}

type locker struct {
	l      *quorum.Locker
	name   string
	opts   []quorum.Option
	leases sync.Map // the *quorum.Lease of each connection
}

func (l *locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	lease, err := l.l.Lock(ctx, l.name, l.opts...)
	if err == nil {
		l.leases.Store(conn, lease)
	}
	return err
}

func (l *locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	lease, ok := l.leases.LoadAndDelete(conn)
	if !ok {
		return fmt.Errorf("gooselock: unlock %s: %w", l.name, quorum.ErrNotHeld)
	}
	return lease.(*quorum.Lease).Unlock(ctx)
}
