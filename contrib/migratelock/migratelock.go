// Package migratelock lets only one of several programs migrate a database with
// golang-migrate at a time. It is for database drivers that have no lock of their own, or
// one that does not survive a connection pooler.
//
//	driver, err := clickhouse.WithInstance(db, &clickhouse.Config{})
//	...
//	m, err := migrate.NewWithDatabaseInstance("file://migrations", "orders",
//		migratelock.New(driver, locker, "migrate/orders"))
//	...
//	err = m.Up()
//
// A program that finds the lock held waits for 10 s, unless [quorum.WithWait] says
// otherwise. Keep that shorter than LockTimeout of migrate.Migrate, 15 s by default: a
// lock that comes later is never unlocked. If the lock is lost, no further migration
// begins, nothing is dropped or forced, and the database is not marked as dirty.
package migratelock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/redquorum/redquorum/quorum"
)

// New returns d with another lock, that of name; its Open does so, too. The options apply
// to each lock.
func New(d database.Driver, l *quorum.Locker, name string, opts ...quorum.Option) database.Driver {
	return &driver{Driver: d, locker: l, name: name, opts: append([]quorum.Option{quorum.WithWait(10 * time.Second)},
		opts...)}
}

type driver struct {
	database.Driver
	locker *quorum.Locker
	name   string
	opts   []quorum.Option
	lease  atomic.Pointer[quorum.Lease]
	begun  atomic.Bool // a migration, whose end is noted also when the lock is lost
}

func (d *driver) Lock() error {
	lease, err := d.locker.Lock(context.Background(), d.name, d.opts...)
	switch {
	case errors.Is(err, quorum.ErrHeld):
		return fmt.Errorf("%w: %w", database.ErrLocked, err)
	case err != nil:
		return err
	case !d.lease.CompareAndSwap(nil, lease): // the one before was lost; its Unlock is still to come, and must not find this one
		return errors.Join(fmt.Errorf("%w: migratelock: this program has lost the lock, and not unlocked yet",
			database.ErrLocked),
			lease.Unlock(context.Background()))
	}
	d.begun.Store(false)
	return nil
}

func (d *driver) Unlock() error {
	if lease := d.lease.Swap(nil); lease != nil {
		return lease.Unlock(context.Background())
	}
	return database.ErrNotLocked
}

// SetVersion is called with dirty before each migration, without it afterwards and by
// Force.
func (d *driver) SetVersion(version int, dirty bool) error {
	if ends := !dirty && d.begun.Load(); !ends && d.lost() {
		return fmt.Errorf("migratelock: version %d not set: %w", version, quorum.ErrLost)
	}
	d.begun.Store(dirty)
	return d.Driver.SetVersion(version, dirty)
}

func (d *driver) Drop() error {
	if d.lost() {
		return fmt.Errorf("migratelock: nothing dropped: %w", quorum.ErrLost)
	}
	return d.Driver.Drop()
}

func (d *driver) lost() bool {
	lease := d.lease.Load()
	return lease != nil && lease.Remaining() == 0
}
