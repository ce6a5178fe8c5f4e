package roles

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// shared has the common state of the four queues of a process.
type shared struct {
	jobs   jobs
	sent   atomic.Int64
	logger *slog.Logger
}

type queues struct {
	imageRequests  *ImageProcessingQueue[ImageRequest]
	sliceRequests  *ImageProcessingQueue[SliceRequest]
	sliceResponses *ImageProcessingQueue[SliceResponse]
	imageResponses *ImageProcessingQueue[ImageResponse]
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
	return Head{ClientID: clientID, RequestID: id, QueueURI: uriOf(q.RawQueue.Name())}
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
	return listener.New(q.RawQueue, func(ctx context.Context, m *listener.Message[T]) error {
		if err := m.Body.Validate(); err != nil {
			return dispatcher.Poison(err)
		}
		err := h(ctx, m)
		if errors.Is(err, errEnded) {
			return nil // a late duplicate
		}
		return err
	}, &o)
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
	body, err := record.Body()
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
