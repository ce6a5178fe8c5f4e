package millracetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// Drain runs a listener until no message on the queue is visible and every message it took is
// settled, including jobs that handlers send to the same queue. It returns the number of
// deliveries by outcome, without zeros. Messages that are left are hidden: by a retry delay, a
// snooze, their own delay, or another worker's lease.
//
//	got := millracetest.Drain(t, q, handle, nil)
//	if got[listener.Deleted] != 3 || got[listener.Retried] != 1 { … }
//
// All options apply but three: there is one loop, so that at most BatchSize handlers run at once,
// Grace is unlimited, because handlers are never cancelled, and no source of failures is limited.
// There is no wait between empty polls. The log goes to the test's output. Failed jobs do not fail the test; invalid options,
// a missing queue and a message that was delivered a thousand times do.
//
// A handler must not wait for another job of the queue to be handled.
func Drain[T any](t testing.TB, q queue.Queue, h listener.Handler[T], o *listener.Options[T]) map[listener.Outcome]int {
	t.Helper()
	return drain(t, q, handling(h), o)
}

// DrainKinds is [Drain] for a queue with jobs of several kinds: see listener.NewKinds. Messages of
// other kinds are left, snoozed.
func DrainKinds(t testing.TB, q queue.Queue, kinds []listener.Kind, o *listener.Options[any]) map[listener.Outcome]int {
	t.Helper()
	return drain(t, q, func(q queue.Queue, o *listener.Options[any]) (*listener.Listener[any], error) {
		return listener.NewKinds(q, kinds, o)
	}, o)
}

// drain runs listeners until one receives nothing.
func drain[T any](t testing.TB, q queue.Queue, listen listening[T], o *listener.Options[T]) map[listener.Outcome]int {
	t.Helper()
	all := map[listener.Outcome]int{}
	w := &watchedQueue{Queue: q}
	for before := -1; w.got > before; {
		before = w.got
		for outcome, n := range round(t, w, listen, o) {
			all[outcome] += n
		}
	}
	return all
}

// Result is the result of the one delivery of [Work].
type Result struct {
	// Outcome is how the delivery ended: listener.Deleted if the handler succeeded.
	Outcome listener.Outcome

	// Err is why the handler did not succeed: its error, as errors.Is finds it, or a
	// *listener.PanicError. Nil after a success and a snooze.
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
// Codec, Format and Claims of the options are also the producer's. All other options apply as for
// [Drain], including Timeout, RetryDelay, Visibility and Poison; with
// poison.Policy{MaxAttempts: 1} the attempt is the last one.
func Work[T any](t testing.TB, h listener.Handler[T], job T, o *listener.Options[T]) Result {
	t.Helper()
	return work(t, h, o, func(p *producer.Producer[T]) error {
		_, err := p.Send(t.Context(), job, nil)
		return err
	})
}

// WorkGroup is [Work] for several jobs in one message, of which the handler gets one at a time unless it is made by
// listener.Each. The result is that of the message: its outcome is Retried if an item failed, and Err then
// has the errors of the items. To see which jobs are left use [Drain] and [Enqueued].
func WorkGroup[T any](t testing.TB, h listener.Handler[T], jobs []T, o *listener.Options[T]) Result {
	t.Helper()
	return work(t, h, o, func(p *producer.Producer[T]) error {
		_, err := p.SendGroup(t.Context(), jobs, nil)
		return err
	})
}

// work sends one message to a new queue, and runs a listener that delivers it once.
func work[T any](t testing.TB, h listener.Handler[T], o *listener.Options[T], send func(*producer.Producer[T]) error) Result {
	t.Helper()
	options := *cmp.Or(o, &listener.Options[T]{})
	q := Queue(t)
	made := &producer.Options[T]{Codec: options.Codec, Format: options.Wire.Format}
	if options.Claims != nil {
		made.Claims = options.Claims
	}
	if err := send(producer.New(q, made)); err != nil {
		t.Fatalf("millracetest: %v", err)
	}

	var last atomic.Pointer[listener.DeliveryError] // failed delivery that the listener reported
	onError := options.OnError
	options.OnError = func(err error) {
		if failure := (*listener.DeliveryError)(nil); errors.As(err, &failure) {
			last.Store(failure)
		}
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
	if failure := last.Load(); failure != nil {
		r.Err = failure.Err
	}
	switch r.Outcome {
	case listener.Retried, listener.Poisoned, listener.Kept:
		r.Attempts = last.Load().Attempt
	}
	switch r.Outcome {
	case listener.Retried, listener.Snoozed, listener.Kept:
		r.Delay = w.updated
	case listener.Poisoned:
		if text := copies.text.Load(); text != nil {
			if record, err := poison.ParseRecord(*text); err == nil {
				r.Poison = &record
			}
		}
	}
	return r
}

// poisonRecorder is a poison queue that keeps the last text it received.
type poisonRecorder struct {
	queue.Queue
	text atomic.Pointer[string]
}

func (c *poisonRecorder) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	m, err := c.Queue.Enqueue(ctx, text, o)
	if err == nil {
		c.text.Store(&text)
	}
	return m, err
}

// round runs a listener that listen makes until a poll finds nothing, and then through its normal
// shutdown, so that everything it fetched is handled and settled. It returns the number of
// deliveries by outcome.
func round[T any](t testing.TB, q *watchedQueue, listen listening[T], o *listener.Options[T]) map[listener.Outcome]int {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	q.stop = stop // the listener of the round before has ended

	options := *cmp.Or(o, &listener.Options[T]{})
	// A single loop, because after its empty poll everything it fetched has been dispatched.
	// With more loops, one could still hold a batch, which the stop would give back.
	options.Fetch.Loops = listener.Loops{Min: 1, Max: 1}
	options.NoSourceLimits = true
	// The shutdown begins while handlers still run: none may be cancelled.
	options.Grace = queue.MaxVisibility
	if options.Logger == nil {
		options.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	var broken atomic.Pointer[string]
	options.OnError = watched(options.OnError, &broken)
	l, err := listen(q, &options)
	if err == nil {
		err = l.Run(ctx)
	}
	if first := broken.Load(); first != nil {
		t.Fatalf("millracetest: a function in the options failed: %s", *first)
	}
	err = cmp.Or(q.err, err) // which is more specific than Run's error
	if err != nil {
		t.Fatalf("millracetest: %v", err)
	}
	all := map[listener.Outcome]int{}
	for o, n := range l.State().Outcomes {
		all[o] = int(n)
	}
	return all
}

type listening[T any] func(queue.Queue, *listener.Options[T]) (*listener.Listener[T], error)

func handling[T any](h listener.Handler[T]) listening[T] {
	return func(q queue.Queue, o *listener.Options[T]) (*listener.Listener[T], error) {
		return listener.New(q, h, o), nil
	}
}

// watched returns an OnError that records the first failure of a function in the options, its own
// included.
func watched(onError func(error), first *atomic.Pointer[string]) func(error) {
	record := func(format string, args ...any) {
		failure := fmt.Sprintf(format, args...)
		first.CompareAndSwap(nil, &failure)
	}
	return func(err error) {
		if failure, ok := err.(*listener.HookError); ok { //nolint:errorlint // not one that made a message poison
			record("%v\n%s", failure, failure.Stack)
		}
		if onError == nil {
			return
		}
		defer func() {
			if p := recover(); p != nil {
				record("hook OnError panicked: %v\n%s", p, debug.Stack())
			}
		}()
		onError(err)
	}
}

// maxDeliveries is how many deliveries of one message end a test that would not end by itself.
const maxDeliveries = 1000

// watchedQueue is the queue of a round. It stops the listener when a poll finds nothing.
type watchedQueue struct {
	queue.Queue
	limit int // messages to return at most; 0 for any number

	mu      sync.Mutex
	stop    func()        // ends the round; guarded by mu
	got     int           // messages returned; guarded by mu
	err     error         // why the round must end; guarded by mu
	updated time.Duration // visibility of the last update; guarded by mu
}

// Update records the visibility. That of the settlement comes after all renewals.
func (q *watchedQueue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	fresh, err := q.Queue.Update(ctx, l, text, visibility)
	if err == nil {
		q.mu.Lock()
		q.updated = visibility
		q.mu.Unlock()
	}
	return fresh, err
}

// Dequeue stops the listener when there are no messages, or no more to return, and on permanent
// errors.
func (q *watchedQueue) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	q.mu.Lock()
	if q.limit > 0 {
		n = min(n, q.limit-q.got)
	}
	q.mu.Unlock()
	var batch []queue.Message
	var err error
	if n > 0 {
		batch, err = q.Queue.Dequeue(ctx, n, visibility)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.got += len(batch)
	for _, m := range batch {
		if m.DequeueCount >= maxDeliveries {
			q.err = fmt.Errorf("message %s of %v has been delivered %d times: does its handler retry without a delay?",
				string(m.ID), q.Name(), m.DequeueCount)
		}
	}
	switch {
	case errors.Is(err, queue.ErrQueueMissing), errors.Is(err, queue.ErrUnauthorized), errors.Is(err, queue.ErrInvalid):
		q.err = err
	case err != nil: // transient: the listener tries again
		return batch, err
	}
	if len(batch) == 0 || q.err != nil {
		q.stop()
	}
	return batch, err
}
