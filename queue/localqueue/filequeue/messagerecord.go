package filequeue

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/millrace/millrace/queue/localqueue/storage"
)

// keySize is the size of a message's key: the queue's ordinal and the sequence.
const keySize = 16

func appendKey(b []byte, k storage.MessageKey) []byte {
	b = binary.BigEndian.AppendUint64(b, k.Queue)
	return binary.BigEndian.AppendUint64(b, k.Sequence)
}

func readKey(b []byte) (storage.MessageKey, error) {
	if len(b) != keySize {
		return storage.MessageKey{}, errRecord
	}
	return storage.MessageKey{Queue: binary.BigEndian.Uint64(b), Sequence: binary.BigEndian.Uint64(b[8:])}, nil
}

// Sizes of records, without the text.
const (
	bodySize = 1 + 2*8 + stateSize + crc32.Size
	headSize = 1 + stateSize + crc32.Size

	stateSize = 3 * 8
)

// appendBody appends the record of a whole message. There is a head only once the state
// differs from the body's.
func appendBody(b, key []byte, m storage.MessageState, text string) []byte {
	start := len(b)
	b = append(b, recordVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(m.Inserted))
	b = binary.BigEndian.AppendUint64(b, uint64(m.Expires))
	b = appendState(b, m)
	b = append(b, text...)
	return appendChecksum(b, start, bodyBucket, key)
}

func appendHead(b, key []byte, m storage.MessageState) []byte {
	start := len(b)
	b = appendState(append(b, recordVersion), m)
	return appendChecksum(b, start, headBucket, key)
}

func appendState(b []byte, m storage.MessageState) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(m.Due))
	b = binary.BigEndian.AppendUint64(b, uint64(m.Dequeues))
	return binary.BigEndian.AppendUint64(b, m.Receipt)
}

func readBody(key, record []byte) (m storage.MessageState, text []byte, err error) {
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
func readHead(key, record []byte) (m storage.MessageState, err error) {
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

func readState(f *fields, m *storage.MessageState) {
	m.Due, m.Dequeues, m.Receipt = f.int64(), f.int64(), f.uint64()
}
