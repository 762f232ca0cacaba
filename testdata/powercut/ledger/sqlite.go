package main

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"
)

// open opens the database in a directory.
func open(ctx context.Context, dir string) (*books, error) {
	if os.Getenv("LEDGER") == "postgres" {
		return openPostgres(ctx, dir)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "book.db")+"?_pragma=busy_timeout(10000)&_pragma=synchronous(FULL)&_pragma=journal_mode(WAL)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return &books{db: db, check: `PRAGMA integrity_check`, end: func() {}}, nil
}
