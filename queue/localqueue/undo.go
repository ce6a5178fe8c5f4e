package localqueue

// moves are changes of messages' states on their way to the store, and how they
// were before. Its methods are called with the queue's lock held.
type stateChanges struct {
	in       *queueState
	messages []*message
	before   []MessageState
}

// remember is called before a message changes. Safe on nil: without a store
// nobody asks.
func (v *stateChanges) save(m *message) {
	if v == nil {
		return
	}
	v.messages = append(v.messages, m)
	v.before = append(v.before, m.state(v.in.ordinal))
}

// change is what became of the messages.
func (v *stateChanges) change() MessagesUpdated {
	moved := make(MessagesUpdated, len(v.messages))
	for i, m := range v.messages {
		moved[i] = m.state(v.in.ordinal)
	}
	return moved
}

func (v *stateChanges) undo() {
	for i, m := range v.messages {
		was := v.before[i]
		m.dequeues, m.receipt = was.Dequeues, was.Receipt
		if v.in.backlog.messages.get(m.sequence) == m { // else it has expired since
			v.in.backlog.hide(m, instant(was.Due))
		}
	}
}

// state is the message as a store keeps it. The caller holds the lock.
func (m *message) state(ordinal uint64) MessageState {
	return MessageState{
		MessageKey: MessageKey{ordinal, m.sequence},
		Inserted:   int64(m.inserted),
		Expires:    int64(m.expires),
		Due:        int64(m.due),
		Dequeues:   m.dequeues,
		Receipt:    m.receipt,
	}
}

// record writes down a change of the queue, if there is a store. The caller
// holds the lock; undo is called with it held, after what came later was undone.
func (q *Queue) record(s *queueState, c Change, undo func()) {
	if q.engine.committer == nil {
		return
	}
	s.pending = q.engine.committer.add(c, func() { s.undo(undo) })
}

// recordText is record for a change that has the message's text.
func (q *Queue) recordText(s *queueState, m *message, c Change, undo func()) {
	if q.engine.committer == nil {
		return
	}
	s.pending = q.engine.committer.addText(s, m, c, func() { s.undo(undo) })
}

func (s *queueState) undo(undo func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	undo()
	s.pending = nil
}
