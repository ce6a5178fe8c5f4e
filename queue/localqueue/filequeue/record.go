package filequeue

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// A record is a version byte, the fields of its kind, and the Castagnoli CRC of
// bucket, key and all before it: a record that was damaged, or that stands where
// another should, is found out by itself. Numbers are big-endian, so that keys
// sort by them; strings carry their length.
const (
	recordVersion = 1
	secondVersion = 2 // of the kinds that have had two
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errRecord is what a record is found to be that no store wrote.
var errRecord = errors.New("its checksum does not match")

// seal ends a record that begins at start in b with its checksum.
func appendChecksum(b []byte, start int, in bucket, key []byte) []byte {
	return binary.BigEndian.AppendUint32(b, checksum(in, key, b[start:]))
}

func checksum(in bucket, key, fields []byte) uint32 {
	sum := crc32.Update(0, castagnoli, in)
	sum = crc32.Update(sum, castagnoli, key)
	return crc32.Update(sum, castagnoli, fields)
}

// unseal returns the fields of a record, if it is one.
func openRecord(in bucket, key, record []byte) (fields, error) {
	_, f, err := openVersionedRecord(recordVersion, in, key, record)
	return f, err
}

// unsealUpTo is unseal for a kind that has had so many versions.
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

// fields reads the fields of a record, one after the other. What is missing
// reads as zero and is remembered.
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

// end returns whether all that was read was there, and nothing more.
func (f *fields) end() error {
	if f.short || len(f.rest) > 0 {
		return errRecord
	}
	return nil
}

func appendBytes[T string | []byte](b []byte, s T) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(len(s))), s...)
}

// keySize is that of a message's key: the queue's ordinal and the sequence.
const keySize = 16

func appendKey(b []byte, k localqueue.MessageKey) []byte {
	b = binary.BigEndian.AppendUint64(b, k.Queue)
	return binary.BigEndian.AppendUint64(b, k.Sequence)
}

func readKey(b []byte) (localqueue.MessageKey, error) {
	if len(b) != keySize {
		return localqueue.MessageKey{}, errRecord
	}
	return localqueue.MessageKey{Queue: binary.BigEndian.Uint64(b), Sequence: binary.BigEndian.Uint64(b[8:])}, nil
}

func ordinalKey(ordinal uint64) []byte { return binary.BigEndian.AppendUint64(nil, ordinal) }

func readOrdinal(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, errRecord
	}
	return binary.BigEndian.Uint64(b), nil
}

// What records of these kinds take besides a text.
const (
	bodySize = 1 + 2*8 + stateSize + crc32.Size
	headSize = 1 + stateSize + crc32.Size

	stateSize = 3 * 8
)

// appendBody appends the record of a whole message. Its head is there only once
// it differs from what the body says.
func appendBody(b, key []byte, m localqueue.MessageState, text string) []byte {
	start := len(b)
	b = append(b, recordVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(m.Inserted))
	b = binary.BigEndian.AppendUint64(b, uint64(m.Expires))
	b = appendState(b, m)
	b = append(b, text...)
	return appendChecksum(b, start, bodyBucket, key)
}

func appendHead(b, key []byte, m localqueue.MessageState) []byte {
	start := len(b)
	b = appendState(append(b, recordVersion), m)
	return appendChecksum(b, start, headBucket, key)
}

func appendState(b []byte, m localqueue.MessageState) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(m.Due))
	b = binary.BigEndian.AppendUint64(b, uint64(m.Dequeues))
	return binary.BigEndian.AppendUint64(b, m.Receipt)
}

func readBody(key, record []byte) (m localqueue.MessageState, text []byte, err error) {
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

// readHead reads what in a message changes most. The rest is in its body.
func readHead(key, record []byte) (m localqueue.MessageState, err error) {
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

func readState(f *fields, m *localqueue.MessageState) {
	m.Due, m.Dequeues, m.Receipt = f.int64(), f.int64(), f.uint64()
}

func queueRecord(key []byte, q localqueue.QueueState) []byte {
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

func readQueue(key, record []byte) (q localqueue.QueueState, err error) {
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

// nameRecord is a second copy of what a queue is called, in a bucket of its own:
// messages whose queue has no name could not be served.
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

// accountKey is never empty, which a key must not be, even if the name is.
func accountKey(name string) []byte { return appendBytes(nil, name) }

func accountRecord(key []byte, a localqueue.AccountState) []byte {
	b := appendBytes(appendBytes([]byte{recordVersion}, a.Name), a.Properties)
	return appendChecksum(b, 0, accountBucket, key)
}

func readAccount(key, record []byte) (a localqueue.AccountState, err error) {
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

func deletingRecord(key []byte, l localqueue.DeletingName) []byte {
	b := appendBytes(appendBytes([]byte{recordVersion}, l.Name.Account), l.Name.Queue)
	b = binary.BigEndian.AppendUint64(b, uint64(l.Until))
	return appendChecksum(b, 0, deletingBucket, key)
}

func readDeleting(key, record []byte) (l localqueue.DeletingName, err error) {
	f, err := openRecord(deletingBucket, key, record)
	if err != nil {
		return l, err
	}
	l.Name = queue.Name{Account: f.string(), Queue: f.string()}
	l.Until = f.int64()
	return l, f.end()
}

// A sweep is work left over: messages of a queue up to a sequence, which are
// gone for the engine and not yet from the file. It is all in the key.
func tombstoneRecord(key []byte) []byte {
	return appendChecksum([]byte{recordVersion}, 0, tombstoneBucket, key)
}

func readTombstone(key, record []byte) (k localqueue.MessageKey, err error) {
	f, err := openRecord(tombstoneBucket, key, record)
	if err != nil {
		return k, err
	}
	if k, err = readKey(key); err != nil {
		return k, err
	}
	return k, f.end()
}

// The single values, in the bucket of that name.
var (
	keySecret     = []byte("secret")
	keyOrdinal    = []byte("ordinal") // the largest of all queues ever
	keyDigest     = []byte("tally")
	keyCheckpoint = []byte("folded")
	keyCommit     = []byte("commit") // of the tree, as bbolt counts them
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

// What the record of the last commit in the tree says of logs.
const (
	noLogs  uint64 = iota // the tree has everything
	oldLogs               // they are there, and an earlier version wrote them, without end marks
	hasLogs               // they are there, and may have more
)

// folded says what the tree has.
type checkpoint struct {
	number uint64 // the last commit
	logs   uint64 // noLogs, oldLogs or hasLogs
	time   int64  // of the last commit, by the engine's clock; 0 when it is not known
}

func (f checkpoint) record() []byte {
	b := binary.BigEndian.AppendUint64([]byte{secondVersion}, f.number)
	b = binary.BigEndian.AppendUint64(b, f.logs)
	return appendChecksum(binary.BigEndian.AppendUint64(b, uint64(f.time)), 0, metaBucket, keyCheckpoint)
}

func readCheckpoint(record []byte) (checkpoint, error) {
	version, f, err := openVersionedRecord(secondVersion, metaBucket, keyCheckpoint, record)
	if err != nil {
		return checkpoint{}, err
	}
	read := checkpoint{number: f.uint64(), logs: f.uint64()}
	if version == secondVersion {
		read.time = f.int64()
	} else if read.logs != noLogs {
		read.logs = oldLogs
	}
	return read, f.end()
}

func readMetaRecord(key, record []byte, into *uint64) error {
	f, err := openRecord(metaBucket, key, record)
	if err != nil {
		return err
	}
	*into = f.uint64()
	return f.end()
}
