package filequeue

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// openTree opens a tree that is sound, or makes one.
//
// Free pages are not written with each commit, and are kept in a map: after a big
// drain there are so many that either would take most of the time of a commit.
func (s *Store) openTree(name string) (*bolt.DB, error) {
	db, err := bolt.Open(name, 0o600, &bolt.Options{
		NoFreelistSync: true,
		FreelistType:   bolt.FreelistMapType,
		Timeout:        time.Millisecond, // one try: where lock does nothing, this is the lock
		OpenFile: func(name string, flag int, mode os.FileMode) (f *os.File, err error) {
			s.file, err = s.dir.root.OpenFile(name, flag, mode)
			return s.file, err
		},
	})
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, fmt.Errorf("%w: stop the other program, or give this one another directory", ErrLocked)
	}
	return db, err
}

// update is a commit to the tree. bbolt panics when the pages of a file are not as it left
// them, which the disk can do to it at any time: then nothing can be committed any more.
func (s *Store) update(change func(*bolt.Tx) error) (err error) {
	if err := s.checkDeleted(); err != nil {
		return err
	}
	committing := false
	defer recoverPanic(func(cause error) {
		s.broken, s.panicked = cause, true
		if err = cause; committing {
			err = s.uncertain(cause)
		}
	})()
	tx, err := s.db.Begin(true)
	if err != nil {
		return err
	}
	id := tx.ID()
	if err := change(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := writeCommitNumber(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	committing = true
	if err := tx.Commit(); err != nil {
		return err
	}
	if newest, err := s.newestCommit(); err != nil || newest < id {
		return s.uncertain(errors.Join(errLostWrite, err))
	}
	return nil
}

// number writes into the tree which commit it is: the meta page has that too, and so a root of
// an earlier commit in place of the newest is found out.
func writeCommitNumber(tx *bolt.Tx) error {
	id := uint64(tx.ID())
	return tx.Bucket(metaBucket).Put(keyCommit, metaRecord(keyCommit, id))
}

// lookEvery is how often a commit to the log looks whether a file was deleted. To look is
// cheap, but the next write then has to note its time, which is not.
const checkDeletedEvery = time.Second

// deleted fails for good once a file is found deleted: what is written to it would be gone
// with this process.
func (s *Store) checkDeleted() error {
	if !s.linksCounted {
		return nil
	}
	s.checkedAt = time.Now()
	for _, f := range []*os.File{s.file, s.logs[0].openFile(), s.logs[1].openFile()} {
		if f == nil {
			continue
		}
		if info, err := f.Stat(); err == nil && !linked(info) {
			s.broken = fmt.Errorf("%s was deleted while it was in use: nothing can be kept any more, and what was kept is gone with this process; stop, and open the directory again", f.Name())
			return s.broken
		}
	}
	return nil
}

// errForgetful means that the disk took a commit and does not have it.
var errLostWrite = errors.New("the disk does not have what it said that it has written")

// newestCommit returns the number that bbolt gives the newest commit of the tree.
func (s *Store) newestCommit() (id int, err error) {
	err = s.db.View(func(tx *bolt.Tx) error { id = tx.ID(); return nil })
	return id, err
}

// closeTree closes the tree. After a panic in bbolt its locks may be held for ever; the file
// is given back all the same, so that the next who opens it is let in.
func (s *Store) closeTree() error {
	if s.panicked {
		return errors.Join(unlock(s.file), s.file.Close())
	}
	return s.db.Close()
}

// survive returns what to defer around a use of the tree. It turns a panic into an error,
// also that of memory into which the disk failed to read a page.
func recoverPanic(failed func(cause error)) func() {
	faults := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(faults)
		if p := recover(); p != nil {
			failed(fmt.Errorf("the file was damaged while it was open: stop, and open the directory again: %v", p))
		}
	}
}
