package localqueue

import (
	"github.com/millrace/millrace/queue"
)

// response collects the messages of a result while the lock is held.
type response struct {
	clock    *clock
	messages []queue.Message
	numbers  []numbers
}

func (b *response) add(m *message, texts *textReader) {
	out := m.shown(b.clock)
	if texts.has(m) {
		out.Text = m.text
	} else {
		texts.want(len(b.messages), m)
	}
	b.messages = append(b.messages, out)
	b.numbers = append(b.numbers, m.numbers())
}

// numbers are what the id and the receipt of a message are derived from. They are encrypted
// after the lock is released.
type numbers struct{ sequence, receipt uint64 }

func (m *message) numbers() numbers { return numbers{m.sequence, m.receipt} }

func (q *Queue) identify(out *queue.Message, ordinal uint64, n numbers) {
	out.ID = q.engine.identity.id(ordinal, n.sequence)
	out.Receipt = q.engine.identity.receipt(ordinal, n.receipt)
}

// shown returns the message as the port shows it, without id, receipt and text.
func (m *message) shown(by *clock) queue.Message {
	return queue.Message{
		Lease:        queue.Lease{Until: by.shown(m.due)},
		DequeueCount: m.dequeues,
		Inserted:     by.shown(m.inserted),
		Expires:      by.shown(m.expires),
	}
}
