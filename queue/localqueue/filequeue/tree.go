package filequeue

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/internal/openfile"
)

// openTree opens a sound tree, or makes one.
//
// The freelist is kept in a map and not written with each commit: after a big drain it is
// so long that either would take most of a commit's time.
func (s *store) openTree(name string) (*bolt.DB, error) {
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
func (s *store) update(change func(*bolt.Tx) error) (err error) {
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
func (s *store) checkDeleted() error {
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

func (s *store) newestCommit() (id int, err error) {
	err = s.db.View(func(tx *bolt.Tx) error { id = tx.ID(); return nil })
	return id, err
}

// closeTree closes the tree. After a panic, bbolt's locks may be held for ever; the file is
// unlocked all the same, so that it can be opened again.
func (s *store) closeTree() error {
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

// bucket is the name of a bucket of the file: a tree of its own. The names are part of the
// format.
type bucket []byte

var (
	metaBucket       = bucket("store")    // secret, ordinal, digest, checkpoint, commit
	accountBucket    = bucket("accounts") // name → service properties
	queueBucket      = bucket("queues")   // ordinal → everything except messages
	nameBucket       = bucket("names")    // ordinal → name; and a copy of the secret
	deletingBucket   = bucket("leaving")  // name of a dropped queue → when it is free
	tombstoneBucket  = bucket("sweeps")   // ordinal, sequence: messages up to there are deleted
	headBucket       = bucket("heads")    // ordinal, sequence → due, dequeues, receipt
	bodyBucket       = bucket("bodies")   // ordinal, sequence → the message as it was enqueued or rewritten
	quarantineBucket = bucket("aside")    // bucket, key → a damaged record
)

// buckets is all of them, in the order in which they are read: settings before messages.
var buckets = []bucket{metaBucket, accountBucket, nameBucket, queueBucket, deletingBucket, tombstoneBucket, headBucket, bodyBucket, quarantineBucket}

// bucketWriter writes to a bucket and updates its digest.
type bucketWriter struct {
	*bolt.Bucket
	set *recordSet // nil for the bucket that has the digests
}

// Put writes a record, in place of any that is there.
func (t bucketWriter) Put(key, record []byte) error {
	if t.set != nil {
		if was := t.Get(key); was != nil {
			t.set.remove(key, was)
		}
		t.set.add(key, record)
	}
	return t.Bucket.Put(key, record)
}

// Delete removes a record, if it is there.
func (t bucketWriter) Delete(key []byte) error {
	c := t.Cursor()
	found, was := c.Seek(key)
	if string(found) != string(key) {
		return nil
	}
	if t.set != nil {
		t.set.remove(key, was)
	}
	return c.Delete()
}

// treeTx is one write transaction on the tree.
type treeTx struct {
	id     int
	digest digest
	more   bool

	meta, accounts, queues, names, deleting, tombstones, heads, bodies, quarantined bucketWriter

	key []byte // reused buffer
}

// bodyFill is the fill percentage of pages of bodies. Their keys only grow, so later inserts need no
// free space.
const bodyFill = 0.95

func (w *treeTx) begin(tx *bolt.Tx) {
	w.id = tx.ID()
	for _, name := range buckets {
		*w.bucket(name) = bucketWriter{tx.Bucket(name), w.digest.of(name)}
	}
	w.bodies.FillPercent = bodyFill
}

func (w *treeTx) apply(log []outcome, changes []localengine.Change, has checkpoint) error {
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

// end writes what belongs to every commit: the digest and the checkpoint.
func (w *treeTx) end(has checkpoint) error {
	if err := w.meta.Put(keyCheckpoint, has.record()); err != nil {
		return err
	}
	return w.meta.Put(keyDigest, w.digest.record())
}

// outcome writes the outcome of a message from the log.
func (w *treeTx) outcome(o outcome) error {
	switch o.kind {
	case recordAdded:
		return w.add(o.MessageState, o.text)
	case recordRewritten:
		return w.rewrite(o.MessageState, o.text)
	case recordUpdated:
		return w.updateStates(localengine.MessagesUpdated{o.MessageState})
	default:
		return w.remove(o.MessageKey)
	}
}

func (w *treeTx) change(c localengine.Change) error {
	switch c := c.(type) {
	case localengine.SecretSaved:
		return w.secret(c)
	case localengine.AccountSaved:
		key := appendBytes(nil, c.Name)
		return w.accounts.Put(key, accountRecord(key, localengine.AccountState(c)))
	case localengine.QueueSaved:
		return w.queue(localengine.QueueState(c))
	case localengine.QueueCleared:
		return w.addTombstone(localengine.MessageKey(c))
	case localengine.QueueDropped:
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
		return w.addTombstone(localengine.MessageKey{Queue: c.Ordinal, Sequence: math.MaxUint64})
	case localengine.MessageAdded:
		return w.add(c.MessageState, c.Text)
	case localengine.MessageRewritten:
		return w.rewrite(c.MessageState, c.Text)
	case localengine.MessagesUpdated:
		return w.updateStates(c)
	case localengine.MessageRemoved:
		return w.remove(localengine.MessageKey(c))
	case localengine.MessagesExpired:
		return w.removeAll(c)
	case localengine.MessageQuarantined:
		return w.quarantine(localengine.MessageKey(c))
	case localengine.CommittedAt:
		return nil // part of the checkpoint
	}
	return fmt.Errorf("unknown kind of change %T", c)
}

func (w *treeTx) secret(secret [32]byte) error {
	if err := w.meta.Put(keySecret, secretRecord(metaBucket, secret)); err != nil {
		return err
	}
	return w.names.Put(keySecret, secretRecord(nameBucket, secret))
}

// queue writes a queue. Its ordinal is never used again.
func (w *treeTx) queue(q localengine.QueueState) error {
	key := ordinalKey(q.Ordinal)
	if w.queues.Get(key) == nil {
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
		if err := w.names.Put(key, nameRecord(key, q.Name)); err != nil {
			return err
		}
	}
	return w.queues.Put(key, queueRecord(key, q))
}

func (w *treeTx) add(m localengine.MessageState, text string) error {
	// bbolt keeps the value until the commit, but copies the key.
	key := appendKey(w.key[:0], m.MessageKey)
	w.key = key
	return w.bodies.Put(key, appendBody(make([]byte, 0, bodySize+len(text)), key, m, text))
}

func (w *treeTx) rewrite(m localengine.MessageState, text string) error {
	if err := w.remove(m.MessageKey); err != nil {
		return err
	}
	return w.add(m, text)
}

func (w *treeTx) updateStates(moved localengine.MessagesUpdated) error {
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

// remove removes a message if it exists: an expired one may have been removed with its tombstone.
func (w *treeTx) remove(k localengine.MessageKey) error {
	key := appendKey(w.key[:0], k)
	w.key = key
	if err := w.bodies.Delete(key); err != nil {
		return err
	}
	return w.heads.Delete(key)
}

func (w *treeTx) removeAll(keys []localengine.MessageKey) error {
	for _, k := range keys {
		if err := w.remove(k); err != nil {
			return err
		}
	}
	return nil
}

func (w *treeTx) quarantine(k localengine.MessageKey) error {
	key := appendKey(nil, k)
	if record := w.bodies.Get(key); record != nil {
		if err := w.quarantined.Put(quarantineKey(bodyBucket, key), bytes.Clone(record)); err != nil {
			return err
		}
	}
	return w.remove(k)
}

func (w *treeTx) addTombstone(k localengine.MessageKey) error {
	key := appendKey(nil, k)
	return w.tombstones.Put(key, appendChecksum([]byte{recordVersion}, 0, tombstoneBucket, key))
}

// removeTombstoned continues the removal of deleted messages with the first tombstone.
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
func (w *treeTx) firstOf(k localengine.MessageKey) (keys []localengine.MessageKey, err error) {
	c := w.bodies.Cursor()
	for key, _ := c.Seek(appendKey(nil, localengine.MessageKey{Queue: k.Queue})); key != nil && len(keys) < maxTombstoned; key, _ = c.Next() {
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

// quarantineKey is the key of a quarantined record. A damaged key may be too long for
// bbolt.
func quarantineKey(in bucket, key []byte) []byte {
	return append(appendBytes(nil, []byte(in)), key[:min(len(key), 1024)]...)
}

// maxTombstoned is how many messages of a cleared or dropped queue one commit removes. More would
// delay the callers of that commit.
const maxTombstoned = 4096

func (w *treeTx) bucket(name bucket) *bucketWriter {
	switch {
	case name.is(metaBucket):
		return &w.meta
	case name.is(accountBucket):
		return &w.accounts
	case name.is(nameBucket):
		return &w.names
	case name.is(queueBucket):
		return &w.queues
	case name.is(deletingBucket):
		return &w.deleting
	case name.is(tombstoneBucket):
		return &w.tombstones
	case name.is(headBucket):
		return &w.heads
	case name.is(bodyBucket):
		return &w.bodies
	default:
		return &w.quarantined
	}
}
