package filequeue

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/queue/localqueue"
)

// Commit implements [localqueue.Store]. What the log has words and room for goes there,
// anything else into the tree together with what is in the log.
func (s *Store) Commit(changes []localqueue.Change) (more bool, err error) {
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

// remember takes the time of a commit, which the next to the tree writes.
func (s *Store) noteTime(changes []localqueue.Change) {
	for _, c := range changes {
		if at, is := c.(localqueue.CommittedAt); is {
			s.time = max(s.time, int64(at))
		}
	}
}

func (s *Store) commit(changes []localqueue.Change) (more bool, err error) {
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

// foldAndLog commits to the tree, and begins logs if there are none that can be used.
func (s *Store) checkpointAndLog(changes []localqueue.Change) (more bool, err error) {
	more, err = s.checkpoint(changes)
	if err == nil && !s.logsReady {
		_ = s.startLogs() // else it is tried again with the next commit
	}
	return more, err
}

// roomFor fails when the changes need space for good that the disk did not have
// and the file has not either. What deletes made free is in the log until a checkpoint, so
// there is one before anything is refused; then there is nothing to gain by another, however
// many are refused.
func (s *Store) ensureSpace(changes []localqueue.Change) error {
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
	return fmt.Errorf("the disk was full, and still is: %w", err)
}

// roomInside tells whether as much as the ballast is free inside the file, or will be with
// the next commit.
func (s *Store) enoughFreePages() bool {
	stats := s.db.Stats()
	return (stats.FreePageN+stats.PendingPageN)*s.pageSize >= reserveSize
}

// mostTouched is how many messages that the tree has may be changed in the log. Each may
// be on pages of its own, for which there must be room: see ballastSize.
const maxTouched = 512

// touches is how many messages that the tree has the changes are about, at most.
func treeChanges(changes []localqueue.Change) (n int) {
	for _, c := range changes {
		switch c := c.(type) {
		case localqueue.MessageAdded, localqueue.CommittedAt:
		case localqueue.MessagesUpdated:
			n += len(c)
		case localqueue.MessagesExpired:
			n += len(c)
		default:
			n++
		}
	}
	return n
}

// log is a commit to the log. After an error nothing was committed, unless the store is
// broken then.
func (s *Store) appendToLog(changes []localqueue.Change) (err error) {
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
	if cap(s.logBuffer) > 2*logSize { // many large texts came together
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

// fold commits to the tree what is in the log, and changes. It writes what changed and
// what leads there, waits for the disk, then writes where the newest tree begins, and
// waits again: a kill or a power cut in between leaves the commit before.
func (s *Store) checkpoint(changes []localqueue.Change) (more bool, err error) {
	for _, c := range changes {
		if _, is := c.(localqueue.SecretSaved); is {
			s.logsReady = false // what is in the logs is salted with another
		}
	}
	var w treeTx
	err = s.update(func(tx *bolt.Tx) error {
		w = treeTx{digest: s.digest}
		w.begin(tx)
		return w.apply(s.pending.inOrder(), changes, s.nextCheckpoint())
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
		if secret, is := c.(localqueue.SecretSaved); is {
			s.secret = secret
			s.saltLogs(secret)
		}
	}
	s.switchLogs()
	return w.more, nil
}

// foldedNext is what the tree has after the commit that comes next.
func (s *Store) nextCheckpoint() checkpoint {
	if s.logsReady {
		return checkpoint{s.number + 1, hasLogs, s.time}
	}
	return checkpoint{s.number + 1, noLogs, s.time}
}

// forget goes on with an empty log. The one that was used is left as it is until the
// next fold: should the newest tree turn out to be torn, the one before and that log
// still have everything.
func (s *Store) switchLogs() {
	s.pending = newPending()
	s.recent.Store(newRecentTexts(s.number))
	if l := s.logs[s.active]; l != nil && l.end > 0 {
		s.active = 1 - s.active
		if l := s.logs[s.active]; l != nil {
			l.end = 0
		}
	}
}

// uncertain ends all writing: nobody knows what the disk has, and any answer would be a
// guess.
func (s *Store) uncertain(cause error) error {
	s.broken = fmt.Errorf("a commit failed before, stop and open the directory again: %w", cause)
	return fmt.Errorf("%w: %w", localqueue.ErrUncertain, cause)
}

// failed finds out what became of a commit that failed. Before its end, nothing
// did. If only the last wait for the disk failed, then it can be read and may not
// outlive a power cut. To wait again proves nothing, because the system forgets
// what it could not write; but another commit writes the other meta page, and if
// that reaches the disk so has all that it rests on.
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

// writing is one commit to the tree under way.
type treeTx struct {
	id     int
	digest digest
	more   bool

	meta, accounts, queues, names, deleting, tombstones, heads, bodies, quarantined bucketWriter

	key []byte // room for the next one
}

// fill is how full pages of bodies are made. Their keys only grow, so that there
// is nothing to leave room for.
const bodyFill = 0.95

func (w *treeTx) begin(tx *bolt.Tx) {
	w.id = tx.ID()
	for _, name := range buckets {
		*w.bucket(name) = bucketWriter{tx.Bucket(name), w.digest.of(name)}
	}
	w.bodies.FillPercent = bodyFill
}

func (w *treeTx) apply(log []outcome, changes []localqueue.Change, has checkpoint) error {
	for _, o := range log {
		if err := w.outcome(o); err != nil {
			return err
		}
	}
	for _, c := range changes {
		if err := w.change(c); err != nil {
			return err
		}
	}
	if err := w.removeTombstoned(); err != nil {
		return err
	}
	return w.end(has)
}

// end writes what every commit does: what the bodies are, and which commit it is.
func (w *treeTx) end(has checkpoint) error {
	if err := w.meta.Put(keyCheckpoint, has.record()); err != nil {
		return err
	}
	return w.meta.Put(keyDigest, w.digest.record())
}

// outcome writes what became of a message by the log.
func (w *treeTx) outcome(o outcome) error {
	switch o.kind {
	case recordAdded:
		return w.add(o.MessageState, o.text)
	case recordRewritten:
		return w.rewrite(o.MessageState, o.text)
	case recordUpdated:
		return w.updateStates(localqueue.MessagesUpdated{o.MessageState})
	default:
		return w.remove(o.MessageKey)
	}
}

func (w *treeTx) change(c localqueue.Change) error {
	switch c := c.(type) {
	case localqueue.SecretSaved:
		return w.secret(c)
	case localqueue.AccountSaved:
		key := accountKey(c.Name)
		return w.accounts.Put(key, accountRecord(key, localqueue.AccountState(c)))
	case localqueue.QueueSaved:
		return w.queue(localqueue.QueueState(c))
	case localqueue.QueueCleared:
		return w.addTombstone(localqueue.MessageKey(c))
	case localqueue.QueueDropped:
		return w.drop(c)
	case localqueue.MessageAdded:
		return w.add(c.MessageState, c.Text)
	case localqueue.MessageRewritten:
		return w.rewrite(c.MessageState, c.Text)
	case localqueue.MessagesUpdated:
		return w.updateStates(c)
	case localqueue.MessageRemoved:
		return w.remove(localqueue.MessageKey(c))
	case localqueue.MessagesExpired:
		return w.removeAll(c)
	case localqueue.MessageQuarantined:
		return w.quarantine(localqueue.MessageKey(c))
	case localqueue.CommittedAt:
		return nil // it is with what the tree has
	}
	return fmt.Errorf("a change of an unknown kind, %T", c)
}

func (w *treeTx) secret(secret [32]byte) error {
	if err := w.meta.Put(keySecret, secretRecord(metaBucket, secret)); err != nil {
		return err
	}
	return w.names.Put(keySecret, secretRecord(nameBucket, secret))
}

// queue saves a queue. Its ordinal counts as given out for ever.
func (w *treeTx) queue(q localqueue.QueueState) error {
	key := ordinalKey(q.Ordinal)
	if w.queues.Get(key) == nil {
		if err := w.create(key, q); err != nil {
			return err
		}
	}
	return w.queues.Put(key, queueRecord(key, q))
}

func (w *treeTx) create(key []byte, q localqueue.QueueState) error {
	var largest uint64
	if record := w.meta.Get(keyOrdinal); record != nil {
		if err := readMetaRecord(keyOrdinal, record, &largest); err != nil {
			return err
		}
	}
	if err := w.meta.Put(keyOrdinal, metaRecord(keyOrdinal, max(largest, q.Ordinal))); err != nil {
		return err
	}
	if err := w.deleting.Delete(deletingKey(q.Name)); err != nil {
		return err
	}
	return w.names.Put(key, nameRecord(key, q.Name))
}

func (w *treeTx) drop(c localqueue.QueueDropped) error {
	key := ordinalKey(c.Ordinal)
	if err := w.queues.Delete(key); err != nil {
		return err
	}
	if err := w.names.Delete(key); err != nil {
		return err
	}
	if c.Deleting.Until != 0 {
		key := deletingKey(c.Deleting.Name)
		if err := w.deleting.Put(key, deletingRecord(key, c.Deleting)); err != nil {
			return err
		}
	}
	return w.addTombstone(localqueue.MessageKey{Queue: c.Ordinal, Sequence: math.MaxUint64})
}

func (w *treeTx) add(m localqueue.MessageState, text string) error {
	// bbolt keeps the value until the commit and copies the key.
	key := appendKey(w.key[:0], m.MessageKey)
	w.key = key
	return w.bodies.Put(key, appendBody(make([]byte, 0, bodySize+len(text)), key, m, text))
}

func (w *treeTx) rewrite(m localqueue.MessageState, text string) error {
	if err := w.remove(m.MessageKey); err != nil {
		return err
	}
	return w.add(m, text)
}

func (w *treeTx) updateStates(moved localqueue.MessagesUpdated) error {
	records := make([]byte, 0, len(moved)*headSize)
	for _, m := range moved {
		key := appendKey(w.key[:0], m.MessageKey)
		w.key = key
		start := len(records)
		records = appendHead(records, key, m)
		if err := w.heads.Put(key, records[start:len(records):len(records)]); err != nil {
			return err
		}
	}
	return nil
}

// remove takes a message away, if it is there: one that expired may be taken away
// by a sweep before.
func (w *treeTx) remove(k localqueue.MessageKey) error {
	key := appendKey(w.key[:0], k)
	w.key = key
	if err := w.bodies.Delete(key); err != nil {
		return err
	}
	return w.heads.Delete(key)
}

func (w *treeTx) removeAll(keys []localqueue.MessageKey) error {
	for _, k := range keys {
		if err := w.remove(k); err != nil {
			return err
		}
	}
	return nil
}

func (w *treeTx) quarantine(k localqueue.MessageKey) error {
	key := appendKey(nil, k)
	if record := w.bodies.Get(key); record != nil {
		if err := w.quarantined.Put(quarantineKey(bodyBucket, key), bytes.Clone(record)); err != nil {
			return err
		}
	}
	return w.remove(k)
}

// asideKey is where a record is kept that was taken out of a bucket. A damaged key
// may be longer than one can be.
func quarantineKey(in bucket, key []byte) []byte {
	return append(appendBytes(nil, []byte(in)), key[:min(len(key), 1024)]...)
}

func (w *treeTx) addTombstone(k localqueue.MessageKey) error {
	key := appendKey(nil, k)
	return w.tombstones.Put(key, tombstoneRecord(key))
}

// mostSwept is how many messages one commit takes away of what a clear or a drop
// left: others wait for it.
const maxTombstoned = 4096

// sweep goes on with the first sweep there is.
func (w *treeTx) removeTombstoned() error {
	key, record := w.tombstones.Cursor().First()
	if key == nil {
		return nil
	}
	k, err := readTombstone(key, record)
	if err != nil {
		return err
	}
	w.more = true
	gone, err := w.firstOf(k)
	if err != nil {
		return err
	}
	if len(gone) > 0 {
		return w.removeAll(gone)
	}
	return w.tombstones.Delete(bytes.Clone(key))
}

// firstOf returns the first messages of a queue up to a sequence.
func (w *treeTx) firstOf(k localqueue.MessageKey) (keys []localqueue.MessageKey, err error) {
	c := w.bodies.Cursor()
	for key, _ := c.Seek(appendKey(nil, localqueue.MessageKey{Queue: k.Queue})); key != nil && len(keys) < maxTombstoned; key, _ = c.Next() {
		next, err := readKey(key)
		if err != nil {
			return nil, err
		}
		if next.Queue != k.Queue || next.Sequence > k.Sequence {
			break
		}
		keys = append(keys, next)
	}
	return keys, nil
}
