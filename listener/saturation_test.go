package listener

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/wakeup"
)

// slowHandler returns a handler that takes the given time, or until it is cancelled.
func slowHandler(d time.Duration) Handler[job] {
	return func(ctx context.Context, _ *Message[job]) error { return sleep(ctx, d) }
}

// sleep waits, or returns when ctx ends. A wait of zero makes no timer: in Go 1.26 many
// goroutines of a bubble that look at due timers at once crash the race detector.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// While every open slot is taken no loop dequeues, so that only the depth reveals a backlog
// behind slow handlers.
func TestSlowHandlersDoNotHideABacklog(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(64)
		o := options()
		o.Concurrency = 640
		l := New(b.queue, slowHandler(10*time.Minute), o)
		b.run(l)
		advance(90 * time.Second)
		if n := l.State().Running; n != 64 {
			b.Fatalf("Running: got %d, want 64", n)
		}
		b.put(3000)
		advance(31 * time.Second)
		if n := l.State().Running; n != 640 {
			t.Errorf("Running half a minute after the backlog: got %d, want 640", n)
		}
		before := len(b.queue.sent("properties"))
		advance(5 * time.Minute)
		if reads := len(b.queue.sent("properties")) - before; reads > 0 {
			t.Errorf("reads of the depth with the maximum of loops: got %d, want 0", reads)
		}
		advance(2 * time.Hour)
		b.mustFinish()
		if left := b.depth(b.queue.Queue); left != 0 {
			t.Errorf("got %d messages left, want 0", left)
		}
	})
}

// Behind slow handlers the depth is read at most every 30 s, and nothing else is requested
// while no message waits. At the maximum of loops or slots nothing is requested.
func TestTheDepthBehindSlowHandlersIsReadTwiceAMinute(t *testing.T) {
	for name, c := range map[string]struct {
		concurrency int
		loops       Loops
		wantReads   int // in ten minutes
	}{
		"room to grow":          {640, Loops{}, 20},
		"as many loops as Max":  {640, Loops{Max: 2}, 0},
		"as many as slots":      {64, Loops{}, 0},
		"more loops are no use": {64, Loops{Max: 9}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bundle) {
				b.put(64)
				o := options()
				o.Concurrency, o.Fetch.Loops = c.concurrency, c.loops
				l := New(b.queue, slowHandler(time.Hour), o)
				b.run(l)
				advance(5 * time.Minute)
				reads, polls := len(b.queue.sent("properties")), len(b.queue.sent("dequeue"))
				advance(10 * time.Minute)
				reads, polls = len(b.queue.sent("properties"))-reads, len(b.queue.sent("dequeue"))-polls
				if reads > c.wantReads || reads < c.wantReads*9/10 || polls > 0 {
					t.Errorf("got %d reads of the depth and %d polls in ten minutes, want %d and 0", reads, polls, c.wantReads)
				}
				if st := l.State(); st.Running != 64 || st.Loops != 2 {
					t.Errorf("got %d handlers in %d loops, want 64 in 2", st.Running, st.Loops)
				}
				advance(time.Hour)
				b.mustFinish()
			})
		})
	}
}

// A depth equal to what this listener holds causes no poll, even where it calls for more loops.
func TestADepthOfOnlyOwnMessagesCausesNoPoll(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		o.Concurrency = 640
		l := New(b.queue, slowHandler(time.Hour), o)
		b.put(64)
		b.run(l)
		advance(time.Minute)
		b.put(1)
		advance(31 * time.Second)
		if st := l.State(); st.Running != 65 || st.Loops != 2 {
			t.Errorf("got %d handlers in %d loops, want 65 in 2", st.Running, st.Loops)
		}
		reads, polls := len(b.queue.sent("properties")), len(b.queue.sent("dequeue"))
		advance(10 * time.Minute)
		reads, polls = len(b.queue.sent("properties"))-reads, len(b.queue.sent("dequeue"))-polls
		if reads < 19 || reads > 20 || polls > 0 {
			t.Errorf("got %d reads of the depth and %d polls in ten minutes, want 20 and 0", reads, polls)
		}
		b.stop()
		l.Halt()
		<-b.done
	})
}

// The depth includes messages that others hold and those with a delay. A depth above what this
// listener holds causes one poll, and only its result starts loops: otherwise many processes
// would poll for messages that are being handled elsewhere.
func TestADepthOfMessagesThatOthersHoldCausesOnePoll(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		o.Concurrency = 640
		l := New(b.queue, slowHandler(3*time.Hour), o)
		b.put(32)
		b.run(l)
		advance(time.Minute)
		b.put(1920)
		for range 60 { // held by another client
			if _, err := b.queue.Queue.Dequeue(b.Context(), queue.MaxBatch, 10*time.Hour); err != nil {
				b.Fatal(err)
			}
		}
		requests := func() int { return len(b.queue.sent("dequeue")) + len(b.queue.sent("properties")) }
		before, peak := requests(), 0
		for range 10 * 60 {
			advance(time.Second)
			peak = max(peak, l.State().Loops)
		}
		if sent := requests() - before; peak != 1 || sent > 40 {
			t.Errorf("got %d loops and %d requests in ten minutes, want 1 and at most 40", peak, sent)
		}
		b.put(1)
		advance(31 * time.Second)
		if n := l.State().Running; n != 33 {
			t.Errorf("Running half a minute after a job was sent: got %d, want 33", n)
		}
		b.stop()
		l.Halt()
		<-b.done
	})
}

// When handlers return one by one, one message is fetched at a time. The depth is then read once
// in 30 s, not once per 256 messages, which would take hours.
func TestSlotsThatFreeOneByOneDoNotHideABacklog(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		o.Concurrency = 640
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			return sleep(ctx, 10*time.Minute+time.Duration(m.Body.N)*10*time.Second)
		}, o)
		b.put(32)
		b.run(l)
		advance(10*time.Minute - time.Second)
		if n := l.State().Running; n != 32 {
			b.Fatalf("Running: got %d, want 32", n)
		}
		b.put(3000)
		advance(time.Minute)
		if n := l.State().Running; n != 640 {
			t.Errorf("Running a minute after the backlog: got %d, want 640", n)
		}
		b.stop()
		l.Halt()
		<-b.done
	})
}

// Raising the concurrency while a backlog waits behind slow handlers takes effect at once, not
// at the next reading of the depth.
func TestRaisingTheConcurrencyTakesEffectAtOnce(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(2000)
		o := options()
		l := New(b.queue, slowHandler(10*time.Minute), o)
		b.run(l)
		advance(time.Minute)
		for _, c := range []int{128, 640} {
			if err := l.Configure(Settings{Concurrency: c}); err != nil {
				b.Fatal(err)
			}
			advance(time.Second)
			if n := l.State().Running; n != c {
				t.Errorf("Running a second after the concurrency was raised: got %d, want %d", n, c)
			}
		}
		b.stop()
		l.Halt()
		<-b.done
	})
}

// A change that does not raise the concurrency does not cause a read of the depth.
func TestFrequentChangesDoNotReadTheDepthEachTime(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(32)
		o := options()
		o.Concurrency = 640
		l := New(b.queue, slowHandler(time.Hour), o)
		b.run(l)
		advance(time.Minute)
		before := len(b.queue.sent("properties"))
		for i := range 60 {
			if err := l.Configure(Settings{Concurrency: 640 - i}); err != nil {
				b.Fatal(err)
			}
			advance(time.Second)
		}
		if reads := len(b.queue.sent("properties")) - before; reads > 2 {
			t.Errorf("reads of the depth in a minute: got %d, want at most 2", reads)
		}
		b.stop()
		l.Halt()
		<-b.done
	})
}

// A check within 30 s of the last read of the depth reads nothing, and is repeated when they
// have passed, not 30 s later.
func TestACheckTooSoonAfterAReadIsRepeatedWhenItIsDue(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		o.Concurrency = 640
		l := New(b.queue, slowHandler(10*time.Minute), o)
		b.run(l)
		advance(50 * time.Second) // the next check is at 60 s
		b.put(64)
		advance(5 * time.Second)
		if n := l.State().Running; n != 64 {
			b.Fatalf("Running: got %d, want 64", n)
		}
		b.put(3000)
		advance(30 * time.Second)
		if n := l.State().Running; n != 640 {
			t.Errorf("Running half a minute after the backlog: got %d, want 640", n)
		}
		b.stop()
		l.Halt()
		<-b.done
	})
}

// Batches from free slots and the check of saturated slots share the 30 s between reads of the
// depth. Where the rule asks for no more loops, nothing more is dequeued.
func TestReadsOfTheDepthShareTheirInterval(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		o.Concurrency = 640
		o.Fetch.MinFetch = 1
		o.Fetch.QueueWorkDetected = func(scaling.Load) int { return 1 }
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			return sleep(ctx, 10*time.Minute+time.Duration(m.Body.N)*20*time.Second)
		}, o)
		b.put(32)
		b.run(l)
		advance(time.Minute)
		b.put(1000)
		advance(10 * time.Minute) // a handler returns every 20 s from now on
		reads, polls := len(b.queue.sent("properties")), len(b.queue.sent("dequeue"))
		advance(9 * time.Minute)
		reads, polls = len(b.queue.sent("properties"))-reads, len(b.queue.sent("dequeue"))-polls
		if reads > 18 || reads < 9 || polls < 27 || polls > 28 {
			t.Errorf("got %d reads of the depth and %d polls in nine minutes, want 9 to 18 and 27 or 28", reads, polls)
		}
		if st := l.State(); st.Running != 32 || st.Loops != 1 {
			t.Errorf("got %d handlers in %d loops, want 32 in 1", st.Running, st.Loops)
		}
		b.stop()
		l.Halt()
		<-b.done
	})
}

// A job now and then beside slow handlers is fetched by the remaining loop and starts no
// others: those of the backlog have ended because the queue is empty.
func TestSingleJobsBesideSlowHandlersStartNoLoops(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(600)
		o := options()
		o.Concurrency = 640
		l := New(b.queue, slowHandler(2*time.Hour), o)
		b.run(l)
		advance(5 * time.Minute)
		before, started := len(b.queue.sent("dequeue")), l.State().LoopsStarted
		for i := range 7 { // one less than the free slots of 19 loops
			b.put(1)
			advance(3 * time.Second)
			if n := l.State().Running; n != 601+i {
				t.Errorf("Running: got %d, want %d", n, 601+i)
			}
			advance(57 * time.Second)
		}
		const maxPolls = 7*60 + 7*10 // of one loop
		if polls, loops := len(b.queue.sent("dequeue"))-before, l.State().LoopsStarted-started; polls > maxPolls || loops > 0 {
			t.Errorf("got %d polls and %d more loops in seven minutes, want at most %d and 0", polls, loops, maxPolls)
		}
		b.stop()
		l.Halt()
		<-b.done
	})
}

// Lowering the maximum of loops lowers the work even if no loop has to end: slots that a
// backlog opened do not stay open.
func TestALowerMaxOfLoopsClosesSlots(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(600)
		o := options()
		o.Concurrency = 640
		l := New(b.queue, slowHandler(time.Hour), o)
		b.run(l)
		advance(10 * time.Minute)
		if st := l.State(); st.Running != 600 || st.Loops != 1 {
			b.Fatalf("got %d handlers in %d loops, want 600 in 1", st.Running, st.Loops)
		}
		b.put(10)
		advance(5 * time.Second)
		if n := l.State().Running; n != 610 {
			t.Errorf("Running: got %d, want 610", n)
		}
		advance(5 * time.Minute) // all loops but one have ended again
		if err := l.Configure(Settings{Loops: Loops{Max: 1}}); err != nil {
			b.Fatal(err)
		}
		b.put(10)
		advance(10 * time.Minute)
		if n := l.State().Running; n != 610 {
			t.Errorf("Running with at most one loop: got %d, want 610 as before", n)
		}
		b.stop()
		l.Halt()
		<-b.done
	})
}

// With a few free slots beside slow handlers the listener polls like an idle one: it does not wait
// until more slots are free.
func TestFreeSlotsBesideSlowHandlersPoll(t *testing.T) {
	bubble(t, func(b *bundle) {
		begun := make(map[int]time.Duration)
		var mu sync.Mutex
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			mu.Lock()
			begun[m.Body.N] = time.Since(b.begin)
			mu.Unlock()
			return sleep(ctx, 10*time.Minute)
		}, options())
		b.put(60)
		b.run(l)
		advance(11 * time.Minute) // the handling time is known
		for i := range 60 {
			b.send(100 + i)
		}
		advance(time.Minute)
		if n := l.State().Running; n != 60 {
			b.Fatalf("Running: got %d, want 60 of 64", n)
		}
		for i := range 4 {
			at := time.Since(b.begin)
			b.send(1000 + i)
			advance(30 * time.Second)
			if waited := begun[1000+i] - at; waited < 0 || waited > 2200*time.Millisecond {
				t.Errorf("job %d, idle wait of 1 s and linger of 1 s: waited %v beside a free slot; want between 0 and %v", i, waited, 2200*time.Millisecond)
			}
		}
		b.stop()
		l.Halt()
		<-b.done
	})
}

// Deletes slower than handlers keep slots taken; each delete that ends frees one.
func TestSlowSettlementsDoNotStopTheListener(t *testing.T) {
	bubble(t, func(b *bundle) {
		const n = 50
		b.put(n)
		b.queue.intercept = func(op string, act func() error) error {
			if op == "delete" {
				time.Sleep(5 * time.Second)
			}
			return act()
		}
		o := options()
		o.Concurrency = 2
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(10 * time.Minute)
		st := l.State()
		b.mustFinish()
		if st.Outcomes[Deleted] != n {
			t.Errorf("got %d jobs done, want %d", st.Outcomes[Deleted], n)
		}
	})
}

// A resumption is a reason to look at the open slots at once, as an event is.
func TestAResumptionLooksAtTheOpenSlots(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a backlog")
	}
	bubble(t, func(b *bundle) {
		b.put(64)
		o := wakeOptions(&wakeup.Bus{})
		o.Concurrency = 640
		l := New(b.queue, slowHandler(time.Hour), o)
		b.run(l)
		advance(90 * time.Second)
		if n := l.State().Running; n != 64 {
			b.Fatalf("Running: got %d, want 64", n)
		}
		l.Pause()
		b.put(3000)
		advance(time.Second)
		l.Resume()
		advance(time.Second)
		if n := l.State().Running; n != 640 {
			b.Errorf("Running a second after the resumption: got %d, want 640", n)
		}
		advance(10 * time.Hour)
		b.mustFinish()
	})
}
