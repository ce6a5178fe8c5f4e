package listener

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// stuckSource is a source of which one call does not return until it is released.
type stuckSource struct {
	call     string
	released chan struct{}
}

func (s *stuckSource) enter(call string) {
	if s.call == call {
		<-s.released
	}
}

func (s *stuckSource) Subscribe(queue.Name, func(queue.Name, int64, time.Time), func(bool)) (wakeup.Subscription, error) {
	s.enter("Subscribe")
	return stuckSubscription{s}, nil
}

type stuckSubscription struct{ of *stuckSource }

func (s stuckSubscription) Ready(bool)   { s.of.enter("Ready") }
func (s stuckSubscription) More()        { s.of.enter("More") }
func (s stuckSubscription) Close() error { s.of.enter("Close"); return nil }

// A source that waits in a call holds up neither the jobs nor the stop for long, and Halt for a moment. Run
// says what happened. When the call returns nothing of it is left.
func TestASourceThatDoesNotReturnIsLeftBehind(t *testing.T) {
	for _, call := range []string{"Subscribe", "Ready", "More", "Close"} {
		for _, halts := range []bool{false, true} {
			bubble(t, func(b *bundle) {
				source := &stuckSource{call, make(chan struct{})}
				o := wakeOptions(source)
				o.Fetch.SafetyPoll, o.Concurrency = noSafety, 1
				l := New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(time.Second); return nil }, o)
				b.put(3)
				b.run(l)
				advance(time.Minute)
				if got := l.State().Outcomes[Deleted]; got != 3 && call != "Subscribe" {
					b.Errorf("%s: got %d jobs done, want 3", call, got)
				}
				b.stop()
				if halts {
					l.Halt()
				}
				within := sourceWithin + time.Second
				if halts {
					within = 2 * haltedWithin
				}
				advance(within)
				select {
				case err := <-b.done:
					if err == nil || !strings.Contains(err.Error(), "left behind") || !strings.Contains(err.Error(), "stuckSource") {
						b.Errorf("%s: got error %v, want one that names the source", call, err)
					}
				default:
					b.Errorf("%s, Halt %v: Run has not returned after %v", call, halts, within)
				}
				close(source.released)
				synctest.Wait() // the bubble ends only if no goroutine is left
			})
		}
	}
}
