// Package fencesql refuses transactions of old holders of a lock, by their fencing
// tokens. It keeps the highest token of each name in a table, for PostgreSQL
//
//	CREATE TABLE redquorum_fences (name TEXT PRIMARY KEY, token BIGINT NOT NULL)
//
// and for MySQL and MariaDB
//
//	CREATE TABLE redquorum_fences (name VARBINARY(255) PRIMARY KEY, token BIGINT NOT NULL) ENGINE = InnoDB
//
// A transaction begins with [Postgres] or [MySQL], before it reads or writes anything.
// They lock the row of the name until the transaction ends. So the transactions of a name
// come one after another, their tokens never fall, and each sees what the earlier ones
// have written.
//
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	defer tx.Rollback()
//	if err := fencesql.Postgres(ctx, tx, "orders/42", lease.Token()); err != nil {
//		return err
//	}
//	... // read and write
//	return tx.Commit()
//
// docs/fencing.md has the SQL for a single row, and for other drivers and databases.
package fencesql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/redquorum/redquorum/node"
)

// ErrStale says that a holder with a higher token was here: roll back.
var ErrStale = errors.New("fencing token is too old")

// Postgres raises the highest token of name to token. It returns an error that matches
// ErrStale if that is already higher. Other errors are those of the database.
func Postgres(ctx context.Context, tx *sql.Tx, name string, token node.Token) error {
	return compare(name, token, tx.QueryRowContext(ctx, raisePostgres, name, int64(token)))
}

const raisePostgres = `INSERT INTO redquorum_fences AS f (name, token) VALUES ($1, $2)
	ON CONFLICT (name) DO UPDATE SET token = GREATEST(f.token, excluded.token) RETURNING token`

// A Store is one for package fencecall, in the same table on PostgreSQL.
type Store struct{ *sql.DB }

// Raise raises the highest token of name to token, if it is lower, and returns it.
func (s Store) Raise(ctx context.Context, name string, token node.Token) (highest node.Token, err error) {
	err = s.QueryRowContext(ctx, raisePostgres, name, int64(token)).Scan(&highest)
	return highest, err
}

// MySQL is Postgres for MySQL and MariaDB, with tables of InnoDB. If the error is a
// deadlock (1213), or a changed row (1020, of MariaDB from 11.6.2 on), begin the
// transaction again.
func MySQL(ctx context.Context, tx *sql.Tx, name string, token node.Token) error {
	// The number of affected rows would not tell equal tokens from lower ones.
	_, err := tx.ExecContext(ctx, `INSERT INTO redquorum_fences (name, token) VALUES (?, ?)
		ON DUPLICATE KEY UPDATE token = GREATEST(token, ?)`, name, int64(token), int64(token))
	if err != nil {
		return fmt.Errorf("fencesql: raise the fence of %s: %w", name, err)
	}
	return compare(name, token, tx.QueryRowContext(ctx, `SELECT token FROM redquorum_fences WHERE name = ? FOR UPDATE`,
		name))
}

func compare(name string, token node.Token, row *sql.Row) error {
	var highest node.Token
	if err := row.Scan(&highest); err != nil {
		return fmt.Errorf("fencesql: raise the fence of %s: %w", name, err)
	}
	if highest > token {
		return fmt.Errorf("fencesql: %w: %d, and %s has seen %d", ErrStale, token, name, highest)
	}
	return nil
}
