package listener

import (
	"context"
	"errors"
	"runtime/pprof"
	"strings"
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
				o.Concurrency, o.Lease.GiveUp, o.Timeout, o.Lease.StuckAfter = slots, true, 10*time.Second, 10*time.Second
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

// A report of a stuck handler shows the goroutines that run handlers of the queue and those that
// these have started, and no others: not those of other queues, nor those that wait for work.
func TestAStuckReportShowsWhatTheHandlersOfTheQueueStarted(t *testing.T) {
	bubble(t, func(b *bundle) {
		other := b.queue.Queue.Sibling("-other")
		if err := other.Create(b.Context(), nil); err != nil {
			b.Fatal(err)
		}
		if _, err := other.Enqueue(b.Context(), `{"N":0}`, nil); err != nil {
			b.Fatal(err)
		}
		b.put(3)
		release := make(chan struct{})
		var told atomic.Pointer[dispatcher.StuckError]
		o := options()
		o.Timeout = 10 * time.Second
		o.OnError = func(err error) {
			if e := (*dispatcher.StuckError)(nil); errors.As(err, &e) {
				told.Store(e)
			}
		}
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			if m.Body.N == 0 && m.Attempt == 1 {
				pprof.Do(ctx, pprof.Labels("step", "shipping"), func(context.Context) { startsHere(release) })
			}
			return nil
		}, o)
		elsewhere := New(other, func(context.Context, *Message[job]) error { elsewhereHere(release); return nil }, options())
		ctx, stop := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		go func() { ended <- elsewhere.Run(ctx) }()
		b.run(l)
		advance(5 * time.Minute)
		e := told.Load()
		if e == nil {
			b.Fatal("nothing was reported")
		}
		for text, want := range map[string]int{"startsHere+": 1, "waitsHere+": 1, "elsewhereHere+": 0, "\n\n": 2, `"step":"shipping"`: 2} {
			if got := strings.Count(string(e.Stacks), text); got != want {
				b.Errorf("the stacks have %q %d times, want %d:\n%s", text, got, want, e.Stacks)
			}
		}
		close(release)
		stop()
		advance(time.Minute) // the workers wait for messages
		var all strings.Builder
		if err := errors.Join(pprof.Lookup("goroutine").WriteTo(&all, 1), <-ended); err != nil {
			b.Fatal(err)
		}
		if strings.Contains(all.String(), "millrace.queue") {
			b.Errorf("goroutines with the label: got one without a handler, want none:\n%s", all.String())
		}
		b.mustFinish()
	})
}

func startsHere(release chan struct{}) {
	done := make(chan struct{})
	go waitsHere(release, done)
	<-done
}

func waitsHere(release, done chan struct{}) {
	<-release
	close(done)
}

func elsewhereHere(release chan struct{}) { <-release }
