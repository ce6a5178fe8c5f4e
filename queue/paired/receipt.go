package paired

import (
	"strings"

	"github.com/millrace/millrace/queue"
)

// The receipt of a message in a backlog queue begins with its suffix and a space, which no receipt of the
// service has in it, so that [Queue.Delete] finds the queue.

// mark returns the receipt with which [Queue.Delete] deletes the message.
func (b *backlog) mark(receipt queue.Receipt) queue.Receipt {
	return queue.Receipt(b.suffix+" ") + receipt
}

// find returns the backlog queue of a lease and the lease as that queue knows it.
func (r *rotation) find(l queue.Lease) (*backlog, queue.Lease, bool) {
	suffix, receipt, marked := strings.Cut(string(l.Receipt), " ")
	if !marked {
		return nil, l, false
	}
	for _, b := range r.all {
		if b.suffix == suffix {
			l.Receipt = queue.Receipt(receipt)
			return b, l, true
		}
	}
	return nil, l, false
}
