package localqueue

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// handle is a queue of an [Engine]. Any number of handles may exist for one queue, before and after the
// queue does.
type handle struct {
	engine  *Engine
	name    queue.Name
	refused error // why the name is invalid; every call fails with it

	found atomic.Pointer[queueState] // by the last call that looked for it; may be dropped
}

var _ localengine.Queue = (*handle)(nil)

// Name returns the queue's name.
func (q *handle) Name() queue.Name { return q.name }

// Sibling returns the queue of the same account whose name has the suffix appended.
func (q *handle) Sibling(suffix string) queue.Queue {
	return q.engine.queue(queue.Name{Account: q.name.Account, Queue: q.name.Queue + suffix})
}

// Enqueue adds one message; see [queue.Queue.Enqueue].
func (q *handle) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	const op = "enqueue"
	s, at, err := q.begin(ctx, needsSpace, cmp.Or(driver.CheckEnqueue(o), driver.CheckText(text)))
	if err != nil {
		return queue.Message{}, q.fail(op, "", err)
	}
	q.reserveNumbers(s, 1)
	s.enqueued++
	s.receipts++
	m := &message{
		sequence: s.enqueued,
		inserted: at,
		text:     text,
		due:      at,
		expires:  never,
		receipt:  s.receipts,
	}
	if o != nil {
		m.due = at.after(driver.Seconds(o.Delay))
	}
	if m.due <= at && s.watchers != nil {
		s.watchers.bytes += int64(len(text))
	}
	if life := driver.TTL(o); life != queue.Forever {
		m.expires = at.after(driver.Seconds(life))
	}
	s.backlog.add(m)
	if q.engine.committer != nil {
		q.recordText(s, m, localengine.MessageAdded{MessageState: m.state(s.ordinal), Text: text}, func() {
			if s.backlog.messages.get(m.sequence) == m {
				s.backlog.remove(m)
			}
		})
	}
	out := m.shown(q.engine.clock)
	ids := m.numbers()
	if err := q.end(s).wait(ctx); err != nil {
		return queue.Message{}, q.fail(op, "", err)
	}
	out.Text = text
	q.identify(&out, s.ordinal, ids)
	return out, nil
}

// Dequeue takes up to n visible messages; see [queue.Queue.Dequeue]. The visibility may
// pass a message's expiry: the message then expires while it is hidden.
func (q *handle) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	const op = "dequeue"
	s, at, err := q.begin(ctx, noSpace, driver.CheckDequeue(n, visibility))
	if err != nil {
		return nil, q.fail(op, "", err)
	}
	s.watchers.dequeued()
	if s.backlog.next(at) == nil {
		return nil, q.fail(op, "", q.end(s).wait(ctx))
	}
	texts, err := q.textReader(s)
	if err != nil {
		q.end(s)
		return nil, q.fail(op, "", err)
	}
	q.reserveNumbers(s, uint64(n))
	room := min(n, s.backlog.len())
	b := response{clock: q.engine.clock, messages: make([]queue.Message, 0, room), numbers: make([]numbers, 0, room)}
	var moved *stateChanges
	if q.engine.committer != nil {
		moved = &stateChanges{in: s}
	}
	until := at.after(driver.Seconds(visibility))
	for len(b.messages) < n {
		m := s.backlog.next(at)
		if m == nil {
			break
		}
		moved.save(m)
		s.receipts++
		m.receipt = s.receipts
		m.dequeues++
		s.backlog.hide(m, until)
		b.add(m, texts)
	}
	if moved != nil {
		q.record(s, moved.change(), moved.undo)
	}
	seen := q.end(s)
	damaged, err := texts.fill(b.messages)
	if failed := seen.wait(ctx); failed != nil {
		return nil, q.fail(op, "", failed)
	}
	if err != nil {
		return nil, q.fail(op, "", q.quarantine(ctx, damaged, err))
	}
	for i := range b.messages {
		q.identify(&b.messages[i], s.ordinal, b.numbers[i])
	}
	return b.messages, nil
}

// EmptyAfter returns 1: a dequeue takes all visible messages, up to the number it asks for. See
// [driver.EmptyAfter].
func (q *handle) EmptyAfter() int { return 1 }

// Peek reads up to n visible messages; see [queue.Queue.Peek].
func (q *handle) Peek(ctx context.Context, n int) ([]queue.Message, error) {
	const op = "peek"
	s, at, err := q.begin(ctx, noSpace, driver.CheckPeek(n))
	if err != nil {
		return nil, q.fail(op, "", err)
	}
	first := s.backlog.due.earliest(nil, n, at)
	if len(first) == 0 {
		return nil, q.fail(op, "", q.end(s).wait(ctx))
	}
	texts, err := q.textReader(s)
	if err != nil {
		q.end(s)
		return nil, q.fail(op, "", err)
	}
	b := response{clock: q.engine.clock, messages: make([]queue.Message, 0, len(first)), numbers: make([]numbers, 0, len(first))}
	for _, m := range first {
		b.add(m, texts)
	}
	seen := q.end(s)
	damaged, err := texts.fill(b.messages)
	if failed := seen.wait(ctx); failed != nil {
		return nil, q.fail(op, "", failed)
	}
	if err != nil {
		return nil, q.fail(op, "", q.quarantine(ctx, damaged, err))
	}
	for i := range b.messages {
		b.messages[i].ID = q.engine.identity.id(s.ordinal, b.numbers[i].sequence)
		b.messages[i].Until = time.Time{}
	}
	return b.messages, nil
}

// Update replaces text and visibility; see [queue.Queue.Update]. A visibility that passes
// the message's expiry is [queue.ErrInvalid], as the service documents for updates only.
func (q *handle) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	return q.update(ctx, needsSpace, l, visibility, &text, driver.CheckUpdate(l, text, visibility))
}

// Extend implements [localengine.Queue].
func (q *handle) Extend(ctx context.Context, l queue.Lease, visibility time.Duration) (queue.Lease, error) {
	return q.update(ctx, noSpace, l, visibility, nil, driver.CheckUpdate(l, "", visibility))
}

// update changes the visibility and, unless text is nil, the text. bad is what is wrong with
// the arguments.
func (q *handle) update(ctx context.Context, u spaceNeed, l queue.Lease, visibility time.Duration, text *string, bad error) (queue.Lease, error) {
	const op = "update"
	s, at, err := q.begin(ctx, u, bad)
	if err != nil {
		return queue.Lease{}, q.fail(op, l.ID, err)
	}
	m, err := q.leased(s, l)
	until := at.after(driver.Seconds(visibility))
	if err == nil && until > m.expires {
		err = &queue.Error{Kind: queue.ErrInvalid,
			Detail: "visibility timeout of " + visibility.String() + " passes the message's expiry in " + time.Duration(m.expires-at).String(),
			Hint:   "ask for less, or enqueue with queue.Forever as the TTL"}
	}
	if err != nil {
		return queue.Lease{}, q.fail(op, l.ID, settled(ctx, q.end(s), err))
	}
	receipt := q.change(s, m, until, text)
	if err := q.end(s).wait(ctx); err != nil {
		return queue.Lease{}, q.fail(op, l.ID, err)
	}
	return queue.Lease{ID: l.ID, Receipt: q.engine.identity.receipt(s.ordinal, receipt), Until: q.engine.clock.shown(until)}, nil
}

// change gives m a new receipt, another visibility and, unless text is nil, another text.
// The caller holds the lock.
func (q *handle) change(s *queueState, m *message, until instant, text *string) (receipt uint64) {
	q.reserveNumbers(s, 1)
	var moved *stateChanges
	if q.engine.committer != nil {
		moved = &stateChanges{in: s}
		moved.save(m)
	}
	s.receipts++
	m.receipt = s.receipts
	s.backlog.hide(m, until)
	switch {
	case text == nil && moved != nil:
		q.record(s, moved.change(), moved.undo)
	case text != nil && moved == nil:
		m.text = *text
	case text != nil:
		was, unsaved := m.text, m.unsaved
		m.text = *text
		q.recordText(s, m, localengine.MessageRewritten{MessageState: m.state(s.ordinal), Text: *text}, func() {
			m.text, m.unsaved = was, unsaved
			moved.undo()
		})
	}
	return m.receipt
}

// Delete deletes the message; see [queue.Queue.Delete].
func (q *handle) Delete(ctx context.Context, l queue.Lease) error {
	const op = "delete"
	s, _, err := q.begin(ctx, noSpace, driver.CheckLease(l))
	if err != nil {
		return q.fail(op, l.ID, err)
	}
	m, err := q.leased(s, l)
	if err != nil {
		return q.fail(op, l.ID, settled(ctx, q.end(s), err))
	}
	s.backlog.remove(m)
	if q.engine.committer != nil {
		q.record(s, localengine.MessageRemoved{Queue: s.ordinal, Sequence: m.sequence}, func() { s.backlog.add(m) })
	}
	return q.fail(op, l.ID, q.end(s).wait(ctx))
}

// begin starts a call: it finds and locks the queue and removes expired messages as of the
// returned instant. Unless it fails, end must follow. It fails if the arguments of the call
// are bad.
func (q *handle) begin(ctx context.Context, u spaceNeed, bad error) (*queueState, instant, error) {
	if bad != nil {
		return nil, 0, bad
	}
	if err := ready(ctx, q.refused); err != nil {
		return nil, 0, err
	}
	if err := q.engine.enter(u); err != nil {
		return nil, 0, err
	}
	if s := q.found.Load(); s != nil {
		if at, exists := q.lock(s); exists {
			return s, at, nil
		}
	}
	s, seen := q.engine.find(q.name)
	if s != nil {
		if at, exists := q.lock(s); exists {
			q.found.Store(s)
			return s, at, nil
		}
		s.mu.Lock()
		seen = s.pending // of its drop
		s.mu.Unlock()
	}
	q.engine.leave()
	return nil, 0, settled(ctx, seen, errQueueMissing)
}

// lock locks a queue and removes expired messages as of the returned instant, unless the queue was dropped after it
// was found.
func (q *handle) lock(s *queueState) (at instant, exists bool) {
	s.mu.Lock()
	if s.dropped {
		s.mu.Unlock()
		return 0, false
	}
	at = q.engine.clock.now() // with the lock held, so that time never goes back within a queue
	for m := s.backlog.expired(at); m != nil; m = s.backlog.expired(at) {
		s.backlog.remove(m)
		if q.engine.committer != nil {
			q.engine.committer.expire(localengine.MessageKey{Queue: s.ordinal, Sequence: m.sequence})
		}
	}
	return at, true
}

// end ends what begin started. The call must wait for the ticket before it returns: until then,
// what its result reveals may be undone.
func (q *handle) end(s *queueState) *ticket {
	if s.watchers != nil {
		q.look(s)
	}
	seen := s.pending
	s.mu.Unlock()
	q.engine.leave()
	return seen
}

// leased returns the message of the lease, if the receipt is its newest. The caller holds
// the lock.
func (q *handle) leased(s *queueState, l queue.Lease) (*message, error) {
	sequence, ok := q.engine.identity.sequence(l.ID, s.ordinal)
	if !ok {
		return nil, &queue.Error{Kind: queue.ErrMessageGone}
	}
	m := s.backlog.messages.get(sequence)
	if m == nil {
		return nil, &queue.Error{Kind: queue.ErrMessageGone}
	}
	if !q.engine.identity.matches(l.Receipt, s.ordinal, m.receipt) {
		return nil, &queue.Error{Kind: queue.ErrReceiptMismatch}
	}
	return m, nil
}

// fail says in an error what was attempted; nil stays nil.
func (q *handle) fail(op string, id queue.ID, err error) error {
	if err == nil {
		return nil
	}
	return driver.Explain(err, op, q.name, id)
}

// queueState is one queue from its creation to its drop. A queue created again under the
// same name has another queueState.
type queueState struct {
	ordinal uint64     // never changes
	name    queue.Name // never changes

	mu       sync.Mutex
	dropped  bool              // guarded by mu; for callers that looked it up before the drop
	metadata map[string]string // guarded by mu; replaced, never changed
	policy   []byte            // guarded by mu; replaced, never changed
	enqueued uint64            // guarded by mu; the sequence of the newest message
	receipts uint64            // guarded by mu; receipts issued
	reserved highWater         // guarded by mu; the numbers reserved in the store
	backlog  backlog           // guarded by mu
	pending  *ticket           // guarded by mu; the newest change of the above
	watchers *watchers         // guarded by mu; nil if nobody watches
}

// state returns the queue as a store keeps it. The caller holds mu, or the queue is not
// shared yet.
func (s *queueState) state() localengine.QueueState {
	return localengine.QueueState{
		Ordinal:  s.ordinal,
		Name:     s.name,
		Metadata: s.metadata,
		Policy:   s.policy,
		Enqueued: s.reserved.enqueued,
		Receipts: s.reserved.receipts,
	}
}

// errQueueMissing is what every operation on a missing queue fails with.
var errQueueMissing = &queue.Error{Kind: queue.ErrQueueMissing, Hint: "create it first"}

// sameMetadata compares as the service does: names case-insensitively, because HTTP does
// not preserve their case, and values exactly.
func sameMetadata(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	values := make(map[string]string, len(a))
	for name, value := range a {
		values[strings.ToLower(name)] = value
	}
	for name, value := range b {
		if have, ok := values[strings.ToLower(name)]; !ok || have != value {
			return false
		}
	}
	return true
}

// recordState records the queue's own state, if there is a store. The caller holds the
// lock; undo runs with it held.
func (q *handle) recordState(s *queueState, undo func()) {
	q.record(s, localengine.QueueSaved(s.state()), undo)
}

// response collects the messages of a result while the lock is held.
type response struct {
	clock    *clock
	messages []queue.Message
	numbers  []numbers
}

func (b *response) add(m *message, texts *textReader) {
	out := m.shown(b.clock)
	if texts == nil || m.unsaved != 0 {
		out.Text = m.text
	} else {
		texts.missing = append(texts.missing, missingText{len(b.messages), m.sequence})
	}
	b.messages = append(b.messages, out)
	b.numbers = append(b.numbers, m.numbers())
}

// numbers are what the id and the receipt of a message are derived from. They are encrypted
// after the lock is released.
type numbers struct{ sequence, receipt uint64 }

func (m *message) numbers() numbers { return numbers{m.sequence, m.receipt} }

func (q *handle) identify(out *queue.Message, ordinal uint64, n numbers) {
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
