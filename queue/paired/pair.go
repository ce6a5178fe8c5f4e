package paired

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/queue"
)

// pairTimeout bounds one [Queue.Pair] with all its retries.
const pairTimeout = 30 * time.Second

// Pair looks whether the backlog queues are there and creates those that are missing. When it has returned
// nil, messages can be sent. It needs the rights to read the properties of these queues and, if one is
// missing, to create it. Wrong options, names and credentials are its errors; then no message can be sent.
// Transient errors are retried for up to 30 s.
//
// Several processes may pair at once. Pair may be called again: it creates what was deleted since, and a
// failure changes nothing for a queue that was paired.
func (q *Queue) Pair(ctx context.Context) error {
	if q.bad != nil {
		return queue.Explain(q.bad, "pair", q.Name(), "")
	}
	if err := queue.CheckName(q.Name().Queue); err != nil {
		return queue.Explain(err, "pair", q.Name(), "")
	}
	ctx, cancel := context.WithTimeout(ctx, pairTimeout)
	defer cancel()
	errs := make([]error, len(q.rotation.all))
	var all sync.WaitGroup
	for i, b := range q.rotation.all {
		all.Go(func() { errs[i] = q.verify(ctx, b) })
	}
	all.Wait()
	if err := unverified(errs); err != nil {
		return fmt.Errorf("pair %v: %w", q.Name(), err)
	}
	q.paired.Store(true)
	return nil
}

// unverified returns one error for those of all backlog queues: the first that waiting does not mend, or the
// first.
func unverified(errs []error) (chosen error) {
	n := 0
	for _, err := range errs {
		if err == nil {
			continue
		}
		n++
		if chosen == nil || queue.Transient(chosen) && !queue.Transient(err) {
			chosen = err
		}
	}
	if chosen == nil {
		return nil
	}
	return fmt.Errorf("%d of %d backlog queues cannot be used, among them this one: %w", n, len(errs), chosen)
}

// verify looks whether a backlog queue is there, and creates it if it is not.
func (q *Queue) verify(ctx context.Context, b *backlog) error {
	err := retry.Do(ctx, b.suffix, queue.Transient, func(ctx context.Context) error {
		q.rotation.request()
		_, err := b.queue.Properties(queue.WithCause(ctx, queue.CauseMetadata))
		if !errors.Is(err, queue.ErrQueueMissing) {
			return err
		}
		q.rotation.request()
		err = b.queue.Create(queue.WithCause(ctx, queue.CauseCreate), nil)
		if errors.Is(err, queue.ErrQueueExists) { // somebody else pairs, and it has metadata
			return nil
		}
		return err
	})
	q.rotation.verified(b, err)
	return err
}
