package filequeue

import (
	"encoding/binary"

	"github.com/millrace/millrace/queue/localqueue"
)

// The kinds of changes in a log record. All but the time begin with the message's key.
const (
	recordAdded     = 1 // then the whole message
	recordRewritten = 2 // then the whole message
	recordUpdated   = 3 // then visibility, dequeue count and receipt
	recordRemoved   = 4 // then nothing

	recordTime = 5 // no key; then the time of the commit
)

// loggable reports whether a log record can hold all the changes: those that every message
// makes. Others are rare and go into the tree at once.
func loggable(changes []localqueue.Change) bool {
	for _, c := range changes {
		switch c.(type) {
		case localqueue.MessageAdded, localqueue.MessageRewritten, localqueue.MessagesUpdated,
			localqueue.MessageRemoved, localqueue.MessagesExpired, localqueue.CommittedAt:
		default:
			return false
		}
	}
	return true
}

// appendChanges appends loggable changes to a record.
func appendChanges(b []byte, changes []localqueue.Change) []byte {
	for _, c := range changes {
		switch c := c.(type) {
		case localqueue.MessageAdded:
			b = appendMessage(append(b, recordAdded), c.MessageState, c.Text)
		case localqueue.MessageRewritten:
			b = appendMessage(append(b, recordRewritten), c.MessageState, c.Text)
		case localqueue.MessagesUpdated:
			for _, m := range c {
				b = appendState(appendKey(append(b, recordUpdated), m.MessageKey), m)
			}
		case localqueue.MessageRemoved:
			b = appendKey(append(b, recordRemoved), localqueue.MessageKey(c))
		case localqueue.MessagesExpired:
			for _, k := range c {
				b = appendKey(append(b, recordRemoved), k)
			}
		case localqueue.CommittedAt:
			b = binary.BigEndian.AppendUint64(append(b, recordTime), uint64(c))
		}
	}
	return b
}

func appendMessage(b []byte, m localqueue.MessageState, text string) []byte {
	b = appendKey(b, m.MessageKey)
	b = binary.BigEndian.AppendUint64(b, uint64(m.Inserted))
	b = binary.BigEndian.AppendUint64(b, uint64(m.Expires))
	return appendBytes(appendState(b, m), text)
}

// readChanges reads the fields of a record.
func readChanges(b []byte) (changes []localqueue.Change, err error) {
	for f := (fields{rest: b}); len(f.rest) > 0; {
		kind := f.rest[0]
		f.rest = f.rest[1:]
		if kind == recordTime {
			if changes = append(changes, localqueue.CommittedAt(f.int64())); f.short {
				return nil, errRecord
			}
			continue
		}
		m := localqueue.MessageState{MessageKey: localqueue.MessageKey{Queue: f.uint64(), Sequence: f.uint64()}}
		switch kind {
		case recordAdded, recordRewritten:
			m.Inserted, m.Expires = f.int64(), f.int64()
			readState(&f, &m)
			if text := f.string(); kind == recordAdded {
				changes = append(changes, localqueue.MessageAdded{MessageState: m, Text: text})
			} else {
				changes = append(changes, localqueue.MessageRewritten{MessageState: m, Text: text})
			}
		case recordUpdated:
			readState(&f, &m)
			changes = append(changes, localqueue.MessagesUpdated{m})
		case recordRemoved:
			changes = append(changes, localqueue.MessageRemoved(m.MessageKey))
		default:
			return nil, ErrNewer
		}
		if f.short {
			return nil, errRecord
		}
	}
	return changes, nil
}
