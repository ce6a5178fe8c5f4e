// Package wakeup carries hints that work has come to a queue, so that a listener need not poll to
// find out. The hints may come from another process: packages serverwakeup and natswakeup are such
// sources. [Bus] is one within a process. The Engine of package localqueue is one for its own queues.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Delivery
//
// An event is a hint and never the truth. It may come twice, late, for a queue that is empty, or not at
// all. A listener that hears one dequeues; one that hears none dequeues now and then all the same.
//
// Set listener.Options.Wakeups to a source. Its listener then has no loops while its queue is empty, and
// sends nothing but a safety poll a minute. An event starts a loop. An empty queue and an event for
// nothing cost one dequeue; a flood of such events costs no more than a loop that polls.
//
// On a Bus every listener hears every event. So k listeners on one queue and one Bus send k dequeues
// for one message. Between processes an event reaches one of those that have room, and the next one
// is woken only while full batches come.
//
// # Concurrency
//
// Everything here is safe for concurrent use. Nothing waits for a subscriber.
package wakeup

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
)

// Publisher sends events. The Wakeups of package producer have the same method.
type Publisher interface {
	// Publish says that messages have come to a queue, or will be visible there at a later time,
	// due. The zero time means now. Whoever enqueues publishes afterwards. bytes is the size of the
	// message, or of all messages that the event stands for; zero means unknown.
	//
	// Publish hands the event to the transport. It does not wait for subscribers, and returns when
	// ctx ends. An error means that probably nobody hears it; the messages are in the queue all the
	// same.
	Publish(ctx context.Context, q queue.Name, bytes int64, due time.Time) error
}

// Source delivers events, with the queue, bytes, and due that were published. The Wakeups of package
// listener have the same method. A transport may round due. A process that has gone, or is not ready,
// takes no event away from others. A subscriber that waits, against the rules, may lose events, but
// holds up neither publishers nor other processes.
//
// A source that knows the server of its queues may also have a method EmptyAfter() int. It replaces
// the result of [driver.EmptyAfter], unless that is 0. The source returns 1 if its server returns all
// visible messages, up to the number that a dequeue asks for, and sends another event if more are
// left.
//
// A source whose server charges nothing for requests may have a method Linger() time.Duration that
// returns 0. While messages follow each other closely, a listener then dequeues at each event.
// Without the method, or with a longer time than its own, it waits as its option Wakeups says.
type Source interface {
	// Subscribe registers a subscriber for the events of a queue until its subscription is closed.
	// It does not wait for a connection. An error means that the source cannot deliver such events
	// at all.
	//
	// The source calls one of the two functions at a time, also during Subscribe and Ready. They
	// must not wait, nor call the source or the subscription.
	//
	// The source calls event for each event that reaches the subscriber. It may also be an event of
	// another queue, which the subscriber must ignore.
	//
	// It calls listening with true when events begin to reach the subscriber, and with false when
	// they cease to, such as when a connection is lost. Between processes an event reaches one of
	// the subscribers that are ready. What was published before is not delivered any more: a
	// subscriber therefore dequeues once after every call with true.
	Subscribe(q queue.Name, event func(q queue.Name, bytes int64, due time.Time), listening func(bool)) (Subscription, error)
}

// Subscription is the registration of one subscriber. A new one is ready. It is an alias, so that
// sources need not import this package.
type Subscription = interface {
	// Ready says whether the subscriber has room for work. While it has none, events go to others.
	// Ready(false) ends listening at once and without a call of listening. Ready(true) begins it
	// again; listening(true) is called when it is in force, and never for an earlier Ready.
	Ready(bool)

	// More says that the subscriber found more work than it took. A transport between processes
	// wakes a subscriber that is ready in another process, with an event of the queue without due.
	// It wakes nobody in this process.
	More()

	// Close ends the subscription. No function of the subscriber is called after it has returned. A
	// second Close does nothing, and neither does another method afterwards. The subscription has
	// ended even if Close returns an error.
	Close() error
}

// Bus is a [Source] and [Publisher] within one process. Every subscriber hears every event, whatever
// its queue and whether it is ready or not, and filters for itself. The zero value is ready to use. A
// Bus must not be copied. It is safe for concurrent use.
type Bus struct {
	mu          sync.RWMutex
	subscribers map[*busSubscription]struct{} // guarded by mu
}

// Publish calls all subscribers. It never fails.
func (b *Bus) Publish(_ context.Context, q queue.Name, bytes int64, due time.Time) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for s := range b.subscribers {
		s.call(func() { s.event(q, bytes, due) })
	}
	return nil
}

// Subscribe registers a subscriber. It never fails. The subscriber listens at once.
func (b *Bus) Subscribe(_ queue.Name, event func(q queue.Name, bytes int64, due time.Time), listening func(bool)) (Subscription, error) {
	s := &busSubscription{bus: b, event: event, listening: listening}
	b.mu.Lock()
	if b.subscribers == nil {
		b.subscribers = make(map[*busSubscription]struct{})
	}
	b.subscribers[s] = struct{}{}
	b.mu.Unlock()
	s.Ready(true)
	return s, nil
}

type busSubscription struct {
	bus       *Bus
	event     func(q queue.Name, bytes int64, due time.Time)
	listening func(bool)

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
		s.call(func() { s.listening(true) })
	}
}

// More does nothing: every subscriber has heard what was published.
func (s *busSubscription) More() {}

func (s *busSubscription) Close() error {
	s.bus.mu.Lock()
	delete(s.bus.subscribers, s)
	s.bus.mu.Unlock()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	return nil
}
