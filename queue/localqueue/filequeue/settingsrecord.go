package filequeue

import (
	"encoding/binary"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue/storage"
)

func ordinalKey(ordinal uint64) []byte { return binary.BigEndian.AppendUint64(nil, ordinal) }

func readOrdinal(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, errRecord
	}
	return binary.BigEndian.Uint64(b), nil
}

func queueRecord(key []byte, q storage.QueueState) []byte {
	b := []byte{recordVersion}
	b = appendBytes(b, q.Name.Account)
	b = appendBytes(b, q.Name.Queue)
	b = binary.BigEndian.AppendUint64(b, q.Enqueued)
	b = binary.BigEndian.AppendUint64(b, q.Receipts)
	b = appendBytes(b, q.Policy)
	b = binary.BigEndian.AppendUint64(b, uint64(len(q.Metadata)))
	for name, value := range q.Metadata {
		b = appendBytes(appendBytes(b, name), value)
	}
	return appendChecksum(b, 0, queueBucket, key)
}

func readQueue(key, record []byte) (q storage.QueueState, err error) {
	f, err := openRecord(queueBucket, key, record)
	if err != nil {
		return q, err
	}
	if q.Ordinal, err = readOrdinal(key); err != nil {
		return q, err
	}
	q.Name = queue.Name{Account: f.string(), Queue: f.string()}
	q.Enqueued, q.Receipts = f.uint64(), f.uint64()
	if policy := f.bytes(); len(policy) > 0 {
		q.Policy = append([]byte(nil), policy...)
	}
	for n := f.uint64(); n > 0 && !f.short; n-- {
		if q.Metadata == nil {
			q.Metadata = map[string]string{}
		}
		name := f.string()
		q.Metadata[name] = f.string()
	}
	return q, f.end()
}

// nameRecord is a second copy of a queue's name, in a bucket of its own: messages whose
// queue has no name could not be served.
func nameRecord(key []byte, n queue.Name) []byte {
	b := appendBytes(appendBytes([]byte{recordVersion}, n.Account), n.Queue)
	return appendChecksum(b, 0, nameBucket, key)
}

func readName(key, record []byte) (ordinal uint64, n queue.Name, err error) {
	f, err := openRecord(nameBucket, key, record)
	if err != nil {
		return 0, n, err
	}
	if ordinal, err = readOrdinal(key); err != nil {
		return 0, n, err
	}
	n = queue.Name{Account: f.string(), Queue: f.string()}
	return ordinal, n, f.end()
}

// accountKey is never empty, as bbolt requires, even if the name is.
func accountKey(name string) []byte { return appendBytes(nil, name) }

func accountRecord(key []byte, a storage.AccountState) []byte {
	b := appendBytes(appendBytes([]byte{recordVersion}, a.Name), a.Properties)
	return appendChecksum(b, 0, accountBucket, key)
}

func readAccount(key, record []byte) (a storage.AccountState, err error) {
	f, err := openRecord(accountBucket, key, record)
	if err != nil {
		return a, err
	}
	a.Name = f.string()
	if properties := f.bytes(); len(properties) > 0 {
		a.Properties = append([]byte(nil), properties...)
	}
	return a, f.end()
}

func deletingKey(n queue.Name) []byte { return appendBytes(appendBytes(nil, n.Account), n.Queue) }

func deletingRecord(key []byte, l storage.DeletingName) []byte {
	b := appendBytes(appendBytes([]byte{recordVersion}, l.Name.Account), l.Name.Queue)
	b = binary.BigEndian.AppendUint64(b, uint64(l.Until))
	return appendChecksum(b, 0, deletingBucket, key)
}

func readDeleting(key, record []byte) (l storage.DeletingName, err error) {
	f, err := openRecord(deletingBucket, key, record)
	if err != nil {
		return l, err
	}
	l.Name = queue.Name{Account: f.string(), Queue: f.string()}
	l.Until = f.int64()
	return l, f.end()
}

// A tombstone marks messages of a queue, up to a sequence, as deleted while they are still
// in the file. Its key has all its data.
func tombstoneRecord(key []byte) []byte {
	return appendChecksum([]byte{recordVersion}, 0, tombstoneBucket, key)
}

func readTombstone(key, record []byte) (k storage.MessageKey, err error) {
	f, err := openRecord(tombstoneBucket, key, record)
	if err != nil {
		return k, err
	}
	if k, err = readKey(key); err != nil {
		return k, err
	}
	return k, f.end()
}

// The keys of metaBucket.
var (
	keySecret     = []byte("secret")
	keyOrdinal    = []byte("ordinal") // the largest ever used
	keyDigest     = []byte("tally")
	keyCheckpoint = []byte("folded")
	keyCommit     = []byte("commit") // bbolt's number of the commit
)

func secretRecord(in bucket, secret [32]byte) []byte {
	return appendChecksum(append([]byte{recordVersion}, secret[:]...), 0, in, keySecret)
}

func readSecret(in bucket, record []byte) (secret [32]byte, err error) {
	f, err := openRecord(in, keySecret, record)
	if err != nil {
		return secret, err
	}
	if len(f.rest) != len(secret) {
		return secret, errRecord
	}
	return [32]byte(f.rest), nil
}

func metaRecord(key []byte, n uint64) []byte {
	return appendChecksum(binary.BigEndian.AppendUint64([]byte{recordVersion}, n), 0, metaBucket, key)
}

func readMetaRecord(key, record []byte, into *uint64) error {
	f, err := openRecord(metaBucket, key, record)
	if err != nil {
		return err
	}
	*into = f.uint64()
	return f.end()
}
