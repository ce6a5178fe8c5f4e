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
func (s *Store) goOn() error {
	s.ballast.find()
	if err := s.openLogs(); err != nil {
		return err
	}
	if err := s.replay(); err != nil {
		return err
	}
	s.secret, s.folded, s.record = s.census.secret, s.census.folded.number, make([]byte, recordHeader)
	s.tally, s.sweeping = s.census.have, len(s.census.sweeps) > 0
	damaged := s.census.found.Damaged > 0
	s.ready = s.census.folded.logs == hasLogs && !damaged
	if err := s.withRoom(s.mend); err != nil {
		return err
	}
	if damaged {
		if err := s.withRoom(func() error { _, err := s.fold(nil); return err }); err != nil {
			return err
		}
	}
	if err := s.readyLogs(); err != nil {
		return err
	}
	s.found = s.census.found
	_ = s.ballast.raise() // else the disk is full: it is tried again before anything grows
	return nil
}

// readyLogs leaves logs that can be gone on with.
func (s *Store) readyLogs() error {
	switch {
	case !s.ready:
		return s.startLogs()
	case s.census.found.Torn: // else it would be found again
		return s.logs[s.logging].endHere(s.number)
	default:
		return nil
	}
}

// mend mends the tree, if it was not made anew and there is anything to do.
func (s *Store) mend() error {
	if s.census.anew || s.census.found.Damaged == 0 && len(s.census.leaving) == 0 {
		return nil
	}
	have, aside := s.census.have, s.census.found.SetAside
	err := s.update(s.census.mend)
	if err != nil {
		s.census.have, s.census.found.SetAside = have, aside
	}
	s.tally = s.census.have
	return err
}

// withRoom does something again once the ballast was let go.
func (s *Store) withRoom(do func() error) error {
	err := do()
	if err != nil && s.broken == nil && s.ballast.drop() {
		err = do()
	}
	return err
}

// startLogs begins two empty logs, which the tree has all of, and then writes down in the
// tree that they are there. If that cannot be, as on a disk that is full, it does without, until
// it can.
func (s *Store) startLogs() error {
	for i := range s.logs {
		if err := s.startLog(i); noRoom(err) {
			return nil
		} else if err != nil {
			return err
		}
	}
	if err := s.dir.sync(); err != nil {
		return err
	}
	err := s.update(func(tx *bolt.Tx) error {
		return tx.Bucket(singles).Put(keyFolded, folded{s.folded, hasLogs, s.time}.record())
	})
	s.ready = err == nil
	return s.broken
}

func (s *Store) startLog(i int) error {
	if s.logs[i] == nil {
		l, err := openLog(s.dir, i+1, s.mostLogged, os.O_CREATE)
		if err != nil {
			return err
		}
		s.logs[i] = l
		s.saltLogs(s.secret)
	}
	s.logs[i].end = 0
	return s.logs[i].endHere(s.number)
}

// noRoom tells whether something failed because the disk, or the user's part of it, is full.
func noRoom(err error) bool {
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
func (s *Store) orphanedLogs() error {
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
		s.census.found.damage(Damage{What: fmt.Sprintf("%s is missing, and there was a log: all that was in both is lost; the log is kept as %s", fileName, to)})
	}
	return nil
}
