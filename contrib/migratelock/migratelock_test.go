package migratelock_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/stub"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/redquorum/redquorum/contrib/internal/lockers"
	"github.com/redquorum/redquorum/contrib/migratelock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/quorum"
)

var files = fstest.MapFS{
	"1_one.up.sql": {Data: []byte("CREATE TABLE one")},
	"2_two.up.sql": {Data: []byte("CREATE TABLE two")},
}

// A program shares its database with others. Its driver has no mutex: the lock guards it.
type program struct {
	*stub.Stub
	before func() // called before each migration
}

func (p program) Run(migration io.Reader) error {
	p.before()
	return p.Stub.Run(migration)
}

func start(t *testing.T, l *quorum.Locker, d database.Driver, opts ...quorum.Option) *migrate.Migrate {
	t.Helper()
	source := assert.Got(iofs.New(files, "."))(t)
	m, err := migrate.NewWithInstance("files", source, "stub", migratelock.New(d, l, "migrate/orders", opts...))
	assert.Succeed(t, err)
	return m
}

func newStub() *stub.Stub {
	d, _ := stub.WithInstance(nil, nil)
	return d.(*stub.Stub)
}

// While a program migrates another one is refused, and then has nothing to migrate.
func TestOneProgramMigrates(t *testing.T) {
	a, b := lockers.Two(t)
	began, finish, done := make(chan bool, 2), make(chan bool), make(chan error)
	db := newStub()
	first := start(t, a, program{db, func() {
		began <- true
		<-finish
	}})
	second := start(t, b, program{db, func() { t.Error("both programs migrated") }}, quorum.WithWait(100*time.Millisecond))
	go func() { done <- first.Up() }()
	select {
	case <-began:
	case err := <-done:
		t.Fatal(err)
	}

	if err := second.Up(); !errors.Is(err, database.ErrLocked) || !errors.Is(err, quorum.ErrHeld) {
		t.Errorf("the second program was not refused: %v", err)
	}
	close(finish)
	assert.Succeed(t, <-done)
	assert.Is(t, second.Up(), migrate.ErrNoChange, "the second program migrated")
	assert.That(t, len(db.MigrationSequence) == len(files), "%d migrations ran, of %d", len(db.MigrationSequence), len(files))
}

// The migration under way ends, and no other begins.
func TestLostLock(t *testing.T) {
	a, b := lockers.Two(t)
	db := newStub()
	m := start(t, a, program{db, func() {
		if found, err := b.Break(t.Context(), "migrate/orders"); !found || err != nil {
			t.Errorf("Break: %v, %v", found, err)
		}
		probe, err := a.Lock(t.Context(), "migrate/orders") // waits for the renewal, which finds that the lock is lost
		if err != nil {
			t.Error(err)
			return
		}
		_ = probe.Unlock(t.Context())
	}}, quorum.WithLease(3*time.Second))
	if err := m.Up(); !errors.Is(err, quorum.ErrLost) || !errors.Is(err, quorum.ErrNotHeld) {
		t.Errorf("a migration with a lost lock: %v", err)
	}
	version, dirty, _ := db.Version()
	assert.That(t, version == 1 && !dirty, "version %d, dirty %v; want 1, clean", version, dirty)
}

// A Lock that fails leaves another migration's lock by the same driver.
func TestFailedLock(t *testing.T) {
	l, _ := lockers.Two(t)
	d := migratelock.New(newStub(), l, "name", quorum.WithWait(0))
	assert.Succeed(t, d.Lock())
	assert.Is(t, d.Lock(), database.ErrLocked, "a second Lock")
	assert.Succeed(t, l.Close())
	assert.Is(t, d.Lock(), quorum.ErrClosed, "a Lock of a closed Locker")
	assert.Is(t, d.Unlock(), quorum.ErrNotHeld, "the Unlock of the first")
}

// A migration that has lost the lock does not unlock the next one's by the same driver.
func TestUnlockAfterALoss(t *testing.T) {
	l, other := lockers.Two(t)
	db := newStub()
	d := migratelock.New(db, l, "name", quorum.WithLease(3*time.Second))
	assert.Succeed(t, d.Lock())
	assert.Succeed(t, d.SetVersion(1, true)) // a migration that fails
	assert.Succeed(t, d.Unlock())
	assert.Succeed(t, d.Lock())
	_, err := other.Break(t.Context(), "name")
	assert.Succeed(t, err)
	assert.Is(t, d.Lock(), database.ErrLocked, "a Lock before the Unlock of the first") // it waits until the loss is known
	assert.Is(t, d.Drop(), quorum.ErrLost, "a Drop without the lock")
	assert.Is(t, d.SetVersion(2, false), quorum.ErrLost, "a Force without the lock")
	assert.Equal(t, db.CurrentVersion, 1)
	assert.Is(t, d.Unlock(), quorum.ErrLost, "the Unlock of the first")
	assert.Succeed(t, d.Lock())
	assert.Succeed(t, d.Drop())
	assert.Succeed(t, d.Unlock())
}

func TestNotLocked(t *testing.T) {
	a, _ := lockers.Two(t)
	assert.Is(t, migratelock.New(newStub(), a, "name").Unlock(), database.ErrNotLocked, "Unlock without a lock")
}

func Example() {
	set, err := embedded.Start(3)
	if err != nil {
		log.Fatal(err)
	}
	defer set.Close()
	locker, err := quorum.New(set.Nodes(), quorum.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	driver, err := stub.WithInstance(nil, &stub.Config{}) // or that of your database
	if err != nil {
		log.Fatal(err)
	}
	source, err := iofs.New(files, ".")
	if err != nil {
		log.Fatal(err)
	}
	m, err := migrate.NewWithInstance("files", source, "orders", migratelock.New(driver, locker, "migrate/orders"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.Up())
	fmt.Println(m.Up())
	// Output:
	// <nil>
	// no change
}
