package localqueue

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/queue"
)

// textReader reads texts that only the store has. It is opened with the queue's lock held,
// so that it sees the commit that memory knows of, and read after the lock is released. It
// is nil for an engine in memory.
type textReader struct {
	view    localengine.View
	ordinal uint64
	missing []missingText
}

type missingText struct {
	index    int // in the result
	sequence uint64
}

// textReader returns nil if there is no store. The caller holds the lock and, unless it
// fails, calls fill later.
func (q *handle) textReader(s *queueState) (*textReader, error) {
	if q.engine.committer == nil {
		return nil, nil
	}
	view, err := q.engine.committer.store.View()
	if err != nil {
		return nil, &queue.Error{Kind: queue.ErrUnavailable, Err: err}
	}
	return &textReader{view: view, ordinal: s.ordinal}, nil
}

// fill reads the texts asked for and closes the view. If a text cannot be read, it returns
// that message's key.
func (t *textReader) fill(out []queue.Message) (localengine.MessageKey, error) {
	if t == nil {
		return localengine.MessageKey{}, nil
	}
	defer func() { _ = t.view.Close() }() // the texts are read by then
	for _, m := range t.missing {
		key := localengine.MessageKey{Queue: t.ordinal, Sequence: m.sequence}
		text, err := t.view.Text(key)
		if err != nil {
			return key, err
		}
		out[m.index].Text = text
	}
	return localengine.MessageKey{}, nil
}

// quarantine removes a message whose text is damaged from the queue: otherwise it would be
// dequeued repeatedly, and block others. The messages dequeued with it become visible
// again by themselves. It returns the error for the caller.
func (q *handle) quarantine(ctx context.Context, key localengine.MessageKey, cause error) error {
	failure := &queue.Error{Kind: queue.ErrUnavailable, Err: cause, Hint: "try again"}
	if !errors.Is(cause, localengine.ErrDamaged) {
		return failure
	}
	s, _, err := q.begin(ctx, noSpace, nil)
	if err != nil {
		return err
	}
	if m := s.backlog.messages.get(key.Sequence); s.ordinal == key.Queue && m != nil && m.unsaved == 0 {
		s.backlog.remove(m)
		q.record(s, localengine.MessageQuarantined(key), func() { s.backlog.add(m) })
	}
	if err := q.end(s).wait(ctx); err != nil {
		return err
	}
	failure.Detail = fmt.Sprintf("message %s (number %d of its queue) cannot be read and was quarantined",
		q.engine.identity.id(key.Queue, key.Sequence), key.Sequence)
	failure.Hint = "the other messages are available: try again"
	return failure
}
