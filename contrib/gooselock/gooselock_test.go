package gooselock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log"
	"slices"
	"testing"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/redquorum/redquorum/contrib/gooselock"
	"github.com/redquorum/redquorum/contrib/internal/lockers"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/quorum"
)

// A versions is a goose Store in memory. It has no mutex: the lock guards it.
type versions []int64

func (v *versions) Tablename() string { return "versions" }

func (v *versions) CreateVersionTable(context.Context, database.DBTxConn) error { return nil }

func (v *versions) Insert(_ context.Context, _ database.DBTxConn, req database.InsertRequest) error {
	*v = append(*v, req.Version)
	return nil
}

func (v *versions) Delete(context.Context, database.DBTxConn, int64) error {
	return errors.ErrUnsupported
}

func (v *versions) GetMigration(_ context.Context, _ database.DBTxConn, version int64) (*database.GetMigrationResult, error) {
	if !slices.Contains(*v, version) {
		return nil, database.ErrVersionNotFound
	}
	return &database.GetMigrationResult{IsApplied: true}, nil
}

func (v *versions) GetLatestVersion(context.Context, database.DBTxConn) (int64, error) {
	if len(*v) == 0 {
		return 0, database.ErrVersionNotFound
	}
	return slices.Max(*v), nil
}

func (v *versions) ListMigrations(context.Context, database.DBTxConn) (all []*database.ListMigrationsResult, err error) {
	for _, version := range slices.Backward(*v) {
		all = append(all, &database.ListMigrationsResult{Version: version, IsApplied: true})
	}
	return all, nil
}

type nothing struct{}

func (nothing) Connect(context.Context) (driver.Conn, error) { return nothing{}, nil }
func (nothing) Driver() driver.Driver                        { return nil }
func (nothing) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (nothing) Begin() (driver.Tx, error)                    { return nothing{}, nil }
func (nothing) Commit() error                                { return nil }
func (nothing) Rollback() error                              { return nil }
func (nothing) Close() error                                 { return nil }

func program(l *quorum.Locker, v *versions, migration func()) (*goose.Provider, error) {
	return goose.NewProvider("", sql.OpenDB(nothing{}), nil,
		goose.WithStore(v),
		goose.WithLogger(log.New(io.Discard, "", 0)),
		goose.WithGoMigrations(goose.NewGoMigration(1, &goose.GoFunc{RunTx: func(context.Context, *sql.Tx) error {
			migration()
			return nil
		}}, nil)),
		goose.WithSessionLocker(gooselock.New(l, "migrate/orders")))
}

func start(t *testing.T, l *quorum.Locker, v *versions, migration func()) *goose.Provider {
	t.Helper()
	p := assert.Got(program(l, v, migration))(t)
	t.Cleanup(func() { p.Close() })
	return p
}

// While a program migrates another one waits, and then has nothing to migrate.
func TestOneProgramMigrates(t *testing.T) {
	a, b := lockers.Two(t)
	began, finish, done := make(chan bool), make(chan bool), make(chan error)
	v := new(versions)
	first := start(t, a, v, func() {
		close(began)
		<-finish
	})
	second := start(t, b, v, func() { t.Error("both programs ran the migration") })
	go func() {
		_, err := first.Up(t.Context())
		done <- err
	}()
	select {
	case <-began:
	case err := <-done:
		t.Fatal(err)
	}

	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	assert.Is(t, assert.ErrorOf(second.Up(short)), context.DeadlineExceeded, "the second program did not wait for the lock")
	close(finish)
	assert.Succeed(t, <-done)
	if results, err := second.Up(t.Context()); len(results) != 0 || err != nil {
		t.Errorf("the second program migrated: %v, %v", results, err)
	}
}

func TestLostLock(t *testing.T) {
	a, b := lockers.Two(t)
	p := start(t, a, new(versions), func() {
		found, err := b.Break(t.Context(), "migrate/orders")
		assert.That(t, found && err == nil, "Break: %v, %v", found, err)
	})
	assert.Is(t, assert.ErrorOf(p.Up(t.Context())), quorum.ErrNotHeld, "goose returns")
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

	provider, err := goose.NewProvider("", sql.OpenDB(nothing{}), nil, // a dialect, a database and its migrations
		goose.WithStore(new(versions)),
		goose.WithGoMigrations(goose.NewGoMigration(1, nil, nil)),
		goose.WithLogger(log.New(io.Discard, "", 0)),
		goose.WithSessionLocker(gooselock.New(locker, "migrate/orders")))
	if err != nil {
		log.Fatal(err)
	}
	results, err := provider.Up(context.Background())
	fmt.Println(len(results), err)
	// Output: 1 <nil>
}
