package dispatcher

import "sync"

// workers are goroutines that run deliveries, one at a time each, and wait for the next
// when they are done. A new goroutine begins with a small stack, and growing it to what a
// request needs costs more than all the rest of a delivery; these have grown. There are
// as many as deliveries were ever in flight at once.
//
// The one that waited least is taken first. The collector halves the stack of a goroutine
// that waits, so taking turns would have all of them grow again and again; this way those
// that are not needed shrink to next to nothing and stay out of everybody's way.
type workers[T any] struct {
	all sync.WaitGroup

	mu     sync.Mutex
	idle   []chan<- *delivery[T] // where each that waits is given its next; guarded by mu
	closed bool                  // nobody waits any more; guarded by mu
}

// run gives the delivery to a worker that waits, or to a new one. It does not block.
func (w *workers[T]) run(v *delivery[T]) {
	w.mu.Lock()
	last := len(w.idle) - 1
	if last < 0 {
		w.mu.Unlock()
		w.all.Go(func() { w.work(v) })
		return
	}
	next := w.idle[last]
	w.idle = w.idle[:last]
	w.mu.Unlock()
	next <- v // there is room: nobody else gives it any until it waits again
}

// work is a worker.
func (w *workers[T]) work(v *delivery[T]) {
	next := make(chan *delivery[T], 1)
	for ok := true; ok; {
		v.run()
		if !w.wait(next) {
			return
		}
		v, ok = <-next
	}
}

// wait counts a worker among those that wait, or tells that it is to end.
func (w *workers[T]) wait(next chan<- *delivery[T]) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.idle = append(w.idle, next)
	}
	return !w.closed
}

// close ends the workers that wait, and the others when they are done. Nothing may be
// run any more.
func (w *workers[T]) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, next := range w.idle {
		close(next)
	}
	w.idle = nil
}

// join waits until all have ended.
func (w *workers[T]) join() { w.all.Wait() }
