package localqueue

import "github.com/millrace/millrace/queue/localqueue/storage"

// stateChanges are changes of message states that wait to be committed, and the states
// before them. The caller of its methods holds the queue's lock.
type stateChanges struct {
	in       *queueState
	messages []*message
	before   []storage.MessageState
}

// save keeps the state of a message that is about to change. It does nothing on nil, which
// stands for an engine without a store.
func (c *stateChanges) save(m *message) {
	if c == nil {
		return
	}
	c.messages = append(c.messages, m)
	c.before = append(c.before, m.state(c.in.ordinal))
}

func (c *stateChanges) change() storage.MessagesUpdated {
	moved := make(storage.MessagesUpdated, len(c.messages))
	for i, m := range c.messages {
		moved[i] = m.state(c.in.ordinal)
	}
	return moved
}

func (c *stateChanges) undo() {
	for i, m := range c.messages {
		was := c.before[i]
		m.dequeues, m.receipt = was.Dequeues, was.Receipt
		if c.in.backlog.messages.get(m.sequence) == m { // else it has expired since
			c.in.backlog.hide(m, instant(was.Due))
		}
	}
}

// state returns the message as a store keeps it. The caller holds the lock.
func (m *message) state(ordinal uint64) storage.MessageState {
	return storage.MessageState{
		MessageKey: storage.MessageKey{Queue: ordinal, Sequence: m.sequence},
		Inserted:   int64(m.inserted),
		Expires:    int64(m.expires),
		Due:        int64(m.due),
		Dequeues:   m.dequeues,
		Receipt:    m.receipt,
	}
}

// record adds a change of the queue to the current batch, if there is a store. The caller
// holds the lock. If the commit fails, undo runs with the lock held, after all later
// changes were undone.
func (q *Queue) record(s *queueState, c storage.Change, undo func()) {
	if q.engine.committer == nil {
		return
	}
	s.pending = q.engine.committer.add(c, func() { q.undo(s, undo) })
}

func (q *Queue) recordText(s *queueState, m *message, c storage.Change, undo func()) {
	if q.engine.committer == nil {
		return
	}
	s.pending = q.engine.committer.addText(s, m, c, func() { q.undo(s, undo) })
}

// undo runs an undo function with the lock held.
func (q *Queue) undo(s *queueState, undo func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	undo()
	s.pending = nil
	q.look(s) // messages may be visible again
}
