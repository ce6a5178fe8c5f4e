package localqueue

import (
	"context"
	"maps"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue/storage"
)

// Properties returns metadata and depth. The depth is exact: it includes invisible messages
// and excludes expired ones.
func (q *Queue) Properties(ctx context.Context) (queue.Properties, error) {
	const op = "properties"
	s, _, err := q.begin(ctx, noSpace)
	if err != nil {
		return queue.Properties{}, q.fail(op, "", err)
	}
	p := queue.Properties{Depth: int64(s.backlog.len()), Metadata: maps.Clone(s.metadata)}
	if err := q.end(s).wait(ctx); err != nil {
		return queue.Properties{}, q.fail(op, "", err)
	}
	return p, nil
}

// Create creates the queue; see [queue.Queue.Create]. [Engine.Create] also reports whether it
// is new.
func (q *Queue) Create(ctx context.Context, metadata map[string]string) error {
	_, err := q.engine.Create(ctx, q.name, metadata)
	return err
}

// SetMetadata replaces all metadata. Nil and empty remove it.
func (q *Queue) SetMetadata(ctx context.Context, metadata map[string]string) error {
	const op = "set metadata"
	if err := queue.CheckMetadata(metadata); err != nil {
		return q.fail(op, "", err)
	}
	s, _, err := q.begin(ctx, needsSpace)
	if err != nil {
		return q.fail(op, "", err)
	}
	old := s.metadata
	s.metadata = maps.Clone(metadata)
	q.recordState(s, func() { s.metadata = old })
	if err := q.end(s).wait(ctx); err != nil {
		return q.fail(op, "", err)
	}
	return nil
}

// Clear deletes all messages. It takes O(1).
func (q *Queue) Clear(ctx context.Context) error {
	const op = "clear"
	s, _, err := q.begin(ctx, noSpace)
	if err != nil {
		return q.fail(op, "", err)
	}
	old := s.backlog
	s.backlog = newBacklog()
	q.record(s, storage.QueueCleared{Queue: s.ordinal, Sequence: s.enqueued}, func() { s.backlog = old })
	if err := q.end(s).wait(ctx); err != nil {
		return q.fail(op, "", err)
	}
	return nil
}

// Drop deletes the queue and its messages. The name stays reserved for
// [Options].DeletingFor: meanwhile a create fails with [queue.ErrQueueBeingDeleted] and
// everything else with [queue.ErrQueueMissing].
func (q *Queue) Drop(ctx context.Context) error {
	const op = "drop"
	if err := ready(ctx, q.refused); err != nil {
		return q.fail(op, "", err)
	}
	if err := q.engine.enter(noSpace); err != nil {
		return q.fail(op, "", err)
	}
	seen, err := (*ticket)(nil), error(errQueueMissing)
	if a := q.engine.account(q.name.Account, false); a != nil {
		seen, err = q.engine.drop(a, q.name.Queue)
	}
	q.engine.leave()
	if err := settled(ctx, seen, err); err != nil {
		return q.fail(op, "", err)
	}
	return nil
}

// Create creates a queue, as [queue.Queue.Create] does, and reports whether it is new. False means
// that it existed with the same metadata; the service then responds with 204 instead of 201.
func (e *Engine) Create(ctx context.Context, name queue.Name, metadata map[string]string) (created bool, err error) {
	const op = "create"
	if err := ready(ctx, queue.CheckName(name.Queue)); err != nil {
		return false, queue.Explain(err, op, name, "")
	}
	if err := queue.CheckMetadata(metadata); err != nil {
		return false, queue.Explain(err, op, name, "")
	}
	if err := e.enter(needsSpace); err != nil {
		return false, queue.Explain(err, op, name, "")
	}
	created, seen, err := e.create(e.account(name.Account, true), name, metadata)
	e.leave()
	if err := settled(ctx, seen, err); err != nil {
		return false, queue.Explain(err, op, name, "")
	}
	return created, nil
}

// create also returns the newest change that its result reveals.
func (e *Engine) create(a *accountState, name queue.Name, metadata map[string]string) (bool, *ticket, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.queues[name.Queue]; s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		seen := newer(a.pending, s.pending)
		if !sameMetadata(s.metadata, metadata) {
			return false, seen, &queue.Error{Kind: queue.ErrQueueExists, Hint: "set the metadata of the queue that exists, or create it with the same"}
		}
		return false, seen, nil
	}
	a.releaseNames(e.clock.now())
	if _, taken := a.deleting[name.Queue]; taken {
		return false, a.pending, &queue.Error{Kind: queue.ErrQueueBeingDeleted, Hint: "the name of a dropped queue is free again after 30 seconds or more"}
	}
	s := &queueState{ordinal: e.ordinal.Add(1), name: name, metadata: maps.Clone(metadata), backlog: newBacklog()}
	a.insert(s)
	if e.committer != nil {
		a.pending = e.committer.add(storage.QueueSaved(s.state()), func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.remove(s)
			a.pending = nil
		})
		s.pending = a.pending
	}
	return true, a.pending, nil
}

func (e *Engine) drop(a *accountState, name string) (*ticket, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.queues[name]
	if s == nil {
		return a.pending, errQueueMissing
	}
	a.remove(s)
	at := e.clock.now()
	a.releaseNames(at)
	deleting := storage.DeletingName{Name: s.name}
	if e.deletingFor > 0 {
		free := at + instant(e.deletingFor)
		deleting.Until = int64(free)
		a.markDeleting(name, free)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.backlog
	s.dropped = true
	s.endWatchers()
	s.backlog = newBacklog() // open handles must not keep the messages alive
	if e.committer != nil {
		a.pending = e.committer.add(storage.QueueDropped{Ordinal: s.ordinal, Deleting: deleting}, func() { a.restore(s, left) })
		s.pending = a.pending
	}
	return a.pending, nil
}
