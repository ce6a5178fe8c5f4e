package filequeue

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/queue/localqueue"
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
