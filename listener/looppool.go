package listener

import (
	"sync"
	"time"
)

// loopPool counts the running loops and decides how many run. Every start and every end happens
// under its lock, so that loops which decide at the same time see each other.
type loopPool struct {
	changed func(loops int) // called with every new number, under the lock so that the last call has the last number
	begin   func()          // starts a loop because of what was heard; called under the lock
	signal  func()          // wakes a loop; called under the lock
	drain   func()          // removes a signal; called under the lock

	mu      sync.Mutex
	bounds  Loops     // guarded by mu
	active  int       // loops running; guarded by mu
	surplus int       // of these, those that end after their next poll; guarded by mu
	peak    int       // highest number at once; guarded by mu
	started int       // total started; guarded by mu
	grown   time.Time // when it last grew; guarded by mu
	closed  bool      // no further loop starts; guarded by mu
	heard   heard     // guarded by mu
}

// grow starts loops up to the target, within the bounds. It calls start for each under the
// lock, so that several callers with the same target start the difference once. It returns how
// many it started.
func (f *loopPool) grow(target int, start func()) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.growLocked(target, start)
}

// growBeside is grow, but starts nothing if no loop runs: the last one has found the queue empty, and a depth
// that was asked for before that is no reason to poll again.
func (f *loopPool) growBeside(target int, start func()) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.active == 0 {
		return 0
	}
	return f.growLocked(target, start)
}

// growLocked is grow with mu held.
func (f *loopPool) growLocked(target int, start func()) int {
	if f.closed {
		return 0
	}
	target = min(max(target, f.least()), f.bounds.Max)
	n := max(target-f.active, 0)
	f.surplus = min(f.surplus, max(f.active-target, 0))
	if n == 0 {
		return 0
	}
	f.added(n)
	for range n {
		start()
	}
	return n
}

// steer makes target loops run, within the bounds: it starts what is missing, and the others end after their next polls. It
// reports whether it started any. Like growBeside it does nothing if no loop runs.
func (f *loopPool) steer(target int, start func()) (started bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.active == 0 {
		return false
	}
	f.surplus = max(f.active-min(max(target, f.least()), f.bounds.Max), 0)
	return f.growLocked(target, start) > 0
}

// ended counts a loop that ends while others may go on. Requires mu.
func (f *loopPool) ended() {
	f.active--
	f.surplus = max(f.surplus-1, 0)
}

// added counts n loops that start. Requires mu.
func (f *loopPool) added(n int) {
	f.active += n
	f.started += n
	f.peak = max(f.peak, f.active)
	f.grown = time.Now()
	f.changed(f.active) // before they start, or a new loop might dequeue for the slots that were open before
}

// least returns how many loops must run. Requires mu.
func (f *loopPool) least() int {
	if f.heard.listening {
		return f.bounds.Min
	}
	return max(f.bounds.Min, 1)
}

// canGrow reports whether more loops may start.
func (f *loopPool) canGrow() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.active < f.bounds.Max
}

// setBounds changes the bounds and reports whether they allow more loops.
func (f *loopPool) setBounds(b Loops) (raised bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	raised = b.Max > f.bounds.Max
	f.bounds = b
	f.changed(f.active) // the concurrency may have changed too
	return raised
}

// stopIfExcess counts the calling loop as ended if there are more than the maximum, or than steer was told.
func (f *loopPool) stopIfExcess() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.active <= f.bounds.Max && f.surplus == 0 {
		return false
	}
	f.ended()
	f.changed(f.active)
	return true
}

// tryStop counts the calling loop as ended if it may end: never the last one, nor below the minimum, nor
// within Pause of the last growth. Only leave ends the last one.
func (f *loopPool) tryStop() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.active <= max(f.bounds.Min, 1) || time.Since(f.grown) < f.bounds.Pause {
		return false
	}
	f.ended()
	f.changed(f.active)
	return true
}

// stopped counts a loop that ends because the listener stops.
func (f *loopPool) stopped() {
	f.mu.Lock()
	f.active--
	f.mu.Unlock()
}

// close lets no further loop start.
func (f *loopPool) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
}

func (f *loopPool) counts() (active, peak, started int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.active, f.peak, f.started
}

// grow starts loops up to the target and notifies the observer, after releasing the pool's
// lock.
func (s *session) grow(target int) {
	if s.pool.grow(target, s.startLoop) > 0 {
		s.notifyScaled()
	}
}

// tryStop ends the calling loop if it may end, and notifies the observer.
func (s *session) tryStop() bool {
	if !s.pool.tryStop() {
		return false
	}
	s.notifyScaled()
	return true
}

// leave ends the calling loop after an empty poll if events reach the listener, and notifies the
// observer.
func (s *session) leave(seen uint64) (left, again bool) {
	if left, again = s.pool.leave(seen); left {
		s.notifyScaled()
	}
	return left, again
}

// stopIfExcess ends the calling loop if the settings or the controller allow fewer, and notifies the observer.
func (s *session) stopIfExcess() bool {
	if !s.pool.stopIfExcess() {
		return false
	}
	s.notifyScaled()
	return true
}

func (s *session) notifyScaled() {
	if f := s.options.Observer.Scaled; f != nil {
		active, _, _ := s.pool.counts()
		f(Scale{Queue: s.queue.Name(), Loops: active})
	}
}

// startLoop starts one loop. It is called under the pool's lock.
func (s *session) startLoop() {
	// The curve is made on the new goroutine, not under the lock, because a hook may block.
	s.work.Go(func() { s.newLoop().run(s.looping) })
}

// startHeardLoop starts one loop because of what was heard. It is called under the pool's lock and by
// sources of wake-ups, so the new goroutine notifies the observer.
func (s *session) startHeardLoop() {
	s.work.Go(func() {
		s.notifyScaled()
		s.newLoop().run(s.looping)
	})
}
