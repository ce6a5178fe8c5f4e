package dispatcher

import (
	"github.com/millrace/millrace/internal/envelope"
)

// EnvelopeHead returns the head of the envelope that the message was delivered in.
func (m *Message[T]) EnvelopeHead() envelope.Head { return m.delivery.head }
