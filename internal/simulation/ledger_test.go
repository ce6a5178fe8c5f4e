package simulation

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/queue"
)

// ledger is the state of every message of a world, computed from its history: from what the server
// did and what handlers returned. It checks the promises of dispatcher/DESIGN.md and knows nothing of
// the implementation.
type ledger struct {
	world    *world
	messages map[queue.ID]*message
	order    []*message
	receipts map[queue.Receipt]*delivery
	workers  map[string]*worker
	acked    []entry
	bodies   map[string]*body // by the names of their blobs
	stays    int              // copies in the poison queue at the end
	copies   int              // ever made
	held     map[holder]*delivery
	places   map[string]string // shards by keys

	claimsLeft []string // of messages in either queue, at the end

	violations []string
	overlaps   map[string]int // messages that ended in several places, by these and the causes
}

// audit reads a history and returns its ledger, with every broken promise as a violation.
func audit(w *world) *ledger {
	b := &ledger{
		world: w, messages: make(map[queue.ID]*message), receipts: make(map[queue.Receipt]*delivery),
		workers: make(map[string]*worker), overlaps: make(map[string]int), bodies: make(map[string]*body),
		violations: slices.Clone(w.violations), held: make(map[holder]*delivery), places: make(map[string]string),
	}
	for _, p := range w.processes {
		b.workers[p.plan.name] = newWorker(p)
	}
	for _, e := range w.history.entries {
		if e.kind == stored {
			w.contents[e.text] = e.outcome
		}
		b.read(e)
	}
	for _, a := range b.order {
		b.close(a)
	}
	b.closeProducer()
	b.closeBodies()
	b.closePairing()
	b.closeShards()
	for _, p := range w.processes {
		b.closeWorker(b.workers[p.plan.name])
		b.checkLimit(b.workers[p.plan.name])
	}
	if b.stays != b.copies {
		b.addViolation(entry{}, "%d copies were made and %d are in the poison queue", b.copies, b.stays)
	}
	return b
}

func (b *ledger) addViolation(e entry, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if e.kind != "" {
		what += "\n\tat " + e.String()
	}
	b.violations = append(b.violations, what)
}

// read adds one entry.
func (b *ledger) read(e entry) {
	if s := b.workers[e.who]; s != nil {
		b.checkWorker(s, e)
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
		b.leaves(e)
	case entombed, swept:
		b.bodyEvent(e)
	}
	a := b.messages[e.id]
	e.text = readable(e.text)
	switch e.kind {
	case delivered, updated, deleted, began, cutOff, saving, saved, batched, ended, reported, remains, hidden, itemBegan, itemEnded:
		if a == nil {
			b.addViolation(e, "a message that was never accepted")
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
	case itemBegan, itemEnded:
		b.item(a, e)
	case reported:
		b.report(a, e)
	case remains:
		a.remains = true
		b.leaves(e)
	case hidden:
		if d := a.handledBy(e); d != nil {
			d.hidden = true
		}
	}
}

// leaves notes the claim of a message that is left at the end.
func (b *ledger) leaves(e entry) {
	if claim := claimOf(e.text); claim != "" {
		b.claimsLeft = append(b.claimsLeft, claim)
	}
}

// closeProducer checks that the messages which the producer believes accepted were accepted.
func (b *ledger) closeProducer() {
	for _, e := range b.acked {
		a := b.messages[e.id]
		if a == nil || a.job.n != e.n {
			b.addViolation(e, "the producer was told of an acceptance that never was")
		}
	}
}
