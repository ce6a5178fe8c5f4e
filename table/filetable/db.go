package filetable

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/millrace/millrace/internal/openfile"
	"github.com/millrace/millrace/table"
)

// DB is a file of tables, opened by [Open]. It is safe for concurrent use.
type DB struct {
	path string // as given to Open, for messages
	tree *bolt.DB
	file *os.File // of tree

	requests  chan *request // to the goroutine that commits; it takes them when it can
	closing   chan struct{} // closed by Close
	closeOnce sync.Once
	closed    error // what Close returns; set once
	committer sync.WaitGroup

	// The fields below are owned by the goroutine that commits, and by Close when that has ended.

	reserve   reserve
	version   uint64    // number of the last version of an entity
	broken    error     // why changes are refused
	panicked  bool      // bbolt panicked in a commit: its locks may be held for ever
	checkedAt time.Time // when the file was last seen to have its name
}

// tableName matches names of tables, by the service's "Understanding the Table service data model".
var tableName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{2,62}$`)

// Table returns a table of the file. One that nothing was inserted into is empty. Names are those of Azure
// Tables: 3 to 63 letters and digits, a letter first, and not "tables"; upper and lower case are the same. Other
// names fail with [table.ErrInvalid].
func (db *DB) Table(name string) (table.Store, error) {
	if !tableName.MatchString(name) || strings.EqualFold(name, "tables") {
		return nil, &table.Error{Op: "open", Kind: table.ErrInvalid, Detail: fmt.Sprintf("%.100q is no name of a table", name),
			Hint: `use 3 to 63 letters and digits, a letter first, and not "tables"`}
	}
	return &store{db: db, name: name, bucket: []byte(tablePrefix + strings.ToLower(name))}, nil
}

// Close releases the file, after the commit and the reads under way. Later calls of the stores fail with [ErrClosed],
// later calls of Close return the same error again. The error is that of the file system, or the reason for which
// changes are refused since a commit failed; nothing that was confirmed is lost then.
func (db *DB) Close() error {
	db.closeOnce.Do(func() {
		close(db.closing)
		db.committer.Wait()
		if err := errors.Join(db.broken, db.closeTree()); err != nil {
			db.closed = fmt.Errorf("filetable: close %s: %w", db.path, err)
		}
	})
	return db.closed
}

// closeTree closes the tree, unless bbolt's locks may be held. The file is released all the same, so that it can be
// opened again.
func (db *DB) closeTree() error {
	if db.panicked {
		return errors.Join(openfile.Unlock(db.file), db.file.Close())
	}
	return db.tree.Close()
}

func (db *DB) isClosed() bool {
	select {
	case <-db.closing:
		return true
	default:
		return false
	}
}

// view reads the last commit.
func (db *DB) view(read func(*bolt.Tx) error) (err error) {
	if db.isClosed() {
		return ErrClosed
	}
	defer recoverPanic(func(cause error) { err = cause })()
	err = db.tree.View(read)
	if errors.Is(err, berrors.ErrDatabaseNotOpen) { // closed meanwhile
		return ErrClosed
	}
	return err
}

func (db *DB) readVersion() error {
	return db.view(func(tx *bolt.Tx) (err error) {
		db.version, err = readNumber(versionKey, tx.Bucket(aboutBucket).Get(versionKey))
		return err
	})
}

// recoverPanic returns a function to defer around a use of the tree. bbolt panics if the pages of the file change
// underneath, which a failing disk can cause at any time. The function turns that into an error, a fault of mapped memory
// whose page could not be read included.
func recoverPanic(failed func(cause error)) func() {
	faults := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(faults)
		if p := recover(); p != nil {
			failed(corrupt("the file was damaged while it was open; stop, and open it again: %v", p))
		}
	}
}

// Errors besides those of package table. Match them with [errors.Is].
var (
	// ErrLocked means that another process, or another DB of this one, has the file open.
	ErrLocked = errors.New("the file is in use")

	// ErrCorrupt means that the file, or a record in it, is damaged, or that the file is not one of tables. It
	// was not changed.
	ErrCorrupt = errors.New("cannot be read")

	// ErrNewer means that a later version of this package wrote the file. It was not changed.
	ErrNewer = errors.New("was written by a later version of this program")

	// ErrClosed means that the call came after [DB.Close]. It had no effect.
	ErrClosed = errors.New("the file of tables is closed")
)

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// unavailable returns the error of a call that the file system failed.
func (db *DB) unavailable(what string, err error) error {
	return &table.Error{Kind: table.ErrUnavailable, Detail: what + " " + db.path, Err: err}
}
