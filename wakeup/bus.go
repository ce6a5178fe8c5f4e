package wakeup

import (
	"context"
	"sync"

	"github.com/millrace/millrace/queue"
)

// Bus is a [Source] and [Publisher] within one process. Every subscriber hears every event, whatever
// its queue and whether it is ready or not, and filters for itself. The zero value is ready to use. A
// Bus must not be copied. It is safe for concurrent use.
type Bus struct {
	mu          sync.RWMutex
	subscribers map[*busSubscription]struct{} // guarded by mu
}

// Publish calls all subscribers. It never fails.
func (b *Bus) Publish(_ context.Context, e Event) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for s := range b.subscribers {
		s.call(func() { s.subscriber.Event(e) })
	}
	return nil
}

// Subscribe registers a subscriber. It never fails. The subscriber listens at once.
func (b *Bus) Subscribe(_ queue.Name, s Subscriber) (Subscription, error) {
	subscription := &busSubscription{bus: b, subscriber: s}
	b.mu.Lock()
	if b.subscribers == nil {
		b.subscribers = make(map[*busSubscription]struct{})
	}
	b.subscribers[subscription] = struct{}{}
	b.mu.Unlock()
	subscription.Ready(true)
	return subscription, nil
}

type busSubscription struct {
	bus        *Bus
	subscriber Subscriber

	mu     sync.Mutex // held while the subscriber is called
	closed bool       // guarded by mu
}

func (s *busSubscription) call(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		f()
	}
}

func (s *busSubscription) Ready(ready bool) {
	if ready {
		s.call(func() { s.subscriber.Listening(true) })
	}
}

// More does nothing: every subscriber has heard what was published.
func (s *busSubscription) More() {}

func (s *busSubscription) Close() {
	s.bus.mu.Lock()
	delete(s.bus.subscribers, s)
	s.bus.mu.Unlock()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
}
