package localqueue

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// Wakeups returns a source of wake-ups for listeners in this process whose queues are those of the
// engine. The engine sees every message that is put or becomes visible, so nobody publishes events,
// and the message of a worker that has died wakes a listener when its lease ends.
//
// Of the ready subscribers of a queue one is woken, in turn. If nobody dequeues for 500 ms, two more
// are woken, then four, then all, so that any number of hung workers delays a message by less than 2 s.
// Events come when messages are due, their Due is never set, and Bytes is 0 for messages that were put
// before the last dequeue. More has no effect.
//
// A subscription has one goroutine, which Close of the subscription ends. While the queue does not
// exist it looks for it every second. After the engine was closed nothing is delivered, and Subscribe
// fails with [ErrClosed]. The source is safe for concurrent use.
func (e *Engine) Wakeups() wakeup.QueueSource { return source{e} }

type source struct{ engine *Engine }

// Subscribe implements [wakeup.Source].
func (s source) Subscribe(name queue.Name, to wakeup.Subscriber) (wakeup.Subscription, error) {
	q := s.engine.queue(name)
	err := q.refused
	if err == nil && s.engine.closed.Load() {
		err = errClosed()
	}
	if err != nil {
		return nil, q.fail("subscribe to wake-ups", "", err)
	}
	sub := &subscription{queue: q, subscriber: to, ready: true}
	sub.ctx, sub.cancel = context.WithCancel(context.Background())
	w := sub.watch() // already here, so that the first poll of a listener is its only one
	go sub.run(w)
	return sub, nil
}

// EmptyAfter implements [wakeup.QueueSource]. It returns 1.
func (source) EmptyAfter() int { return 1 }

// lookAgain is how long after a failed look for its queue a subscription looks again. Its listener
// polls meanwhile.
const lookAgain = time.Second

// subscription is a subscriber with a watcher of its queue.
type subscription struct {
	queue      *handle
	subscriber wakeup.Subscriber
	ctx        context.Context // ends with Close
	cancel     context.CancelFunc

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
			s.event(bytes)
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
		s.subscriber.Listening(true)
	}
}

func (s *subscription) event(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready && !s.closed {
		s.subscriber.Event(wakeup.Event{Queue: s.queue.name, Bytes: bytes})
	}
}

func (s *subscription) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watcher = nil
	if s.ready && !s.closed {
		s.subscriber.Listening(false)
	}
}

// Ready implements [wakeup.Subscription].
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

// Close implements [wakeup.Subscription].
func (s *subscription) Close() error {
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed = true; s.watcher != nil {
		_ = s.watcher.Close() // never fails
	}
	return nil
}
