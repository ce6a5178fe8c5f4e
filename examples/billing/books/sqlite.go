package books

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlitelib "modernc.org/sqlite/lib"
)

const (
	// lockWait is for how long SQLite waits for another writer.
	lockWait = 5 * time.Second

	// maxSQLiteConnections bounds the memory of page caches, 2 MB each.
	maxSQLiteConnections = 4

	// applicationID marks a file as ours, in the header of SQLite.
	applicationID = 0x4d694c62 // MiLb

	// version is that of the tables. A change of them raises it, and brings older ones up to it.
	version = 1
)

const sqliteTables = `
CREATE TABLE batches (
	name TEXT PRIMARY KEY, file TEXT NOT NULL,
	records INTEGER NOT NULL, billed INTEGER NOT NULL, rejected INTEGER NOT NULL, items INTEGER NOT NULL,
	handed_over TEXT NOT NULL, reported TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE sums (
	batch TEXT NOT NULL REFERENCES batches, account TEXT NOT NULL, tariff TEXT NOT NULL, currency TEXT NOT NULL,
	records INTEGER NOT NULL, quantity TEXT NOT NULL, amount TEXT NOT NULL,
	PRIMARY KEY (batch, account, tariff, currency)
) STRICT, WITHOUT ROWID;
CREATE TABLE rejections (
	batch TEXT NOT NULL REFERENCES batches, number INTEGER NOT NULL,
	file TEXT NOT NULL, line INTEGER NOT NULL, id TEXT NOT NULL, reason TEXT NOT NULL,
	PRIMARY KEY (batch, number)
) STRICT, WITHOUT ROWID;
`

func openSQLite(ctx context.Context, path string, wait time.Duration) (*Books, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("billing books: %w", err)
	}
	b := &Books{dialect: dialect{
		name:    "SQLite file " + path,
		reading: sql.TxOptions{ReadOnly: true}, // begins without a lock
		advice:  sqliteAdvice,
	}}
	if err := b.openFile(ctx, path, wait); err != nil {
		if b.db != nil {
			_ = b.db.Close()
		}
		return nil, b.dialect.explain("opening the billing books", err)
	}
	return b, nil
}

func (b *Books) openFile(ctx context.Context, path string, wait time.Duration) (err error) {
	if err := checkHeader(path); err != nil {
		return err
	}
	if b.db, err = sql.Open("sqlite", sqliteSource(path, wait)); err != nil {
		return err
	}
	b.db.SetMaxOpenConns(maxSQLiteConnections)
	// Several processes may make the file at once. SQLite does not wait where waiting for each
	// other could last for ever, as when the log is switched on, so the steps are repeated.
	ctx, cancel := context.WithTimeout(ctx, max(wait, time.Second))
	defer cancel()
	for {
		err := b.makeTables(ctx)
		if !isBusy(err) {
			return err
		}
		pause := time.NewTimer(10 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

func isBusy(err error) bool {
	var failed *sqlite.Error
	return errors.As(err, &failed) && failed.Code()&0xff == sqlitelib.SQLITE_BUSY
}

// sqliteSource returns the data source of a file. Each connection waits for locks and writes each commit
// through to the disk; transactions that write take the lock at their beginning, so that none
// fails in the middle because of another.
func sqliteSource(path string, wait time.Duration) string {
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") { // a drive of Windows
		slashed = "/" + slashed
	}
	options := url.Values{"_txlock": {"immediate"}, "_pragma": {
		"busy_timeout(" + strconv.FormatInt(wait.Milliseconds(), 10) + ")",
		"synchronous(FULL)", "fullfsync(1)", "foreign_keys(1)",
	}}
	return "file://" + (&url.URL{Path: slashed}).EscapedPath() + "?" + options.Encode()
}

// checkHeader returns ErrForeign if there is a file that is not ours. It reads the file as it is,
// because SQLite could write to a file that it opens, to finish what its owner began.
func checkHeader(path string) error {
	if info, err := os.Stat(filepath.Dir(path)); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s is not a folder", filepath.Dir(path))
	}
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it is made
	} else if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err != nil {
		return err
	} else if !info.Mode().IsRegular() {
		return fmt.Errorf("%w, and no file: give the path of a file that need not exist", ErrForeign)
	}
	// The file format has 100 bytes of header, with the application id at 68. The first
	// transaction sets it, so a file of ours is empty or has it.
	var header [100]byte
	switch n, err := io.ReadFull(file, header[:]); {
	case errors.Is(err, io.EOF):
		return nil // an empty file
	case errors.Is(err, io.ErrUnexpectedEOF), err == nil && string(header[:16]) != "SQLite format 3\x00":
		return fmt.Errorf("%w, nor an SQLite file: give another path", ErrForeign)
	case err != nil:
		return fmt.Errorf("after %d bytes of the header: %w", n, err)
	case binary.BigEndian.Uint32(header[68:]) != applicationID:
		return fmt.Errorf("%w, but an SQLite file of another program: give another path", ErrForeign)
	default:
		return nil
	}
}

// makeTables makes what is missing. If nothing is, it writes nothing, so that readers wait for no writer.
func (b *Books) makeTables(ctx context.Context) error {
	found, err := pragma(ctx, b.db, "user_version")
	if err != nil {
		return err
	}
	mode := ""
	if err := b.db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return err
	}
	if found == version && mode == "wal" {
		return nil
	}
	if found > version {
		return fmt.Errorf("%w: they have version %d, and this one reads %d", ErrNewer, found, version)
	}
	if err := b.mark(ctx); err != nil {
		return err
	}
	if err := b.db.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("the write-ahead log cannot be switched on here (journal_mode stays %s): use a disk of this machine, or PostgreSQL", mode)
	}
	return b.transaction(ctx, func(tx *sql.Tx) error {
		if found, err := pragma(ctx, tx, "user_version"); err != nil || found != 0 {
			return err // another process has made them
		}
		_, err := tx.ExecContext(ctx, sqliteTables+"PRAGMA user_version = "+strconv.Itoa(version))
		return err
	})
}

// mark sets the application id of a file that is empty.
func (b *Books) mark(ctx context.Context) error {
	return b.transaction(ctx, func(tx *sql.Tx) error {
		id, err := pragma(ctx, tx, "application_id")
		if err != nil || id == applicationID {
			return err
		}
		tables := 0
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
			return err
		}
		if tables > 0 || id != 0 { // since the header was checked
			return fmt.Errorf("%w, but an SQLite file of another program: give another path", ErrForeign)
		}
		_, err = tx.ExecContext(ctx, "PRAGMA application_id = "+strconv.Itoa(applicationID))
		return err
	})
}

func (b *Books) transaction(ctx context.Context, act func(*sql.Tx) error) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // of no effect after the commit
	if err := act(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// querier is a database or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// pragma reads a number.
func pragma(ctx context.Context, from querier, name string) (value int64, err error) {
	err = from.QueryRowContext(ctx, "PRAGMA "+name).Scan(&value)
	return value, err
}
