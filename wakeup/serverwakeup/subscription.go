package serverwakeup

import (
	"sync"

	"github.com/millrace/millrace/wakeup"
)

// subscription is one subscriber of a stream. Its lock is taken before that of the stream.
type subscription struct {
	stream     *stream
	subscriber wakeup.Subscriber

	mu        sync.Mutex // held while the subscriber is called, so that no call overlaps or comes late
	ready     bool       // guarded by mu
	listening bool       // Listening(true) was called since it was ready; guarded by mu
	closed    bool       // guarded by mu
}

func (s *subscription) Ready(ready bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setReady(ready)
}

// setReady requires mu.
func (s *subscription) setReady(ready bool) {
	if s.closed || s.ready == ready {
		return
	}
	s.ready = ready
	if !ready {
		s.listening = false
		s.stream.count(-1)
		return
	}
	s.stream.count(1)
	s.listen()
}

// listen tells a ready subscriber that the stream is in force, if it is and that was not said yet. It
// requires mu: the stream may break at any time, and what follows from that is said after this.
func (s *subscription) listen() {
	if s.ready && !s.listening && s.stream.isInForce() {
		s.listening = true
		s.subscriber.Listening(true)
	}
}

// More does nothing: the server has seen the dequeue and wakes the next one if messages are left.
func (s *subscription) More() {}

func (s *subscription) Close() {
	s.mu.Lock()
	s.setReady(false)
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		s.stream.remove(s)
		s.stream.source.release(s.stream)
	}
}

func (s *subscription) began() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listen()
}

// broke says that the stream is not in force any more.
func (s *subscription) broke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listening {
		s.listening = false
		s.subscriber.Listening(false)
	}
}

// event passes an event to a subscriber that listens.
func (s *subscription) event(e wakeup.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listening {
		s.subscriber.Event(e)
	}
}
