package millracetest

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
)

// round runs a listener that listen makes until a poll finds nothing, and then through its normal
// shutdown, so that everything it fetched is handled and settled. It returns the number of
// deliveries by outcome.
func round[T any](t testing.TB, q *watchedQueue, listen listening[T], o *listener.Options[T]) map[dispatcher.Outcome]int {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	q.begin(stop)

	var options listener.Options[T]
	if o != nil {
		options = *o
	}
	// A single loop, because after its empty poll everything it fetched has been dispatched.
	// With more loops, one could still hold a batch, which the stop would give back.
	options.Loops = listener.Loops{Min: 1, Max: 1}
	// The shutdown begins while handlers still run: none may be cancelled.
	options.Grace = queue.MaxVisibility
	if options.Logger == nil {
		options.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	var broken brokenHooks
	options.OnError = broken.watch(options.OnError)
	l := listen(q, &options)
	err := l.Run(ctx)
	if first := broken.first; first != "" {
		t.Fatalf("millracetest: a function in the options failed: %s", first)
	}
	if failure := q.failure(); failure != nil { // more specific than Run's error
		err = failure
	}
	if err != nil {
		t.Fatalf("millracetest: %v", err)
	}
	return outcomes(l.State())
}

type listening[T any] func(queue.Queue, *listener.Options[T]) *listener.Listener[T]

func handling[T any](h listener.Handler[T]) listening[T] {
	return func(q queue.Queue, o *listener.Options[T]) *listener.Listener[T] { return listener.New(q, h, o) }
}

// brokenHooks records the first failure of a function in the options.
type brokenHooks struct {
	mu    sync.Mutex
	first string // guarded by mu until the round is over
}

// watch returns an OnError that records failures of hooks, including its own.
func (b *brokenHooks) watch(onError func(error)) func(error) {
	return func(err error) {
		if failure, ok := err.(*dispatcher.HookError); ok { //nolint:errorlint // not one that made a message poison
			b.record(fmt.Sprintf("%v\n%s", failure, failure.Stack))
		}
		if onError == nil {
			return
		}
		defer func() {
			if p := recover(); p != nil {
				b.record(fmt.Sprintf("hook OnError panicked: %v\n%s", p, debug.Stack()))
			}
		}()
		onError(err)
	}
}

func (b *brokenHooks) record(failure string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.first == "" {
		b.first = failure
	}
}

// outcomes returns the counts of a listener without zeros.
func outcomes(s listener.State) map[dispatcher.Outcome]int {
	all := map[dispatcher.Outcome]int{}
	for o, n := range map[dispatcher.Outcome]int64{
		dispatcher.Deleted: s.Succeeded, dispatcher.Retried: s.Retried, dispatcher.Discarded: s.Discarded, dispatcher.Duplicate: s.Duplicates,
		dispatcher.Poisoned: s.Poisoned, dispatcher.Kept: s.Kept, dispatcher.Snoozed: s.Snoozed,
		dispatcher.GivenBack: s.GivenBack, dispatcher.Lost: s.Lost, dispatcher.Unsettled: s.Unsettled,
	} {
		if n > 0 {
			all[o] = int(n)
		}
	}
	return all
}
