//go:build unix

package fencesql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/redquorum/redquorum/contrib/fencesql"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
)

type database struct {
	*sql.DB
	raise   func(context.Context, *sql.Tx, string, node.Token) error
	update  string // of docs/fencing.md
	args    int    // so many of state, token, ID, token are its arguments
	blind   string // the same without the condition
	waiting string // says how many transactions wait for a lock
}

func TestPostgres(t *testing.T) {
	connections, source := postgres(t)
	db := database{
		DB:      connections,
		raise:   fencesql.Postgres,
		update:  onPage(t, `UPDATE orders SET state = $1, fence = $2 WHERE id = $3 AND fence <= $2`),
		args:    3,
		blind:   `UPDATE orders SET state = $1, fence = $2 WHERE id = $3 AND $2::bigint > 0`,
		waiting: `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'`,
	}
	db.create(t, `CREATE TABLE redquorum_fences (name TEXT PRIMARY KEY, token BIGINT NOT NULL)`,
		`CREATE TABLE journal (id BIGSERIAL PRIMARY KEY, token BIGINT NOT NULL)`)
	db.test(t)
	t.Run("statements of the page", db.testPostgresStatements)
	t.Run("store", func(t *testing.T) {
		for _, row := range []struct{ token, highest node.Token }{{5, 5}, {7, 7}, {6, 7}, {7, 7}} {
			if highest, err := (fencesql.Store{DB: db.DB}).Raise(t.Context(), "of calls", row.token); err != nil || highest != row.highest {
				t.Errorf("after %d: %d, want %d (%v)", row.token, highest, row.highest, err)
			}
		}
	})
	t.Run("pgx itself", func(t *testing.T) { db.testPgx(t, source) })
}

func TestMariaDB(t *testing.T) {
	open := mariadb(t)
	db := database{
		DB:     open("?clientFoundRows=true"),
		raise:  fencesql.MySQL,
		update: onPage(t, `UPDATE orders SET state = ?, fence = ? WHERE id = ? AND fence <= ?`),
		args:   4,
		blind:  `UPDATE orders SET state = ?, fence = ? WHERE id = ? AND ? > 0`,
		// Not innodb_trx: a cache, which does not change while it is read more often than
		// every 0.1 s.
		waiting: `SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'`,
	}
	db.create(t, `CREATE TABLE redquorum_fences (name VARBINARY(255) PRIMARY KEY, token BIGINT NOT NULL) ENGINE = InnoDB`,
		`CREATE TABLE journal (id BIGINT AUTO_INCREMENT PRIMARY KEY, token BIGINT NOT NULL) ENGINE = InnoDB`)
	db.test(t)
	t.Run("affected rows", func(t *testing.T) {
		db.order(t, 7)
		assert.Equal(t, db.write(t, db.update, "packed", 7), 1)
		db.DB = open("")
		assert.Equal(t, db.write(t, db.update, "packed", 7), 0)
	})
}

// onPage returns a statement of docs/fencing.md.
func onPage(t *testing.T, statement string) string {
	t.Helper()
	page := assert.Got(os.ReadFile("../../docs/fencing.md"))(t)
	assert.That(t, strings.Contains(string(page), statement), "docs/fencing.md does not have: %s", statement)
	return statement
}

func (db database) create(t *testing.T, fences, journal string) {
	t.Helper()
	onPage(t, fences)
	for _, statement := range []string{
		fences, journal,
		`CREATE TABLE orders (id BIGINT PRIMARY KEY, state VARCHAR(20))`,
		onPage(t, `ALTER TABLE orders ADD fence BIGINT NOT NULL DEFAULT 0`),
	} {
		assert.Succeed(t, assert.ErrorOf(db.ExecContext(t.Context(), statement)))
	}
}

func (db database) test(t *testing.T) {
	t.Run("one row", db.testRow)
	t.Run("late write", db.testLateWrite)
	t.Run("transaction", db.testTransaction)
	t.Run("late transaction", db.testLateTransaction)
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
		t.Run(level.String(), func(t *testing.T) { db.testWriters(t, level) })
	}
}

func (db database) order(t *testing.T, token int64) {
	t.Helper()
	for _, statement := range []string{`DELETE FROM orders`, `INSERT INTO orders (id, state) VALUES (42, 'new')`} {
		assert.Succeed(t, assert.ErrorOf(db.ExecContext(t.Context(), statement)))
	}
	n := db.write(t, db.update, "packed", token)
	assert.Must(t, n == 1, "%d rows written", n)
}

type executor interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}

func (db database) exec(ctx context.Context, e executor, statement, state string, token int64) (rows int64, err error) {
	result, err := e.ExecContext(ctx, statement, []any{state, token, 42, token}[:db.args]...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (db database) write(t *testing.T, statement, state string, token int64) (rows int64) {
	t.Helper()
	rows = assert.Got(db.exec(t.Context(), db, statement, state, token))(t)
	return rows
}

func (db database) state(t *testing.T) (state string) {
	t.Helper()
	assert.Succeed(t, db.QueryRowContext(t.Context(), `SELECT state FROM orders WHERE id = 42`).Scan(&state))
	return state
}

// A lower token is refused, an equal and a higher one are not.
func (db database) testRow(t *testing.T) {
	db.order(t, 7)
	for _, c := range []struct{ token, want int64 }{{6, 0}, {7, 1}, {9, 1}, {8, 0}, {9, 1}} {
		assert.Equal(t, db.write(t, db.update, "sent", c.token), c.want, c.token)
	}
}

func (db database) begin(t *testing.T) *sql.Tx {
	t.Helper()
	tx := assert.Got(db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}))(t)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// late runs f, which waits for the row that tx has written, and commits tx meanwhile.
func (db database) late(t *testing.T, tx *sql.Tx, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	for n := 0; n == 0; time.Sleep(5 * time.Millisecond) {
		select {
		case err := <-done:
			t.Fatalf("the late writer did not wait: %v", err)
		default:
		}
		assert.Succeed(t, db.QueryRowContext(t.Context(), db.waiting).Scan(&n))
	}
	assert.Succeed(t, tx.Commit())
	return <-done
}

// The new holder has not committed when the old holder's write arrives, which finds the
// row with its own token. It waits, looks at the row again, and is refused.
func (db database) testLateWrite(t *testing.T) {
	for _, c := range []struct {
		name, statement string
		rows            int64
		state           string
	}{
		{"with the condition", db.update, 0, "sent"},
		{"without it", db.blind, 1, "packed"}, // this test can see late writes
	} {
		db.order(t, 1)
		newer := db.begin(t)
		if rows, err := db.exec(t.Context(), newer, db.update, "sent", 2); rows != 1 || err != nil {
			t.Fatal(rows, err)
		}
		var rows int64
		err := db.late(t, newer, func() (err error) {
			rows, err = db.exec(t.Context(), db, c.statement, "packed", 1)
			return err
		})
		if state := db.state(t); err != nil || rows != c.rows || state != c.state {
			t.Errorf("%s: %d rows written, %v; the order is %s, want %s", c.name, rows, err, state, c.state)
		}
	}
}

func (db database) testTransaction(t *testing.T) {
	for _, c := range []struct {
		name  string
		token node.Token
		stale bool
	}{{"a", 7, false}, {"a", 6, true}, {"a", 7, false}, {"A", 1, false}, {"a ", 1, false}, {"a", 9, false}, {"a", node.MaxToken, false}, {"a", 9, true}} {
		tx := db.begin(t)
		if err := db.raise(t.Context(), tx, c.name, c.token); errors.Is(err, fencesql.ErrStale) != c.stale || !c.stale && err != nil {
			t.Errorf("%q, token %d: %v", c.name, c.token, err)
		}
		if err := tx.Commit(); err != nil { // a refused one does no harm
			t.Fatal(err)
		}
	}
	ended := db.begin(t)
	_ = ended.Rollback()
	assert.Is(t, db.raise(t.Context(), ended, "a", 9), sql.ErrTxDone, "an ended transaction")
}

// A transaction of the name, the first or a later one, is under way when an older one
// arrives.
func (db database) testLateTransaction(t *testing.T) {
	for _, token := range []node.Token{2, 4} {
		newer, older := db.begin(t), db.begin(t)
		assert.Succeed(t, db.raise(t.Context(), newer, "late", token))
		err := db.late(t, newer, func() error { return db.raise(t.Context(), older, "late", token-1) })
		assert.That(t, errors.Is(err, fencesql.ErrStale), "token %d after %d: %v", token-1, token, err)
		_ = older.Rollback()
	}
}

// Many write at the same time, those that may in the order of their tokens.
func (db database) testWriters(t *testing.T, level sql.IsolationLevel) {
	assert.Succeed(t, assert.ErrorOf(db.ExecContext(t.Context(), `DELETE FROM journal`)))
	var clock atomic.Int64 // of their tokens, which are a bit ahead of it
	var written sync.Map
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for range 40 {
				token := clock.Add(1) + rand.Int64N(5)
				switch err := db.journal(t.Context(), level, token); {
				case err == nil:
					written.Store(token, true)
				case !errors.Is(err, fencesql.ErrStale) && !conflict(err):
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()

	rows := assert.Got(db.QueryContext(t.Context(), `SELECT token FROM journal ORDER BY id`))(t)
	defer rows.Close()
	var tokens []int64
	for rows.Next() {
		var token int64
		assert.Succeed(t, rows.Scan(&token))
		tokens = append(tokens, token)
		written.Delete(token)
	}
	assert.That(t, slices.IsSorted(tokens), "tokens fell: %v", tokens)
	written.Range(func(token, _ any) bool {
		t.Errorf("the write with token %d is lost", token)
		return true
	})
	t.Logf("%d of 320 were in time", len(tokens))
}

// journal writes the token.
func (db database) journal(ctx context.Context, level sql.IsolationLevel, token int64) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := db.raise(ctx, tx, level.String(), node.Token(token)); err != nil {
		return err
	}
	statement := `INSERT INTO journal (token) VALUES (?)`
	if _, postgres := db.Driver().(*mysql.MySQLDriver); !postgres {
		statement = `INSERT INTO journal (token) VALUES ($1)`
	}
	if _, err := tx.ExecContext(ctx, statement, token); err != nil {
		return err
	}
	return tx.Commit()
}

// conflict reports whether the transaction has to begin again.
func conflict(err error) bool {
	var my *mysql.MySQLError
	var pg *pgconn.PgError
	return errors.As(err, &my) && my.Number == 1213 || errors.As(err, &pg) && pg.Code == "40001"
}

func (db database) testPostgresStatements(t *testing.T) {
	upsert := onPage(t, `INSERT INTO orders (id, state, fence) VALUES ($1, $2, $3)
ON CONFLICT (id) DO UPDATE SET state = excluded.state, fence = excluded.fence WHERE orders.fence <= excluded.fence`)
	for _, c := range []struct{ token, want int64 }{{6, 1}, {7, 1}, {7, 1}, {6, 0}} {
		result, err := db.ExecContext(t.Context(), upsert, 43, "new", c.token)
		assert.Succeed(t, err)
		if n, err := result.RowsAffected(); n != c.want || err != nil {
			t.Errorf("upsert with token %d: %d rows, %v", c.token, n, err)
		}
	}
	claim := onPage(t, `UPDATE orders SET fence = $2 WHERE id = $1 AND fence <= $2 RETURNING state`)
	var state string
	if err := db.QueryRowContext(t.Context(), claim, 43, 8).Scan(&state); state != "new" || err != nil {
		t.Errorf("claim: %q, %v", state, err)
	}
	assert.Is(t, db.QueryRowContext(t.Context(), claim, 43, 7).Scan(&state), sql.ErrNoRows, "claim with an old token")
}

// The page's statement for pgx, without database/sql.
func (db database) testPgx(t *testing.T, source string) {
	raise := onPage(t, `INSERT INTO redquorum_fences AS f (name, token) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET token = excluded.token WHERE f.token <= excluded.token`)
	pool, err := pgxpool.New(t.Context(), source)
	assert.Succeed(t, err)
	defer pool.Close()
	for _, c := range []struct {
		token node.Token
		want  int64
	}{{6, 1}, {7, 1}, {7, 1}, {6, 0}, {node.MaxToken, 1}, {7, 0}} {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			tag, err := tx.Exec(t.Context(), raise, "pgx", c.token)
			assert.Equal(t, tag.RowsAffected(), c.want, c.token)
			return err
		})
		assert.NoError(t, err)
	}

	// An old transaction arrives during the first one of a name, or a later one.
	for token := node.Token(2); token <= 8; token += 2 {
		level, late := pgx.ReadCommitted, "0 rows"
		if token > 4 {
			level, late = pgx.RepeatableRead, "conflict"
		}
		newer := db.begin(t)
		assert.Succeed(t, fencesql.Postgres(t.Context(), newer, "pgx, late", token))
		older := assert.Got(pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level}))(t)
		var tag pgconn.CommandTag
		err = db.late(t, newer, func() (err error) {
			tag, err = older.Exec(t.Context(), raise, "pgx, late", token-1)
			return err
		})
		got := fmt.Sprint(tag.RowsAffected(), " rows")
		if conflict(err) {
			got, err = "conflict", nil
		}
		assert.That(t, got == late && err == nil, "%s, token %d after %d: %s, %v; want %s", level, token-1, token, got, err, late)
		_ = older.Rollback(t.Context())
	}
}
