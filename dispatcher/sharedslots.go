package dispatcher

// Slots are slots that several dispatchers share: a member of a pool of package pool is one
// dispatcher's access to them. One dispatcher uses it at a time, between [Slots.Join] and [Slots.Leave].
// The methods are called while locks of the dispatcher are held: they must not block, and must not call
// the dispatcher. They are safe for concurrent use.
type Slots interface {
	// Size returns how many slots there are for all, which is the default of Options.Concurrency, or an
	// error that says why these cannot be used.
	Size() (int, error)

	// Join begins the use. From then on freed is sent a value, without waiting, whenever a Take that took
	// nothing should be called again. It is an error if another dispatcher uses these slots.
	Join(freed chan<- struct{}) error

	// Take takes slots for one dequeue, or none if too few are free for it. Then the dispatcher waits,
	// and free says how many slots are kept for it meanwhile. The latest request counts.
	Take(r SlotRequest) (taken, free int)

	// Withdraw says that the dispatcher does not wait any more, and will not ask for more slots soon.
	Withdraw()

	// Free returns slots that were taken.
	Free(n int)

	// Leave ends the use and returns all slots that are still taken.
	Leave()
}

// SlotRequest says for how many slots a dispatcher asks in [Slots.Take].
type SlotRequest struct {
	Least int // how many are worth a dequeue; fewer are taken if so many cannot be had
	Most  int // how many can be used

	// Likely is how many messages the queue may well have, from the last dequeue. Slots beyond are taken
	// on speculation, and others cannot use them while the dequeue lasts.
	Likely int

	// Unanswered is how many slots were taken for dequeues that have brought no message yet.
	Unanswered int
}

// likelyGrowth is how many times as many messages as the last dequeue brought may well come next. So a
// queue in which work appears is asked for a full batch after three dequeues.
const likelyGrowth = 4

// share makes s take its slots from these, if they are not nil. It is called before the first use.
func (s *slots) share(shared Slots) *slots {
	s.sharing, s.shared = shared != nil, shared
	return s
}

// takeShared takes up to n shared slots if at least least of them are worth a dequeue. Requires mu.
func (s *slots) takeShared(least, n int) (taken, free int) {
	taken, free = s.shared.Take(SlotRequest{Least: least, Most: n, Likely: s.likely, Unanswered: s.used - s.running})
	s.asking = taken == 0
	return taken, free
}

// withdraw says that no caller of reserve waits for shared slots any more.
func (s *slots) withdraw() {
	s.mu.Lock()
	s.withdrawLocked()
	s.mu.Unlock()
}

// withdrawLocked is withdraw with mu held.
func (s *slots) withdrawLocked() {
	if s.asking {
		s.asking = false
		s.shared.Withdraw()
	}
}

// received notes how many messages a dequeue has brought. After none the next one may be long in coming,
// and no slots need to be kept for it.
func (s *slots) received(messages int) {
	if !s.sharing {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.likely = likelyGrowth * messages
	if messages == 0 {
		s.restLocked()
	}
}

// rest says that shared slots may not be asked for soon: none need to be kept for the next request.
func (s *slots) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restLocked()
}

// restLocked is rest with mu held.
func (s *slots) restLocked() {
	if s.shared != nil && !s.asking {
		s.shared.Withdraw()
	}
}

// join begins the use of shared slots, if there are any.
func (s *slots) join() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared == nil {
		return nil
	}
	return s.shared.Join(s.freed)
}

// leave returns all shared slots. A handler that was abandoned, and returns later, returns none.
func (s *slots) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared != nil {
		s.shared.Leave()
		s.shared, s.asking = nil, false
	}
}
