// Command ledger keeps a database of which each version of the program has its own schema,
// and writes to it all the time. It shows whether a release ever ran on the data of another
// one: then it makes the file DIR/violation, which stays whatever happens to the data.
//
//	ledger run VERSION BOOKS DIR      write rows to the database in BOOKS, until TERM
//	ledger migrate VERSION BOOKS      take the database to this version, while nobody uses it
//
// "run" answers each connection to port 8081 with a line:
//
//	ledger 2 rows 117 from 1:40 2:77 ok
//
// which has the program's version, the number of rows, how many of them each version wrote,
// and what the database says of its own integrity.
//
// The database is SQLite, which only "migrate" takes to another version. With
// LEDGER=postgres it is PostgreSQL, which "run" takes to a newer version by itself, as many
// programs do.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pace is the time between two rows.
const pace = 20 * time.Millisecond

func main() {
	log.SetFlags(0)
	log.SetPrefix("ledger: ")
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if len(args) < 3 {
		return errors.New("usage: ledger run VERSION BOOKS DIR | ledger migrate VERSION BOOKS")
	}
	version, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	b, err := open(ctx, args[2])
	if err != nil {
		return err
	}
	defer b.close()
	switch {
	case args[0] == "migrate" && len(args) == 3:
		return b.migrate(ctx, version)
	case args[0] == "run" && len(args) == 4:
		return b.work(ctx, version, args[3])
	}
	return errors.New("usage: see the source")
}

// books is the database.
type books struct {
	db *sql.DB
	// check asks the database whether it is whole: it returns one row with ok.
	check    string
	migrates bool // a newer version of the program takes the data to its own version
	end      func()
}

func (b *books) close() {
	_ = b.db.Close()
	b.end()
}

// schema is the version of the data; 0 if there is none yet.
func (b *books) schema(ctx context.Context) (version int, err error) {
	if _, err := b.db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS about (version INTEGER NOT NULL)`); err != nil {
		return 0, err
	}
	err = b.db.QueryRowContext(ctx, `SELECT version FROM about`).Scan(&version)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return version, err
}

// begin makes the first database.
func (b *books) begin(ctx context.Context, version int) error {
	return b.all(ctx,
		`CREATE TABLE rows (id INTEGER PRIMARY KEY, wrote INTEGER NOT NULL, text TEXT NOT NULL)`,
		fmt.Sprintf(`INSERT INTO about (version) VALUES (%d)`, version))
}

// migrate changes what an older version has left. Every row is written anew, so that a
// migration that is cut off in the middle would be seen.
func (b *books) migrate(ctx context.Context, version int) error {
	from, err := b.schema(ctx)
	switch {
	case err != nil:
		return err
	case from == 0:
		return b.begin(ctx, version)
	case from > version:
		return fmt.Errorf("the data is of version %d, which is newer than %d", from, version)
	}
	return b.all(ctx,
		fmt.Sprintf(`UPDATE rows SET text = text || ' moved to %d'`, version),
		fmt.Sprintf(`UPDATE about SET version = %d`, version))
}

// all runs statements in one transaction.
func (b *books) all(ctx context.Context, statements ...string) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Commit()
}

// work writes rows until the context ends.
func (b *books) work(ctx context.Context, version int, dir string) error {
	from, err := b.schema(ctx)
	if err != nil {
		return err
	}
	switch from {
	case version:
	case 0:
		if err := b.begin(ctx, version); err != nil {
			return err
		}
	default:
		if b.migrates && from < version {
			if err := b.migrate(ctx, version); err != nil {
				return err
			}
			break
		}
		return errors.Join(fmt.Errorf("version %d runs on the data of version %d", version, from), violation(dir, version, from))
	}
	port, err := net.Listen("tcp", ":8081")
	if err != nil {
		return err
	}
	go b.answer(ctx, port, version)
	for tick := time.NewTicker(pace); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		row := fmt.Sprintf(`INSERT INTO rows (id, wrote, text) SELECT coalesce(max(id), 0) + 1, %d, '%s' FROM rows`, version, strings.Repeat("x", 200))
		if _, err := b.db.ExecContext(ctx, row); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// violation makes a file that survives, and says what was seen.
func violation(dir string, version, data int) error {
	f, err := os.Create(filepath.Join(dir, "violation"))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "version %d ran on the data of version %d\n", version, data)
	return errors.Join(err, f.Sync(), f.Close())
}

func (b *books) answer(ctx context.Context, port net.Listener, version int) {
	for {
		c, err := port.Accept()
		if err != nil {
			return
		}
		text, err := b.tell(ctx, version)
		if err != nil {
			text = "ledger " + err.Error()
		}
		fmt.Fprintln(c, text)
		_ = c.Close()
	}
}

// tell is the line that a connection gets.
func (b *books) tell(ctx context.Context, version int) (string, error) {
	rows, err := b.db.QueryContext(ctx, `SELECT wrote, count(*), min(id), max(id) FROM rows GROUP BY wrote ORDER BY wrote`)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var parts []string
	total, last := 0, 0
	for rows.Next() {
		var wrote, n, lowest, highest int
		if err := rows.Scan(&wrote, &n, &lowest, &highest); err != nil {
			return "", err
		}
		total, last = total+n, max(last, highest)
		parts = append(parts, fmt.Sprintf("%d:%d", wrote, n))
	}
	if err := rows.Err(); err != nil {
		return "", err
	}
	var whole string
	if err := b.db.QueryRowContext(ctx, b.check).Scan(&whole); err != nil {
		return "", err
	}
	if total != last {
		whole = fmt.Sprintf("%d rows are missing", last-total)
	}
	return fmt.Sprintf("ledger %d rows %d from %s %s", version, total, strings.Join(parts, " "), whole), nil
}
