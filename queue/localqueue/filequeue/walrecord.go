package filequeue

import (
	"encoding/binary"

	"github.com/millrace/millrace/queue/localqueue/storage"
)

// A log record has a header (see recordHeader) with the number of the commit, the length of the fields
// and checksums, and then the fields: the changes of the commit, each a byte for its kind and its
// values. All kinds but the time begin with the message's key.
const (
	recordAdded     = 1 // then the whole message
	recordRewritten = 2 // then the whole message
	recordUpdated   = 3 // then visibility, dequeue count and receipt
	recordRemoved   = 4 // then nothing

	recordTime = 5 // no key; then the time of the commit
)

// loggable reports whether a log record can hold all the changes: those that every message
// makes. Others are rare and go into the tree at once.
func loggable(changes []storage.Change) bool {
	for _, c := range changes {
		switch c.(type) {
		case storage.MessageAdded, storage.MessageRewritten, storage.MessagesUpdated,
			storage.MessageRemoved, storage.MessagesExpired, storage.CommittedAt:
		default:
			return false
		}
	}
	return true
}

func appendChanges(b []byte, changes []storage.Change) []byte {
	for _, c := range changes {
		switch c := c.(type) {
		case storage.MessageAdded:
			b = appendMessage(append(b, recordAdded), c.MessageState, c.Text)
		case storage.MessageRewritten:
			b = appendMessage(append(b, recordRewritten), c.MessageState, c.Text)
		case storage.MessagesUpdated:
			for _, m := range c {
				b = appendState(appendKey(append(b, recordUpdated), m.MessageKey), m)
			}
		case storage.MessageRemoved:
			b = appendKey(append(b, recordRemoved), storage.MessageKey(c))
		case storage.MessagesExpired:
			for _, k := range c {
				b = appendKey(append(b, recordRemoved), k)
			}
		case storage.CommittedAt:
			b = binary.BigEndian.AppendUint64(append(b, recordTime), uint64(c))
		}
	}
	return b
}

func appendMessage(b []byte, m storage.MessageState, text string) []byte {
	b = appendKey(b, m.MessageKey)
	b = binary.BigEndian.AppendUint64(b, uint64(m.Inserted))
	b = binary.BigEndian.AppendUint64(b, uint64(m.Expires))
	return appendBytes(appendState(b, m), text)
}

func readChanges(b []byte) (changes []storage.Change, err error) {
	for f := (fields{rest: b}); len(f.rest) > 0; {
		kind := f.rest[0]
		f.rest = f.rest[1:]
		if kind == recordTime {
			if changes = append(changes, storage.CommittedAt(f.int64())); f.short {
				return nil, errRecord
			}
			continue
		}
		m := storage.MessageState{MessageKey: storage.MessageKey{Queue: f.uint64(), Sequence: f.uint64()}}
		switch kind {
		case recordAdded, recordRewritten:
			m.Inserted, m.Expires = f.int64(), f.int64()
			readState(&f, &m)
			if text := f.string(); kind == recordAdded {
				changes = append(changes, storage.MessageAdded{MessageState: m, Text: text})
			} else {
				changes = append(changes, storage.MessageRewritten{MessageState: m, Text: text})
			}
		case recordUpdated:
			readState(&f, &m)
			changes = append(changes, storage.MessagesUpdated{m})
		case recordRemoved:
			changes = append(changes, storage.MessageRemoved(m.MessageKey))
		default:
			return nil, ErrNewer
		}
		if f.short {
			return nil, errRecord
		}
	}
	return changes, nil
}
