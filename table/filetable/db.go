package filetable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/millrace/millrace/internal/boltfile"
	"github.com/millrace/millrace/internal/openfile"
	"github.com/millrace/millrace/internal/serviceerror"
	"github.com/millrace/millrace/internal/units"
	"github.com/millrace/millrace/table"
)

// Options configure [Open]. Nil and the zero value mean the defaults.
type Options struct {
	// Wait is how long Open waits for another process to release the file, such as one that is ending; negative
	// for not at all. Defaults to a second.
	Wait time.Duration
}

// Open opens a file of tables, and makes it if it does not exist; its folder must exist. It reads and checks the
// file completely before it changes anything. The error is [ErrLocked] if another process has the file open,
// [ErrCorrupt] if it is damaged, truncated or not a file of tables, [ErrNewer] if a later version wrote it, or one of
// the file system. The caller closes the DB.
func Open(path string, o *Options) (*DB, error) {
	o = cmp.Or(o, &Options{})
	err := units.Wait("Wait", o.Wait)
	var db *DB
	if err == nil {
		db, err = open(path, cmp.Or(o.Wait, time.Second))
	}
	if err != nil {
		return nil, fmt.Errorf("filetable: open %s: %w", path, err)
	}
	db.committer.Go(db.commitForever)
	return db, nil
}

// open is Open without the goroutine that commits.
func open(path string, wait time.Duration) (*DB, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(absolute); errors.Is(err, fs.ErrNotExist) {
		if err := create(absolute); err != nil {
			return nil, fmt.Errorf("make the file: %w", openfile.DescribeLink(filepath.Dir(absolute), err))
		}
	}
	db := &DB{path: path, requests: make(chan *request), closing: make(chan struct{})}
	if err := db.openTree(absolute, wait); err != nil {
		return nil, openfile.DescribeLink(absolute, err)
	}
	db.sync = db.tree.Sync
	db.reserve = reserve{file: db.file, pageSize: db.tree.Info().PageSize, sync: func() error { return db.sync() }}
	var from uint64
	err = db.view(func(tx *bolt.Tx) (err error) {
		about := tx.Bucket(aboutBucket)
		if from, err = readNumber(formatKey, about.Get(formatKey)); err == nil {
			db.version, err = readNumber(versionKey, about.Get(versionKey))
		}
		return err
	})
	if err == nil {
		err = db.beginSeals(from)
	}
	if err != nil {
		return nil, errors.Join(err, db.tree.Close())
	}
	return db, nil
}

// openTree opens a file that exists, if it is sound.
//
// The list of free pages is kept in a map and not written with each commit: after a large deletion it is so long
// that either would take most of a commit's time.
func (db *DB) openTree(path string, wait time.Duration) (err error) {
	db.tree, err = bolt.Open(path, 0o600, &bolt.Options{
		NoFreelistSync: true,
		FreelistType:   bolt.FreelistMapType,
		Timeout:        max(wait, time.Millisecond), // where lock does nothing, this is the lock
		OpenFile: func(path string, flag int, mode os.FileMode) (*os.File, error) {
			f, err := openSound(path, flag&^os.O_CREATE, mode, wait)
			db.file = f
			return f, err
		},
	})
	if errors.Is(err, berrors.ErrTimeout) {
		return errInUse
	}
	return err
}

// errInUse says what to do about a locked file.
var errInUse = fmt.Errorf("%w by another process, or opened twice by this one: stop the other, or use another file", ErrLocked)

// openSound opens and locks a file and checks it before bbolt gets it, which trusts what it reads.
func openSound(path string, flag int, mode os.FileMode, wait time.Duration) (*os.File, error) {
	f, err := os.OpenFile(path, flag, mode)
	if err != nil {
		return nil, err
	}
	if err = lockWithin(f, wait); err == nil {
		err = checkFile(f)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func lockWithin(f *os.File, wait time.Duration) error {
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		locked, err := openfile.TryLock(f)
		if err != nil || locked {
			return err
		}
		if time.Since(begun) >= wait {
			return errInUse
		}
	}
}

// create makes a file without tables. It gets its name when it is complete and on disk, so that a kill or a power cut
// leaves either no file or a sound one, and only if no other process has made one meanwhile.
func create(path string) error {
	dir, base := filepath.Split(path)
	f, err := os.CreateTemp(dir, base+".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // it has two names then, or none
	if err := f.Close(); err != nil {
		return err
	}
	tree, err := bolt.Open(f.Name(), 0o600, &bolt.Options{NoFreelistSync: true})
	if err != nil {
		return err
	}
	err = tree.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket(aboutBucket)
		if err != nil {
			return err
		}
		return errors.Join(b.Put(formatKey, number(formatKey, format)), b.Put(versionKey, number(versionKey, 0)))
	})
	if err := errors.Join(err, tree.Close()); err != nil {
		return err
	}
	err = os.Link(f.Name(), path)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil { // a file system without links
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return err
	}
	return openfile.SyncDirectory(os.Open, dir)
}

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

	sync      func() error  // waits for the disk
	newest    boltfile.Meta // on disk
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
	var err error
	if db.broken == nil {
		err = db.sync() // for the mark of the last commit
	}
	return errors.Join(err, db.tree.Close())
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

// store is one table of a file.
type store struct {
	db     *DB
	name   string // as it was asked for
	bucket []byte
}

var _ table.Store = (*store)(nil)

func (s *store) Insert(ctx context.Context, e table.Entity) (table.ETag, error) {
	return s.change(ctx, "insert", table.Inserting(e))
}

func (s *store) Update(ctx context.Context, e table.Entity) (table.ETag, error) {
	return s.change(ctx, "update", table.Updating(e))
}

func (s *store) Delete(ctx context.Context, k table.Key, etag table.ETag) error {
	_, err := s.change(ctx, "delete", table.Deleting(k, etag))
	return err
}

func (s *store) change(ctx context.Context, op string, c table.Change) (table.ETag, error) {
	etags, err := s.apply(ctx, c.Check(), []table.Change{c})
	if err != nil {
		return "", table.Explain(op, s.name, c.Entity().Key, err)
	}
	return etags[0], nil
}

func (s *store) Apply(ctx context.Context, changes []table.Change) ([]table.ETag, error) {
	etags, err := s.apply(ctx, table.CheckGroup(changes), changes)
	return etags, table.Explain("apply", s.name, table.Key{}, err)
}

func (s *store) apply(ctx context.Context, bad error, changes []table.Change) ([]table.ETag, error) {
	if err := ready(ctx, bad); err != nil {
		return nil, err
	}
	return s.db.submit(ctx, newRequest(s.bucket, changes))
}

func (s *store) Get(ctx context.Context, k table.Key) (e table.Entity, err error) {
	if err = ready(ctx, k.Check()); err == nil {
		err = s.db.view(func(tx *bolt.Tx) (err error) { e, err = s.read(tx, keyOf(k)); return err })
	}
	return e, table.Explain("get", s.name, k, err)
}

func (s *store) read(tx *bolt.Tx, key []byte) (table.Entity, error) {
	if bucket := tx.Bucket(s.bucket); bucket != nil {
		if record := bucket.Get(key); record != nil {
			return readEntity(key, record)
		}
	}
	return table.Entity{}, &table.Error{Kind: table.ErrMissing}
}

func (s *store) Query(ctx context.Context, q table.Query) (p table.Page, err error) {
	bad := q.Check()
	start, tokenErr := q.Start()
	bad = cmp.Or(bad, tokenErr)
	if err = ready(ctx, bad); err == nil {
		err = s.db.view(func(tx *bolt.Tx) (err error) {
			p, err = q.Collect(func(yield func(table.Entity, error) bool) {
				bucket := tx.Bucket(s.bucket)
				if bucket == nil {
					return
				}
				cursor := bucket.Cursor()
				for key, record := cursor.Seek(keyOf(start)); key != nil; key, record = cursor.Next() {
					e, err := readEntity(key, record)
					if err != nil {
						err = &table.Error{Key: readKey(key), Err: err, Hint: "delete it with table.Any, or replace it"}
					}
					err = cmp.Or(err, serviceerror.Ended(ctx))
					if !yield(e, err) || err != nil {
						return
					}
				}
			})
			return err
		})
	}
	return p, table.Explain("query", s.name, table.Key{Partition: q.Partition}, err)
}

// ready returns the error for which a call must not begin: that of its arguments, or that of an
// ended context.
func ready(ctx context.Context, bad error) error {
	return cmp.Or(bad, serviceerror.Ended(ctx))
}
