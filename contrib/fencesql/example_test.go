package fencesql_test

import (
	"context"
	"database/sql"

	"github.com/redquorum/redquorum/contrib/fencesql"
	"github.com/redquorum/redquorum/quorum"
)

// Only the latest holder of the lock can commit the transaction.
func Example() {
	ship := func(ctx context.Context, db *sql.DB, locker *quorum.Locker) error {
		return locker.Do(ctx, "orders/42", func(ctx context.Context, lease *quorum.Lease) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := fencesql.Postgres(ctx, tx, "orders/42", lease.Token()); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `UPDATE orders SET state = 'sent' WHERE id = 42`); err != nil {
				return err
			}
			return tx.Commit()
		})
	}
	_ = ship
}
