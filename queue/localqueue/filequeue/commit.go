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
	s.remember(changes)
	if err = s.roomFor(changes); err == nil {
		more, err = s.commit(changes)
	}
	if err != nil && s.broken == nil && s.ballast.drop() && !grow(changes) {
		more, err = s.commit(changes)
	}
	if err != nil {
		return false, fmt.Errorf("filequeue: commit to %s: %w", s.path(), err)
	}
	return more, nil
}

// remember takes the time of a commit, which the next to the tree writes.
func (s *Store) remember(changes []localqueue.Change) {
	for _, c := range changes {
		if at, is := c.(localqueue.TimePassed); is {
			s.time = max(s.time, int64(at))
		}
	}
}

func (s *Store) commit(changes []localqueue.Change) (more bool, err error) {
	switch {
	case s.sweeping || !loggable(changes):
		return s.foldAndLog(changes)
	case len(changes) == 0:
		return false, nil
	case !s.ready:
		return s.foldAndLog(changes)
	}
	switch err := s.log(changes); {
	case err == nil:
		return false, nil
	case s.broken != nil:
		return false, err
	}
	return s.fold(changes)
}

// foldAndLog commits to the tree, and begins logs if there are none that can be used.
func (s *Store) foldAndLog(changes []localqueue.Change) (more bool, err error) {
	more, err = s.fold(changes)
	if err == nil && !s.ready {
		_ = s.startLogs() // else it is tried again with the next commit
	}
	return more, err
}

// roomFor fails when the changes need space for good that the disk did not have
// and the file has not either. What deletes made free is in the log until a checkpoint, so
// there is one before anything is refused; then there is nothing to gain by another, however
// many are refused.
func (s *Store) roomFor(changes []localqueue.Change) error {
	if s.ballast.there() || !grow(changes) || s.roomInside() {
		return nil
	}
	err := s.ballast.raise()
	if err == nil {
		return nil
	}
	if len(s.pending.messages) > 0 || s.sweeping {
		if _, failed := s.fold(nil); failed != nil {
			err = errors.Join(err, failed)
		} else if s.roomInside() {
			return nil
		}
	}
	return fmt.Errorf("the disk was full, and still is: %w", err)
}

// roomInside tells whether as much as the ballast is free inside the file, or will be with
// the next commit.
func (s *Store) roomInside() bool {
	stats := s.db.Stats()
	return (stats.FreePageN+stats.PendingPageN)*s.pageSize >= ballastSize
}

// mostTouched is how many messages that the tree has may be changed in the log. Each may
// be on pages of its own, for which there must be room: see ballastSize.
const mostTouched = 512

// touches is how many messages that the tree has the changes are about, at most.
func touches(changes []localqueue.Change) (n int) {
	for _, c := range changes {
		switch c := c.(type) {
		case localqueue.MessageAdded, localqueue.TimePassed:
		case localqueue.MessagesMoved:
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
func (s *Store) log(changes []localqueue.Change) (err error) {
	if s.pending.touched+touches(changes) > mostTouched {
		return errLogFull
	}
	if time.Since(s.looked) >= lookEvery {
		if err := s.deleted(); err != nil {
			return err
		}
	}
	to, number := s.logs[s.logging], s.number+1
	s.record, err = to.append(number, appendChanges(s.record[:recordHeader], changes))
	if cap(s.record) > 2*logSize { // many large texts came together
		s.record = make([]byte, recordHeader)
	}
	if errors.Is(err, errLogFull) {
		return err
	}
	if err != nil {
		if again := to.endHere(s.number); again != nil {
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
func (s *Store) fold(changes []localqueue.Change) (more bool, err error) {
	for _, c := range changes {
		if _, is := c.(localqueue.SecretSaved); is {
			s.ready = false // what is in the logs is salted with another
		}
	}
	var w writing
	err = s.update(func(tx *bolt.Tx) error {
		w = writing{tally: s.tally}
		w.begin(tx)
		return w.all(s.pending.inOrder(), changes, s.foldedNext())
	})
	if err != nil {
		if err = s.failed(&w, err); err != nil {
			return false, err
		}
	}
	s.number++
	s.folded = s.number
	s.tally, s.sweeping = w.tally, w.more
	for _, c := range changes {
		if secret, is := c.(localqueue.SecretSaved); is {
			s.secret = secret
			s.saltLogs(secret)
		}
	}
	s.forget()
	return w.more, nil
}

// foldedNext is what the tree has after the commit that comes next.
func (s *Store) foldedNext() folded {
	if s.ready {
		return folded{s.number + 1, hasLogs, s.time}
	}
	return folded{s.number + 1, noLogs, s.time}
}

// forget goes on with an empty log. The one that was used is left as it is until the
// next fold: should the newest tree turn out to be torn, the one before and that log
// still have everything.
func (s *Store) forget() {
	s.pending = newPending()
	s.recent.Store(newRecent(s.number))
	if l := s.logs[s.logging]; l != nil && l.end > 0 {
		s.logging = 1 - s.logging
		if l := s.logs[s.logging]; l != nil {
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
func (s *Store) failed(w *writing, cause error) error {
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
	again := func(tx *bolt.Tx) error { return tx.Bucket(singles).Put(keyTally, w.tally.record()) }
	if s.update(again) == nil {
		return nil
	}
	return s.uncertain(cause)
}

// writing is one commit to the tree under way.
type writing struct {
	id    int
	tally tally
	more  bool

	singles, accounts, queues, names, leaving, sweeps, heads, bodies, aside tallied

	key []byte // room for the next one
}

// fill is how full pages of bodies are made. Their keys only grow, so that there
// is nothing to leave room for.
const fill = 0.95

func (w *writing) begin(tx *bolt.Tx) {
	w.id = tx.ID()
	for _, name := range buckets {
		*w.bucket(name) = tallied{tx.Bucket(name), w.tally.of(name)}
	}
	w.bodies.FillPercent = fill
}

func (w *writing) all(log []outcome, changes []localqueue.Change, has folded) error {
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
	if err := w.sweep(); err != nil {
		return err
	}
	return w.end(has)
}

// end writes what every commit does: what the bodies are, and which commit it is.
func (w *writing) end(has folded) error {
	if err := w.singles.Put(keyFolded, has.record()); err != nil {
		return err
	}
	return w.singles.Put(keyTally, w.tally.record())
}

// outcome writes what became of a message by the log.
func (w *writing) outcome(o outcome) error {
	switch o.kind {
	case logAdded:
		return w.add(o.MessageState, o.text)
	case logRewritten:
		return w.rewrite(o.MessageState, o.text)
	case logMoved:
		return w.move(localqueue.MessagesMoved{o.MessageState})
	default:
		return w.remove(o.MessageKey)
	}
}

func (w *writing) change(c localqueue.Change) error {
	switch c := c.(type) {
	case localqueue.SecretSaved:
		return w.secret(c)
	case localqueue.AccountSaved:
		key := accountKey(c.Name)
		return w.accounts.Put(key, accountRecord(key, localqueue.AccountState(c)))
	case localqueue.QueueSaved:
		return w.queue(localqueue.QueueState(c))
	case localqueue.QueueCleared:
		return w.sweepLater(localqueue.MessageKey(c))
	case localqueue.QueueDropped:
		return w.drop(c)
	case localqueue.MessageAdded:
		return w.add(c.MessageState, c.Text)
	case localqueue.MessageRewritten:
		return w.rewrite(c.MessageState, c.Text)
	case localqueue.MessagesMoved:
		return w.move(c)
	case localqueue.MessageRemoved:
		return w.remove(localqueue.MessageKey(c))
	case localqueue.MessagesExpired:
		return w.removeAll(c)
	case localqueue.MessageSetAside:
		return w.setAside(localqueue.MessageKey(c))
	case localqueue.TimePassed:
		return nil // it is with what the tree has
	}
	return fmt.Errorf("a change of an unknown kind, %T", c)
}

func (w *writing) secret(secret [32]byte) error {
	if err := w.singles.Put(keySecret, secretRecord(singles, secret)); err != nil {
		return err
	}
	return w.names.Put(keySecret, secretRecord(names, secret))
}

// queue saves a queue. Its ordinal counts as given out for ever.
func (w *writing) queue(q localqueue.QueueState) error {
	key := ordinalKey(q.Ordinal)
	if w.queues.Get(key) == nil {
		if err := w.create(key, q); err != nil {
			return err
		}
	}
	return w.queues.Put(key, queueRecord(key, q))
}

func (w *writing) create(key []byte, q localqueue.QueueState) error {
	var largest uint64
	if record := w.singles.Get(keyOrdinal); record != nil {
		if err := readSingle(keyOrdinal, record, &largest); err != nil {
			return err
		}
	}
	if err := w.singles.Put(keyOrdinal, singleRecord(keyOrdinal, max(largest, q.Ordinal))); err != nil {
		return err
	}
	if err := w.leaving.Delete(leavingKey(q.Name)); err != nil {
		return err
	}
	return w.names.Put(key, nameRecord(key, q.Name))
}

func (w *writing) drop(c localqueue.QueueDropped) error {
	key := ordinalKey(c.Ordinal)
	if err := w.queues.Delete(key); err != nil {
		return err
	}
	if err := w.names.Delete(key); err != nil {
		return err
	}
	if c.Leaving.Until != 0 {
		key := leavingKey(c.Leaving.Name)
		if err := w.leaving.Put(key, leavingRecord(key, c.Leaving)); err != nil {
			return err
		}
	}
	return w.sweepLater(localqueue.MessageKey{Queue: c.Ordinal, Sequence: math.MaxUint64})
}

func (w *writing) add(m localqueue.MessageState, text string) error {
	// bbolt keeps the value until the commit and copies the key.
	key := appendKey(w.key[:0], m.MessageKey)
	w.key = key
	return w.bodies.Put(key, appendBody(make([]byte, 0, bodySize+len(text)), key, m, text))
}

func (w *writing) rewrite(m localqueue.MessageState, text string) error {
	if err := w.remove(m.MessageKey); err != nil {
		return err
	}
	return w.add(m, text)
}

func (w *writing) move(moved localqueue.MessagesMoved) error {
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
func (w *writing) remove(k localqueue.MessageKey) error {
	key := appendKey(w.key[:0], k)
	w.key = key
	if err := w.bodies.Delete(key); err != nil {
		return err
	}
	return w.heads.Delete(key)
}

func (w *writing) removeAll(keys []localqueue.MessageKey) error {
	for _, k := range keys {
		if err := w.remove(k); err != nil {
			return err
		}
	}
	return nil
}

func (w *writing) setAside(k localqueue.MessageKey) error {
	key := appendKey(nil, k)
	if record := w.bodies.Get(key); record != nil {
		if err := w.aside.Put(asideKey(bodies, key), bytes.Clone(record)); err != nil {
			return err
		}
	}
	return w.remove(k)
}

// asideKey is where a record is kept that was taken out of a bucket. A damaged key
// may be longer than one can be.
func asideKey(in bucket, key []byte) []byte {
	return append(appendBytes(nil, []byte(in)), key[:min(len(key), 1024)]...)
}

func (w *writing) sweepLater(k localqueue.MessageKey) error {
	key := appendKey(nil, k)
	return w.sweeps.Put(key, sweepRecord(key))
}

// mostSwept is how many messages one commit takes away of what a clear or a drop
// left: others wait for it.
const mostSwept = 4096

// sweep goes on with the first sweep there is.
func (w *writing) sweep() error {
	key, record := w.sweeps.Cursor().First()
	if key == nil {
		return nil
	}
	k, err := readSweep(key, record)
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
	return w.sweeps.Delete(bytes.Clone(key))
}

// firstOf returns the first messages of a queue up to a sequence.
func (w *writing) firstOf(k localqueue.MessageKey) (keys []localqueue.MessageKey, err error) {
	c := w.bodies.Cursor()
	for key, _ := c.Seek(appendKey(nil, localqueue.MessageKey{Queue: k.Queue})); key != nil && len(keys) < mostSwept; key, _ = c.Next() {
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
