package localqueue

// message is one message as the engine keeps it. Everything in it is guarded by
// the lock of its queue, apart from sequence and inserted, which never change.
type message struct {
	sequence uint64 // insertion order, from 1
	inserted instant

	text     string  // "" when only the store has it
	unsaved  uint64  // the number of the batch that saves the text; 0 when it is saved, or there is no store
	due      instant // visible from here on
	expires  instant // gone from here on; never when it has no end
	dequeues int64
	receipt  uint64 // ordinal of the newest receipt

	position [indexes]int // where it stands in each timeline, or absent
}

// backlog is the messages of one queue and the orders they are needed in. It
// knows neither locks nor clocks nor receipts' looks: its queue calls it with
// the lock held and says what time it is. What a store has to keep is exactly
// what passes through add, take, change, remove and clear.
type backlog struct {
	messages table    // every message by its sequence
	due      timeline // every message by when it becomes visible
	expiring timeline // those that have an end, by when that is
}

// small is the number of messages from which on an emptied backlog gives its
// memory back: maps and heaps never shrink by themselves.
const shrinkAbove = 1024

func newBacklog() backlog {
	return backlog{due: timeline{index: byDue}, expiring: timeline{index: byExpiry}}
}

func (b *backlog) len() int { return b.messages.len }

func (b *backlog) add(m *message) {
	m.position = [indexes]int{absent, absent}
	b.messages.put(m)
	if m.due <= m.inserted {
		b.due.add(m, m.due)
	} else {
		b.due.put(m, m.due)
	}
	if m.expires != never {
		b.expiring.add(m, m.expires)
	}
}

func (b *backlog) remove(m *message) {
	b.messages.remove(m.sequence)
	b.due.remove(m)
	b.expiring.remove(m)
	if b.len() == 0 && cap(b.due.heap)+cap(b.expiring.heap) > shrinkAbove {
		*b = newBacklog()
	}
}

// hide moves m to the instant from which on it is visible.
func (b *backlog) hide(m *message, until instant) {
	m.due = until
	b.due.put(m, until)
}

// expired returns a message that is over, or nil.
func (b *backlog) expired(at instant) *message {
	if b.expiring.len() > 0 {
		if first := b.expiring.first(); first.at <= at {
			return first.message
		}
	}
	return nil
}

// withdraw removes a message unless it has gone already.
func (b *backlog) removeIfPresent(m *message) {
	if b.messages.get(m.sequence) == m {
		b.remove(m)
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
