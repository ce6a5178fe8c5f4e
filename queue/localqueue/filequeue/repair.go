package filequeue

import (
	"math"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/queue/localqueue/storage"
)

// repair makes the file match the snapshot: it quarantines damaged records and rewrites
// settings that are known from elsewhere. In a sound file it only removes names that have
// become free.
func (s *snapshot) repair(tx *bolt.Tx) error {
	w := treeTx{digest: s.actual}
	w.begin(tx)
	if err := s.deleteExpiredNames(&w); err != nil {
		return err
	}
	if s.found.Damaged > 0 || s.rebuilt {
		if err := s.quarantineDamaged(&w); err != nil {
			return err
		}
		if err := s.rewriteSettings(&w); err != nil {
			return err
		}
	}
	s.actual = w.digest
	return w.meta.Put(keyDigest, w.digest.record())
}

// deleteExpiredNames removes the names that have become free: the engine drops them too.
func (s *snapshot) deleteExpiredNames(w *treeTx) error {
	at := time.Now().UnixNano()
	for _, l := range s.deleting {
		if l.Until > at {
			continue
		}
		if err := w.deleting.Delete(deletingKey(l.Name)); err != nil {
			return err
		}
	}
	return nil
}

// quarantineDamaged moves damaged records, and messages without a queue, to the quarantine
// bucket.
func (s *snapshot) quarantineDamaged(w *treeTx) error {
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
		if err := s.quarantineOrphans(w, ordinal); err != nil {
			return err
		}
	}
	return nil
}

func (s *snapshot) quarantineOrphans(w *treeTx, ordinal uint64) error {
	for {
		keys, err := w.firstOf(storage.MessageKey{Queue: ordinal, Sequence: math.MaxUint64})
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
		if err := w.change(storage.AccountSaved(a)); err != nil {
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
