package filequeue

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	bolt "go.etcd.io/bbolt"
)

// goOn goes on where the logs end. Of a store that was damaged they may have the only
// copy of something, so they are folded at once.
func (s *Store) recoverLogs() error {
	s.reserve.findExisting()
	if err := s.openLogs(); err != nil {
		return err
	}
	if err := s.replay(); err != nil {
		return err
	}
	s.secret, s.checkpointed, s.logBuffer = s.snapshot.secret, s.snapshot.checkpoint.number, make([]byte, recordHeader)
	s.digest, s.moreWork = s.snapshot.actual, len(s.snapshot.tombstones) > 0
	damaged := s.snapshot.found.Damaged > 0
	s.logsReady = s.snapshot.checkpoint.logs == hasLogs && !damaged
	if err := s.usingReserve(s.repair); err != nil {
		return err
	}
	if damaged {
		if err := s.usingReserve(func() error { _, err := s.checkpoint(nil); return err }); err != nil {
			return err
		}
	}
	if err := s.prepareLogs(); err != nil {
		return err
	}
	s.found = s.snapshot.found
	_ = s.reserve.allocate() // else the disk is full: it is tried again before anything grows
	return nil
}

// readyLogs leaves logs that can be gone on with.
func (s *Store) prepareLogs() error {
	switch {
	case !s.logsReady:
		return s.startLogs()
	case s.snapshot.found.Torn: // else it would be found again
		return s.logs[s.active].writeEndMark(s.number)
	default:
		return nil
	}
}

// mend mends the tree, if it was not made anew and there is anything to do.
func (s *Store) repair() error {
	if s.snapshot.rebuilt || s.snapshot.found.Damaged == 0 && len(s.snapshot.deleting) == 0 {
		return nil
	}
	have, aside := s.snapshot.actual, s.snapshot.found.Quarantined
	err := s.update(s.snapshot.repair)
	if err != nil {
		s.snapshot.actual, s.snapshot.found.Quarantined = have, aside
	}
	s.digest = s.snapshot.actual
	return err
}

// withRoom does something again once the ballast was let go.
func (s *Store) usingReserve(do func() error) error {
	err := do()
	if err != nil && s.broken == nil && s.reserve.release() {
		err = do()
	}
	return err
}

// startLogs begins two empty logs, which the tree has all of, and then writes down in the
// tree that they are there. If that cannot be, as on a disk that is full, it does without, until
// it can.
func (s *Store) startLogs() error {
	for i := range s.logs {
		if err := s.startLog(i); outOfSpace(err) {
			return nil
		} else if err != nil {
			return err
		}
	}
	if err := s.dir.sync(); err != nil {
		return err
	}
	err := s.update(func(tx *bolt.Tx) error {
		return tx.Bucket(metaBucket).Put(keyCheckpoint, checkpoint{s.checkpointed, hasLogs, s.time}.record())
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
	s.logs[i].end = 0
	return s.logs[i].writeEndMark(s.number)
}

// noRoom tells whether something failed because the disk, or the user's part of it, is full.
func outOfSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// removeLogs removes the logs, which must be open still, if the tree has everything.
func (s *Store) removeLogs(folded bool) (err error) {
	if !folded {
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

// orphanedLogs puts logs out of the way whose tree is not there. Without it they cannot be
// read.
func (s *Store) moveOrphanedLogs() error {
	for i := range s.logs {
		name := fmt.Sprintf("%s-%d", logName, i+1)
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
			return fmt.Errorf("keep a log whose file is missing: %w", err)
		}
		s.snapshot.found.damage(Damage{What: fmt.Sprintf("%s is missing, and there was a log: all that was in both is lost; the log is kept as %s", fileName, to)})
	}
	return nil
}
