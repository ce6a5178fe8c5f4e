package natswakeup

import (
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/wakeup"
)

// maxForward bounds how many events wait to be handed on.
const maxForward = 64

// forwarded is an event for another process.
type forwarded struct {
	subject string
	payload payload
}

// deliver calls the subscribers until the transport is closed.
func (t *Transport) deliver() {
	for {
		select {
		case m := <-t.messages:
			t.received(m)
		case <-t.life.Done():
			return
		}
	}
}

// received gives a message to all subscribers that are ready. If none is any more, or if it asks for
// another process than this, it is handed on.
func (t *Transport) received(m *nats.Msg) {
	p, err := decode(m.Data)
	if err != nil {
		return // not ours; reporting each would help whoever wants to flood the log
	}
	t.mu.Lock()
	c := t.subjects[m.Subject]
	var members []*subscription
	if c != nil && p.From != t.id {
		for s := range c.members {
			members = append(members, s)
		}
	}
	t.mu.Unlock()
	members = slices.DeleteFunc(members, func(s *subscription) bool {
		return !s.hear(wakeup.Event{Queue: c.queue, Bytes: p.Bytes, Due: p.Due})
	})
	if len(members) > 0 || p.Hops >= maxHops {
		return
	}
	p.Hops++
	t.mu.Lock()
	if len(t.forward) < maxForward {
		t.forward = append(t.forward, forwarded{m.Subject, p})
	}
	t.mu.Unlock()
	t.wakeController() // which first ends the subscription, so that this process is not chosen again
}
