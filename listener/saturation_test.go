package listener

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

// slowly is a handler that takes this long, or until it is cancelled.
func slowly(d time.Duration) Handler[job] {
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
		l := New(b.queue, slowly(10*time.Minute), o)
		b.run(l)
		after(90 * time.Second)
		if n := l.State().Running; n != 64 {
			b.Fatalf("%d handlers run, want 64", n)
		}
		b.put(3000)
		after(31 * time.Second)
		if n := l.State().Running; n != 640 {
			t.Errorf("%d handlers run half a minute after the backlog, want 640", n)
		}
		before := len(b.queue.sent("properties"))
		after(5 * time.Minute)
		if reads := len(b.queue.sent("properties")) - before; reads > 0 {
			t.Errorf("the depth was read %d times with as many loops as there may be", reads)
		}
		after(2 * time.Hour)
		b.finished()
		if left := b.depth(b.queue.Queue); left != 0 {
			t.Errorf("%d left", left)
		}
	})
}

// Behind slow handlers the depth is read at most every 30 s, and nothing else is requested
// while no message waits. At the maximum of loops or slots nothing is requested.
func TestTheDepthBehindSlowHandlersIsReadTwiceAMinute(t *testing.T) {
	for name, c := range map[string]struct {
		concurrency int
		loops       Loops
		reads       int // in ten minutes
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
				o.Concurrency, o.Loops = c.concurrency, c.loops
				l := New(b.queue, slowly(time.Hour), o)
				b.run(l)
				after(5 * time.Minute)
				reads, polls := len(b.queue.sent("properties")), len(b.queue.sent("dequeue"))
				after(10 * time.Minute)
				reads, polls = len(b.queue.sent("properties"))-reads, len(b.queue.sent("dequeue"))-polls
				if reads > c.reads || reads < c.reads*9/10 || polls > 0 {
					t.Errorf("%d readings of the depth and %d polls in ten minutes, want %d and none", reads, polls, c.reads)
				}
				if st := l.State(); st.Running != 64 || st.Loops != 2 {
					t.Errorf("%d handlers in %d loops, want 64 in 2", st.Running, st.Loops)
				}
				after(time.Hour)
				b.finished()
			})
		})
	}
}

// A depth equal to what this listener holds causes no poll, even where it calls for more loops.
func TestTheDepthOfWhatWeHoldIsWorthNoPoll(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		o.Concurrency = 640
		l := New(b.queue, slowly(time.Hour), o)
		b.put(64)
		b.run(l)
		after(time.Minute)
		b.put(1)
		after(31 * time.Second)
		if st := l.State(); st.Running != 65 || st.Loops != 2 {
			t.Errorf("%d handlers in %d loops, want 65 in 2", st.Running, st.Loops)
		}
		reads, polls := len(b.queue.sent("properties")), len(b.queue.sent("dequeue"))
		after(10 * time.Minute)
		reads, polls = len(b.queue.sent("properties"))-reads, len(b.queue.sent("dequeue"))-polls
		if reads < 19 || reads > 20 || polls > 0 {
			t.Errorf("%d readings of the depth and %d polls in ten minutes, want 20 and none", reads, polls)
		}
		b.stop()
		l.Halt()
		<-b.done
	})
}

// The depth includes messages that others hold and those with a delay. A depth above what we
// hold causes one poll, and only its result starts loops: otherwise many processes would poll
// for messages that are being handled elsewhere.
func TestWhatOthersHoldIsWorthOnePoll(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		o.Concurrency = 640
		l := New(b.queue, slowly(3*time.Hour), o)
		b.put(32)
		b.run(l)
		after(time.Minute)
		b.put(1920)
		for range 60 { // somebody else's
			if _, err := b.queue.Queue.Dequeue(b.Context(), queue.MaxBatch, 10*time.Hour); err != nil {
				b.Fatal(err)
			}
		}
		requests := func() int { return len(b.queue.sent("dequeue")) + len(b.queue.sent("properties")) }
		before, most := requests(), 0
		for range 10 * 60 {
			after(time.Second)
			most = max(most, l.State().Loops)
		}
		if spent := requests() - before; most != 1 || spent > 40 {
			t.Errorf("%d loops and %d requests in ten minutes, want 1 and at most 40", most, spent)
		}
		b.put(1)
		after(31 * time.Second)
		if n := l.State().Running; n != 33 {
			t.Errorf("%d handlers run half a minute after a job came, want 33", n)
		}
		b.stop()
		l.Halt()
		<-b.done
	})
}

// Handlers that return one by one fetch a message at a time: the depth is then read once in 30
// s, not once per 256 messages, which would take hours.
func TestATrickleOfFreeSlotsDoesNotHideABacklog(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		o.Concurrency = 640
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			return sleep(ctx, 10*time.Minute+time.Duration(m.Body.N)*10*time.Second)
		}, o)
		b.put(32)
		b.run(l)
		after(10*time.Minute - time.Second)
		if n := l.State().Running; n != 32 {
			b.Fatalf("%d handlers run, want 32", n)
		}
		b.put(3000)
		after(time.Minute)
		if n := l.State().Running; n != 640 {
			t.Errorf("%d handlers run a minute after the backlog, want 640", n)
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
		l := New(b.queue, slowly(10*time.Minute), o)
		b.run(l)
		after(time.Minute)
		for _, c := range []int{128, 640} {
			if err := l.Configure(Settings{Concurrency: c}); err != nil {
				b.Fatal(err)
			}
			after(time.Second)
			if n := l.State().Running; n != c {
				t.Errorf("%d handlers run a second after the concurrency was raised to %d", n, c)
			}
		}
		b.stop()
		l.Halt()
		<-b.done
	})
}

// A change that raises nothing reads nothing.
func TestConfiguringAllTheTimeDoesNotAskAllTheTime(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(32)
		o := options()
		o.Concurrency = 640
		l := New(b.queue, slowly(time.Hour), o)
		b.run(l)
		after(time.Minute)
		before := len(b.queue.sent("properties"))
		for i := range 60 {
			if err := l.Configure(Settings{Concurrency: 640 - i}); err != nil {
				b.Fatal(err)
			}
			after(time.Second)
		}
		if reads := len(b.queue.sent("properties")) - before; reads > 2 {
			t.Errorf("the depth was read %d times in a minute", reads)
		}
		b.stop()
		l.Halt()
		<-b.done
	})
}

// Batches from free slots and the check of saturated slots share the 30 s; and where the rule
// wants no more loops, nothing more is dequeued.
func TestTheRuleAndTheHalfMinuteHold(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		o.Concurrency = 640
		o.MinFetch = 1
		o.QueueWorkDetected = func(scaling.Load) int { return 1 }
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			return sleep(ctx, 10*time.Minute+time.Duration(m.Body.N)*20*time.Second)
		}, o)
		b.put(32)
		b.run(l)
		after(time.Minute)
		b.put(1000)
		after(10 * time.Minute) // a handler returns every 20 s from now on
		reads, polls := len(b.queue.sent("properties")), len(b.queue.sent("dequeue"))
		after(9 * time.Minute)
		reads, polls = len(b.queue.sent("properties"))-reads, len(b.queue.sent("dequeue"))-polls
		if reads > 18 || reads < 9 || polls < 27 || polls > 28 {
			t.Errorf("%d readings of the depth and %d polls in nine minutes, want at most 18 and 27", reads, polls)
		}
		if st := l.State(); st.Running != 32 || st.Loops != 1 {
			t.Errorf("%d handlers in %d loops, want 32 in 1", st.Running, st.Loops)
		}
		b.stop()
		l.Halt()
		<-b.done
	})
}

// A job now and then beside slow handlers is fetched by the remaining loop and starts no
// others: those of the backlog have ended because the queue is empty.
func TestATrickleBesideSlowHandlersStartsNoLoops(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(600)
		o := options()
		o.Concurrency = 640
		l := New(b.queue, slowly(2*time.Hour), o)
		b.run(l)
		after(5 * time.Minute)
		before, started := len(b.queue.sent("dequeue")), l.State().LoopsStarted
		for i := range 7 { // as many as the room of 19 loops still has, but one
			b.put(1)
			after(3 * time.Second)
			if n := l.State().Running; n != 601+i {
				t.Errorf("%d handlers run, want %d", n, 601+i)
			}
			after(57 * time.Second)
		}
		if polls, loops := len(b.queue.sent("dequeue"))-before, l.State().LoopsStarted-started; polls > 7*60+7*10 || loops > 0 {
			t.Errorf("%d polls in seven minutes and %d loops, want those of one loop, and no more loops", polls, loops)
		}
		b.stop()
		l.Halt()
		<-b.done
	})
}

// Lowering the maximum of loops lowers the work even if no loop has to end: slots that a
// backlog opened do not stay open.
func TestALowerMaxTakesOnLessWork(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(600)
		o := options()
		o.Concurrency = 640
		l := New(b.queue, slowly(time.Hour), o)
		b.run(l)
		after(10 * time.Minute)
		if st := l.State(); st.Running != 600 || st.Loops != 1 {
			b.Fatalf("%d handlers in %d loops, want 600 in 1", st.Running, st.Loops)
		}
		b.put(10)
		after(5 * time.Second)
		if n := l.State().Running; n != 610 {
			t.Errorf("%d handlers run, want 610", n)
		}
		after(5 * time.Minute) // all loops but one have ended again
		if err := l.Configure(Settings{Loops: Loops{Max: 1}}); err != nil {
			b.Fatal(err)
		}
		b.put(10)
		after(10 * time.Minute)
		if n := l.State().Running; n != 610 {
			t.Errorf("%d handlers run with one loop at most, want the 610 of before", n)
		}
		b.stop()
		l.Halt()
		<-b.done
	})
}

// A few free slots beside slow handlers poll like an idle listener: they do not wait for more
// slots as long as handlers take.
func TestFreeSlotsBesideSlowHandlersListen(t *testing.T) {
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
		after(11 * time.Minute) // the handling time is known
		for i := range 60 {
			b.send(100 + i)
		}
		after(time.Minute)
		if n := l.State().Running; n != 60 {
			b.Fatalf("%d handlers run, want 60 of 64", n)
		}
		for i := range 4 {
			at := time.Since(b.begin)
			b.send(1000 + i)
			after(30 * time.Second)
			if waited := begun[1000+i] - at; waited < 0 || waited > 2200*time.Millisecond {
				t.Errorf("job %d waited for %v beside a free slot, with an idle wait of 1 s and a linger of 1 s", i, waited)
			}
		}
		b.stop()
		l.Halt()
		<-b.done
	})
}

// Deletes slower than handlers hold slots back; each that ends frees one.
func TestSlowSettlementsDoNotStopTheListener(t *testing.T) {
	bubble(t, func(b *bundle) {
		const n = 50
		b.put(n)
		b.queue.tamper = func(op string, act func() error) error {
			if op == "delete" {
				time.Sleep(5 * time.Second)
			}
			return act()
		}
		o := options()
		o.Concurrency = 2
		l := New(b.queue, nothing, o)
		b.run(l)
		after(10 * time.Minute)
		st := l.State()
		b.finished()
		if st.Succeeded != n {
			t.Errorf("%d of %d were done", st.Succeeded, n)
		}
	})
}
