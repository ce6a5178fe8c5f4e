package tokens

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/queue"
)

// source is the queue of tokens as one process uses it.
type source struct {
	queue queue.Queue
	limit string // what the metadata of the queue must say
	total int    // how many tokens there are

	mu  sync.Mutex
	set string // the set that counts; guarded by mu
}

// openSource checks that the queue is set up for this limit.
func openSource(ctx context.Context, q queue.Queue, limit string, total int) (*source, error) {
	s := &source{queue: q, limit: limit, total: total}
	err := retry.Do(queue.WithCause(ctx, queue.CauseLimit), q.Name().Queue, queue.Transient, func(ctx context.Context) error {
		_, err := s.refresh(ctx)
		return err
	})
	if errors.Is(err, queue.ErrQueueMissing) {
		return nil, fmt.Errorf("there is no queue of tokens %v: call Init once, for example when the program is deployed: %w", q.Name(), err)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// refresh reads which set of tokens counts.
func (s *source) refresh(ctx context.Context) (board, error) {
	b, err := readBoard(ctx, s.queue)
	if err != nil {
		return b, err
	}
	if err := b.check(s.queue.Name(), s.limit); err != nil {
		return b, err
	}
	if !b.ready {
		return b, notReady(s.queue.Name(), nil)
	}
	s.mu.Lock()
	s.set = b.set
	s.mu.Unlock()
	return b, nil
}

// valid reports whether a message is a token that counts.
func (s *source) valid(m *queue.Message) bool {
	set, index, ok := parse(m.Text)
	s.mu.Lock()
	defer s.mu.Unlock()
	return ok && set == s.set && index != blankIndex && index < s.total
}

// take takes up to n tokens for the visibility. Messages that are none are removed: blanks of the set-up that
// arrived late, and tokens of an earlier set.
func (s *source) take(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	ctx = queue.WithCause(ctx, queue.CauseLimit)
	batch, err := s.queue.Dequeue(ctx, min(n, queue.MaxBatch), visibility)
	if err != nil {
		return nil, err
	}
	var tokens, void []queue.Message
	for _, m := range batch {
		if s.valid(&m) {
			tokens = append(tokens, m)
		} else {
			void = append(void, m)
		}
	}
	if len(void) == 0 {
		return tokens, nil
	}
	if _, err := s.refresh(ctx); err != nil { // perhaps it is our set that counts no more
		return nil, err
	}
	tokens = tokens[:0]
	for _, m := range batch {
		if s.valid(&m) {
			tokens = append(tokens, m)
		} else {
			_ = s.queue.Delete(ctx, m.Lease) // if not, whoever finds it next does it
		}
	}
	return tokens, nil
}

// giveBack makes a token visible at once. If that fails it comes back by itself, later.
func (s *source) giveBack(ctx context.Context, m queue.Message) error {
	_, err := s.queue.Update(queue.WithCause(ctx, queue.CauseLimit), m.Lease, m.Text, 0)
	return err
}

func (s *source) missing(ctx context.Context) error {
	b, err := s.refresh(queue.WithCause(ctx, queue.CauseLimit))
	if err != nil {
		return err
	}
	if b.depth < int64(s.total) {
		return fmt.Errorf("queue %v has %d of %d tokens: somebody has deleted the others; stop all that use it, drop it and call Init", s.queue.Name(), b.depth, s.total)
	}
	return nil
}

// explain returns the error of a request to the queue of tokens as that of a dequeue of the jobs, which does
// not take place. A queue of tokens that is missing must not pass for a queue of jobs that is.
func (s *source) explain(err error, jobs queue.Name) error {
	e := &queue.Error{Op: "dequeue", Queue: jobs, Detail: fmt.Sprintf("the limit «%s»: %v", s.limit, err)}
	for _, kind := range []error{queue.ErrThrottled, queue.ErrUnavailable, queue.ErrOutcomeUnknown, queue.ErrUnauthorized} {
		if errors.Is(err, kind) {
			e.Kind = kind
		}
	}
	if errors.Is(err, queue.ErrQueueMissing) {
		e.Hint = "its queue of tokens was deleted: call Init"
	}
	return e
}
