package filequeue

import (
	"errors"
	"os"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/internal/boltfile"
	"github.com/millrace/millrace/queue/localqueue/storage"
)

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
func (s *Store) rebuild(f *os.File) (err error) {
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
	to := copier{db: db, newest: map[storage.MessageKey]uint64{}}
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
	newest map[storage.MessageKey]uint64 // the receipt of what was copied
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
