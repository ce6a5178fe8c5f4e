package listener

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/scaling"
)

// L-01: loops beyond a lower Max end while the queue stays busy and no poll is empty.
func TestSurplusLoopsEndWhileTheQueueIsBusy(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(8000)
		b.queue.latency = 100 * time.Millisecond
		l := New(b.queue, nothing, withLoops(6))
		b.run(l)
		advance(2 * time.Second)
		if n := l.State().Loops; n != 6 {
			t.Fatalf("%d loops under load, want 6", n)
		}
		for _, most := range []int{4, 1} {
			if err := l.Configure(Settings{Loops: Loops{Max: most}}); err != nil {
				t.Fatal(err)
			}
			advance(time.Second)
			if n := l.State().Loops; n != most {
				t.Errorf("loops a second after the change of Max: got %d, want %d", n, most)
			}
		}
		if st := l.State(); st.EmptyPolls != 0 || st.Received == 8000 {
			t.Errorf("busy queue: got %d empty polls and %d received; want none and fewer than 8000", st.EmptyPolls, st.Received)
		}
		b.mustFinish()
	})
}

// L-15: the edge from idle to busy is one, however many batches the work comes in, full ones or
// small ones, and the next edge needs an empty poll.
func TestTheEdgeFromIdleToBusyIsOneForSeveralBatches(t *testing.T) {
	bubble(t, func(b *bundle) {
		var detected atomic.Int64
		b.queue.latency = 100 * time.Millisecond
		o := options()
		o.Concurrency = 320
		o.Fetch.QueueWorkDetected = func(scaling.Load) int { detected.Add(1); return 1 }
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(10 * time.Second)

		b.put(200) // seven batches, six of them full
		advance(10 * time.Second)
		st := l.State()
		if st.Outcomes[Deleted] != 200 || detected.Load() != 1 {
			t.Errorf("200 jobs: got %d done, work detected %d times; want 200, once", st.Outcomes[Deleted], detected.Load())
		}
		for range 100 { // some for each poll, never a full batch
			b.put(1)
			advance(25 * time.Millisecond)
		}
		if n := l.State().EmptyPolls; n > st.EmptyPolls+10 { // those before the first of them was seen
			t.Errorf("empty polls during the trickle: got %d, want at most 10", n-st.EmptyPolls)
		}
		if n := detected.Load(); n != 2 {
			t.Errorf("detected %d times after a trickle of small batches, want 2", n)
		}
		advance(10 * time.Second)
		b.put(1)
		advance(10 * time.Second)
		b.mustFinish()
		if n := detected.Load(); n != 3 {
			t.Errorf("detected %d times after another idle time, want 3", n)
		}
	})
}

// Slots that are reserved when the listener slows down are given back: a round fetches one message
// that cannot be given back without an attempt.
func TestAListenerThatSlowsDownWhileALoopWaitsForSlotsFetchesOne(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(100)
		o := options()
		o.Concurrency, o.Fetch.MinFetch, o.Fetch.Linger = 16, 16, time.Hour // the loop waits for all slots
		l := New(b.queue, func(context.Context, *Message[job]) error {
			time.Sleep(25 * time.Second)
			return errors.New("the database is down")
		}, o)
		b.run(l)
		advance(99 * time.Second) // the fourth batch has not returned, a minute after the first has failed
		if polls := b.queue.sent("dequeue"); len(polls) != 4 || polls[3].n != 16 {
			t.Errorf("dequeues %+v in 99 s, want four for 16 messages", polls)
		}
		advance(5 * time.Second)
		if polls := b.queue.sent("dequeue"); len(polls) != 5 || polls[4].n != 1 {
			t.Errorf("dequeues %+v after that, want a fifth one for 1 message", polls)
		}
		b.mustFinish()
	})
}

// Free slots wait for more of them for a fifth of the handling time, at least 100 ms and at most
// a second.
func TestTheLingerFollowsTheHandlingTimeUpToASecond(t *testing.T) {
	for takes, want := range map[time.Duration]time.Duration{
		50 * time.Millisecond: 100 * time.Millisecond,
		2 * time.Second:       400 * time.Millisecond,
		4 * time.Second:       800 * time.Millisecond,
		20 * time.Second:      time.Second,
	} {
		bubble(t, func(b *bundle) {
			b.put(100)
			o := options()
			o.Concurrency, o.Fetch.MinFetch = 2, 2
			l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
				if m.Body.N == 0 { // keeps one of the two slots
					<-ctx.Done()
					return ctx.Err()
				}
				return sleep(ctx, takes)
			}, o)
			b.run(l)
			for len(b.queue.sent("dequeue")) < 60 {
				advance(time.Second)
			}
			l.Halt()
			b.mustFinish()
			polls := b.queue.sent("dequeue")[50:]
			for i := 1; i < len(polls); i++ {
				if lingered := polls[i].at.Sub(polls[i-1].at) - takes; lingered != want || polls[i].got != 1 {
					t.Fatalf("handlers of %v: a free slot lingered for %v and fetched %d messages, want %v and 1", takes, lingered, polls[i].got, want)
				}
			}
		})
	}
}
