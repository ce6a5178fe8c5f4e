package simulation

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// server is the queue of one process, below all faults. It records what the server does, in order.
type server struct {
	queue.Manager
	poison  bool
	who     string
	history *history
}

var _ queue.Queue = (*server)(nil)

func (s *server) Sibling(suffix string) queue.Queue {
	return &server{s.Manager.Sibling(suffix).(queue.Manager), isPoison(suffix), s.who, s.history}
}

// EmptyAfter is that of the engine, in every way to reach it.
func (s *server) EmptyAfter() int { return 1 }

func (s *server) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	m, err := s.Manager.Enqueue(ctx, text, o)
	if err != nil {
		return m, err
	}
	e := entry{kind: accepted, who: s.who, id: m.ID, text: text, queue: s.Name().Queue}
	if s.poison {
		e.kind, e.text = copied, withoutPlace(text)
	}
	if o != nil {
		e.hidden = time.Since(s.history.birth) + time.Duration(driver.Seconds(o.Delay))*time.Second
	}
	if life := driver.TTL(o); life != queue.Forever {
		e.until = time.Since(s.history.birth) + time.Duration(driver.Seconds(life))*time.Second
	}
	s.history.append(e)
	return m, nil
}

func (s *server) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	batch, err := s.Manager.Dequeue(ctx, n, visibility)
	if ctx.Err() != nil {
		return batch, err
	}
	s.history.append(entry{kind: polled, who: s.who, n: n, outcome: outcomeOf(err)})
	until := time.Since(s.history.birth) + time.Duration(driver.Seconds(visibility))*time.Second
	for _, m := range batch {
		s.history.append(entry{kind: delivered, who: s.who, id: m.ID, count: m.DequeueCount, text: m.Text, receipt: m.Receipt, until: until})
	}
	return batch, err
}

func (s *server) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	fresh, err := s.Manager.Update(ctx, l, text, visibility)
	if ctx.Err() == nil {
		s.history.append(entry{
			kind: updated, who: s.who, id: l.ID, text: text, with: l.Receipt, receipt: fresh.Receipt, outcome: outcomeOf(err),
			until: time.Since(s.history.birth) + time.Duration(driver.Seconds(visibility))*time.Second,
		})
	}
	return fresh, err
}

func (s *server) Delete(ctx context.Context, l queue.Lease) error {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	err := s.Manager.Delete(ctx, l)
	if ctx.Err() == nil {
		s.history.append(entry{kind: deleted, who: s.who, id: l.ID, with: l.Receipt, outcome: outcomeOf(err)})
	}
	return err
}

func (s *server) Drop(ctx context.Context) error {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	err := s.Manager.Drop(ctx)
	if err == nil {
		s.history.append(entry{kind: dropped, who: s.who})
	}
	return err
}

// outcomeOf returns the text of an error in the trace, which is the same in every [way].
func outcomeOf(err error) string {
	if err == nil {
		return ""
	}
	if e := (*queue.Error)(nil); errors.As(err, &e) && e.Kind != nil {
		return e.Kind.Error()
	}
	for _, known := range []error{context.Canceled, dispatcher.ErrLeaseExpired} { // the wrapping text differs
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return err.Error()
}
