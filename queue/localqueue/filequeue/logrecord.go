package filequeue

import (
	"encoding/binary"

	"github.com/millrace/millrace/queue/localqueue"
)

// What a record of the log says became of a message, each with the message's key, and when.
const (
	logAdded     = 1 // the whole message follows
	logRewritten = 2 // the same
	logMoved     = 3 // when it is due, how often it was dequeued and its receipt follow
	logRemoved   = 4 // nothing follows

	logTime = 5 // no key: the time of the commit follows
)

// loggable tells whether all changes are such as the log has words for: those that every
// message makes. The others are rare, and go into the tree at once.
func loggable(changes []localqueue.Change) bool {
	for _, c := range changes {
		switch c.(type) {
		case localqueue.MessageAdded, localqueue.MessageRewritten, localqueue.MessagesMoved,
			localqueue.MessageRemoved, localqueue.MessagesExpired, localqueue.TimePassed:
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
			b = appendWhole(append(b, logAdded), c.MessageState, c.Text)
		case localqueue.MessageRewritten:
			b = appendWhole(append(b, logRewritten), c.MessageState, c.Text)
		case localqueue.MessagesMoved:
			for _, m := range c {
				b = appendState(appendKey(append(b, logMoved), m.MessageKey), m)
			}
		case localqueue.MessageRemoved:
			b = appendKey(append(b, logRemoved), localqueue.MessageKey(c))
		case localqueue.MessagesExpired:
			for _, k := range c {
				b = appendKey(append(b, logRemoved), k)
			}
		case localqueue.TimePassed:
			b = binary.BigEndian.AppendUint64(append(b, logTime), uint64(c))
		}
	}
	return b
}

func appendWhole(b []byte, m localqueue.MessageState, text string) []byte {
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
		if kind == logTime {
			if changes = append(changes, localqueue.TimePassed(f.int64())); f.short {
				return nil, errRecord
			}
			continue
		}
		m := localqueue.MessageState{MessageKey: localqueue.MessageKey{Queue: f.uint64(), Sequence: f.uint64()}}
		switch kind {
		case logAdded, logRewritten:
			m.Inserted, m.Expires = f.int64(), f.int64()
			readState(&f, &m)
			if text := f.string(); kind == logAdded {
				changes = append(changes, localqueue.MessageAdded{MessageState: m, Text: text})
			} else {
				changes = append(changes, localqueue.MessageRewritten{MessageState: m, Text: text})
			}
		case logMoved:
			readState(&f, &m)
			changes = append(changes, localqueue.MessagesMoved{m})
		case logRemoved:
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
