package localqueue

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/queue"
)

// texts reads the texts of messages that only the store has. It is opened with
// the queue's lock held, so that it sees what memory says is saved, and read
// after the lock is given back. A nil one is for an engine in memory.
type textReader struct {
	view    View
	ordinal uint64
	missing []missingText
}

type missingText struct {
	index    int // in the answer
	sequence uint64
}

// texts returns nil when there is no store. The caller holds the lock and calls
// fill if there was no error.
func (q *Queue) textReader(s *queueState) (*textReader, error) {
	if q.engine.committer == nil {
		return nil, nil
	}
	view, err := q.engine.committer.store.View()
	if err != nil {
		return nil, &queue.Error{Kind: queue.ErrUnavailable, Err: err}
	}
	return &textReader{view: view, ordinal: s.ordinal}, nil
}

// has reports whether the text of m is in memory.
func (t *textReader) has(m *message) bool { return t == nil || m.unsaved != 0 }

// want asks for the text of m to be filled in at index.
func (t *textReader) want(index int, m *message) {
	t.missing = append(t.missing, missingText{index, m.sequence})
}

// fill reads what was asked for and closes the view. When a text cannot be read
// it returns whose.
func (t *textReader) fill(out []queue.Message) (MessageKey, error) {
	if t == nil {
		return MessageKey{}, nil
	}
	defer t.view.Close()
	for _, m := range t.missing {
		key := MessageKey{t.ordinal, m.sequence}
		text, err := t.view.Text(key)
		if err != nil {
			return key, err
		}
		out[m.index].Text = text
	}
	return MessageKey{}, nil
}

// setAside takes a message out of the queue whose text is damaged: it would
// come again and again, and others behind it. What was dequeued with it comes
// back by itself. It returns what to tell the caller.
func (q *Queue) quarantine(ctx context.Context, key MessageKey, cause error) error {
	failure := &queue.Error{Kind: queue.ErrUnavailable, Err: cause, Hint: "try again"}
	if !errors.Is(cause, ErrDamaged) {
		return failure
	}
	s, _, err := q.begin(ctx, noSpace)
	if err != nil {
		return err
	}
	if m := s.backlog.messages.get(key.Sequence); s.ordinal == key.Queue && m != nil && m.unsaved == 0 {
		s.backlog.remove(m)
		q.record(s, MessageQuarantined(key), func() { s.backlog.add(m) })
	}
	if err := q.end(s).wait(ctx); err != nil {
		return err
	}
	failure.Detail = fmt.Sprintf("message %s, the %d. of its queue, cannot be read and was set aside",
		q.engine.identity.id(key.Queue, key.Sequence), key.Sequence)
	failure.Hint = "the others are served: try again"
	return failure
}
