package filequeue

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/internal/openfile"
	"github.com/millrace/millrace/queue/localqueue"
)

// Engine is an engine whose queues are in a directory: see [Open]. Its Close releases the directory.
// Everything is then in one file, without logs, unless the disk was too full for that. It is safe for
// concurrent use.
type Engine struct {
	_ [0]sync.Mutex // go vet reports copies

	*localqueue.Engine
	found Found
}

// Found returns what [Open] found.
func (e *Engine) Found() Found { return e.found }

// Open opens the queues in a directory, and creates it if it does not exist. It reads and
// checks the files completely before it changes anything: [Engine.Found] says what there
// was, including damage. Nil options mean the defaults. The error is [ErrLocked] if the directory is in
// use, [ErrCorrupt] or [ErrNewer] if its file cannot be used, or one of the file system.
func Open(dir string, o *localqueue.Options) (*Engine, error) {
	s, err := openStore(dir)
	if err != nil {
		return nil, err
	}
	e, err := engineOver(s, o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the queues in %s: %w", dir, err), s.Close())
	}
	return &Engine{Engine: e, found: s.found}, nil
}

func engineOver(s localengine.Store, o *localqueue.Options) (*localqueue.Engine, error) {
	e, err := localengine.Over(s, o)
	if err != nil {
		return nil, err
	}
	return e.(*localqueue.Engine), nil
}

// openStore opens the store in a directory.
func openStore(dir string) (*store, error) { return openWith(dir, logSize) }

// openWith is openStore with a limit for the size of a log, in bytes.
func openWith(path string, mostLogged int64) (*store, error) {
	dir, err := openDirectory(path)
	if err != nil {
		return nil, fmt.Errorf("filequeue: %w", err)
	}
	return openIn(dir, mostLogged)
}

// openIn opens the store in a directory and takes ownership of it.
func openIn(dir *directory, mostLogged int64) (*store, error) {
	s := &store{dir: dir, maxLogSize: mostLogged, reserve: reserve{dir: dir}}
	if err := s.openLocked(); err != nil {
		return nil, fmt.Errorf("filequeue: %w", errors.Join(err, dir.close()))
	}
	return s, nil
}

func (s *store) openLocked() (err error) {
	if s.lock, err = s.dir.open(lockName, os.O_RDWR|os.O_CREATE); err != nil {
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
func (s *store) describeLockFailure(cause error) error {
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
func (s *store) open() error {
	// A later release may have written the logs.
	for i := range 2 {
		f, err := s.dir.open(walName(i+1), os.O_RDONLY)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		header := make([]byte, sector)
		n, _ := f.ReadAt(header, 0) // a log that cannot be read is found later
		if err := f.Close(); err != nil {
			return err
		}
		if format, by := readLogHeader(header[:n]); format > logFormat {
			return fmt.Errorf("%w: %s has format %d, written by %s; this program reads formats up to %d",
				ErrNewer, f.Name(), format, by, logFormat)
		}
	}
	if err := s.dir.remove(rebuildName); err != nil { // left by a killed process
		return err
	}
	f, err := s.dir.open(fileName, os.O_RDWR)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.snapshot = newSnapshot()
		// Rename logs whose tree is missing. They cannot be read without it.
		for i := range s.logs {
			name := walName(i + 1)
			if _, err := s.dir.root.Lstat(name); errors.Is(err, fs.ErrNotExist) {
				continue
			} else if err != nil {
				return err
			}
			to, err := s.keepCopy(name)
			if err == nil {
				err = s.dir.root.Remove(name)
			}
			if err != nil {
				return fmt.Errorf("keep a log whose tree is missing: %w", err)
			}
			s.snapshot.found.damage(fmt.Sprintf("%s is missing, but there was a log: the contents of both are lost; the log is kept as %s", fileName, to))
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
func (s *store) inspect(f *os.File) (err error) {
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
func (s *store) keepCopy(name string) (string, error) {
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

// directory is the data directory, held open. It remains the one that was locked even if it
// is renamed and another takes its name, so that a store never touches another's files.
type directory struct {
	root *os.Root
	path string // as given to Open, for messages only

	link func(from, to string) error // Root.Link, except in tests
}

// openDirectory opens a directory, and creates it if it does not exist.
func openDirectory(path string) (*directory, error) {
	if err := openfile.MakeDirectory(os.Open, path, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open the data directory: %w", err)
	}
	return &directory{root: root, path: path, link: root.Link}, nil
}

// named returns the path of a file, for messages.
func (d *directory) named(name string) string { return filepath.Join(d.path, name) }

// open opens a file. Its error says if the directory was deleted or the file is a symbolic link to
// somewhere else, which the system's error does not say.
func (d *directory) open(name string, flag int) (*os.File, error) {
	f, err := d.root.OpenFile(name, flag, 0o600)
	if err == nil {
		return f, nil
	}
	info, failed := d.root.Stat(".")
	if failed == nil && !openfile.Linked(info) || errors.Is(failed, fs.ErrNotExist) {
		return nil, fmt.Errorf("the data directory %s was deleted while it was in use: %w", d.path, err)
	}
	if target, failed := d.root.Readlink(name); failed == nil {
		// The error does not wrap fs.ErrNotExist: a link to nowhere is not a new store.
		return nil, fmt.Errorf("%s is a symbolic link to %s and cannot be used: the files of a store must be in its directory; "+
			"move the whole directory instead, and pass its new path: %s", name, target, err.Error())
	}
	return nil, err
}

func (d *directory) remove(name string) error {
	if err := d.root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeOwn removes a file if it is still the one that info describes: after everything in
// the directory was deleted, another store may have made one with the same name.
func (d *directory) removeOwn(name string, info os.FileInfo) (removed bool, err error) {
	now, err := d.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(info, now) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = d.root.Remove(name)
	return err == nil, err
}

// duplicate gives a file a second name, by a hard link or, where there are none, a copy.
func (d *directory) duplicate(name, to string) error {
	err := d.link(name, to)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	from, err := d.root.Open(name)
	if err != nil {
		return err
	}
	copied, err := d.open(to, os.O_WRONLY|os.O_EXCL|os.O_CREATE)
	if err != nil {
		return errors.Join(err, from.Close())
	}
	_, err = io.Copy(copied, from)
	if err := errors.Join(err, copied.Sync(), copied.Close(), from.Close()); err != nil {
		return errors.Join(err, d.root.Remove(to))
	}
	return nil
}

// sync makes new names durable.
func (d *directory) sync() error { return openfile.SyncDirectory(d.root.Open, ".") }

func (d *directory) close() error { return d.root.Close() }

// Errors of [Open] besides those of the file system. Match them with [errors.Is].
var (
	// ErrLocked means that another process, or another Engine of this one, has the directory
	// open.
	ErrLocked = errors.New("the directory is in use")

	// ErrCorrupt means that the file is too damaged to read even its root, or is not a
	// store's. It was not changed.
	ErrCorrupt = errors.New("the file cannot be read")

	// ErrNewer means that a later release wrote the file or a log. Nothing was changed.
	ErrNewer = errors.New("a later release of Millrace wrote this directory; nothing was changed; " +
		"use that release, or a later one")
)

// Found is what [Open] found in the directory. The zero value is that of a new store.
type Found struct {
	Queues   int
	Messages int
	Bytes    int64 // of their texts

	// Damage lists the damage and what was done about it, one line for each piece, at most the
	// first 1,000; nil if there was none. Messages are named by their number within their queue,
	// from 1.
	Damage []string

	// Damaged is the number of pieces of damage.
	Damaged int

	// Quarantined is the number of damaged records kept in the file since the directory was
	// made.
	Quarantined int

	// Torn means that the log ends in the middle of a commit, as a kill or a power cut leaves
	// it. Normally no acknowledged change is lost then. But damage at the end of the log can
	// look the same, and then the last commits are lost, which may have been acknowledged.
	Torn bool

	// Copy is the path of a copy of the damaged file, as it was. "" means that every page
	// could be read.
	Copy string
}

// maxDamage is how many pieces of damage [Found] lists.
const maxDamage = 1000

func (f *Found) damage(what string) {
	f.Damaged++
	if len(f.Damage) < maxDamage {
		f.Damage = append(f.Damage, what)
	}
}
