package simulation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
)

// kind is the kind of an entry.
type kind string

const (
	accepted  kind = "accepted"   // the server accepted a message
	polled    kind = "polled"     // the server responded to a dequeue
	delivered kind = "delivered"  // and returned this message
	updated   kind = "updated"    // the server was asked to update
	deleted   kind = "deleted"    // the server was asked to delete
	copied    kind = "copied"     // the server accepted a message into the poison queue
	dropped   kind = "dropped"    // the queue was deleted with its messages
	began     kind = "began"      // a handler
	ended     kind = "ended"      // a handler
	died      kind = "died"       // a process
	stopping  kind = "stopping"   // a worker was told to
	returned  kind = "returned"   // from Run
	remains   kind = "remains"    // in the queue, at the end
	copyStays kind = "copy stays" // in the poison queue, at the end
	acked     kind = "acked"      // the producer was told that its message is accepted
	sampled   kind = "sampled"    // a listener's state

	configured kind = "configured" // a listener's settings were changed
	cutOff     kind = "cut off"    // a handler's context ended while it ran
	batched    kind = "batched"    // a batch is handled
	saving     kind = "saving"     // a handler saves its progress
	saved      kind = "saved"      // with this outcome
	reported   kind = "reported"   // a handler is reported as stuck
	itemBegan  kind = "item began" // a handler, for an item of a group; n is its index
	itemEnded  kind = "item ended"

	diverted kind = "diverted" // a backlog queue has accepted a message

	pausing   kind = "pausing"   // its program pauses the listener
	resuming  kind = "resuming"  // and resumes it
	asking    kind = "asking"    // a listener sends a dequeue
	receiving kind = "receiving" // and has received messages
	reading   kind = "reading"   // a listener reads the properties of the queue
	read      kind = "read"      // and has the response

	reports kind = "reports" // a worker, in the control queue; the text has the figures

	stored   kind = "stored"   // a body, in a blob; the text is its name
	entombed kind = "entombed" // a tombstone took the place of a body
	swept    kind = "swept"    // a tombstone was removed
	hidden   kind = "hidden"   // a body was not found, although it is there
)

// entry is one event, recorded on the server's side of all faults or in the handler.
type entry struct {
	at      time.Duration
	seq     int // order of the events of a world
	kind    kind
	who     string
	id      queue.ID
	count   int64         // dequeue count of the delivery
	n       int           // asked for, by a poll; number of the job, at acceptance; attempt, at a start; step, of a save
	text    string        // of the message
	receipt queue.Receipt // the one returned; of an update the new one
	with    queue.Receipt // the one in the request
	until   time.Duration // until when it is hidden; when it expires, at acceptance, 0 for never
	hidden  time.Duration // until when, at acceptance
	outcome string        // result or error
	queue   string        // at acceptance
	state   sample

	settings listener.Settings // that were changed
}

// sample is a part of a listener's State.
type sample struct {
	loops, running int
}

// maxShown limits a text in the trace, in bytes.
const maxShown = 300

// String returns the line of the trace, without receipts, which the count replaces.
func (e entry) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%14v %-36s %-10s %-9s", e.at, e.id, e.kind, e.who)
	if e.count != 0 {
		fmt.Fprintf(&b, " delivery %d", e.count)
	}
	if e.n != 0 {
		fmt.Fprintf(&b, " n=%d", e.n)
	}
	if e.until != 0 {
		fmt.Fprintf(&b, " until %v", e.until)
	}
	if e.text != "" {
		fmt.Fprintf(&b, " %q", e.text[:min(len(e.text), maxShown)])
		if len(e.text) > maxShown {
			fmt.Fprintf(&b, " and so on, %d bytes", len(e.text))
		}
	}
	if e.outcome != "" {
		fmt.Fprintf(&b, ": %s", e.outcome)
	}
	return b.String()
}

// history has all events of a world in their order.
type history struct {
	birth time.Time

	mu      sync.Mutex
	entries []entry // guarded by mu
}

// note records an event that has just happened.
func (h *history) note(e entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.append(e)
}

// append requires mu.
func (h *history) append(e entry) {
	e.at, e.seq = time.Since(h.birth), len(h.entries)
	h.entries = append(h.entries, e)
}

// trace returns the lines sorted by instant, message, operation and the rest, so that
// two runs of the same world can be compared.
func (h *history) trace() []string {
	h.mu.Lock()
	sorted := slices.Clone(h.entries)
	h.mu.Unlock()
	slices.SortStableFunc(sorted, func(a, b entry) int {
		return cmp.Or(
			cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id), cmp.Compare(a.kind, b.kind),
			cmp.Compare(a.who, b.who), cmp.Compare(a.String(), b.String()),
		)
	})
	lines := make([]string, len(sorted))
	for i, e := range sorted {
		lines[i] = e.String()
	}
	return lines
}
