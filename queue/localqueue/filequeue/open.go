package filequeue

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/internal/openfile"
)

// Open opens the store in a directory, and creates it if it does not exist. It reads and
// checks the files completely before it changes anything: [Store.Found] says what there
// was, including damage. The error is [ErrLocked] if the directory is in use, [ErrCorrupt]
// or [ErrNewer] if its file cannot be used, or one of the file system.
func Open(dir string) (*Store, error) { return openWith(dir, logSize) }

// openWith is Open with a limit for the size of a log, in bytes.
func openWith(path string, mostLogged int64) (*Store, error) {
	dir, err := openDirectory(path)
	if err != nil {
		return nil, fmt.Errorf("filequeue: %w", err)
	}
	return openIn(dir, mostLogged)
}

// openIn opens the store in a directory and takes ownership of it.
func openIn(dir *directory, mostLogged int64) (*Store, error) {
	s := &Store{dir: dir, maxLogSize: mostLogged, reserve: reserve{dir: dir}}
	if err := s.openLocked(); err != nil {
		return nil, fmt.Errorf("filequeue: %w", errors.Join(err, dir.close()))
	}
	return s, nil
}

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

// writeOwner writes the process id into the lock file, for error messages of others.
// Failing, as on a full disk, costs only that.
func writeOwner(held *os.File) {
	if held.Truncate(0) == nil {
		_, _ = fmt.Fprintf(held, "process %d", os.Getpid())
	}
}

// describeLockFailure says why the directory could not be locked.
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
	return fmt.Errorf("%s: %w by %s: stop it, or use another directory", s.dir.path, ErrLocked, by)
}

// open makes the files, or reads and repairs them.
func (s *Store) open() error {
	if err := s.dir.checkFormats(); err != nil {
		return err
	}
	if err := s.dir.remove(rebuildName); err != nil { // left by a killed process
		return err
	}
	f, err := s.dir.open(fileName, os.O_RDWR)
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
	s.linksCounted, s.pageSize = err == nil && openfile.Linked(info), s.db.Info().PageSize
	if err := s.recoverLogs(); err != nil {
		return errors.Join(err, s.closeFiles())
	}
	return nil
}

// lock locks a file for this process, or fails with [ErrLocked] at once.
func lock(f *os.File) error {
	locked, err := openfile.TryLock(f)
	if err == nil && !locked {
		return ErrLocked
	}
	return err
}

// inspect reads the snapshot. A file with unreadable pages is copied as it is and rebuilt
// from what could be read. A file that is mostly free, or will be once cleared messages are
// removed, is rebuilt too if there is space for that, because bbolt never shrinks a file.
func (s *Store) inspect(f *os.File) (err error) {
	// The directory is locked, but a deleted lock file keeps nobody out, and repairing a file
	// that another process writes would destroy it.
	if err := lock(f); err != nil {
		return fmt.Errorf("%w: stop the other program, or use another directory", err)
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
	sound := *s.snapshot
	err = s.rebuild(f)
	if !sound.unreadable && openfile.OutOfSpace(err) {
		*s.snapshot = sound
		return nil
	}
	if copied := s.snapshot.found.Copy; err != nil && copied != "" {
		err = errors.Join(err, s.dir.root.Remove(filepath.Base(copied))) // the file still has its own name
	}
	return err
}

// keepCopy gives a file the first free name for a copy and returns its path.
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
	rebuildName = "queues.db.new" // a tree being rebuilt, renamed to the above when it is complete
	logName     = "queues.log"    // and a number: the write-ahead logs
	lockName    = "lock"
	reserveName = "room-for-deletes"
)
