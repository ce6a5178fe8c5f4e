package dispatcher

import "github.com/millrace/millrace/codec"

// EnvelopeHead returns the head of the envelope that the message was delivered in.
func (m *Message[T]) EnvelopeHead() codec.Head { return m.delivery.head }
