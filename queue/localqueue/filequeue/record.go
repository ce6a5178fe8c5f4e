package filequeue

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/queue"
)

// A record is a version byte, the fields of its kind, and the CRC-32C (Castagnoli) of
// bucket, key and all before it, so that a damaged or misplaced record is detected by
// itself. Numbers are big-endian, so that keys sort by them; strings are prefixed with
// their length.
const (
	recordVersion = 1
	secondVersion = 2 // of kinds with several versions
	thirdVersion  = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errRecord means that no store wrote the record.
var errRecord = errors.New("its checksum does not match")

// appendChecksum ends the record that begins at start in b.
func appendChecksum(b []byte, start int, in bucket, key []byte) []byte {
	return binary.BigEndian.AppendUint32(b, checksum(in, key, b[start:]))
}

func checksum(in bucket, key, fields []byte) uint32 {
	sum := crc32.Update(0, castagnoli, in)
	sum = crc32.Update(sum, castagnoli, key)
	return crc32.Update(sum, castagnoli, fields)
}

func openRecord(in bucket, key, record []byte) (fields, error) {
	_, f, err := openVersionedRecord(recordVersion, in, key, record)
	return f, err
}

// openVersionedRecord is openRecord for a kind with several versions.
func openVersionedRecord(newest byte, in bucket, key, record []byte) (version byte, f fields, err error) {
	end := len(record) - crc32.Size
	if end < 1 || binary.BigEndian.Uint32(record[end:]) != checksum(in, key, record[:end]) {
		return 0, f, errRecord
	}
	if record[0] < recordVersion || record[0] > newest {
		return 0, f, ErrNewer
	}
	return record[0], fields{rest: record[1:end]}, nil
}

// fields reads the fields of a record in order. Missing ones read as zero and set short.
type fields struct {
	rest  []byte
	short bool
}

func (f *fields) uint64() uint64 {
	if len(f.rest) < 8 {
		f.rest, f.short = nil, true
		return 0
	}
	n := binary.BigEndian.Uint64(f.rest)
	f.rest = f.rest[8:]
	return n
}

func (f *fields) int64() int64 { return int64(f.uint64()) }

func (f *fields) bytes() []byte {
	n := f.uint64()
	if n > uint64(len(f.rest)) {
		f.rest, f.short = nil, true
		return nil
	}
	b := f.rest[:n]
	f.rest = f.rest[n:]
	return b
}

func (f *fields) string() string { return string(f.bytes()) }

// end returns an error unless exactly all fields were read.
func (f *fields) end() error {
	if f.short || len(f.rest) > 0 {
		return errRecord
	}
	return nil
}

func appendBytes[T string | []byte](b []byte, s T) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(len(s))), s...)
}

// digest summarizes the records of the tree, regardless of order. Every commit writes it,
// so that a page of an earlier commit in place of the newest is detected, which checksums
// of records cannot do.
type digest struct {
	bodies recordSet
	others recordSet // those of the other buckets, except metaBucket
}

// recordSet summarizes a set of records: their number and the sum of their hashes.
type recordSet struct{ count, sum uint64 }

func (d *recordSet) add(key, record []byte)    { d.count++; d.sum += hash(key, record) }
func (d *recordSet) remove(key, record []byte) { d.count--; d.sum -= hash(key, record) }

// hash combines the key with the checksum that ends its record, using the finalizer of
// SplitMix64.
func hash(key, record []byte) uint64 {
	var sum [crc32.Size]byte
	copy(sum[:], record[max(0, len(record)-crc32.Size):])
	h := uint64(crc32.Checksum(key, castagnoli))<<32 | uint64(binary.BigEndian.Uint32(sum[:]))
	h = (h ^ h>>30) * 0xBF58476D1CE4E5B9
	h = (h ^ h>>27) * 0x94D049BB133111EB
	return h ^ h>>31
}

// of returns the set of a bucket, nil for metaBucket, which has the digest itself.
func (t *digest) of(b bucket) *recordSet {
	switch {
	case b.is(metaBucket):
		return nil
	case b.is(bodyBucket):
		return &t.bodies
	default:
		return &t.others
	}
}

func (t *digest) record() []byte {
	b := []byte{secondVersion}
	for _, n := range []uint64{t.bodies.count, t.bodies.sum, t.others.count, t.others.sum} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return appendChecksum(b, 0, metaBucket, keyDigest)
}

// readDigest also reports whether the record is of a version that only counted messages.
func readDigest(record []byte) (t digest, onlyCounted bool, err error) {
	version, f, err := openVersionedRecord(secondVersion, metaBucket, keyDigest, record)
	if err != nil {
		return t, false, err
	}
	t.bodies = recordSet{f.uint64(), f.uint64()}
	if version == secondVersion {
		t.others = recordSet{f.uint64(), f.uint64()}
	}
	return t, version == recordVersion, f.end()
}

// keySize is the size of a message's key: the queue's ordinal and the sequence.
const keySize = 16

func appendKey(b []byte, k localengine.MessageKey) []byte {
	b = binary.BigEndian.AppendUint64(b, k.Queue)
	return binary.BigEndian.AppendUint64(b, k.Sequence)
}

func readKey(b []byte) (localengine.MessageKey, error) {
	if len(b) != keySize {
		return localengine.MessageKey{}, errRecord
	}
	return localengine.MessageKey{Queue: binary.BigEndian.Uint64(b), Sequence: binary.BigEndian.Uint64(b[8:])}, nil
}

// Sizes of records, without the text.
const (
	bodySize = 1 + 2*8 + stateSize + crc32.Size
	headSize = 1 + stateSize + crc32.Size

	stateSize = 3 * 8
)

// appendBody appends the record of a whole message. There is a head only once the state
// differs from the body's.
func appendBody(b, key []byte, m localengine.MessageState, text string) []byte {
	start := len(b)
	b = append(b, recordVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(m.Inserted))
	b = binary.BigEndian.AppendUint64(b, uint64(m.Expires))
	b = appendState(b, m)
	b = append(b, text...)
	return appendChecksum(b, start, bodyBucket, key)
}

func appendHead(b, key []byte, m localengine.MessageState) []byte {
	start := len(b)
	b = appendState(append(b, recordVersion), m)
	return appendChecksum(b, start, headBucket, key)
}

func appendState(b []byte, m localengine.MessageState) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(m.Due))
	b = binary.BigEndian.AppendUint64(b, uint64(m.Dequeues))
	return binary.BigEndian.AppendUint64(b, m.Receipt)
}

func readBody(key, record []byte) (m localengine.MessageState, text []byte, err error) {
	f, err := openRecord(bodyBucket, key, record)
	if err != nil {
		return m, nil, err
	}
	if m.MessageKey, err = readKey(key); err != nil {
		return m, nil, err
	}
	m.Inserted, m.Expires = f.int64(), f.int64()
	readState(&f, &m)
	text, f.rest = f.rest, nil
	return m, text, f.end()
}

// readHead reads the state that dequeues and updates change. The rest is in the body.
func readHead(key, record []byte) (m localengine.MessageState, err error) {
	f, err := openRecord(headBucket, key, record)
	if err != nil {
		return m, err
	}
	if m.MessageKey, err = readKey(key); err != nil {
		return m, err
	}
	readState(&f, &m)
	return m, f.end()
}

func readState(f *fields, m *localengine.MessageState) {
	m.Due, m.Dequeues, m.Receipt = f.int64(), f.int64(), f.uint64()
}

func ordinalKey(ordinal uint64) []byte { return binary.BigEndian.AppendUint64(nil, ordinal) }

func readOrdinal(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, errRecord
	}
	return binary.BigEndian.Uint64(b), nil
}

func queueRecord(key []byte, q localengine.QueueState) []byte {
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

func readQueue(key, record []byte) (q localengine.QueueState, err error) {
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

func accountRecord(key []byte, a localengine.AccountState) []byte {
	b := appendBytes(appendBytes([]byte{recordVersion}, a.Name), a.Properties)
	return appendChecksum(b, 0, accountBucket, key)
}

func readAccount(key, record []byte) (a localengine.AccountState, err error) {
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

func deletingRecord(key []byte, l localengine.DeletingName) []byte {
	b := appendBytes(appendBytes([]byte{recordVersion}, l.Name.Account), l.Name.Queue)
	b = binary.BigEndian.AppendUint64(b, uint64(l.Until))
	return appendChecksum(b, 0, deletingBucket, key)
}

func readDeleting(key, record []byte) (l localengine.DeletingName, err error) {
	f, err := openRecord(deletingBucket, key, record)
	if err != nil {
		return l, err
	}
	l.Name = queue.Name{Account: f.string(), Queue: f.string()}
	l.Until = f.int64()
	return l, f.end()
}

func readTombstone(key, record []byte) (k localengine.MessageKey, err error) {
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
