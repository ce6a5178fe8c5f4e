package millracetest

import (
	"testing"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
)

// Drain runs a listener on the queue until nothing on it is visible any more and all
// that was taken is settled; what handlers send to the same queue is handled too. It
// returns how many deliveries ended how; what never happened is not in the map. What is
// left on the queue waits: for a retry or a snooze to be over, for its delay, for
// somebody else's lease.
//
//	got := millracetest.Drain(t, q, handle, nil)
//	if got[dispatcher.Deleted] != 3 || got[dispatcher.Retried] != 1 { … }
//
// Of the options all hold but two: there is one loop, so that at most BatchSize handlers
// run at once, and Grace, because handlers are never cut off. Between empty polls no
// time is spent. The log goes to the test's. Failures of jobs do not fail the test;
// what keeps the listener from working does, such as bad options or a queue that does
// not exist, as does a message that was delivered a thousand times.
//
// A handler must not wait for another job of the queue to be handled.
func Drain[T any](t testing.TB, q queue.Queue, h listener.Handler[T], o *listener.Options[T]) map[dispatcher.Outcome]int {
	t.Helper()
	all := map[dispatcher.Outcome]int{}
	w := &watchedQueue{Queue: q}
	for before := -1; w.got > before; {
		before = w.got
		for outcome, n := range round(t, w, h, o) {
			all[outcome] += n
		}
	}
	return all
}
