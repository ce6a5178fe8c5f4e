package dispatcher

import "sync"

// workers are goroutines that run deliveries, one at a time each, and wait for the next
// when they are done. A new goroutine begins with a small stack, and growing it to what a
// request needs costs more than all the rest of a delivery; these have grown. There are
// as many as deliveries were ever in flight at once.
type workers[T any] struct {
	next chan *delivery[T] // unbuffered: only a worker that waits takes from it
	all  sync.WaitGroup
}

func newWorkers[T any]() *workers[T] { return &workers[T]{next: make(chan *delivery[T])} }

// run gives the delivery to a worker that waits, or to a new one. It does not block.
func (w *workers[T]) run(v *delivery[T]) {
	select {
	case w.next <- v:
	default:
		w.all.Go(func() {
			for ok := true; ok; v, ok = <-w.next {
				v.run()
				v = nil // while it waits, its last batch can be freed
			}
		})
	}
}

// close ends the workers that wait, and the others when they are done. Nothing may be
// run any more.
func (w *workers[T]) close() { close(w.next) }

// wait waits until all have ended.
func (w *workers[T]) wait() { w.all.Wait() }
