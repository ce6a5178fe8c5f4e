package localqueue

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
)

// Subscribe makes the engine a source of wake-ups for listeners in this process whose queues are its
// own: set listener.Options.Wakeups to the engine. The engine sees every message that is put or becomes
// visible, so nobody publishes events, and the message of a worker that has died wakes a listener when
// its lease ends. Package wakeup describes the two functions and the subscription.
//
// Of the ready subscribers of a queue one is woken, in turn. If nobody dequeues for 500 ms, two more
// are woken, then four, then all, so that any number of hung workers delays a message by less than 2 s.
// Events come when messages are due, so due is always zero, and bytes is 0 for messages that were put
// before the last dequeue. More has no effect.
//
// A subscription has one goroutine, which Close of the subscription ends. While the queue does not
// exist it looks for it every second. After the engine was closed nothing is delivered. Subscribe then
// fails with [ErrClosed], and for an invalid name with [queue.ErrInvalid]. It is safe for concurrent use.
func (e *Engine) Subscribe(name queue.Name, event func(q queue.Name, bytes int64, due time.Time), listening func(bool)) (interface {
	Ready(ready bool)
	More()
	Close() error
}, error) {
	q := e.queue(name)
	err := q.refused
	if err == nil && e.closed.Load() {
		err = errClosed()
	}
	if err != nil {
		return nil, q.fail("subscribe to wake-ups", "", err)
	}
	sub := &subscription{queue: q, event: event, listening: listening, ready: true}
	sub.ctx, sub.cancel = context.WithCancel(context.Background())
	w := sub.watch() // already here, so that the first poll of a listener is its only one
	go sub.run(w)
	return sub, nil
}

// EmptyAfter returns 1, because a dequeue returns all messages that are visible, up to the number that
// it asks for. A listener whose Wakeups are the engine asks it: see [driver.EmptyAfter].
func (e *Engine) EmptyAfter() int { return 1 }

// Linger returns 0, because dequeues are free here: a listener whose Wakeups are the engine does
// not wait for more messages while they follow each other closely.
func (e *Engine) Linger() time.Duration { return 0 }

// lookAgain is how long after a failed look for its queue a subscription looks again. Its listener
// polls meanwhile.
const lookAgain = time.Second

// subscription is a subscriber with a watcher of its queue.
type subscription struct {
	queue     *handle
	event     func(q queue.Name, bytes int64, due time.Time)
	listening func(bool)
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc

	mu      sync.Mutex // held while the subscriber is called
	watcher *watcher   // nil while there is no queue to watch; guarded by mu
	ready   bool       // guarded by mu
	closed  bool       // guarded by mu
}

// run watches the queue until the subscription or the engine is closed. w may be nil.
func (s *subscription) run(w *watcher) {
	for ; ; w = s.watch() {
		if w != nil {
			s.follow(w)
		} else if s.queue.engine.closed.Load() || !waiting.For(lookAgain, s.ctx.Done()) {
			return
		}
	}
}

// watch returns a watcher of the queue, which begins to listen, or nil if there is no queue.
func (s *subscription) watch() *watcher {
	w, err := s.queue.watch(s.ctx)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watcher = w
	s.tell()
	return w
}

// follow passes on what a watcher hears, until its queue is gone or the subscription is closed.
func (s *subscription) follow(w *watcher) {
	defer func() { _ = w.Close() }() // never fails
	for {
		select {
		case bytes := <-w.Woken():
			s.hear(bytes)
		case <-w.Ended():
			s.lose()
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// tell tells the watcher whether the subscriber is ready, and a ready subscriber that it listens. It
// requires mu.
func (s *subscription) tell() {
	if s.closed || s.watcher == nil {
		return
	}
	if s.watcher.Ready(s.ready); s.ready {
		s.listening(true)
	}
}

func (s *subscription) hear(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready && !s.closed {
		s.event(s.queue.name, bytes, time.Time{})
	}
}

func (s *subscription) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watcher = nil
	if s.ready && !s.closed {
		s.listening(false)
	}
}

// Ready implements the Subscription of package wakeup.
func (s *subscription) Ready(ready bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready != ready {
		s.ready = ready
		s.tell()
	}
}

// More does nothing: the engine has seen the dequeue, and wakes the next one if messages are left.
func (s *subscription) More() {}

// Close implements the Subscription of package wakeup.
func (s *subscription) Close() error {
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed = true; s.watcher != nil {
		_ = s.watcher.Close() // never fails
	}
	return nil
}
