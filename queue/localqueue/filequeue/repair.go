package filequeue

import (
	"errors"
	"math"
	"os"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/internal/boltfile"
	"github.com/millrace/millrace/internal/localengine"
)

// repair makes the file match the snapshot: it quarantines damaged records and rewrites
// settings that are known from elsewhere. In a sound file it only removes names that have
// become free.
func (s *snapshot) repair(tx *bolt.Tx) error {
	w := treeTx{digest: s.actual}
	w.begin(tx)
	// Remove the names that have become free: the engine drops them too.
	at := time.Now().UnixNano()
	for _, l := range s.deleting {
		if l.Until > at {
			continue
		}
		if err := w.deleting.Delete(deletingKey(l.Name)); err != nil {
			return err
		}
	}
	if s.found.Damaged > 0 || s.rebuilt {
		// Move damaged records, and messages without a queue, to the quarantine bucket.
		for _, b := range s.damaged {
			if err := w.quarantined.Put(quarantineKey(b.bucket, b.key), b.record); err != nil {
				return err
			}
			s.found.Quarantined++
			if k, err := readKey(b.key); err == nil && b.bucket.is(bodyBucket) {
				if err := w.remove(k); err != nil {
					return err
				}
				continue
			}
			if err := w.bucket(b.bucket).Delete(b.key); err != nil {
				return err
			}
		}
		for ordinal := range s.orphans {
			if err := s.quarantineOrphans(&w, ordinal); err != nil {
				return err
			}
		}
		if err := s.rewriteSettings(&w); err != nil {
			return err
		}
	}
	s.actual = w.digest
	return w.meta.Put(keyDigest, w.digest.record())
}

func (s *snapshot) quarantineOrphans(w *treeTx, ordinal uint64) error {
	for {
		keys, err := w.firstOf(localengine.MessageKey{Queue: ordinal, Sequence: math.MaxUint64})
		if err != nil || len(keys) == 0 {
			return err
		}
		for _, k := range keys {
			if err := w.quarantine(k); err != nil {
				return err
			}
			s.found.Quarantined++
		}
	}
}

// rewriteSettings writes everything except messages.
func (s *snapshot) rewriteSettings(w *treeTx) error {
	if s.secret != ([32]byte{}) {
		if err := w.secret(s.secret); err != nil {
			return err
		}
	}
	if err := w.meta.Put(keyOrdinal, metaRecord(keyOrdinal, s.ordinal)); err != nil {
		return err
	}
	for _, a := range s.accounts {
		if err := w.change(localengine.AccountSaved(a)); err != nil {
			return err
		}
	}
	for _, q := range s.queues {
		key := ordinalKey(q.Ordinal)
		if err := w.names.Put(key, nameRecord(key, q.Name)); err != nil {
			return err
		}
		if err := w.queues.Put(key, queueRecord(key, q)); err != nil {
			return err
		}
	}
	at := time.Now().UnixNano()
	for _, l := range s.deleting {
		if l.Until <= at {
			continue
		}
		key := deletingKey(l.Name)
		if err := w.deleting.Put(key, deletingRecord(key, l)); err != nil {
			return err
		}
	}
	return nil
}

const (
	// A file of at least rebuildSize bytes is rebuilt when it is opened if at least
	// rebuildFreeShare of it is free.
	rebuildSize      = 64 << 20
	rebuildFreeShare = 0.75

	// copyBatchSize is about how many bytes of messages one commit copies.
	copyBatchSize = 8 << 20
)

// mostlyFree reports whether the file should be rebuilt to free space.
func (s *snapshot) mostlyFree(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Size() >= rebuildSize && s.freeShare >= rebuildFreeShare
}

// rebuild makes a file of the snapshot, with the texts of the old file f, and renames it
// into place: a kill leaves one or the other. A nil f makes a new store.
func (s *store) rebuild(f *os.File) (err error) {
	s.snapshot.rebuilt = true
	defer func() {
		if err != nil {
			err = errors.Join(err, s.dir.remove(rebuildName)) // also if it could not be opened
		}
	}()
	db, err := s.openTree(rebuildName)
	if err != nil {
		return err
	}
	db.NoSync = true // until it is complete
	if err := s.snapshot.writeTo(db, f); err != nil {
		return errors.Join(err, db.Close())
	}
	if err := errors.Join(db.Sync(), db.Close()); err != nil {
		return err
	}
	if err := s.dir.root.Rename(rebuildName, fileName); err != nil {
		return err
	}
	return s.dir.sync()
}

func (s *snapshot) writeTo(db *bolt.DB, f *os.File) error {
	err := db.Update(func(tx *bolt.Tx) error {
		for _, name := range buckets {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.actual = digest{}
	if f != nil {
		if err := s.copyFrom(f, db); err != nil {
			return err
		}
	}
	return db.Update(func(tx *bolt.Tx) error {
		if err := s.repair(tx); err != nil {
			return err
		}
		if err := tx.Bucket(metaBucket).Put(keyCheckpoint, s.checkpoint.record()); err != nil { // logs are replayed later
			return err
		}
		return writeCommitNumber(tx)
	})
}

// copyFrom copies the snapshot's messages and the quarantined records.
func (s *snapshot) copyFrom(f *os.File, db *bolt.DB) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	from, err := boltfile.NewReader(f, info.Size())
	if err != nil {
		return err
	}
	to := copier{db: db, newest: map[localengine.MessageKey]uint64{}}
	again := newSnapshot() // it finds the same records
	again.visitRecords(from, func(b bucket, key, value []byte) {
		switch {
		case b.is(bodyBucket):
			to.message(s, key, value)
		case b.is(quarantineBucket):
			to.put(quarantineBucket, slices.Clone(key), slices.Clone(value))
		}
	})
	to.flush()
	s.actual = to.digest
	return to.err
}

// copier collects what is copied into commits.
type copier struct {
	db     *bolt.DB
	newest map[localengine.MessageKey]uint64 // the receipt of what was copied
	digest digest
	batch  []bucketRecord
	size   int
	err    error // the first error
}

// message copies a message of the snapshot, in its final state. A message without a queue
// is quarantined.
func (to *copier) message(c *snapshot, key, value []byte) {
	m, text, err := readBody(key, value)
	if err != nil {
		return // it is quarantined
	}
	i, ours := slices.BinarySearchFunc(c.messages, m, compareKeys)
	switch {
	case ours && m.Receipt < to.newest[m.MessageKey]:
	case ours:
		to.newest[m.MessageKey] = m.Receipt
		key = slices.Clone(key)
		to.put(bodyBucket, key, appendBody(make([]byte, 0, bodySize+len(text)), key, c.messages[i], string(text)))
	case c.orphans[m.Queue] > 0:
		to.put(quarantineBucket, quarantineKey(bodyBucket, key), slices.Clone(value))
		c.found.Quarantined++
	}
}

func (to *copier) put(in bucket, key, record []byte) {
	to.batch = append(to.batch, bucketRecord{in, key, record})
	if to.size += len(record); to.size >= copyBatchSize {
		to.flush()
	}
}

func (to *copier) flush() {
	if to.err == nil {
		w := treeTx{digest: to.digest}
		to.err = to.db.Update(func(tx *bolt.Tx) error {
			w.begin(tx)
			for _, r := range to.batch {
				if err := w.bucket(r.bucket).Put(r.key, r.record); err != nil {
					return err
				}
			}
			return nil
		})
		to.digest = w.digest
	}
	to.batch, to.size = nil, 0
}
