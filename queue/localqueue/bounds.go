package localqueue

// bounds are the largest sequence and receipt that the store knows of as
// possibly given out. They run ahead of those that were, so that a crash can
// make neither come again and yet few commits carry them. What is left of a
// reservation is skipped by the next engine over the store.
type highWater struct {
	enqueued uint64
	receipts uint64
}

// ahead is how many are reserved at a time: one more record in that many.
const reserveAhead = 1 << 14

// reserve sees to it that the next sequence and as many receipts as one call
// can give out are within the bounds, in the same commit at the latest. The
// caller holds the lock.
func (q *Queue) reserveNumbers(s *queueState, receipts uint64) {
	if q.engine.committer == nil || s.enqueued < s.reserved.enqueued && s.receipts+receipts <= s.reserved.receipts {
		return
	}
	old := s.reserved
	s.reserved = highWater{enqueued: s.enqueued + reserveAhead, receipts: s.receipts + reserveAhead}
	q.recordState(s, func() { s.reserved = old })
}

// saved writes down what is known of the queue besides its messages, if there
// is a store. The caller holds the lock; undo is called with it held.
func (q *Queue) recordState(s *queueState, undo func()) {
	q.record(s, QueueSaved(s.state()), undo)
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
