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
