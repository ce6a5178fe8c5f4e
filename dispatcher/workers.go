package dispatcher

import "sync"

// workers are goroutines that run deliveries, one at a time each, and are reused. A new
// goroutine begins with a small stack, and growing it to what a request needs costs more than
// the rest of a delivery; a reused one has grown. There are as many as deliveries were ever in
// flight at once.
//
// The worker that has waited least is taken first. The garbage collector shrinks the stacks of
// waiting goroutines: taking turns would make all of them grow again and again, while this way
// the unneeded ones shrink and stay small.
type workers struct {
	all sync.WaitGroup

	mu     sync.Mutex
	idle   []chan<- *delivery // channels of the waiting workers; guarded by mu
	closed bool               // no worker waits any more; guarded by mu
}

// run passes the delivery to a waiting worker, or to a new one. It does not block.
func (w *workers) run(v *delivery) {
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
	next <- v // has room: the worker is not in idle until it waits again
}

func (w *workers) work(v *delivery) {
	next := make(chan *delivery, 1)
	for ok := true; ok; {
		v.run()
		if !w.wait(next) {
			return
		}
		v, ok = <-next
	}
}

// wait adds the worker to the idle ones, or returns false if it must end.
func (w *workers) wait(next chan<- *delivery) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.idle = append(w.idle, next)
	}
	return !w.closed
}

// close ends the waiting workers, and the others when they are done. Run must not be called
// after it.
func (w *workers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, next := range w.idle {
		close(next)
	}
	w.idle = nil
}

func (w *workers) join() { w.all.Wait() }
