package millracetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
)

// round runs a listener until a poll finds nothing, and then to its orderly end: what
// was fetched is handled and settled. It returns what became of how many messages.
func round[T any](t testing.TB, q *watchedQueue, h listener.Handler[T], o *listener.Options[T]) map[dispatcher.Outcome]int {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	q.begin(stop)

	var options listener.Options[T]
	if o != nil {
		options = *o
	}
	// A single loop, because the end is safe after its empty poll: all that it had
	// fetched before was dispatched. With more, one could still have a batch in hand,
	// which the stop would give back.
	options.Loops = listener.Loops{Min: 1, Max: 1}
	// The end begins when handlers still run: none may be cut off by it.
	options.Grace = queue.MaxVisibility
	if options.Logger == nil {
		options.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	var broken brokenHooks
	options.OnError = broken.watch(options.OnError)
	l := listener.New(q, h, &options)
	err := l.Run(ctx)
	if first := broken.first; first != "" {
		t.Fatalf("millracetest: a listener survives this, a test should not: %s", first)
	}
	if failure := q.failure(); failure != nil { // the better reason
		err = failure
	}
	if err != nil {
		t.Fatalf("millracetest: %v", err)
	}
	return outcomes(l.State())
}

// brokenHooks keeps the first failure of a function in the options.
type brokenHooks struct {
	mu    sync.Mutex
	first string // guarded by mu until the round is over
}

// watch returns an OnError that notes failures of hooks, its own among them.
func (b *brokenHooks) watch(tell func(error)) func(error) {
	return func(err error) {
		if failure, ok := err.(*dispatcher.HookError); ok { //nolint:errorlint // not one that made a message poison
			b.note(fmt.Sprintf("%v\n%s", failure, failure.Stack))
		}
		if tell == nil {
			return
		}
		defer func() {
			if p := recover(); p != nil {
				b.note(fmt.Sprintf("hook OnError panicked: %v\n%s", p, debug.Stack()))
			}
		}()
		tell(err)
	}
}

func (b *brokenHooks) note(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.first == "" {
		b.first = what
	}
}

// outcomes turns the counts of a listener into a map without zeros.
func outcomes(s listener.State) map[dispatcher.Outcome]int {
	all := map[dispatcher.Outcome]int{}
	for o, n := range map[dispatcher.Outcome]int64{
		dispatcher.Deleted: s.Succeeded, dispatcher.Retried: s.Retried, dispatcher.Discarded: s.Discarded,
		dispatcher.Poisoned: s.Poisoned, dispatcher.Kept: s.Kept, dispatcher.Snoozed: s.Snoozed,
		dispatcher.GivenBack: s.GivenBack, dispatcher.Lost: s.Lost, dispatcher.Unsettled: s.Unsettled,
	} {
		if n > 0 {
			all[o] = int(n)
		}
	}
	return all
}

// patience is how many deliveries of one message end a test that would never end by
// itself.
const maxDeliveries = 1000

// watched is the queue of a round: it stops the listener when a poll finds nothing.
type watchedQueue struct {
	queue.Queue
	limit int // how many messages to hand out; 0 for any number

	mu      sync.Mutex
	stop    func()        // ends the round; guarded by mu
	got     int           // messages handed out; guarded by mu
	err     error         // why the round must not go on; guarded by mu
	updated time.Duration // for how long the last update hid its message; guarded by mu
}

func (q *watchedQueue) begin(stop func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stop = stop
}

func (q *watchedQueue) failure() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

// Update notes the delay. The one of the settlement comes after all renewals.
func (q *watchedQueue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	fresh, err := q.Queue.Update(ctx, l, text, visibility)
	if err == nil {
		q.mu.Lock()
		q.updated = visibility
		q.mu.Unlock()
	}
	return fresh, err
}

// Dequeue stops the listener when there is nothing, or nothing more to hand out, and on
// errors that waiting would not mend.
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
			q.err = fmt.Errorf("message %s of %v has been delivered %d times and goes on: does its handler retry or snooze without a delay?", string(m.ID), q.Name(), m.DequeueCount)
		}
	}
	switch {
	case errors.Is(err, queue.ErrQueueMissing), errors.Is(err, queue.ErrUnauthorized), errors.Is(err, queue.ErrInvalid):
		q.err = err
	case err != nil: // the listener waits and tries again
		return batch, err
	}
	if len(batch) == 0 || q.err != nil {
		q.stop()
	}
	return batch, err
}
