package listener

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher"
)

// An empty slice of results is not a success: nothing is deleted.
func TestAnEmptySliceOfResultsDeletesNothing(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(10)
		var reported errorList
		o := options()
		o.OnError = reported.add
		o.RetryDelay = func(int, error) time.Duration { return time.Hour }
		l := New(b.queue, dispatcher.Batch(func(context.Context, []*Message[job]) []error { return []error{} }, 10, time.Second), o)
		b.run(l)
		advance(10 * time.Second)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != 0 || st.Outcomes[Retried] != 10 || b.depth(b.queue.Queue) != 10 {
			b.Errorf("got state %+v; want Succeeded 0, Retried 10, depth 10", st)
		}
		if !strings.Contains(reported.text(), "0 for 10 messages") {
			b.Errorf("got errors %s; want \"0 for 10 messages\" in them", reported.text())
		}
	})
}

// The stop starts a batch that is not full: its handler has the whole grace period.
func TestTheStopBeginsABatchThatIsNotFull(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(7)
		var size int
		var grace time.Duration
		o := fixed(30 * time.Second)
		o.Grace = time.Minute
		var stopped time.Time
		l := New(b.queue, dispatcher.Batch(func(ctx context.Context, ms []*Message[job]) []error {
			size, grace = len(ms), o.Grace-time.Since(stopped)
			select {
			case <-time.After(50 * time.Second):
			case <-ctx.Done():
				b.Error("the grace period ended before the handler")
			}
			return nil
		}, 10, time.Hour), o)
		b.run(l)
		advance(10 * time.Second)
		stopped = time.Now()
		b.mustFinish()
		if st := l.State(); size != 7 || grace != o.Grace || st.Outcomes[Deleted] != 7 {
			b.Errorf("got a batch of %d with %v left, state %+v; want size 7, grace %v, Succeeded 7", size, grace, st, o.Grace)
		}
	})
}

// Two listeners may share a batch handler: the stop of either one starts the batch, whichever
// dequeued its first message.
func TestTheStopOfEitherListenerBeginsTheBatchTheyShare(t *testing.T) {
	for _, stopsFirst := range []bool{true, false} {
		bubble(t, func(b *bundle) {
			var got []int
			shared := dispatcher.Batch(func(_ context.Context, ms []*Message[job]) []error {
				for _, m := range ms {
					got = append(got, m.Body.N)
				}
				return nil
			}, 10, time.Hour)
			one, two := b, setup(b.T)
			o := options()
			o.Grace = time.Minute
			one.run(New(one.queue, shared, o))
			one.putText(`{"N":1}`)
			advance(5 * time.Second)
			two.run(New(two.queue, shared, o))
			two.putText(`{"N":2}`)
			advance(5 * time.Second)
			if !stopsFirst {
				one, two = two, one
			}
			stopped := time.Now()
			one.mustFinish()
			if slices.Sort(got); !slices.Equal(got, []int{1, 2}) || time.Since(stopped) > time.Second {
				b.Errorf("got a batch of %v after %v, want one of [1 2] within 1 s", got, time.Since(stopped))
			}
			two.mustFinish()
		})
	}
}

// A time-out shorter than the wait of the batch would fail messages unhandled: a batch starts
// when half of it has passed.
func TestABatchBeginsBeforeItsMessagesTimeOut(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(3)
		o := options()
		o.Timeout = 20 * time.Second
		l := New(b.queue, dispatcher.Batch(func(ctx context.Context, ms []*Message[job]) []error {
			select {
			case <-time.After(9 * time.Second):
			case <-ctx.Done():
			}
			return slices.Repeat([]error{context.Cause(ctx)}, len(ms))
		}, 10, time.Minute), o)
		b.run(l)
		advance(30 * time.Second)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != 3 || st.Outcomes[Retried] != 0 {
			b.Errorf("got state %+v; want Succeeded 3, Retried 0", st)
		}
	})
}

// A batch that does not fill begins when half of the time-out of its first message has passed, or
// when it has waited, whichever is sooner.
func TestABatchBeginsAtHalfOfTheTimeout(t *testing.T) {
	for _, c := range []struct{ timeout, wait, want time.Duration }{
		{20 * time.Second, time.Minute, 10 * time.Second},
		{20 * time.Second, 7 * time.Second, 7 * time.Second},
		{0, time.Minute, time.Minute},
	} {
		bubble(t, func(b *bundle) {
			b.put(3)
			o := options()
			o.Timeout = c.timeout
			began := time.Duration(-1)
			b.run(New(b.queue, dispatcher.Batch(func(context.Context, []*Message[job]) []error {
				began = time.Since(b.begin)
				return nil
			}, 10, c.wait), o))
			advance(2 * time.Minute)
			b.mustFinish()
			if began != c.want {
				t.Errorf("time-out %v, wait %v: the batch began after %v, want %v", c.timeout, c.wait, began, c.want)
			}
		})
	}
}

// The loss of one message's lease while the batch runs does not affect the others.
func TestALostLeaseOfOneMessageDoesNotEndTheBatch(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(5)
		o := fixed(30 * time.Second)
		b.loseOneLease()
		l := New(b.queue, dispatcher.Batch(func(ctx context.Context, ms []*Message[job]) []error {
			if ms[0].DequeueCount == 1 {
				select {
				case <-time.After(2 * time.Minute):
				case <-ctx.Done():
					b.Errorf("context of the batch: got its end %v, want it active", context.Cause(ctx))
				}
			}
			return nil
		}, 5, time.Second), o)
		b.run(l)
		advance(10 * time.Minute)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Lost] != 1 || st.Outcomes[Deleted] != 5 || b.depth(b.queue.Queue) != 0 {
			b.Errorf("state %+v, want one lost and then handled again", st)
		}
	})
}

// No message is stuck in a batch after Halt or the end of the grace period.
func TestHaltEndsABatchThatFills(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(5)
		l := New(b.queue, dispatcher.Batch(func(ctx context.Context, ms []*Message[job]) []error {
			<-ctx.Done()
			return slices.Repeat([]error{ctx.Err()}, len(ms))
		}, 10, time.Hour), options())
		b.run(l)
		advance(5 * time.Second)
		stopped := time.Now()
		l.Halt()
		b.mustFinish()
		if st := l.State(); st.Outcomes[Returned] != 5 || time.Since(stopped) > time.Second {
			b.Errorf("after %v: state %+v; want Returned 5, time.Since(stopped) at most %v", time.Since(stopped), st, time.Second)
		}
	})
}

// An outage ends whatever its probes do: the first one hangs, takes ten minutes, or waits in a
// batch, and the others continue when it is over.
func TestAnOutageEndsWhateverItsProbesDo(t *testing.T) {
	const n, outage = 200, 3 * time.Second
	failing := func(b *bundle) error {
		if time.Since(b.begin) < outage {
			return errors.New("the database is down")
		}
		return nil
	}
	// A handler that runs before the first pause is over is not a probe.
	slow := func(b *bundle, wait func()) Handler[job] {
		var probed atomic.Bool
		return func(context.Context, *Message[job]) error {
			if time.Since(b.begin) > 500*time.Millisecond && probed.CompareAndSwap(false, true) {
				wait()
			}
			return failing(b)
		}
	}
	for name, c := range map[string]struct {
		handler func(b *bundle, release <-chan struct{}) Handler[job]
		minimum int64 // successes within nine minutes
	}{
		"hangs": {func(b *bundle, release <-chan struct{}) Handler[job] {
			return slow(b, func() { <-release })
		}, n - 1},
		"takes ten minutes": {func(b *bundle, _ <-chan struct{}) Handler[job] {
			return slow(b, func() { time.Sleep(10 * time.Minute) })
		}, n - 1},
		"waits in a batch": {func(b *bundle, _ <-chan struct{}) Handler[job] {
			return dispatcher.Batch(func(_ context.Context, ms []*Message[job]) []error {
				return slices.Repeat([]error{failing(b)}, len(ms))
			}, 60, time.Hour)
		}, n - 59},
	} {
		for _, giveUp := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(b *bundle) {
					for i := range n {
						b.send(i)
					}
					release := make(chan struct{})
					o := options()
					o.Lease.GiveUp = giveUp
					l := New(b.queue, c.handler(b, release), o)
					b.run(l)
					advance(9 * time.Minute)
					if st := l.State(); st.Outcomes[Deleted] < c.minimum {
						b.Errorf("nine minutes after %v of outage, give up %v: %+v; want at least %v", outage, giveUp, st, c.minimum)
					}
					close(release)
					advance(5 * time.Minute)
					b.mustFinish()
					if st := l.State(); st.Outcomes[Deleted] != n || st.Outcomes[Poisoned] != 0 {
						b.Errorf("give up %v: state %+v; want Succeeded %v, Poisoned 0", giveUp, st, n)
					}
				})
			})
		}
	}
}

// In an outage of everything no other message may come: what a round tries starts its batch alone.
func TestABatchDoesNotWaitToFillInAnOutage(t *testing.T) {
	bubble(t, func(b *bundle) {
		var mu sync.Mutex
		var sizes []int // guarded by mu
		l := New(b.queue, dispatcher.Batch(func(_ context.Context, ms []*Message[job]) []error {
			mu.Lock()
			defer mu.Unlock()
			sizes = append(sizes, len(ms))
			return slices.Repeat([]error{errors.New("the database is down")}, len(ms))
		}, 20, time.Hour), &Options[job]{Concurrency: 50, Logger: options().Logger})
		b.put(100)
		b.run(l)
		advance(3 * time.Minute)
		b.mustFinish()
		if n := len(sizes); n < 5 || sizes[0] != 20 || sizes[n-1] != 1 || sizes[n-2] != 1 {
			b.Errorf("batch sizes: got %v; want at least 5, the first 20, the last two 1", sizes)
		}
	})
}

// When an outage is over, batches fill again.
func TestBatchesFillAgainAfterAnOutage(t *testing.T) {
	bubble(t, func(b *bundle) {
		var mu sync.Mutex
		down, sizes := true, []int(nil) // guarded by mu
		l := New(b.queue, dispatcher.Batch(func(_ context.Context, ms []*Message[job]) []error {
			mu.Lock()
			defer mu.Unlock()
			if down {
				return slices.Repeat([]error{errors.New("the database is down")}, len(ms))
			}
			sizes = append(sizes, len(ms))
			return nil
		}, 20, time.Minute), options())
		b.put(64)
		b.run(l)
		advance(20 * time.Second)
		mu.Lock()
		down = false
		mu.Unlock()
		advance(10 * time.Minute)
		mu.Lock()
		sizes = nil
		mu.Unlock()
		b.put(40)
		advance(10 * time.Second)
		b.mustFinish()
		if !slices.Equal(sizes, []int{20, 20}) {
			b.Errorf("batch sizes after the outage: got %v, want [20 20]", sizes)
		}
	})
}
