package listener

import (
	"sync"
	"time"
)

// fleet is how many loops run, and the only place where that is decided: every
// start and every end happens under its lock, so that loops which decide at the
// same time see each other.
type loopPool struct {
	changed func(loops int) // told of every new number, under the lock so that the last word is right

	mu      sync.Mutex
	bounds  Loops     // guarded by mu
	active  int       // loops running; guarded by mu
	peak    int       // most at once; guarded by mu
	started int       // all ever; guarded by mu
	grown   time.Time // when it last grew; guarded by mu
	closed  bool      // no loop starts any more; guarded by mu
}

// grow starts loops up to the target, within the bounds, by calling start for each
// under the lock, which is what makes several callers with the same target start
// the difference once. It returns how many it started.
func (f *loopPool) grow(target int, start func()) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return 0
	}
	target = min(max(target, f.bounds.Min), f.bounds.Max)
	n := max(target-f.active, 0)
	if n == 0 {
		return 0
	}
	f.active += n
	f.started += n
	f.peak = max(f.peak, f.active)
	f.grown = time.Now()
	f.changed(f.active) // first, or a new loop might fetch for what was open before
	for range n {
		start()
	}
	return n
}

// canGrow tells whether a reading of the depth could change anything.
func (f *loopPool) canGrow() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.active < f.bounds.Max
}

// rebound puts new bounds in force, and tells whether they allow more loops.
func (f *loopPool) setBounds(b Loops) (raised bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	raised = b.Max > f.bounds.Max
	f.bounds = b
	f.changed(f.active) // the concurrency may have changed with them
	return raised
}

// surplus lets a loop end if there are more than the maximum.
func (f *loopPool) stopIfExcess() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.active <= f.bounds.Max {
		return false
	}
	f.active--
	f.changed(f.active)
	return true
}

// leave decides whether a loop that wants to end may, and counts it as ended if so:
// never below the minimum, nor soon after a growth.
func (f *loopPool) tryStop() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.active <= f.bounds.Min || time.Since(f.grown) < f.bounds.Pause {
		return false
	}
	f.active--
	f.changed(f.active)
	return true
}

// ended counts a loop that ends because the listener does.
func (f *loopPool) stopped() {
	f.mu.Lock()
	f.active--
	f.mu.Unlock()
}

// close lets no loop start any more.
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

// grow starts loops up to the target and tells the observer, not under the fleet's lock.
func (s *session[T]) grow(target int) {
	if s.pool.grow(target, s.startLoop) > 0 {
		s.notifyScaled()
	}
}

// leave lets a loop end if it may, and tells the observer.
func (s *session[T]) tryStop() bool {
	if !s.pool.tryStop() {
		return false
	}
	s.notifyScaled()
	return true
}

// surplus lets a loop end if the settings allow fewer, and tells the observer.
func (s *session[T]) stopIfExcess() bool {
	if !s.pool.stopIfExcess() {
		return false
	}
	s.notifyScaled()
	return true
}

func (s *session[T]) notifyScaled() {
	if f := s.options.Observer.Scaled; f != nil {
		active, _, _ := s.pool.counts()
		f(Scale{Queue: s.queue.Name(), Loops: active})
	}
}

// startLoop starts one loop. It is called under the fleet's lock.
func (s *session[T]) startLoop() {
	// Its curve is made there, not under the lock: a hook may block.
	s.work.Go(func() { s.newLoop().run(s.looping) })
}
