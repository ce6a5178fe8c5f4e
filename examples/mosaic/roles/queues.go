package roles

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// ImageProcessingQueue is one of the four queues, typed by its messages. Its metadata hold the poison
// threshold and the timeout, which the listener reads: see [listener.ReadMetadata].
type ImageProcessingQueue[T Message] struct {
	Name     string
	RawQueue queue.Queue

	producer *producer.Producer[T]
	shared   *shared
}

// shared is what the four queues of a process share.
type shared struct {
	jobs   jobs
	store  uuid.UUID // the id of the blob store
	sent   atomic.Int64
	logger *slog.Logger
	warned sync.Once // about messages that belong to another store
}

// queues are the four queues.
type queues struct {
	imageRequests  *ImageProcessingQueue[ImageRequest]
	sliceRequests  *ImageProcessingQueue[SliceRequest]
	sliceResponses *ImageProcessingQueue[SliceResponse]
	imageResponses *ImageProcessingQueue[ImageResponse]
}

func openQueues(open func(name string) (queue.Queue, error), s *shared) (*queues, error) {
	var q queues
	var errs [4]error
	q.imageRequests, errs[0] = openQueue[ImageRequest](open, s)
	q.sliceRequests, errs[1] = openQueue[SliceRequest](open, s)
	q.sliceResponses, errs[2] = openQueue[SliceResponse](open, s)
	q.imageResponses, errs[3] = openQueue[ImageResponse](open, s)
	return &q, errors.Join(errs[:]...)
}

// openQueue returns the queue for messages of type T. Sending and listening create it if it is missing.
func openQueue[T Message](open func(name string) (queue.Queue, error), s *shared) (*ImageProcessingQueue[T], error) {
	var message T
	q := &ImageProcessingQueue[T]{Name: message.queue(), shared: s}
	var err error
	if q.RawQueue, err = open(q.Name); err != nil {
		return nil, err
	}
	q.producer = producer.New(q.RawQueue, &producer.Options[T]{Create: true})
	return q, nil
}

// Head returns the head of a message of this queue that belongs to a request.
func (q *ImageProcessingQueue[T]) Head(clientID string, id uuid.UUID) Head {
	return Head{ClientID: clientID, RequestID: id, QueueURI: uriOf(q.RawQueue.Name()), Blobs: q.shared.store}
}

// Submit sends a message, if it is valid.
func (q *ImageProcessingQueue[T]) Submit(ctx context.Context, m T) error {
	if err := m.Validate(); err != nil {
		return err
	}
	if _, err := q.producer.Send(ctx, m, nil); err != nil {
		return err
	}
	q.shared.sent.Add(1)
	return nil
}

// accept returns a listener that passes valid messages to a handler. Invalid ones are poison immediately.
func (q *ImageProcessingQueue[T]) accept(h listener.Handler[T], o listener.Options[T]) *listener.Listener[T] {
	o.Create, o.Metadata, o.RetryDelay = true, listener.ReadMetadata, retryDelay
	o.Poison.Queue = recording{q.RawQueue.Sibling(poison.Suffix), q.Name, q.shared.jobs}
	line := &aside{Queue: q.RawQueue}
	return listener.New(line, func(ctx context.Context, m *listener.Message[T]) error {
		if err := m.Body.Validate(); err != nil {
			return dispatcher.Poison(err)
		}
		if head := m.Body.head(); head.Blobs != uuid.Nil && head.Blobs != q.shared.store {
			q.shared.warned.Do(func() {
				q.shared.logger.Warn("these queues also have messages of programs with other blobs: leaving them to those programs; programs that should work together need the same -blobs")
			})
			line.until.Store(time.Now().Add(2*time.Second + rand.N(time.Second)).UnixNano()) // random, so that programs take turns
			return dispatcher.Snooze(time.Second)
		}
		err := h(ctx, m)
		if errors.Is(err, errEnded) {
			return nil // a late duplicate
		}
		return err
	}, &o)
}

// aside is a queue from which this process dequeues nothing for a while after it gave back a message of another program.
// Otherwise it would get that message again before the other program.
type aside struct {
	queue.Queue
	until atomic.Int64 // nanoseconds
}

// Dequeue implements [queue.Queue].
func (a *aside) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	select {
	case <-time.After(time.Until(time.Unix(0, a.until.Load()))):
		return a.Queue.Dequeue(ctx, n, visibility)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// retryDelay is short, because a user waits for the result.
func retryDelay(attempt int, _ error) time.Duration {
	return min(time.Second<<min(attempt-1, 10), time.Minute)
}

// recording is a poison queue that records the poison of a request in the store, where its client
// sees it. It includes messages that no handler saw or could decode.
type recording struct {
	queue.Queue
	name string // of the queue that the messages come from
	jobs jobs
}

// Enqueue records the poison and then copies the message.
func (r recording) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if record, err := poison.ParseRecord(text); err == nil {
		if err := r.record(ctx, record); err != nil {
			return queue.Message{}, err
		}
	}
	return r.Queue.Enqueue(ctx, text, o)
}

func (r recording) record(ctx context.Context, record poison.Record) error {
	_, body, _, err := codec.Open(record.Text, codec.Auto)
	if err != nil {
		return nil //nolint:nilerr // it names no request
	}
	head, err := codec.JSON[struct {
		RequestID uuid.UUID `json:"requestId"`
		Slice     int       `json:"sliceSequence"`
	}]().Decode(body)
	if err != nil || head.RequestID == uuid.Nil {
		return nil //nolint:nilerr // it names no request
	}
	return r.jobs.writeFact(ctx, head.RequestID, fmt.Sprintf("%s%s-%06d", factPoison, r.name, head.Slice), record.Error)
}
