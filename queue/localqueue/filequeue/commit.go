package filequeue

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/internal/openfile"
)

// Commit implements [localengine.Store]. It appends ordinary changes to the log while there
// is room. Anything else goes into the tree, in a checkpoint.
func (s *store) Commit(changes []localengine.Change) (more bool, err error) {
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
func (s *store) noteTime(changes []localengine.Change) {
	for _, c := range changes {
		if at, is := c.(localengine.CommittedAt); is {
			s.time = max(s.time, int64(at))
		}
	}
}

func (s *store) commit(changes []localengine.Change) (more bool, err error) {
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
func treeChanges(changes []localengine.Change) (n int) {
	for _, c := range changes {
		switch c := c.(type) {
		case localengine.MessageAdded, localengine.CommittedAt:
		case localengine.MessagesUpdated:
			n += len(c)
		case localengine.MessagesExpired:
			n += len(c)
		default:
			n++
		}
	}
	return n
}

// appendToLog commits to the log. After an error nothing was committed, unless the store is
// broken.
func (s *store) appendToLog(changes []localengine.Change) (err error) {
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
func (s *store) uncertain(cause error) error {
	s.broken = fmt.Errorf("an earlier commit failed; stop and open the directory again: %w", cause)
	return fmt.Errorf("%w: %w", localengine.ErrUncertain, cause)
}

// resolveFailure finds out whether a failed commit to the tree took effect. An error before
// the last wait for the disk means that it did not. If only that wait failed, the commit
// can be read but may not survive a power cut. Waiting again proves nothing, because the
// system forgets failed writes. But another commit writes the other meta page, and if that
// reaches the disk, so has everything that it depends on.
func (s *store) resolveFailure(w *treeTx, cause error) error {
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

// checkpointAndLog writes a checkpoint with the changes, and then begins logs if there are
// none that can be used.
func (s *store) checkpointAndLog(changes []localengine.Change) (more bool, err error) {
	more, err = s.checkpoint(changes)
	if err == nil && !s.logsReady {
		_ = s.startLogs() // a failure is tried again with the next commit
	}
	return more, err
}

// checkpoint commits the outcome of the log, and changes, to the tree. bbolt writes the
// changed pages, waits for the disk, then writes the new root and waits again: a kill or a
// power cut in between leaves the commit before.
func (s *store) checkpoint(changes []localengine.Change) (more bool, err error) {
	for _, c := range changes {
		if _, is := c.(localengine.SecretSaved); is {
			s.logsReady = false // the logs are salted with the old one
		}
	}
	var w treeTx
	err = s.update(func(tx *bolt.Tx) error {
		w = treeTx{digest: s.digest}
		w.begin(tx)
		return w.apply(slices.SortedFunc(maps.Values(s.pending.messages), func(a, b outcome) int {
			return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Sequence, b.Sequence))
		}), changes, s.nextCheckpoint())
	})
	if err != nil {
		if err = s.resolveFailure(&w, err); err != nil {
			return false, err
		}
	}
	s.number++
	s.checkpointed = s.number
	s.digest, s.moreWork = w.digest, w.more
	for _, c := range changes {
		if secret, is := c.(localengine.SecretSaved); is {
			s.secret = secret
			s.saltLogs(secret)
		}
	}
	s.switchLogs()
	return w.more, nil
}

// nextCheckpoint returns the checkpoint of the next commit to the tree.
func (s *store) nextCheckpoint() checkpoint {
	if s.logsReady {
		return checkpoint{s.number + 1, logFormat, s.time}
	}
	return checkpoint{s.number + 1, noLogs, s.time}
}

// switchLogs switches to the other log, empty. The one that was used stays until the next
// checkpoint: should the newest tree turn out to be torn, the tree before and that log
// still have everything.
func (s *store) switchLogs() {
	s.pending = newPending()
	s.recent.Store(newRecentTexts(s.number))
	if l := s.logs[s.active]; l != nil && l.end > l.start() {
		s.active = 1 - s.active
		if l := s.logs[s.active]; l != nil {
			l.end = l.start()
		}
	}
}

// finalCheckpoint empties the logs into the tree and records that in a commit of its own,
// so that both of the newest commits have everything.
func (s *store) finalCheckpoint() error {
	if len(s.pending.messages) > 0 {
		if _, err := s.checkpoint(nil); err != nil {
			return err
		}
	}
	return s.update(func(tx *bolt.Tx) error {
		return tx.Bucket(metaBucket).Put(keyCheckpoint, checkpoint{s.number, noLogs, s.time}.record())
	})
}

// checkpoint says how far the tree is.
type checkpoint struct {
	number uint64 // the last commit that the tree has
	logs   uint64 // the format of the logs, which may have later commits; noLogs if there are none
	time   int64  // of that commit, by the engine's clock; 0 if unknown
}

// record has the second version while there are no logs, so that earlier releases read a
// directory that was closed cleanly. They refuse the third version: they cannot read the logs.
func (f checkpoint) record() []byte {
	version := byte(secondVersion)
	if f.logs > secondFormat {
		version = thirdVersion
	}
	b := binary.BigEndian.AppendUint64([]byte{version}, f.number)
	b = binary.BigEndian.AppendUint64(b, f.logs)
	return appendChecksum(binary.BigEndian.AppendUint64(b, uint64(f.time)), 0, metaBucket, keyCheckpoint)
}

func readCheckpoint(record []byte) (checkpoint, error) {
	version, f, err := openVersionedRecord(thirdVersion, metaBucket, keyCheckpoint, record)
	if err != nil {
		return checkpoint{}, err
	}
	read := checkpoint{number: f.uint64(), logs: f.uint64()}
	if version > recordVersion {
		read.time = f.int64()
	} else if read.logs != noLogs {
		read.logs = firstFormat // the first version had only a flag
	}
	if read.logs > logFormat {
		return checkpoint{}, ErrNewer
	}
	return read, f.end()
}

// reserveSize, in bytes, is the most that a checkpoint can write: twice the log, because in
// the worst case a message that takes half a page gets a whole one, and two pages for each
// message of the tree that it changes.
const reserveSize = 2*logSize + maxTouched*2*4096

// reserve is disk space kept for deletes: they free space, but their commit has to write
// first. It is released when the disk is full. Until it is allocated again, as much must be
// free inside the file before anything grows.
type reserve struct {
	dir  *directory
	file os.FileInfo // nil if there is none; owned by the caller of Commit
}

func (b *reserve) held() bool { return b.file != nil }

// allocate makes the reserve, if there is space for it.
func (b *reserve) allocate() error {
	if b.held() {
		return nil
	}
	f, err := b.dir.open(reserveName, os.O_WRONLY|os.O_TRUNC|os.O_CREATE)
	if err != nil {
		return err
	}
	// Random bytes, because some file systems store zeros without allocating space.
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{}), reserveSize)
	info, failed := f.Stat()
	if err := errors.Join(err, failed, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, b.dir.root.Remove(reserveName))
	}
	b.file = info
	return nil
}

// release removes the reserve and reports whether there was one.
func (b *reserve) release() bool {
	if !b.held() {
		return false
	}
	dropped, err := b.dir.removeOwn(reserveName, b.file)
	b.file = nil
	return dropped && err == nil
}

// needSpace reports whether any of the changes needs space permanently.
func needSpace(changes []localengine.Change) bool {
	for _, c := range changes {
		switch c.(type) {
		case localengine.MessageAdded, localengine.MessageRewritten:
			return true
		}
	}
	return false
}

// ensureSpace fails if the changes need space permanently that neither the disk nor the
// file has. Until a checkpoint, the space of deleted messages is not free, so there is one
// before anything is refused; after it the log is empty, and further refusals cost no
// checkpoint.
func (s *store) ensureSpace(changes []localengine.Change) error {
	if s.reserve.held() || !needSpace(changes) || s.enoughFreePages() {
		return nil
	}
	err := s.reserve.allocate()
	if err == nil {
		return nil
	}
	if len(s.pending.messages) > 0 || s.moreWork {
		if _, failed := s.checkpoint(nil); failed != nil {
			err = errors.Join(err, failed)
		} else if s.enoughFreePages() {
			return nil
		}
	}
	if openfile.OutOfSpace(err) {
		return fmt.Errorf("the disk is full: %w", err)
	}
	return fmt.Errorf("allocate %s, the reserve for deletes: %w", s.dir.named(reserveName), err)
}

// enoughFreePages reports whether as much as the reserve is free inside the file, or will
// be with the next commit.
func (s *store) enoughFreePages() bool {
	stats := s.db.Stats()
	return (stats.FreePageN+stats.PendingPageN)*s.pageSize >= reserveSize
}

// usingReserve calls do, and calls it again with the reserve released if that failed.
func (s *store) usingReserve(do func() error) error {
	err := do()
	if err != nil && s.broken == nil && s.reserve.release() {
		err = do()
	}
	return err
}
