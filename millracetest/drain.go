package millracetest

import (
	"testing"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
)

// Drain runs a listener until no message on the queue is visible and every message it took is
// settled, including jobs that handlers send to the same queue. It returns the number of
// deliveries by outcome, without zeros. Messages that are left are hidden: by a retry delay, a
// snooze, their own delay, or another worker's lease.
//
//	got := millracetest.Drain(t, q, handle, nil)
//	if got[dispatcher.Deleted] != 3 || got[dispatcher.Retried] != 1 { … }
//
// All options apply but two: there is one loop, so that at most BatchSize handlers run at once,
// and Grace is unlimited, because handlers are never cancelled. There is no wait between empty
// polls. The log goes to the test's output. Failed jobs do not fail the test; invalid options,
// a missing queue and a message that was delivered a thousand times do.
//
// A handler must not wait for another job of the queue to be handled.
func Drain[T any](t testing.TB, q queue.Queue, h listener.Handler[T], o *listener.Options[T]) map[dispatcher.Outcome]int {
	t.Helper()
	return drain(t, q, handling(h), o)
}

// DrainKinds is [Drain] for a queue with jobs of several kinds: see listener.NewKinds. Messages of
// other kinds are left, snoozed, and so are those of a kind whose handlers fail so often in a row that
// the listener assumes an outage of that kind.
func DrainKinds(t testing.TB, q queue.Queue, kinds []listener.Kind, o *listener.Options[any]) map[dispatcher.Outcome]int {
	t.Helper()
	return drain(t, q, func(q queue.Queue, o *listener.Options[any]) *listener.Listener[any] {
		return listener.NewKinds(q, kinds, o)
	}, o)
}

// drain runs listeners until one receives nothing.
func drain[T any](t testing.TB, q queue.Queue, listen listening[T], o *listener.Options[T]) map[dispatcher.Outcome]int {
	t.Helper()
	all := map[dispatcher.Outcome]int{}
	w := &watchedQueue{Queue: q}
	for before := -1; w.got > before; {
		before = w.got
		for outcome, n := range round(t, w, listen, o) {
			all[outcome] += n
		}
	}
	return all
}
