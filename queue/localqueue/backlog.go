package localqueue

import "github.com/millrace/millrace/queue"

// message is one message as the engine keeps it. Everything in it is guarded by
// the lock of its queue, apart from id, sequence and inserted, which never
// change.
type message struct {
	id       queue.ID
	sequence uint64 // insertion order, from 1
	inserted instant

	text     string
	due      instant // visible from here on
	expires  instant // gone from here on; never when it has no end
	dequeues int64
	receipt  uint64 // ordinal of the newest receipt

	position [places]int // where it stands in each timeline, or absent
}

// backlog is the messages of one queue and the orders they are needed in. It
// knows neither locks nor clocks nor receipts' looks: its queue calls it with
// the lock held and says what time it is. What a store has to keep is exactly
// what passes through add, take, change, remove and clear.
type backlog struct {
	messages map[queue.ID]*message
	due      timeline // every message by when it becomes visible
	expiring timeline // those that have an end, by when that is
}

// small is the number of messages from which on an emptied backlog gives its
// memory back: maps and heaps never shrink by themselves.
const small = 1024

func newBacklog() backlog {
	return backlog{due: timeline{which: byDue}, expiring: timeline{which: byExpiry}}
}

func (b *backlog) len() int { return len(b.messages) }

func (b *backlog) add(m *message) {
	if b.messages == nil { // an idle queue among ten thousand costs next to nothing
		b.messages = make(map[queue.ID]*message)
	}
	m.position = [places]int{absent, absent}
	b.messages[m.id] = m
	b.due.put(m, m.due)
	if m.expires != never {
		b.expiring.put(m, m.expires)
	}
}

func (b *backlog) remove(m *message) {
	delete(b.messages, m.id)
	b.due.remove(m)
	b.expiring.remove(m)
	if len(b.messages) == 0 && cap(b.due.entries) > small {
		*b = newBacklog()
	}
}

// hide moves m to the instant from which on it is visible.
func (b *backlog) hide(m *message, until instant) {
	m.due = until
	b.due.put(m, until)
}

// collect takes away what has expired. Each message is collected once, so the
// cost is O(log n) a message, borne by the calls that come after its end.
func (b *backlog) collect(at instant) {
	for b.expiring.len() > 0 {
		first := b.expiring.first()
		if first.at > at {
			return
		}
		b.remove(first.message)
	}
}

// next returns the first visible message, or nil.
func (b *backlog) next(at instant) *message {
	if b.due.len() == 0 {
		return nil
	}
	if first := b.due.first(); first.at <= at {
		return first.message
	}
	return nil
}
