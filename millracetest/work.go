package millracetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// Result is the result of the one delivery of [Work].
type Result struct {
	// Outcome is how the delivery ended: dispatcher.Deleted if the handler succeeded.
	Outcome dispatcher.Outcome

	// Err is why the handler did not succeed: its error, as errors.Is finds it, or a
	// *dispatcher.PanicError. Nil after a success and a snooze.
	Err error

	// Attempts is the number of failed attempts now recorded: 1 after a failure, 0 if the
	// delivery was none, such as a snooze.
	Attempts int

	// Delay is how long the message stays hidden before its next delivery. Zero if there is
	// none.
	Delay time.Duration

	// Poison is the record in the poison queue. Nil if the message was not poisoned, or was
	// moved without a record (poison.Policy.Bare).
	Poison *poison.Record
}

// Work runs one job through the real pipeline, once: a producer seals it and sends it to a new
// queue in memory; a listener takes it off, opens it, runs the handler under a lease that is
// renewed, and settles it by the handler's result. Work returns that result when nothing of the
// listener runs any more.
//
// Codec and Format of the options are also the producer's. All other options apply as for
// [Drain], including Timeout, RetryDelay, Visibility and Poison; with
// poison.Policy{MaxAttempts: 1} the attempt is the last one.
func Work[T any](t testing.TB, h listener.Handler[T], job T, o *listener.Options[T]) Result {
	t.Helper()
	var options listener.Options[T]
	if o != nil {
		options = *o
	}
	q := Queue(t)
	p := producer.New[T](q, &producer.Options[T]{Codec: options.Codec, Format: options.Format})
	if _, err := p.Send(t.Context(), job, nil); err != nil {
		t.Fatalf("millracetest: %v", err)
	}

	var seen failures
	onError := options.OnError
	options.OnError = func(err error) {
		seen.add(err)
		if onError != nil {
			onError(err)
		}
	}
	copies := &poisonRecorder{Queue: options.Poison.Queue}
	if copies.Queue == nil {
		copies.Queue = q.Sibling(poison.Suffix)
	}
	if !options.Poison.Keep {
		options.Poison.Queue = copies
	}

	w := &watchedQueue{Queue: q, limit: 1}
	var r Result
	for r.Outcome = range round(t, w, handling(h), &options) { // there is one
	}
	if last := seen.last; last != nil {
		r.Err = last.Err
	}
	switch r.Outcome {
	case dispatcher.Retried, dispatcher.Poisoned, dispatcher.Kept:
		r.Attempts = seen.last.Attempt
	}
	switch r.Outcome {
	case dispatcher.Retried, dispatcher.Snoozed, dispatcher.Kept:
		r.Delay = w.updated
	case dispatcher.Poisoned:
		if record, err := poison.ParseRecord(copies.text); err == nil {
			r.Poison = &record
		}
	}
	return r
}

// failures records the last failed delivery that a listener reports.
type failures struct {
	mu   sync.Mutex
	last *dispatcher.DeliveryError // guarded by mu until the round is over
}

func (f *failures) add(err error) {
	var failure *dispatcher.DeliveryError
	if !errors.As(err, &failure) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = failure
}

// poisonRecorder is a poison queue that keeps the last text it received.
type poisonRecorder struct {
	queue.Queue
	mu   sync.Mutex
	text string // guarded by mu until the round is over
}

func (c *poisonRecorder) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	m, err := c.Queue.Enqueue(ctx, text, o)
	if err == nil {
		c.mu.Lock()
		c.text = text
		c.mu.Unlock()
	}
	return m, err
}
