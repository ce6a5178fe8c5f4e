package filequeue

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/queue/localqueue/storage"
)

// Store is a directory that an engine keeps its queues in: a [storage.Store]. Make one
// with [Open]. It is as safe for concurrent use as [storage.Store] requires.
type Store struct {
	dir  *directory
	lock *os.File

	maxLogSize int64 // the size limit of a log, in bytes

	db           *bolt.DB
	file         *os.File // of db
	linksCounted bool     // the file system counts the links of a file
	pageSize     int      // of db, in bytes
	found        Found

	snapshot *snapshot // until Load
	recent   atomic.Pointer[recentTexts]

	// The fields below are owned by the caller of Commit.

	reserve      reserve
	digest       digest   // of the records in the tree
	number       uint64   // of the last commit
	time         int64    // of that commit, by the engine's clock
	checkpointed uint64   // the last commit that the tree has
	secret       [32]byte // the salt of the logs
	logs         [2]*wal
	logsReady    bool      // there are logs, and the tree says so; otherwise every commit goes into the tree
	active       int       // index of the log being written
	pending      pending   // what the log has and the tree does not
	moreWork     bool      // there are tombstones
	logBuffer    []byte    // reused buffer
	checkedAt    time.Time // when files were last checked for deletion
	broken       error     // why commits are refused
	panicked     bool      // bbolt panicked and must not be called again
}

var _ storage.Store = (*Store)(nil)

// Found returns what [Open] found.
func (s *Store) Found() Found { return s.found }

// path returns the path of the tree, as given to Open.
func (s *Store) path() string { return s.dir.named(fileName) }

// Load implements [storage.Store].
func (s *Store) Load() (storage.Saved, error) {
	if s.snapshot == nil {
		return storage.Saved{}, errors.New("filequeue: the store was loaded before")
	}
	saved := s.snapshot.saved()
	saved.Time = s.time
	s.snapshot = nil // the engine owns it now
	return saved, nil
}

// Close releases the directory. Everything is then in one file, without logs, unless the
// disk was too full for that. After an error, the logs have what the tree does not.
func (s *Store) Close() error {
	checkpointed := s.broken == nil && s.finalCheckpoint() == nil // otherwise the next Open replays the logs
	err := errors.Join(s.broken, s.removeLogs(checkpointed), s.closeFiles(), s.lock.Close(), s.dir.close())
	if err != nil {
		return fmt.Errorf("filequeue: close %s: %w", s.path(), err)
	}
	return nil
}

func (s *Store) closeFiles() error {
	err := s.closeTree()
	for _, l := range s.logs {
		if l != nil {
			err = errors.Join(err, l.file.Close())
		}
	}
	return err
}
