package filequeue

import (
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/queue/localqueue/storage"
)

// Commit implements [storage.Store]. It appends ordinary changes to the log while there
// is room. Anything else goes into the tree, in a checkpoint.
func (s *Store) Commit(changes []storage.Change) (more bool, err error) {
	if s.broken != nil {
		return false, s.broken
	}
	s.noteTime(changes)
	if err = s.ensureSpace(changes); err == nil {
		more, err = s.commit(changes)
	}
	if err != nil && s.broken == nil && s.reserve.release() && !needSpace(changes) {
		more, err = s.commit(changes)
	}
	if err != nil {
		return false, fmt.Errorf("filequeue: commit to %s: %w", s.path(), err)
	}
	return more, nil
}

// noteTime takes the time of a commit, for the next checkpoint.
func (s *Store) noteTime(changes []storage.Change) {
	for _, c := range changes {
		if at, is := c.(storage.CommittedAt); is {
			s.time = max(s.time, int64(at))
		}
	}
}

func (s *Store) commit(changes []storage.Change) (more bool, err error) {
	switch {
	case s.moreWork || !loggable(changes):
		return s.checkpointAndLog(changes)
	case len(changes) == 0:
		return false, nil
	case !s.logsReady:
		return s.checkpointAndLog(changes)
	}
	switch err := s.appendToLog(changes); {
	case err == nil:
		return false, nil
	case s.broken != nil:
		return false, err
	}
	return s.checkpoint(changes)
}

// maxTouched is how many messages of the tree the log may change. Each may be on pages of
// its own, for which there must be space: see reserveSize.
const maxTouched = 512

// treeChanges returns how many messages of the tree the changes may affect.
func treeChanges(changes []storage.Change) (n int) {
	for _, c := range changes {
		switch c := c.(type) {
		case storage.MessageAdded, storage.CommittedAt:
		case storage.MessagesUpdated:
			n += len(c)
		case storage.MessagesExpired:
			n += len(c)
		default:
			n++
		}
	}
	return n
}

// appendToLog commits to the log. After an error nothing was committed, unless the store is
// broken.
func (s *Store) appendToLog(changes []storage.Change) (err error) {
	if s.pending.touched+treeChanges(changes) > maxTouched {
		return errLogFull
	}
	if time.Since(s.checkedAt) >= checkDeletedEvery {
		if err := s.checkDeleted(); err != nil {
			return err
		}
	}
	to, number := s.logs[s.active], s.number+1
	s.logBuffer, err = to.append(number, appendChanges(s.logBuffer[:recordHeader], changes))
	if cap(s.logBuffer) > 2*logSize { // release the memory of many large texts
		s.logBuffer = make([]byte, recordHeader)
	}
	if errors.Is(err, errLogFull) {
		return err
	}
	if err != nil {
		if again := to.writeEndMark(s.number); again != nil {
			return s.uncertain(errors.Join(err, again))
		}
		return err
	}
	s.number = number
	s.pending.apply(changes)
	s.recent.Load().add(number, changes)
	return nil
}

// uncertain refuses all further commits, because it is unknown what the disk has.
func (s *Store) uncertain(cause error) error {
	s.broken = fmt.Errorf("an earlier commit failed; stop and open the directory again: %w", cause)
	return fmt.Errorf("%w: %w", storage.ErrUncertain, cause)
}

// resolveFailure finds out whether a failed commit to the tree took effect. An error before
// the last wait for the disk means that it did not. If only that wait failed, the commit
// can be read but may not survive a power cut. Waiting again proves nothing, because the
// system forgets failed writes. But another commit writes the other meta page, and if that
// reaches the disk, so has everything that it depends on.
func (s *Store) resolveFailure(w *treeTx, cause error) error {
	if s.broken != nil {
		return cause
	}
	newest, err := s.newestCommit()
	if err != nil {
		s.broken = err
		return err
	}
	if newest < w.id {
		return cause
	}
	again := func(tx *bolt.Tx) error { return tx.Bucket(metaBucket).Put(keyDigest, w.digest.record()) }
	if s.update(again) == nil {
		return nil
	}
	return s.uncertain(cause)
}
