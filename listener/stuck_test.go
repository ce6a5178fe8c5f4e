package listener

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher"
)

// The slot of a handler that was given up is freed only once: when the handler returns later
// the counts stay right, and no handler too many runs.
func TestTheSlotOfAGivenUpHandlerIsFreedOnce(t *testing.T) {
	for name, result := range map[string]error{"succeeds": nil, "fails": errors.New("late"), "poison": dispatcher.Poison(nil)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bundle) {
				const slots, stuck = 3, 2
				b.put(stuck)
				release := make(chan struct{})
				var running, peak atomic.Int64
				o := options()
				o.Concurrency, o.GiveUp, o.Timeout, o.StuckAfter = slots, true, 10*time.Second, 10*time.Second
				l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
					if m.Body.N < stuck && m.Attempt == 1 {
						<-release
						return result
					}
					peak.Store(max(peak.Load(), running.Add(1)))
					defer running.Add(-1)
					time.Sleep(5 * time.Second)
					return nil
				}, o)
				b.run(l)
				advance(25 * time.Second) // both are given up
				for range 30 {
					b.putText(`{"N":100}`)
				}
				advance(2 * time.Second)
				if st := l.State(); st.Running != slots || running.Load() != slots {
					b.Errorf("got %d handlers running, state %+v; want Running %v, running %v", running.Load(), st, slots, slots)
				}
				close(release) // while the others run
				advance(time.Second)
				if st := l.State(); st.Running != slots {
					b.Errorf("after the return of the stuck handlers: got state %+v; want Running %v", st, slots)
				}
				advance(10 * time.Minute)
				if st := l.State(); peak.Load() != slots || st.Running != 0 || st.Settling != 0 {
					b.Errorf("got %d handlers at once in %d slots, state %+v; want peak %v, Running 0, Settling 0", peak.Load(), slots, st, slots)
				}
				b.mustFinish()
			})
		})
	}
}
