package filequeue

import (
	"encoding/binary"

	"github.com/millrace/millrace/queue/localqueue"
)

// What a record of the log says became of a message, each with the message's key, and when.
const (
	recordAdded     = 1 // the whole message follows
	recordRewritten = 2 // the same
	recordUpdated   = 3 // when it is due, how often it was dequeued and its receipt follow
	recordRemoved   = 4 // nothing follows

	recordTime = 5 // no key: the time of the commit follows
)

// loggable tells whether all changes are such as the log has words for: those that every
// message makes. The others are rare, and go into the tree at once.
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

// appendChanges appends loggable changes.
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
