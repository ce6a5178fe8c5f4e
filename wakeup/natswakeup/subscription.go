package natswakeup

import (
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// maxMore bounds how many calls of More wait to be sent.
const maxMore = 16

// channel is what a process hears about one queue, for all subscribers that it has.
type channel struct {
	queue   queue.Name
	subject string

	members map[*subscription]struct{} // guarded by Transport.mu
	asked   int                        // calls of More that were not sent yet; guarded by Transport.mu

	// Only the controller uses these.
	sub       *nats.Subscription // or nil
	confirmed bool               // the server has confirmed it, on this connection
	denied    bool               // the server has refused it, on this connection
}

// unsubscribe ends the subscription at the server, if there is one. Only the controller calls it.
func (c *channel) unsubscribe() {
	if c.sub != nil {
		_ = c.sub.Unsubscribe() // it fails if the connection is closed, which ends it too
	}
	c.sub, c.confirmed, c.denied = nil, false, false
}

// isReady reports whether any subscriber is. Requires Transport.mu.
func (c *channel) isReady() bool {
	for m := range c.members {
		if m.ready {
			return true
		}
	}
	return false
}

type subscription struct {
	transport  *Transport
	channel    *channel
	subscriber wakeup.Subscriber

	ready bool // guarded by Transport.mu
	told  bool // that it listens, since it is ready; guarded by Transport.mu

	calling sync.Mutex // held while the subscriber is called; comes before Transport.mu
}

// Ready says whether the subscriber has room for work.
func (s *subscription) Ready(ready bool) {
	t := s.transport
	if !ready { // a call that is under way ends first, so that none is for an earlier Ready
		s.calling.Lock()
		defer s.calling.Unlock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, open := s.channel.members[s]; !open || s.ready == ready {
		return
	}
	s.ready, s.told = ready, false
	t.wakeController()
}

// More wakes another process.
func (s *subscription) More() {
	t := s.transport
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, open := s.channel.members[s]; !open || s.channel.asked >= maxMore {
		return
	}
	s.channel.asked++
	t.wakeController()
}

// Close ends the subscription.
func (s *subscription) Close() {
	s.Ready(false)
	s.calling.Lock() // what was under way, even if it was not ready
	defer s.calling.Unlock()
	t := s.transport
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(s.channel.members, s)
	t.wakeController()
}

// tell calls Listening if the subscriber is ready and this is news. Only the controller calls it, which
// also ends the subscription at the server: so what it tells is true whatever Ready says meanwhile.
func (s *subscription) tell(listening bool) {
	s.calling.Lock()
	defer s.calling.Unlock()
	s.transport.mu.Lock()
	news := s.ready && s.told != listening
	if news {
		s.told = listening
	}
	s.transport.mu.Unlock()
	if news {
		s.subscriber.Listening(listening)
	}
}

// hear calls Event if the subscriber is ready, and reports whether it was.
func (s *subscription) hear(e wakeup.Event) bool {
	s.calling.Lock()
	defer s.calling.Unlock()
	s.transport.mu.Lock()
	ready := s.ready
	s.transport.mu.Unlock()
	if ready {
		s.subscriber.Event(e)
	}
	return ready
}
