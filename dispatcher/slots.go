package dispatcher

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/internal/waiting"
)

// slots limits the running handlers. A slot is used from its reservation for a dequeue until
// its handler has returned. It is then free while the settlement goes on, as long as no more
// than concurrency settlements are in progress: each one beyond that holds a slot.
type slots struct {
	// turn is held by the loop that reserves. It is a channel, not a mutex, because waiting for
	// it must end with the context, and a goroutine blocked on a mutex would hang a synctest
	// bubble.
	turn chan struct{}

	// freed wakes the loop that holds the turn.
	freed chan struct{}

	batch int // slots per dequeue, at most

	onWait func(mayOpen bool) // called when no slot has been free for waitLimit; may be nil

	sharing bool // there are shared slots, see share

	mu      sync.Mutex
	size    int  // concurrency; guarded by mu
	wanted  int  // as setOpen was told; guarded by mu
	maxOpen int  // as setOpen was told; guarded by mu
	open    int  // slots that may be used, see updateOpen; guarded by mu
	extra   int  // slots beyond open that the next reservation may use; guarded by mu
	used    int  // reserved or running; guarded by mu
	running int  // handlers running; guarded by mu
	pending int  // settlements in progress; guarded by mu
	waiting bool // the last caller of take found no free slot and waits; guarded by mu

	window    float64     // bounds the messages that are fetched or settled, see refused; zero for no bound; guarded by mu
	refusedAt time.Time   // when the service last refused a settlement; guarded by mu
	forget    *time.Timer // wakes a caller of reserve when the bound ends; nil before its first use; guarded by mu

	shared Slots // used only while mu is held; nil without shared slots, and after leave; guarded by mu
	asking bool  // shared knows that a caller of take waits; guarded by mu
	likely int   // messages that the next dequeue may well bring, if slots are shared; guarded by mu
	full   bool  // the last dequeue brought as many as it asked for, if slots are shared; guarded by mu
}

func newSlots(size, batch int, onWait func(mayOpen bool)) *slots {
	return &slots{
		turn: make(chan struct{}, 1), freed: make(chan struct{}, 1), batch: batch, onWait: onWait,
		size: size, wanted: size, maxOpen: size, open: size,
	}
}

// takeTurn waits for the turn to reserve, or returns false when ctx ended first. Callers are
// served in order.
func (s *slots) takeTurn(ctx context.Context) bool {
	select {
	case s.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *slots) endTurn() { <-s.turn }

// reserve waits until minSlots are free, or any after linger, and takes up to maxSlots. It asks for
// minSlots whenever it is woken. It returns 0 when ctx ended first. The caller must hold the turn.
func (s *slots) reserve(ctx context.Context, maxSlots int, minSlots func() int, linger time.Duration) int {
	var timer *time.Timer // runs from when the first slot is free
	var lingered <-chan time.Time
	patient := linger > 0
	var wait waitTimer
	defer wait.stop()
	for ctx.Err() == nil {
		n, free := s.take(maxSlots, minSlots(), patient)
		if n > 0 {
			return n
		}
		if s.onWait != nil && wait.isOver(free) {
			s.onWait(s.mayOpen())
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
		case <-wait.c:
			wait.over = true
		case <-ctx.Done():
		}
	}
	s.withdraw()
	return 0
}

// waitLimit is how long no slot must be free before onWait is called: the slots of a dequeue are
// all taken for a moment, until its messages have started.
const waitLimit = 10 * time.Millisecond

// waitTimer measures for how long no slot has been free. The zero value is ready to use.
type waitTimer struct {
	timer *time.Timer
	c     <-chan time.Time
	over  bool // c has fired
}

// isOver reports whether no slot has been free for waitLimit, given how many are free now.
func (w *waitTimer) isOver(free int) bool {
	if free > 0 {
		w.stop()
		*w = waitTimer{}
	} else if w.timer == nil {
		w.timer = time.NewTimer(waitLimit)
		w.c = w.timer.C
	}
	return w.over
}

func (w *waitTimer) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// mayOpen reports whether setOpen could open more slots.
func (s *slots) mayOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open < s.size && (s.shared == nil || s.used >= s.open)
}

// take reserves up to maxSlots if minSlots are free, or any if not patient. It also returns how
// many were free.
func (s *slots) take(maxSlots, minSlots int, patient bool) (n, free int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free = s.open - s.used
	if free <= 0 {
		free = min(s.extra, s.size-s.used)
	}
	free -= s.excessSettlements()
	most := s.open
	if s.window > 0 && time.Since(s.refusedAt) >= refusalMemory {
		s.window = 0
	}
	if s.window > 0 {
		most = min(most, int(s.window))
		free = min(free, int(s.window)-s.pending-(s.used-s.running))
	}
	s.waiting = free <= 0
	least := 1
	if patient {
		least = max(min(minSlots, maxSlots, most), 1)
	}
	if free < least {
		s.withdrawLocked()
		return 0, free
	}
	n = min(maxSlots, free)
	if s.shared != nil {
		if n, free = s.takeShared(least, n); n == 0 {
			return 0, free
		}
	}
	s.used += n
	s.extra = 0
	return n, free
}

// excessSettlements returns how many settlements are beyond the limit. Requires mu.
func (s *slots) excessSettlements() int { return max(s.pending-s.size, 0) }

// unreserve frees n reserved slots that run no handler.
func (s *slots) unreserve(n int) {
	s.mu.Lock()
	s.free(n)
	s.mu.Unlock()
	s.signal()
}

// free frees n slots. Requires mu.
func (s *slots) free(n int) {
	s.used -= n
	s.updateOpen()
	if s.shared != nil {
		s.shared.Free(n)
	}
}

// started records that a handler runs in a reserved slot.
func (s *slots) started() {
	s.mu.Lock()
	s.running++
	s.mu.Unlock()
}

// freeForSettlement begins a settlement and frees its slot. ran tells whether a handler ran.
func (s *slots) freeForSettlement(ran bool) {
	s.mu.Lock()
	if ran {
		s.running--
	}
	s.pending++
	s.free(1)
	s.mu.Unlock()
	s.signal()
}

// giveUp frees the slot of a stuck handler.
func (s *slots) giveUp() {
	s.mu.Lock()
	s.running--
	s.free(1)
	s.mu.Unlock()
	s.signal()
}

// beginSettlement begins the settlement of a delivery that has no slot any more.
func (s *slots) beginSettlement() {
	s.mu.Lock()
	s.pending++
	s.mu.Unlock()
}

// endSettlement ends a settlement. Accepted tells whether the service accepted its request.
func (s *slots) endSettlement(accepted bool) {
	s.mu.Lock()
	waited := s.excessSettlements() > 0 || s.window > 0
	s.pending--
	if accepted && s.window > 0 {
		if s.window += 1 / s.window; s.window >= float64(s.size) {
			s.window = 0
		}
	}
	s.mu.Unlock()
	if waited {
		s.signal()
	}
}

// refused notes that the service has refused a request of a settlement. A fetch would bring more of
// them, and a delete holds a lease, so fetches back off: the window, which begins as concurrency, is
// halved, and grows by one for as many settlements as it has. Refusals halve it once until the
// settlements in progress fit into it, because until then nothing is fetched. The bound ends when
// nothing was refused for refusalMemory: a settlement without an answer must not stop the fetches.
func (s *slots) refused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusedAt = time.Now()
	if s.forget == nil {
		s.forget = time.AfterFunc(refusalMemory, s.signal)
	} else {
		s.forget.Reset(refusalMemory)
	}
	if s.window == 0 {
		s.window = float64(s.size)
	}
	if float64(s.pending) <= s.window {
		s.window = max(s.window/2, 1)
	}
}

// setOpen changes how many slots may be used, see updateOpen.
func (s *slots) setOpen(wanted, maxOpen int) {
	s.mu.Lock()
	s.wanted, s.maxOpen = wanted, maxOpen
	s.updateOpen()
	s.mu.Unlock()
	s.signal()
}

// updateOpen closes open slots that are no longer wanted as handlers return. While handlers use
// what was opened, room for one dequeue beside them stays open, or new work would go unnoticed
// until they are done. Requires mu.
func (s *slots) updateOpen() {
	s.open = min(max(s.wanted, min(s.open, s.used+s.batch, s.maxOpen)), s.size)
}

// openOnce lets one reservation use up to n slots although all open ones are taken.
func (s *slots) openOnce(n int) {
	s.mu.Lock()
	s.extra = n
	s.mu.Unlock()
	s.signal()
}

// refusalMemory is longer than the waits between the tries of a settlement.
const refusalMemory = 2 * retry.MaxWait

func (s *slots) resize(n int) {
	s.mu.Lock()
	s.size = n
	s.updateOpen()
	s.mu.Unlock()
	s.signal()
}

// saturated reports whether a caller waits because all open slots are taken while more could be
// opened.
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

// signal wakes the waiting loop. A buffer of one is enough, because the loop reads the counts
// after every wake-up.
func (s *slots) signal() {
	waiting.Signal(s.freed, struct{}{})
}

// Slots are slots that several dispatchers share: a member of package slots is one
// dispatcher's access to them. One dispatcher uses it at a time, between [Slots.Join] and
// [Slots.Leave]. The methods are called while locks of the dispatcher are held: they must not
// block, and must not call the dispatcher. They are safe for concurrent use.
type Slots interface {
	// Size returns how many slots there are for all, which is the default of Options.Concurrency,
	// or an error that says why these cannot be used.
	Size() (int, error)

	// Join begins the use. From then on freed is sent a value, without waiting, whenever a Take
	// that took nothing should be called again. It is an error if another dispatcher uses these
	// slots.
	Join(freed chan<- struct{}) error

	// Take takes slots for one dequeue. It takes no slots if too few are free. Then the dispatcher
	// waits, and free says how many slots are kept for it meanwhile. The latest request counts.
	Take(r SlotRequest) (taken, free int)

	// Withdraw says that the dispatcher does not wait any more, and will not ask for more slots
	// soon.
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

	// Likely is how many messages the queue may well have, from the last dequeue. Slots beyond are
	// taken on speculation, and others cannot use them while the dequeue lasts.
	Likely int

	// Unanswered is how many slots were taken for dequeues that have brought no message yet.
	Unanswered int

	// Backlog reports whether the last dequeue brought as many messages as it asked for.
	Backlog bool

	// Bound is how many slots the dispatcher can hold in all, including those it holds.
	Bound int
}

// likelyGrowth is how many times as many messages as the last dequeue brought may well come next.
// So when work appears, the fourth dequeue asks for a full batch.
const likelyGrowth = 4

// share makes s take its slots from these, if they are not nil. It is called before the first use.
func (s *slots) share(shared Slots) *slots {
	s.sharing, s.shared = shared != nil, shared
	return s
}

// takeShared takes up to n shared slots if at least least of them are worth a dequeue. Requires mu.
func (s *slots) takeShared(least, n int) (taken, free int) {
	taken, free = s.shared.Take(SlotRequest{
		Least: least, Most: n, Likely: s.likely, Unanswered: s.used - s.running,
		Backlog: s.full, Bound: min(max(s.maxOpen, s.open), s.size),
	})
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

// received notes how many messages a dequeue with so many reserved slots has brought. After an
// empty dequeue the next message may be long in coming, and no slots need to be kept for it.
func (s *slots) received(messages, reserved int) {
	if !s.sharing {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.likely, s.full = likelyGrowth*messages, messages >= reserved
	if messages == 0 {
		s.restLocked()
	}
}

// rest says that shared slots may not be asked for soon: no slots need to be kept for the next
// request.
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

// leave returns all shared slots. If an abandoned handler returns later, it frees no slot.
func (s *slots) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forget != nil {
		s.forget.Stop()
	}
	if s.shared != nil {
		s.shared.Leave()
		s.shared, s.asking = nil, false
	}
}

// Reserve waits for free slots and takes up to a batch of them. It returns when MinFetch slots
// are free, or any after Linger, and 0 when ctx ended first. While nearly everything fails it waits
// for the next round. Every reserved slot must be passed to
// [Dispatcher.Dispatch] or [Dispatcher.Release]. Callers are served in the order of their calls.
func (d *Dispatcher) Reserve(ctx context.Context) int {
	if !d.slots.takeTurn(ctx) {
		return 0
	}
	defer d.slots.endTurn()
	for {
		if d.options.OnWait != nil && d.failures.paced() {
			d.options.OnWait(false)
		}
		round, ok := d.failures.await(ctx, d.options.BatchSize)
		if !ok {
			return 0
		}
		if round > 0 {
			n := d.slots.reserve(ctx, round, func() int { return 1 }, 0)
			if n > 0 {
				d.failures.begin()
			}
			return n
		}
		n := d.slots.reserve(ctx, d.options.BatchSize, d.minFetch, d.linger())
		if n == 0 || !d.failures.paced() {
			return n
		}
		d.slots.rest()
		d.slots.unreserve(n) // it has slowed down meanwhile
	}
}

// Release frees reserved slots without a dequeue. Unlike an empty batch in [Dispatcher.Dispatch] it
// says nothing about the queue.
func (d *Dispatcher) Release(reserved int) {
	d.slots.rest()
	d.slots.unreserve(reserved)
	d.failures.foundNothing()
}

// minFetch returns how many slots must be free before a dequeue is sent. A full batch shows that
// more messages wait in the queue: then the handlers are busy, and the price of a message counts.
// Otherwise new work should be noticed soon.
func (d *Dispatcher) minFetch() int {
	if d.options.MinFetch != 0 {
		return d.options.MinFetch
	}
	slots := d.slots.capacity()
	if d.backlog.Load() {
		return min(max((slots+3)/6, 1), maxDefaultMinFetch) // rounded: 11 of 64, and 1 up to 8
	}
	return min(max(slots/10, 1), maxDefaultMinFetch)
}

// noteBacklog records whether a dequeue returned as many messages as it asked for. If not it leaves
// slots, and when they are freed a caller of Reserve looks again how many it needs.
func (d *Dispatcher) noteBacklog(full bool) { d.backlog.Store(full) }

// Backlog reports whether the last dequeue returned as many messages as it asked for.
func (d *Dispatcher) Backlog() bool { return d.backlog.Load() }

// maxDefaultLinger bounds the default of Linger. Handlers so slow that a fifth of their time is
// longer cost far more than their dequeues, and messages should not wait while slots are free.
const maxDefaultLinger = time.Second

// linger returns how long free slots wait for more. With slow handlers a fixed time would end
// before a tenth of them have returned, and batches would stay small.
func (d *Dispatcher) linger() time.Duration {
	if d.options.Linger != 0 {
		return d.options.Linger
	}
	return min(max(defaultLinger, d.visibility.handlingTime()/5), maxDefaultLinger)
}

// Open sets how many slots may be used, at most Concurrency. Handlers beyond the bound finish.
// When the bound is lowered, room for one batch beside the running handlers stays open, up to
// maxOpen slots, so that new work is still noticed.
func (d *Dispatcher) Open(slots, maxOpen int) { d.slots.setOpen(slots, maxOpen) }

// OpenOnce lets one call of [Dispatcher.Reserve] take up to this many slots beyond the bound of
// [Dispatcher.Open], within Concurrency.
func (d *Dispatcher) OpenOnce(slots int) { d.slots.openOnce(slots) }

// Resize changes Concurrency, which must be at least 1, with the default of MinFetch and the
// shares of limited sources. Handlers beyond the new bound finish.
func (d *Dispatcher) Resize(concurrency int) {
	concurrency = max(concurrency, 1)
	d.slots.resize(concurrency)
	d.failures.resize(concurrency)
}

// Saturated reports whether a caller of [Dispatcher.Reserve] waits because all slots that
// [Dispatcher.Open] allows are taken, while Concurrency would allow more.
func (d *Dispatcher) Saturated() bool { return d.slots.saturated() }

// Outage reports whether nearly everything has failed, so that the dispatcher tries a few messages at
// a time.
func (d *Dispatcher) Outage() bool { return d.failures.paced() }

// batchSlots are the slots that a dequeue reserved and does not need. They are freed together,
// once their number is known: they are then worth one dequeue, not several small ones.
type batchSlots struct {
	slots     *slots
	undecided atomic.Int32 // messages that may still be refused
	unused    atomic.Int32 // slots of messages that were refused, or that no message came for
}

// keepSlot notes that the message needs its slot, before a call that may take a while.
func (a *admission) keepSlot() {
	if a.batch != nil {
		a.decideSlot()
	}
}

// decideSlot notes that it is known whether the message needs its slot, and frees the unused slots
// of the batch with the last of its messages.
func (a *admission) decideSlot() {
	batch := a.batch
	a.batch = nil
	if batch.undecided.Add(-1) > 0 {
		return
	}
	if n := batch.unused.Load(); n > 0 {
		batch.slots.unreserve(int(n))
	}
}
