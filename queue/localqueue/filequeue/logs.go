package filequeue

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/internal/openfile"
)

// startLogs begins two empty logs and then records in the tree that they exist. If the disk
// is too full for that, the store commits to the tree alone until it works.
func (s *Store) startLogs() error {
	for i := range s.logs {
		if err := s.startLog(i); openfile.OutOfSpace(err) {
			return nil
		} else if err != nil {
			return err
		}
	}
	if err := s.dir.sync(); err != nil {
		return err
	}
	err := s.update(func(tx *bolt.Tx) error {
		return tx.Bucket(metaBucket).Put(keyCheckpoint, checkpoint{s.checkpointed, logFormat, s.time}.record())
	})
	s.logsReady = err == nil
	return s.broken
}

func (s *Store) startLog(i int) error {
	if s.logs[i] == nil {
		l, err := openWAL(s.dir, i+1, s.maxLogSize, os.O_CREATE)
		if err != nil {
			return err
		}
		s.logs[i] = l
		s.saltLogs(s.secret)
	}
	return s.logs[i].begin(s.number)
}

// removeLogs removes the logs, which must still be open, if the tree has everything.
func (s *Store) removeLogs(checkpointed bool) (err error) {
	if !checkpointed {
		return nil
	}
	for _, l := range s.logs {
		if l == nil {
			continue
		}
		info, failed := l.file.Stat()
		if failed == nil {
			_, failed = s.dir.removeOwn(l.name, info)
		}
		err = errors.Join(err, failed)
	}
	return err
}

// moveOrphanedLogs renames logs whose tree is missing. They cannot be read without it.
func (s *Store) moveOrphanedLogs() error {
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
		s.snapshot.found.damage(Damage{What: fmt.Sprintf("%s is missing, but there was a log: the contents of both are lost; the log is kept as %s", fileName, to)})
	}
	return nil
}

func (s *Store) saltLogs(secret [32]byte) {
	for _, l := range s.logs {
		if l != nil {
			l.salt = crc32.Checksum(secret[:], castagnoli)
		}
	}
}
