package filequeue

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/millrace/millrace/queue/localqueue"
)

// The files of a directory.
const (
	fileName = "queues.db"     // the tree
	nextName = "queues.db.new" // one being made, which becomes the above when it is whole
	logName  = "queues.log"    // and a number: the commits that are not yet in the tree
	lockName = "lock"
	roomName = "room-for-deletes"
)

// Store is a directory that an engine keeps its queues in. Make one with [Open].
// It implements [localqueue.Store] and is as safe for concurrent use as that asks.
type Store struct {
	path string
	lock *os.File

	mostLogged int64 // how large a log becomes

	db    *bolt.DB
	found Found

	census *census // until Load
	recent atomic.Pointer[recent]

	// What follows is owned by whoever calls Commit.

	ballast  ballast
	tally    tally  // of the bodies in the tree
	number   uint64 // of the last commit
	logs     [2]*log
	logging  int     // which of them is written
	pending  pending // what the log has and the tree has not
	sweeping bool    // the tree has work left over
	record   []byte  // room for one
	broken   error   // why nothing can be committed any more
}

var _ localqueue.Store = (*Store)(nil)

// Open opens the store in a directory, which it makes if there is none. The file
// is read whole and checked before anything is done with it: [Store.Found] says
// what there was, damage included. The error is [ErrLocked] when the directory is
// in use, [ErrCorrupt] or [ErrNewer] when its file cannot be used, or one of the
// file system.
func Open(dir string) (*Store, error) { return openWith(dir, logSize) }

// openWith is Open with logs of so many bytes.
func openWith(dir string, mostLogged int64) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("filequeue: make the data directory: %w", err)
	}
	held, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("filequeue: lock the data directory: %w", err)
	}
	s := &Store{path: filepath.Join(dir, fileName), lock: held, mostLogged: mostLogged, ballast: ballast{path: filepath.Join(dir, roomName)}}
	if err := lock(held); err != nil {
		return nil, errors.Join(refused(dir, held, err), held.Close())
	}
	sign(held)
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("filequeue: %s: %w", s.path, err), held.Close())
	}
	return s, nil
}

// sign writes into the lock whose it is, for who finds it taken. That it fails, as
// on a full disk, costs no more than the name.
func sign(held *os.File) {
	if held.Truncate(0) == nil {
		_, _ = fmt.Fprintf(held, "process %d", os.Getpid())
	}
}

// refused says why the directory could not be locked.
func refused(dir string, held *os.File, cause error) error {
	if !errors.Is(cause, ErrLocked) {
		return fmt.Errorf("filequeue: lock the data directory %s: %w", dir, cause)
	}
	var who [32]byte
	n, _ := held.ReadAt(who[:], 0)
	by := "another program"
	if n > 0 {
		by = string(who[:n])
	}
	return fmt.Errorf("filequeue: %s: %w by %s: stop that one, or give this one another directory", dir, ErrLocked, by)
}

// open makes the file, or reads it and mends what is wrong with it.
func (s *Store) open() error {
	next := filepath.Join(filepath.Dir(s.path), nextName)
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) { // of one who was killed over it
		return err
	}
	f, err := os.Open(s.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		s.census = newCensus()
		if err := s.rebuild(nil, next); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		err := s.inspect(f, next)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	if s.db, err = openFile(s.path); err != nil {
		return err
	}
	if err := s.goOn(); err != nil {
		return errors.Join(err, s.closeFiles())
	}
	return nil
}

// goOn goes on where the logs end. Of a store that was damaged they may have the only
// copy of something, so they are folded at once.
func (s *Store) goOn() error {
	if err := s.openLogs(); err != nil {
		return err
	}
	if err := s.replay(); err != nil {
		return err
	}
	if err := s.db.Update(s.begin); err != nil {
		return err
	}
	s.tally, s.sweeping = s.census.have, len(s.census.sweeps) > 0
	s.record = make([]byte, recordHeader)
	if s.census.found.Damaged > 0 {
		if _, err := s.fold(nil); err != nil {
			return err
		}
	}
	s.found = s.census.found
	_ = s.ballast.raise() // else the disk is full: it is tried again before anything grows
	return nil
}

// begin mends the tree, and writes down that there are logs now, whose names have reached
// the disk.
func (s *Store) begin(tx *bolt.Tx) error {
	if !s.census.anew {
		if err := s.census.mend(tx); err != nil {
			return err
		}
	}
	return tx.Bucket(singles).Put(keyFolded, foldedRecord(s.census.folded, hasLogs))
}

// inspect takes the census. A file whose pages cannot all be read is set aside as
// it is, and one with what could be read takes its place; one that is nearly empty
// is made anew, because bbolt never gives space back.
func (s *Store) inspect(f *os.File, next string) (err error) {
	if s.census, err = takeCensus(f); err != nil {
		return err
	}
	if s.census.broken {
		if s.census.found.Copy, err = keepCopy(s.path); err != nil {
			return fmt.Errorf("keep the damaged file: %w", err)
		}
	}
	if !s.census.broken && !s.census.wasteful(f) {
		return nil
	}
	err = s.rebuild(f, next)
	if copied := s.census.found.Copy; err != nil && copied != "" {
		err = errors.Join(err, os.Remove(copied)) // the file is still there under its own name
	}
	return err
}

// keepCopy gives the file another name beside its own, the first that is free.
func keepCopy(path string) (string, error) {
	for n := 1; ; n++ {
		to := fmt.Sprintf("%s.damaged-%d", path, n)
		err := os.Link(path, to)
		if !errors.Is(err, os.ErrExist) {
			return to, err
		}
	}
}

// openFile opens a file that is sound, or none.
//
// Free pages are not written with each commit, and are kept in a map: after a big
// drain there are so many that either would take most of the time of a commit.
func openFile(path string) (*bolt.DB, error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{
		NoFreelistSync: true,
		FreelistType:   bolt.FreelistMapType,
		Timeout:        time.Millisecond, // one try: where lock does nothing, this is the lock
	})
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, fmt.Errorf("%w: stop the other program, or give this one another directory", ErrLocked)
	}
	return db, err
}

// Found says what [Open] found.
func (s *Store) Found() Found { return s.found }

// Path is the path of the file.
func (s *Store) Path() string { return s.path }

// Load implements [localqueue.Store].
func (s *Store) Load() (localqueue.Saved, error) {
	if s.census == nil {
		return localqueue.Saved{}, errors.New("filequeue: it was loaded before")
	}
	saved := s.census.saved()
	s.census = nil // the engine has it now
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
	recent *recent
	after  uint64
	tree   *bolt.Tx // which only reads
}

// Text implements [localqueue.View].
func (v view) Text(k localqueue.MessageKey) (string, error) {
	if text, is := v.recent.text(k, v.after); is {
		return text, nil
	}
	key := appendKey(nil, k)
	_, text, err := readBody(key, v.tree.Bucket(bodies).Get(key))
	if err != nil {
		return "", fmt.Errorf("filequeue: message %d of queue %d: %w: %w", k.Sequence, k.Queue, localqueue.ErrDamaged, err)
	}
	return string(text), nil // a copy: the record is the file's
}

// Close implements [localqueue.View].
func (v view) Close() { _ = v.tree.Rollback() } // which fails only when it was closed

// Close gives the directory back. All is in one file then, without a log, unless the
// disk was too full for it.
func (s *Store) Close() error {
	folded := s.broken == nil && s.foldLast() == nil // else the next who opens it finds the logs
	err := s.closeFiles()
	if folded {
		for _, l := range s.logs {
			err = errors.Join(err, os.Remove(l.path))
		}
	}
	if err = errors.Join(err, s.lock.Close()); err != nil {
		return fmt.Errorf("filequeue: close %s: %w", s.path, err)
	}
	return nil
}

// foldLast leaves nothing in the logs, and writes that down in a commit of its own: so
// both of the newest commits have everything.
func (s *Store) foldLast() error {
	if len(s.pending.messages) > 0 {
		if _, err := s.fold(nil); err != nil {
			return err
		}
	}
	return s.db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket(singles).Put(keyFolded, foldedRecord(s.number, noLogs))
	})
}

func (s *Store) closeFiles() error {
	err := s.db.Close()
	for _, l := range s.logs {
		if l != nil {
			err = errors.Join(err, l.file.Close())
		}
	}
	return err
}
