package filetable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/millrace/millrace/internal/openfile"
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
	wait := time.Second
	if o != nil && o.Wait != 0 {
		wait = o.Wait
	}
	db, err := open(path, wait)
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
	if err := db.readVersion(); err != nil {
		return nil, errors.Join(err, db.tree.Close())
	}
	db.reserve = reserve{file: db.file, pageSize: db.tree.Info().PageSize}
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
	if err := createTree(f.Name()); err != nil {
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

func createTree(path string) error {
	tree, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true})
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
	return errors.Join(err, tree.Close())
}
