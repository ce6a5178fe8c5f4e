package simulation

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/queue"
)

// books are what the history of a world comes to, message by message. They are kept
// from the outside alone: from what the server did and what handlers said. They know
// the promises of docs/design.md and nothing of how they are kept.
type books struct {
	world    *world
	accounts map[queue.ID]*account
	order    []*account
	receipts map[queue.Receipt]*delivery
	staff    map[string]*worker
	acked    []entry
	stays    int // copies in the poison queue at the end
	copies   int // ever made

	complaints []string
	overlaps   map[string]int // messages that ended in several places, by these and the causes
}

// audit reads a history and complains about everything that breaks a promise.
func audit(w *world) *books {
	b := &books{
		world: w, accounts: make(map[queue.ID]*account), receipts: make(map[queue.Receipt]*delivery),
		staff: make(map[string]*worker), overlaps: make(map[string]int),
		complaints: slices.Clone(w.complaints),
	}
	for _, p := range w.processes {
		b.staff[p.plan.name] = hire(p)
	}
	for _, e := range w.history.entries {
		b.read(e)
	}
	for _, a := range b.order {
		b.close(a)
	}
	b.closeProducer()
	for _, p := range w.processes {
		b.closeWorker(b.staff[p.plan.name])
	}
	if b.stays != b.copies {
		b.complain(entry{}, "%d copies were made and %d are in the poison queue", b.copies, b.stays)
	}
	return b
}

func (b *books) complain(e entry, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if e.kind != "" {
		what += "\n\tat " + e.String()
	}
	b.complaints = append(b.complaints, what)
}

// read books one entry.
func (b *books) read(e entry) {
	if s := b.staff[e.who]; s != nil {
		b.onDuty(s, e)
	}
	switch e.kind {
	case accepted:
		b.accept(e)
	case acked:
		b.acked = append(b.acked, e)
	case dropped:
		for _, a := range b.order {
			a.dropped = a.dropped || a.removed == nil && !a.expired(e.at)
		}
	case copied:
		b.copy(e)
	case copyStays:
		b.stays++
	}
	a := b.accounts[e.id]
	e.text = readable(e.text)
	switch e.kind {
	case delivered, updated, deleted, began, cutOff, saving, saved, batched, ended, reported, remains:
		if a == nil {
			b.complain(e, "a message that was never accepted")
			return
		}
	}
	switch e.kind {
	case delivered:
		b.deliver(a, e)
	case updated:
		b.update(a, e)
	case deleted:
		b.delete(a, e)
	case began, cutOff, saving, saved, batched, ended:
		b.handled(a, e)
	case reported:
		b.report(a, e)
	case remains:
		a.remains = true
	}
}

// closeProducer checks that what the producer was told is true.
func (b *books) closeProducer() {
	for _, e := range b.acked {
		a := b.accounts[e.id]
		if a == nil || a.job.n != e.n {
			b.complain(e, "the producer was told of an acceptance that never was")
		}
	}
}
