package localqueue

// message is one message in memory. The queue's lock guards all fields except sequence and
// inserted, which never change.
type message struct {
	sequence uint64 // insertion order, from 1
	inserted instant

	text     string  // "" if only the store has it
	unsaved  uint64  // the number of the batch that saves the text; 0 when it is saved, or there is no store
	due      instant // visible at and after
	expires  instant // expired at and after; never if it has no TTL
	dequeues int64
	receipt  uint64 // ordinal of the newest receipt

	position [indexes]int // its position in each timeline, or absent
}

// backlog holds the messages of one queue and the indexes over them. It has no lock and no
// clock: the queue calls it with its lock held and passes the time. A store has to record
// exactly what passes through add, hide, remove and clear.
type backlog struct {
	messages table    // every message by its sequence
	due      timeline // every message by the time it becomes visible
	expiring timeline // messages with a TTL, by expiry
}

// shrinkAbove is the capacity above which an emptied backlog releases its memory: maps and
// slices never shrink by themselves.
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

func (b *backlog) hide(m *message, until instant) {
	m.due = until
	b.due.put(m, until)
}

func (b *backlog) expired(at instant) *message {
	if b.expiring.len() > 0 {
		if first := b.expiring.first(); first.at <= at {
			return first.message
		}
	}
	return nil
}

// removeIfPresent removes m unless it is gone already.
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
