package dispatcher

import (
	"context"
	"sync"
	"time"
)

// slots counts the room for running handlers. A slot is used from the moment it
// is reserved for a dequeue until its handler has returned; it is then free while
// its settlement goes on, as long as no more than concurrency settlements are
// under way: each one more holds a slot, whichever that is.
type slots struct {
	// turn is held by the one loop that reserves. A channel, not a mutex:
	// waiting for it must end with the context, and a goroutine blocked on a mutex
	// would hang a synctest bubble.
	turn chan struct{}

	// freed wakes the loop that holds the turn.
	freed chan struct{}

	batch int // how many slots a dequeue uses at most

	mu      sync.Mutex
	size    int  // concurrency; guarded by mu
	wanted  int  // what setOpen was told; guarded by mu
	maxOpen int  // what setOpen was told; guarded by mu
	open    int  // how many may be used, see narrow; guarded by mu
	extra   int  // how many more than open the next reservation may use; guarded by mu
	used    int  // reserved or running; guarded by mu
	running int  // handlers running; guarded by mu
	pending int  // settlements under way; guarded by mu
	waiting bool // who reserved last found no free slot, and waits; guarded by mu
}

func newSlots(size, batch int) *slots {
	return &slots{
		turn: make(chan struct{}, 1), freed: make(chan struct{}, 1), batch: batch,
		size: size, wanted: size, maxOpen: size, open: size,
	}
}

// takeTurn waits until nobody else reserves, or returns false when ctx ended first.
// Who came first is first.
func (s *slots) takeTurn(ctx context.Context) bool {
	select {
	case s.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *slots) endTurn() { <-s.turn }

// reserve waits until least slots are free, or any after linger, and takes up to
// most of them. It returns 0 when ctx ended first. The caller has the turn.
func (s *slots) reserve(ctx context.Context, maxSlots, minSlots int, linger time.Duration) int {
	var timer *time.Timer // runs from when the first slot is free
	var lingered <-chan time.Time
	patient := linger > 0
	for ctx.Err() == nil {
		n, free := s.take(maxSlots, minSlots, patient)
		if n > 0 {
			return n
		}
		if free > 0 && timer == nil {
			timer = time.NewTimer(linger)
			defer timer.Stop()
			lingered = timer.C
		}
		select {
		case <-s.freed:
		case <-lingered:
			patient = false
		case <-ctx.Done():
		}
	}
	return 0
}

// take reserves up to most slots if at least least are free, or any when not
// patient; it also tells how many were free.
func (s *slots) take(maxSlots, minSlots int, patient bool) (n, free int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free = s.open - s.used
	if free <= 0 {
		free = min(s.extra, s.size-s.used)
	}
	free -= s.excessSettlements()
	s.waiting = free <= 0
	if free <= 0 || patient && free < min(minSlots, maxSlots, s.open) {
		return 0, free
	}
	n = min(maxSlots, free)
	s.used += n
	s.extra = 0
	return n, free
}

// surplus is how many settlements are too many. Requires mu.
func (s *slots) excessSettlements() int { return max(s.pending-s.size, 0) }

// unreserve gives back n slots that a dequeue did not fill with what is handled.
func (s *slots) unreserve(n int) {
	s.mu.Lock()
	s.used -= n
	s.updateOpen()
	s.mu.Unlock()
	s.signal()
}

// started turns a reserved slot into a running one.
func (s *slots) started() {
	s.mu.Lock()
	s.running++
	s.mu.Unlock()
}

// settling begins the settlement of a delivery and frees its slot. If ran, its handler
// was running until now.
func (s *slots) freeForSettlement(ran bool) {
	s.mu.Lock()
	if ran {
		s.running--
	}
	s.pending++
	s.used--
	s.updateOpen()
	s.mu.Unlock()
	s.signal()
}

// giveUp frees the slot of a running handler that will not return.
func (s *slots) giveUp() {
	s.mu.Lock()
	s.running--
	s.used--
	s.updateOpen()
	s.mu.Unlock()
	s.signal()
}

// pend begins the settlement of a delivery whose slot is free already.
func (s *slots) beginSettlement() {
	s.mu.Lock()
	s.pending++
	s.mu.Unlock()
}

// settled ends a settlement.
func (s *slots) endSettlement() {
	s.mu.Lock()
	waited := s.excessSettlements() > 0
	s.pending--
	s.mu.Unlock()
	if waited {
		s.signal()
	}
}

// setOpen changes how many slots may be used to those wanted, as narrow says.
func (s *slots) setOpen(wanted, maxOpen int) {
	s.mu.Lock()
	s.wanted, s.maxOpen = wanted, maxOpen
	s.updateOpen()
	s.mu.Unlock()
	s.signal()
}

// narrow closes the slots that are open and no longer wanted, as handlers return: as long
// as handlers use what was opened, room for one dequeue beside them stays open, or nobody
// would hear of new work until they are done. Requires mu.
func (s *slots) updateOpen() {
	s.open = min(max(s.wanted, min(s.open, s.used+s.batch, s.maxOpen)), s.size)
}

// openOnce lets one reservation use up to n slots though all that are open are taken.
func (s *slots) openOnce(n int) {
	s.mu.Lock()
	s.extra = n
	s.mu.Unlock()
	s.signal()
}

// resize changes the concurrency.
func (s *slots) resize(n int) {
	s.mu.Lock()
	s.size = n
	s.updateOpen()
	s.mu.Unlock()
	s.signal()
}

// saturated tells whether somebody waits because all open slots are taken, and more could
// be opened.
func (s *slots) saturated() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting && s.used >= s.open && s.open < s.size
}

func (s *slots) capacity() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

func (s *slots) counts() (running, pending int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running, s.pending
}

// signal wakes the waiting loop. One place in the channel is enough: the loop
// looks at the counts after every wake-up.
func (s *slots) signal() {
	select {
	case s.freed <- struct{}{}:
	default:
	}
}
