package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
)

// user is the one that PostgreSQL runs as: it refuses root.
const user = 999

// openPostgres starts a PostgreSQL server on the data in a directory, which it makes if it
// is not there. The server ends with the program.
func openPostgres(ctx context.Context, dir string) (*books, error) {
	programs, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil || len(programs) != 1 {
		return nil, fmt.Errorf("there is no PostgreSQL, or several: %v", programs)
	}
	if err := os.Setenv("PATH", programs[0]+":/bin"); err != nil {
		return nil, err
	}
	const socket = "/tmp/ledger"
	err = errors.Join(os.MkdirAll(socket, 0o700), os.Chown(socket, user, user), os.Chown(dir, user, user))
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); errors.Is(err, fs.ErrNotExist) {
		// A cut in the middle leaves a directory that initdb refuses.
		fresh := data + ".new"
		if err := os.RemoveAll(fresh); err != nil {
			return nil, err
		}
		init := exec.CommandContext(ctx, "initdb", "-D", fresh, "-U", "ledger", "--auth=trust", "--no-locale", "-E", "UTF8", "--data-checksums")
		init.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		if out, err := init.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("initdb: %w: %s", err, out)
		}
		if err := os.Rename(fresh, data); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	// What a crash left would stop the next start.
	if err := os.Remove(filepath.Join(data, "postmaster.pid")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	server := exec.Command("postgres", "-D", data, "-c", "listen_addresses=", "-c", "unix_socket_directories="+socket, "-c", "shared_buffers=8MB", "-c", "max_connections=5")
	server.Stderr = os.Stderr
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT, Credential: &syscall.Credential{Uid: user, Gid: user}}
	if err := server.Start(); err != nil {
		return nil, err
	}
	end := func() {
		_ = server.Process.Signal(syscall.SIGINT) // a fast shutdown
		_ = server.Wait()
	}
	db, err := sql.Open("pgx", "host="+socket+" user=ledger dbname=postgres")
	if err != nil {
		end()
		return nil, err
	}
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		if err = db.PingContext(ctx); err == nil {
			break
		}
		if ctx.Err() != nil || time.Since(begin) > time.Minute {
			end()
			return nil, fmt.Errorf("PostgreSQL does not answer: %w", err)
		}
	}
	// A sequential scan reads every page, with its checksum.
	return &books{db: db, check: `SELECT 'ok' FROM (SELECT sum(length(text)) FROM rows) AS whole`, migrates: true, end: end}, nil
}
