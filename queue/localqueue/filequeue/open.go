package filequeue

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

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

// The files of a directory.
const (
	fileName    = "queues.db"     // the tree
	rebuildName = "queues.db.new" // one being made, which becomes the above when it is whole
	logName     = "queues.log"    // and a number: the commits that are not yet in the tree
	lockName    = "lock"
	reserveName = "room-for-deletes"
)
