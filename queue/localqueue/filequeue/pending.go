package filequeue

import (
	"cmp"
	"maps"
	"slices"

	"github.com/millrace/millrace/queue/localqueue/storage"
)

// pending is the outcome, by message, of the commits since the last checkpoint.
type pending struct {
	messages map[storage.MessageKey]outcome
	touched  int // outcomes of messages that the tree has
}

// outcome is the newest state of a message.
type outcome struct {
	storage.MessageState
	text string
	kind byte // as in a log record
}

func newPending() pending { return pending{messages: map[storage.MessageKey]outcome{}} }

func (p *pending) apply(changes []storage.Change) {
	for _, c := range changes {
		switch c := c.(type) {
		case storage.MessageAdded:
			p.put(outcome{c.MessageState, c.Text, recordAdded})
		case storage.MessageRewritten:
			p.put(outcome{c.MessageState, c.Text, recordRewritten})
		case storage.MessagesUpdated:
			for _, m := range c {
				p.put(outcome{m, "", recordUpdated})
			}
		case storage.MessageRemoved:
			p.remove(storage.MessageKey(c))
		case storage.MessagesExpired:
			for _, k := range c {
				p.remove(k)
			}
		}
	}
}

func (p *pending) put(o outcome) {
	was, known := p.messages[o.MessageKey]
	switch {
	case !known:
		if o.kind != recordAdded {
			p.touched++
		}
	case o.kind == recordUpdated && was.kind != recordUpdated: // the rest is unchanged
		was.Due, was.Dequeues, was.Receipt = o.Due, o.Dequeues, o.Receipt
		o = was
	case was.kind == recordAdded:
		o.kind = recordAdded
	}
	p.messages[o.MessageKey] = o
}

func (p *pending) remove(k storage.MessageKey) {
	was, known := p.messages[k]
	switch {
	case known && was.kind == recordAdded: // it never reaches the tree
		delete(p.messages, k)
		return
	case !known:
		p.touched++
	}
	p.messages[k] = outcome{MessageState: storage.MessageState{MessageKey: k}, kind: recordRemoved}
}

func (p *pending) inOrder() []outcome {
	return slices.SortedFunc(maps.Values(p.messages), func(a, b outcome) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Sequence, b.Sequence))
	})
}
