package roles

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/wakeup"
)

// DefaultTimeout is the visibility timeout if the queue's metadata has none.
const DefaultTimeout = 30 * time.Second

// ImageProcessingQueue is one of the four queues, typed by its messages.
type ImageProcessingQueue[T Message] struct {
	Name            string
	PoisonThreshold int           // attempts, or lost deliveries, after which a message is poison; from the metadata
	Timeout         time.Duration // how long a message is hidden; from the metadata
	RawQueue        queue.Queue

	found    queue.Properties // when it was opened
	producer *producer.Producer[T]
	logger   *slog.Logger
	store    uuid.UUID                                      // of the blobs of this program
	failed   func(context.Context, uuid.UUID, string) error // a message of the request becomes poison
	sent     func(uuid.UUID)                                // a message was sent
	seen     func(uuid.UUID) (done func())                  // a handler gets a message, and ends
	foreign  func(context.Context, Head) bool               // reports whether the blobs of a message are in another store
}

// shared has the parts that the four queues share.
type shared struct {
	open   func(name string) (queue.Queue, error)
	logger *slog.Logger
	failed func(ctx context.Context, id uuid.UUID, reason string) error
	sent   func(id uuid.UUID)
	seen   func(id uuid.UUID) (done func())

	store   uuid.UUID
	foreign func(context.Context, Head) bool
}

// openQueue opens the queue for messages of type T, creates it if it does not exist, and reads
// its settings. Transient failures are retried until ctx ends.
func openQueue[T Message](ctx context.Context, s shared) (*ImageProcessingQueue[T], error) {
	var message T
	q := &ImageProcessingQueue[T]{Name: message.queue(), logger: s.logger, failed: s.failed, sent: s.sent, seen: s.seen, store: s.store, foreign: s.foreign}
	var err error
	if q.RawQueue, err = s.open(q.Name); err != nil {
		return nil, err
	}
	q.producer = producer.New[T](q.RawQueue, nil)

	// An existing queue keeps its metadata.
	err = persist(ctx, func(ctx context.Context) error {
		err := q.RawQueue.Create(ctx, nil)
		if errors.Is(err, queue.ErrQueueExists) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var found queue.Properties
	err = persist(ctx, func(ctx context.Context) (err error) {
		found, err = q.RawQueue.Properties(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	q.found = found
	q.configure(found.Metadata)
	return q, nil
}

// persist retries transient failures, such as those of an emulator that is still starting, until
// ctx ends. It then returns the last error of the service.
func persist(ctx context.Context, op func(context.Context) error) error {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := op(ctx)
		if !queue.Transient(err) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}

// configure takes the settings from the metadata. A missing setting has its default, as has an
// invalid one, with a warning.
func (q *ImageProcessingQueue[T]) configure(metadata map[string]string) {
	q.Timeout = DefaultTimeout
	const maxSeconds = int64(queue.MaxVisibility / time.Second)
	if seconds, ok := q.setting(metadata, "defaulttimeout", 1, maxSeconds); ok {
		q.Timeout = time.Duration(seconds) * time.Second
		if q.Timeout < dispatcher.MinVisibility {
			q.logger.Warn("a visibility timeout too short to be renewed is raised", "queue", q.Name, "defaulttimeout", seconds, "used", dispatcher.MinVisibility)
			q.Timeout = dispatcher.MinVisibility
		}
	}
	q.PoisonThreshold = poison.DefaultMaxAttempts
	if attempts, ok := q.setting(metadata, "poisonthreshold", 1, 1<<31-1); ok {
		q.PoisonThreshold = int(attempts)
	}
}

// setting reads a number within bounds. Names are matched in any case, because HTTP does not
// preserve it.
func (q *ImageProcessingQueue[T]) setting(metadata map[string]string, name string, lowest, highest int64) (int64, bool) {
	for key, text := range metadata {
		if !strings.EqualFold(key, name) {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		if err == nil && n >= lowest && n <= highest {
			return n, true
		}
		q.logger.Warn("invalid queue metadata, using the default", "queue", q.Name, name, text, "allowed", fmt.Sprintf("%d…%d", lowest, highest))
	}
	return 0, false
}

// Head returns the head of a message of this queue that belongs to a request.
func (q *ImageProcessingQueue[T]) Head(clientID string, id uuid.UUID) Head {
	return Head{ClientID: clientID, RequestID: id, QueueURI: uriOf(q.RawQueue.Name()), Blobs: q.store}
}

// Submit sends a message, if it is valid.
func (q *ImageProcessingQueue[T]) Submit(ctx context.Context, m T) error {
	if err := m.Validate(); err != nil {
		return err
	}
	if _, err := q.producer.Send(ctx, m, nil); err != nil {
		return err
	}
	q.sent(m.head().RequestID)
	return nil
}

// tuning has the settings in which the roles differ.
type tuning struct {
	concurrency, batch int
	idle               scaling.Idle
	wakeups            wakeup.Source
	grace              time.Duration
	onError            func(error)
}

// accept returns a listener that passes valid messages to a handler. Invalid ones are poison at
// once.
func (q *ImageProcessingQueue[T]) accept(h listener.Handler[T], t tuning) *listener.Listener[T] {
	line := &aside{Queue: q.RawQueue}
	valid := func(ctx context.Context, m *listener.Message[T]) error {
		if err := m.Body.Validate(); err != nil {
			return dispatcher.Poison(err)
		}
		if q.foreign(ctx, m.Body.head()) {
			return dispatcher.Snooze(line.leave(m.DequeueCount))
		}
		defer q.seen(m.Body.head().RequestID)()
		return h(ctx, m)
	}
	return listener.New(line, valid, &listener.Options[T]{
		Concurrency: t.concurrency, BatchSize: t.batch,
		Idle: t.idle, Wakeups: t.wakeups, Grace: t.grace, OnError: t.onError, Logger: q.logger,
		Visibility: dispatcher.Fixed(q.Timeout),
		RetryDelay: retryDelay,
		Poison: poison.Policy{
			MaxAttempts: q.PoisonThreshold, MaxLost: q.PoisonThreshold,
			Queue: announcing{q.RawQueue.Sibling(poison.Suffix), q.failed},
		},
	})
}

// retryDelay is short, because a user waits for the result.
func retryDelay(attempt int, _ error) time.Duration {
	return min(time.Second<<min(attempt-1, 10), time.Minute)
}

// announcing is a poison queue that reports the request of each poison message, including those
// that no handler saw or could decode.
type announcing struct {
	queue.Queue
	failed func(ctx context.Context, id uuid.UUID, reason string) error
}

// Enqueue reports the request and then copies the message: a request that waits for a poison
// message would wait for ever.
func (a announcing) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if record, err := poison.ParseRecord(text); err == nil {
		if id, ok := requestOf(record.Text); ok {
			if err := a.failed(ctx, id, record.Error); err != nil {
				return queue.Message{}, err
			}
		}
	}
	return a.Queue.Enqueue(ctx, text, o)
}

// requestOf returns the request id in the text of a message, if there is one.
func requestOf(text string) (uuid.UUID, bool) {
	_, body, _, err := codec.Open(text, codec.Auto)
	if err != nil {
		return uuid.Nil, false
	}
	head, err := codec.JSON[struct {
		RequestID uuid.UUID `json:"requestId"`
	}]().Decode(body)
	return head.RequestID, err == nil && head.RequestID != uuid.Nil
}
