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

// kind is what an entry of the history is about.
type kind string

const (
	accepted  kind = "accepted"   // the server took a message
	polled    kind = "polled"     // the server answered a dequeue
	delivered kind = "delivered"  // and handed this out
	updated   kind = "updated"    // the server was asked to update
	deleted   kind = "deleted"    // the server was asked to delete
	copied    kind = "copied"     // the server took a message into the poison queue
	dropped   kind = "dropped"    // the queue was deleted with all that was in it
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
	batched    kind = "batched"    // several messages are handled in one go
	saving     kind = "saving"     // a handler saves its progress
	saved      kind = "saved"      // and what came of it
	reported   kind = "reported"   // a handler is reported as stuck
)

// entry is one thing that happened, as it is written down where it happens: at the
// server's side of all faults, or in the handler.
type entry struct {
	at      time.Duration
	seq     int // the order of things within the world
	kind    kind
	who     string
	id      queue.ID
	count   int64         // dequeue count, of the delivery it concerns
	n       int           // asked for, by a poll; number of the job, at acceptance; attempt, at a start; step, of a save
	text    string        // of the message
	receipt queue.Receipt // the one handed out; of an update the new one
	with    queue.Receipt // the one shown
	until   time.Duration // until when it is hidden; when it expires, at acceptance, 0 for never
	hidden  time.Duration // until when, at acceptance
	said    string        // a result, or an error
	state   sample

	settings listener.Settings // that were changed
}

// sample is a look at a listener from the outside.
type sample struct {
	loops, running int
}

// mostShown is how much of a text the trace has.
const mostShown = 300

// String is the line of the trace. Receipts are left out: what they say is in the
// count.
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
		fmt.Fprintf(&b, " %q", e.text[:min(len(e.text), mostShown)])
		if len(e.text) > mostShown {
			fmt.Fprintf(&b, " and so on, %d bytes", len(e.text))
		}
	}
	if e.said != "" {
		fmt.Fprintf(&b, ": %s", e.said)
	}
	return b.String()
}

// history is all that happened in a world, in the order in which it did.
type history struct {
	birth time.Time

	mu      sync.Mutex
	entries []entry // guarded by mu
}

// note writes down what has just happened.
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
