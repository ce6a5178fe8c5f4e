package localqueue

// highWater holds upper limits, known to the store, of the sequences and receipts issued. They are
// reserved in advance, so that no number is issued twice after a crash and few commits record them.
// The next engine over the store skips the rest of a reservation.
type highWater struct {
	enqueued uint64
	receipts uint64
}

// reserveAhead is how many numbers are reserved at a time.
const reserveAhead = 1 << 14

// reserveNumbers makes sure that the next sequence and the given number of receipts are
// reserved by this commit or an earlier one. The caller holds the lock.
func (q *Queue) reserveNumbers(s *queueState, receipts uint64) {
	if q.engine.committer == nil || s.enqueued < s.reserved.enqueued && s.receipts+receipts <= s.reserved.receipts {
		return
	}
	old := s.reserved
	s.reserved = highWater{enqueued: s.enqueued + reserveAhead, receipts: s.receipts + reserveAhead}
	q.recordState(s, func() { s.reserved = old })
}
