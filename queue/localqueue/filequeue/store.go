package filequeue

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/queue/localqueue"
)

// The files of a directory.
const (
	fileName    = "queues.db"     // the tree
	rebuildName = "queues.db.new" // one being made, which becomes the above when it is whole
	logName     = "queues.log"    // and a number: the commits that are not yet in the tree
	lockName    = "lock"
	reserveName = "room-for-deletes"
)

// Store is a directory that an engine keeps its queues in. Make one with [Open].
// It implements [localqueue.Store] and is as safe for concurrent use as that asks.
type Store struct {
	dir  *directory
	lock *os.File

	maxLogSize int64 // how large a log becomes

	db           *bolt.DB
	file         *os.File // that of db
	linksCounted bool     // the file system counts the names of a file
	pageSize     int      // of db, in bytes
	found        Found

	snapshot *snapshot // until Load
	recent   atomic.Pointer[recentTexts]

	// What follows is owned by whoever calls Commit.

	reserve      reserve
	digest       digest   // of the records in the tree
	number       uint64   // of the last commit
	time         int64    // of it, by the engine's clock
	checkpointed uint64   // of the last one that the tree has
	secret       [32]byte // that the logs are salted with
	logs         [2]*wal
	logsReady    bool      // there are logs, and the tree says so: else all goes into the tree
	active       int       // which of them is written
	pending      pending   // what the log has and the tree has not
	moreWork     bool      // the tree has work left over
	logBuffer    []byte    // room for one
	checkedAt    time.Time // when it was last looked whether a file was deleted
	broken       error     // why nothing can be committed any more
	panicked     bool      // bbolt was left in the middle of a call, and must not be called again
}

var _ localqueue.Store = (*Store)(nil)

// Open opens the store in a directory, which it makes if there is none. The file
// is read whole and checked before anything is done with it: [Store.Found] says
// what there was, damage included. The error is [ErrLocked] when the directory is
// in use, [ErrCorrupt] or [ErrNewer] when its file cannot be used, or one of the
// file system.
func Open(dir string) (*Store, error) { return openWith(dir, logSize) }

// openWith is Open with logs of so many bytes.
func openWith(path string, mostLogged int64) (*Store, error) {
	dir, err := openDirectory(path)
	if err != nil {
		return nil, fmt.Errorf("filequeue: %w", err)
	}
	return openIn(dir, mostLogged)
}

// openIn opens the store in a directory, which it takes over.
func openIn(dir *directory, mostLogged int64) (*Store, error) {
	s := &Store{dir: dir, maxLogSize: mostLogged, reserve: reserve{dir: dir}}
	if err := s.openLocked(); err != nil {
		return nil, fmt.Errorf("filequeue: %w", errors.Join(err, dir.close()))
	}
	return s, nil
}

// openLocked locks the directory and opens what is in it.
func (s *Store) openLocked() (err error) {
	if s.lock, err = s.dir.create(lockName, os.O_RDWR); err != nil {
		return fmt.Errorf("lock the data directory %s: %w", s.dir.path, err)
	}
	if err := lock(s.lock); err != nil {
		return errors.Join(s.describeLockFailure(err), s.lock.Close())
	}
	writeOwner(s.lock)
	if err := s.open(); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", s.path(), err), s.lock.Close())
	}
	return nil
}

// sign writes into the lock whose it is, for who finds it taken. That it fails, as
// on a full disk, costs no more than the name.
func writeOwner(held *os.File) {
	if held.Truncate(0) == nil {
		_, _ = fmt.Fprintf(held, "process %d", os.Getpid())
	}
}

// refused says why the directory could not be locked.
func (s *Store) describeLockFailure(cause error) error {
	if !errors.Is(cause, ErrLocked) {
		return fmt.Errorf("lock the data directory %s: %w", s.dir.path, cause)
	}
	var who [32]byte
	n, _ := s.lock.ReadAt(who[:], 0)
	by := "another program"
	if n > 0 {
		by = string(who[:n])
	}
	return fmt.Errorf("%s: %w by %s: stop that one, or give this one another directory", s.dir.path, ErrLocked, by)
}

// open makes the file, or reads it and mends what is wrong with it.
func (s *Store) open() error {
	if err := s.dir.remove(rebuildName); err != nil { // of one who was killed over it
		return err
	}
	f, err := s.dir.root.OpenFile(fileName, os.O_RDWR, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.snapshot = newSnapshot()
		if err := s.moveOrphanedLogs(); err != nil {
			return err
		}
		if err := s.rebuild(nil); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		err := s.inspect(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	if s.db, err = s.openTree(fileName); err != nil {
		return err
	}
	info, err := s.file.Stat()
	s.linksCounted, s.pageSize = err == nil && linked(info), s.db.Info().PageSize
	if err := s.recoverLogs(); err != nil {
		return errors.Join(err, s.closeFiles())
	}
	return nil
}

// inspect takes the census. A file whose pages cannot all be read is set aside as
// it is, and one with what could be read takes its place; one that is nearly empty
// is made anew, because bbolt never gives space back.
func (s *Store) inspect(f *os.File) (err error) {
	// The directory is locked, but a lock that was deleted keeps nobody out, and to mend a
	// file that another writes would be its end.
	if err := lock(f); err != nil {
		return fmt.Errorf("%w: stop the other program, or give this one another directory", err)
	}
	if s.snapshot, err = readSnapshot(f); err != nil {
		return err
	}
	if s.snapshot.unreadable {
		if s.snapshot.found.Copy, err = s.keepCopy(fileName); err != nil {
			return fmt.Errorf("keep the damaged file: %w", err)
		}
	}
	if !s.snapshot.unreadable && !s.snapshot.mostlyFree(f) {
		return nil
	}
	err = s.rebuild(f)
	if copied := s.snapshot.found.Copy; err != nil && copied != "" {
		err = errors.Join(err, s.dir.root.Remove(filepath.Base(copied))) // the file is still there under its own name
	}
	return err
}

// keepCopy keeps a file under another name too, the first that is free, and returns its path.
func (s *Store) keepCopy(name string) (string, error) {
	for n := 1; ; n++ {
		to := fmt.Sprintf("%s.damaged-%d", name, n)
		err := s.dir.duplicate(name, to)
		if !errors.Is(err, fs.ErrExist) {
			return s.dir.named(to), err
		}
	}
}

// Found says what [Open] found.
func (s *Store) Found() Found { return s.found }

// path is that of the tree's file, as it was when it was opened.
func (s *Store) path() string { return s.dir.named(fileName) }

// Load implements [localqueue.Store].
func (s *Store) Load() (localqueue.Saved, error) {
	if s.snapshot == nil {
		return localqueue.Saved{}, errors.New("filequeue: it was loaded before")
	}
	saved := s.snapshot.saved()
	saved.Time = s.time
	s.snapshot = nil // the engine has it now
	return saved, nil
}

// View implements [localqueue.Store].
//
// A text is in what is recent or in the tree, and a fold may come in between: so the
// tree is asked as it is after the look at what is recent. That it may be newer than the
// view does no harm: whoever opens a view keeps others from changing the messages that
// it is for, until it is open.
func (s *Store) View() (localqueue.View, error) {
	recent := s.recent.Load()
	v := view{recent: recent, after: recent.newest()}
	var err error
	if v.tree, err = s.db.Begin(false); err != nil {
		return nil, fmt.Errorf("filequeue: %w", err)
	}
	return v, nil
}

// view is the texts after a commit.
type view struct {
	recent *recentTexts
	after  uint64
	tree   *bolt.Tx // which only reads
}

// Text implements [localqueue.View].
func (v view) Text(k localqueue.MessageKey) (text string, err error) {
	if text, is := v.recent.text(k, v.after); is {
		return text, nil
	}
	defer recoverPanic(func(cause error) {
		text, err = "", fmt.Errorf("filequeue: read message %d of queue %d: %w", k.Sequence, k.Queue, cause)
	})()
	key := appendKey(nil, k)
	_, read, err := readBody(key, v.tree.Bucket(bodyBucket).Get(key))
	if err != nil {
		return "", fmt.Errorf("filequeue: message %d of queue %d: %w: %w", k.Sequence, k.Queue, localqueue.ErrDamaged, err)
	}
	return string(read), nil // a copy: the record is the file's
}

// Close implements [localqueue.View].
func (v view) Close() { _ = v.tree.Rollback() } // which fails only when it was closed

// Close gives the directory back. All is in one file then, without a log, unless the
// disk was too full for it. After an error the logs have what the file has not.
func (s *Store) Close() error {
	folded := s.broken == nil && s.finalCheckpoint() == nil // else the next who opens it finds the logs
	err := errors.Join(s.broken, s.removeLogs(folded), s.closeFiles(), s.lock.Close(), s.dir.close())
	if err != nil {
		return fmt.Errorf("filequeue: close %s: %w", s.path(), err)
	}
	return nil
}

// foldLast leaves nothing in the logs, and writes that down in a commit of its own: so
// both of the newest commits have everything.
func (s *Store) finalCheckpoint() error {
	if len(s.pending.messages) > 0 {
		if _, err := s.checkpoint(nil); err != nil {
			return err
		}
	}
	return s.update(func(tx *bolt.Tx) error {
		return tx.Bucket(metaBucket).Put(keyCheckpoint, checkpoint{s.number, noLogs, s.time}.record())
	})
}

// closeFiles closes the tree and the logs.
func (s *Store) closeFiles() error {
	err := s.closeTree()
	for _, l := range s.logs {
		if l != nil {
			err = errors.Join(err, l.file.Close())
		}
	}
	return err
}
