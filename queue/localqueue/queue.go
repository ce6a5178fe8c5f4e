package localqueue

import (
	"context"
	"maps"
	"time"

	"github.com/millrace/millrace/queue"
)

// Queue is one queue of an [Engine], in process. It is a [queue.Manager]; every
// method fails with a [*queue.Error]. It is a handle: any number may exist for
// one queue, before and after it does. It is safe for concurrent use.
type Queue struct {
	engine  *Engine
	name    queue.Name
	refused error // why the name is none, looked at by every call
}

var _ queue.Manager = (*Queue)(nil)

// Name says which queue this is.
func (q *Queue) Name() queue.Name { return q.name }

// Sibling returns the queue of the same account with the suffix appended.
func (q *Queue) Sibling(suffix string) queue.Queue {
	return q.engine.Queue(queue.Name{Account: q.name.Account, Queue: q.name.Queue + suffix})
}

// Enqueue appends one message; see [queue.Queue.Enqueue].
func (q *Queue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	const op = "enqueue"
	if err := ready(ctx, q.refused); err != nil {
		return queue.Message{}, q.fail(op, "", err)
	}
	if err := queue.CheckEnqueue(o); err != nil {
		return queue.Message{}, q.fail(op, "", err)
	}
	if err := queue.CheckText(text); err != nil {
		return queue.Message{}, q.fail(op, "", err)
	}
	s, at, err := q.open()
	if err != nil {
		return queue.Message{}, q.fail(op, "", err)
	}
	s.enqueued++
	s.receipts++
	m := &message{
		id:       q.engine.identity.id(s.ordinal, s.enqueued),
		sequence: s.enqueued,
		inserted: at,
		text:     text,
		due:      at,
		expires:  never,
		receipt:  s.receipts,
	}
	if o != nil {
		m.due = at.after(queue.Seconds(o.Delay))
	}
	if life := o.Life(); life != queue.Forever {
		m.expires = at.after(queue.Seconds(life))
	}
	s.backlog.add(m)
	out, receipt := m.shown(), m.receipt
	s.mu.Unlock()

	out.Receipt = q.engine.identity.receipt(s.ordinal, receipt)
	return out, nil
}

// Dequeue takes up to n visible messages; see [queue.Queue.Dequeue]. The
// visibility may pass a message's expiry: it then just expires, hidden.
func (q *Queue) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	const op = "dequeue"
	if err := ready(ctx, q.refused); err != nil {
		return nil, q.fail(op, "", err)
	}
	if err := queue.CheckDequeue(n, visibility); err != nil {
		return nil, q.fail(op, "", err)
	}
	s, at, err := q.open()
	if err != nil {
		return nil, q.fail(op, "", err)
	}
	var out []queue.Message
	first := s.receipts + 1
	until := at.after(queue.Seconds(visibility))
	for len(out) < n {
		m := s.backlog.next(at)
		if m == nil {
			break
		}
		if out == nil {
			out = make([]queue.Message, 0, min(n, s.backlog.len()))
		}
		s.receipts++
		m.receipt = s.receipts
		m.dequeues++
		s.backlog.hide(m, until)
		out = append(out, m.shown())
	}
	s.mu.Unlock()

	// Receipts are made of ordinals, so this need not keep others waiting.
	for i := range out {
		out[i].Receipt = q.engine.identity.receipt(s.ordinal, first+uint64(i))
	}
	return out, nil
}

// Peek reads up to n visible messages; see [queue.Queue.Peek].
func (q *Queue) Peek(ctx context.Context, n int) ([]queue.Message, error) {
	const op = "peek"
	if err := ready(ctx, q.refused); err != nil {
		return nil, q.fail(op, "", err)
	}
	if err := queue.CheckPeek(n); err != nil {
		return nil, q.fail(op, "", err)
	}
	s, at, err := q.open()
	if err != nil {
		return nil, q.fail(op, "", err)
	}
	defer s.mu.Unlock()
	var out []queue.Message
	for _, m := range s.backlog.due.earliest(nil, n, at) {
		seen := m.shown()
		seen.Until = time.Time{}
		out = append(out, seen)
	}
	return out, nil
}

// Update replaces the text and the visibility; see [queue.Queue.Update]. A
// visibility that passes the message's expiry is [queue.ErrInvalid], as the
// service documents for an update, and only for an update.
func (q *Queue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	const op = "update"
	if err := ready(ctx, q.refused); err != nil {
		return queue.Lease{}, q.fail(op, l.ID, err)
	}
	if err := queue.CheckUpdate(l, text, visibility); err != nil {
		return queue.Lease{}, q.fail(op, l.ID, err)
	}
	return q.update(op, l, visibility, func(m *message) { m.text = text })
}

// Extend changes the visibility and keeps the text: an update without a body,
// which the protocol has and the port has not. Otherwise it is
// [Queue.Update].
func (q *Queue) Extend(ctx context.Context, l queue.Lease, visibility time.Duration) (queue.Lease, error) {
	const op = "update"
	if err := ready(ctx, q.refused); err != nil {
		return queue.Lease{}, q.fail(op, l.ID, err)
	}
	if err := queue.CheckUpdate(l, "", visibility); err != nil {
		return queue.Lease{}, q.fail(op, l.ID, err)
	}
	return q.update(op, l, visibility, func(*message) {})
}

func (q *Queue) update(op string, l queue.Lease, visibility time.Duration, change func(*message)) (queue.Lease, error) {
	s, at, err := q.open()
	if err != nil {
		return queue.Lease{}, q.fail(op, l.ID, err)
	}
	defer s.mu.Unlock()
	m, err := q.leased(s, l)
	if err != nil {
		return queue.Lease{}, q.fail(op, l.ID, err)
	}
	until := at.after(queue.Seconds(visibility))
	if until > m.expires {
		return queue.Lease{}, q.fail(op, l.ID, &queue.Error{Kind: queue.ErrInvalid,
			Detail: "visibility timeout of " + visibility.String() + " passes the message's expiry in " + time.Duration(m.expires-at).String(),
			Hint:   "ask for less, or enqueue with queue.Forever as the TTL"})
	}
	change(m)
	s.receipts++
	m.receipt = s.receipts
	s.backlog.hide(m, until)
	return queue.Lease{ID: m.id, Receipt: q.engine.identity.receipt(s.ordinal, m.receipt), Until: until.shown()}, nil
}

// Delete takes the message away; see [queue.Queue.Delete].
func (q *Queue) Delete(ctx context.Context, l queue.Lease) error {
	const op = "delete"
	if err := ready(ctx, q.refused); err != nil {
		return q.fail(op, l.ID, err)
	}
	if err := queue.CheckLease(l); err != nil {
		return q.fail(op, l.ID, err)
	}
	s, _, err := q.open()
	if err != nil {
		return q.fail(op, l.ID, err)
	}
	defer s.mu.Unlock()
	m, err := q.leased(s, l)
	if err != nil {
		return q.fail(op, l.ID, err)
	}
	s.backlog.remove(m)
	return nil
}

// Properties reads metadata and depth. The depth is exact: it counts invisible
// messages and no expired ones.
func (q *Queue) Properties(ctx context.Context) (queue.Properties, error) {
	const op = "properties"
	if err := ready(ctx, q.refused); err != nil {
		return queue.Properties{}, q.fail(op, "", err)
	}
	s, _, err := q.open()
	if err != nil {
		return queue.Properties{}, q.fail(op, "", err)
	}
	defer s.mu.Unlock()
	return queue.Properties{Depth: int64(s.backlog.len()), Metadata: maps.Clone(s.metadata)}, nil
}

// Create makes the queue; see [queue.Queue.Create]. [Engine.Create] also tells
// whether it is new.
func (q *Queue) Create(ctx context.Context, metadata map[string]string) error {
	_, err := q.engine.Create(ctx, q.name, metadata)
	return err
}

// SetMetadata replaces the whole set of metadata.
func (q *Queue) SetMetadata(ctx context.Context, metadata map[string]string) error {
	const op = "set metadata"
	if err := ready(ctx, q.refused); err != nil {
		return q.fail(op, "", err)
	}
	if err := queue.CheckMetadata(metadata); err != nil {
		return q.fail(op, "", err)
	}
	s, _, err := q.open()
	if err != nil {
		return q.fail(op, "", err)
	}
	defer s.mu.Unlock()
	s.metadata = maps.Clone(metadata)
	return nil
}

// Clear deletes all messages, at once whatever their number.
func (q *Queue) Clear(ctx context.Context) error {
	const op = "clear"
	if err := ready(ctx, q.refused); err != nil {
		return q.fail(op, "", err)
	}
	s, _, err := q.open()
	if err != nil {
		return q.fail(op, "", err)
	}
	defer s.mu.Unlock()
	s.backlog = newBacklog()
	return nil
}

// Drop deletes the queue and everything in it. The name stays taken for
// [Options].DeletingFor; meanwhile a create is [queue.ErrQueueBeingDeleted] and
// everything else [queue.ErrQueueMissing].
func (q *Queue) Drop(ctx context.Context) error {
	const op = "drop"
	if err := ready(ctx, q.refused); err != nil {
		return q.fail(op, "", err)
	}
	a := q.engine.account(q.name.Account, false)
	if a == nil {
		return q.fail(op, "", missing)
	}
	if err := a.drop(q.name.Queue, q.engine.deletingFor); err != nil {
		return q.fail(op, "", err)
	}
	return nil
}

// open finds the queue, locks it and brings it up to the instant returned. The
// caller unlocks.
func (q *Queue) open() (*contents, instant, error) {
	s, err := q.engine.find(q.name)
	if err != nil {
		return nil, 0, err
	}
	s.mu.Lock()
	if s.dropped { // between the look-up and the lock
		s.mu.Unlock()
		return nil, 0, missing
	}
	at := now() // with the lock held, so that time goes forward in a queue
	s.backlog.collect(at)
	return s, at, nil
}

// leased returns the message that the lease is for, if it is the newest. The
// caller holds the lock.
func (q *Queue) leased(s *contents, l queue.Lease) (*message, error) {
	m := s.backlog.messages[l.ID]
	if m == nil {
		return nil, &queue.Error{Kind: queue.ErrMessageGone}
	}
	if !q.engine.identity.matches(l.Receipt, s.ordinal, m.receipt) {
		return nil, &queue.Error{Kind: queue.ErrReceiptMismatch}
	}
	return m, nil
}

func (q *Queue) fail(op string, id queue.ID, err error) error {
	return queue.Explain(err, op, q.name, id)
}

// shown is the message as the port shows it, without its receipt.
func (m *message) shown() queue.Message {
	return queue.Message{
		Lease:        queue.Lease{ID: m.id, Until: m.due.shown()},
		Text:         m.text,
		DequeueCount: m.dequeues,
		Inserted:     m.inserted.shown(),
		Expires:      m.expires.shown(),
	}
}
