package filequeue

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/millrace/millrace/internal/openfile"
)

// openTree opens a sound tree, or makes one.
//
// The freelist is kept in a map and not written with each commit: after a big drain it is
// so long that either would take most of a commit's time.
func (s *Store) openTree(name string) (*bolt.DB, error) {
	db, err := bolt.Open(name, 0o600, &bolt.Options{
		NoFreelistSync: true,
		FreelistType:   bolt.FreelistMapType,
		Timeout:        time.Millisecond, // try once; where lock does nothing, this is the lock
		OpenFile: func(name string, flag int, mode os.FileMode) (f *os.File, err error) {
			s.file, err = s.dir.root.OpenFile(name, flag, mode)
			return s.file, err
		},
	})
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, fmt.Errorf("%w: stop the other program, or use another directory", ErrLocked)
	}
	return db, err
}

// update commits to the tree. bbolt panics if the pages of the file changed underneath,
// which the disk can cause at any time: then the store refuses further commits.
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

// writeCommitNumber writes the commit's number into the tree. The meta page has it too, so
// a root of an earlier commit in place of the newest is detected.
func writeCommitNumber(tx *bolt.Tx) error {
	id := uint64(tx.ID())
	return tx.Bucket(metaBucket).Put(keyCommit, metaRecord(keyCommit, id))
}

// checkDeletedEvery is how often a commit to the log checks whether a file was deleted. The
// check is cheap, but makes the file system record the time of the next write, which is
// not.
const checkDeletedEvery = time.Second

// checkDeleted fails for good once a file was deleted: what is written to it would be lost
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
		if info, err := f.Stat(); err == nil && !openfile.Linked(info) {
			s.broken = fmt.Errorf("%s was deleted while it was in use: nothing can be stored any more, and its contents are lost when this process ends; stop, and open the directory again", f.Name())
			return s.broken
		}
	}
	return nil
}

// errLostWrite means that the disk confirmed a commit and does not have it.
var errLostWrite = errors.New("the disk lost a write that it had confirmed")

func (s *Store) newestCommit() (id int, err error) {
	err = s.db.View(func(tx *bolt.Tx) error { id = tx.ID(); return nil })
	return id, err
}

// closeTree closes the tree. After a panic, bbolt's locks may be held for ever; the file is
// unlocked all the same, so that it can be opened again.
func (s *Store) closeTree() error {
	if s.panicked {
		return errors.Join(openfile.Unlock(s.file), s.file.Close())
	}
	return s.db.Close()
}

// recoverPanic returns a function to defer around a use of the tree. It turns a panic into
// an error, including a fault of mapped memory whose page the disk failed to read.
func recoverPanic(failed func(cause error)) func() {
	faults := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(faults)
		if p := recover(); p != nil {
			failed(fmt.Errorf("the file was damaged while it was open; stop, and open the directory again: %v", p))
		}
	}
}
