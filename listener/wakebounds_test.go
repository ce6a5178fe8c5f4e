package listener

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
)

// Messages that are given back or sent with a delay are fetched when they become visible, however many
// they are, by a loop that starts for them.
func TestWhatFallsDueStartsALoop(t *testing.T) {
	if testing.Short() {
		t.Skip("12,000 jobs are snoozed")
	}
	const n = 12_000
	bubble(t, func(b *bundle) {
		source := connected()
		o := wakeOptions(source)
		o.Fetch.SafetyPoll, o.Concurrency = noSafety, 256
		var late atomic.Int64
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			due := time.Duration(1+m.Body.N%600) * 10 * time.Second
			if m.DequeueCount == 1 && m.Body.N%2 == 0 {
				return Snooze(due - time.Since(b.begin))
			}
			if over := time.Since(b.begin) - due; over > 2*time.Second || over < 0 {
				late.Add(1)
			}
			return nil
		}, o)
		for i := range n {
			due := time.Duration(1+i%600) * 10 * time.Second
			if i%2 == 0 {
				due = 0
			}
			if _, err := b.queue.Queue.Enqueue(b.Context(), fmt.Sprintf(`{"N":%d}`, i), &queue.EnqueueOptions{Delay: due}); err != nil {
				b.Fatal(err)
			}
		}
		b.run(l)
		synctest.Wait()
		for i := 1; i < n; i += 2 {
			source.subscribed()[0].of.Event(jobsQueue, 0, b.begin.Add(time.Duration(1+i%600)*10*time.Second))
		}
		advance(5 * time.Second)
		b.mustBeIdle(l)
		advance(7 * time.Second)
		b.mustBeIdle(l)
		advance(2 * time.Hour)
		if st := l.State(); st.Outcomes[Deleted] != n || late.Load() > 0 {
			b.Errorf("got %d of %d done, %d of them at the wrong time", st.Outcomes[Deleted], n, late.Load())
		}
		b.mustBeIdle(l)
		b.mustFinish()
	})
}

// Whatever a publisher says is due takes bounded memory: one entry for each second of seven days.
func TestEventsThatAreDueLaterTakeBoundedMemory(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := connected()
		l := New(b.queue, nothing, wakeOptions(source))
		b.run(l)
		synctest.Wait()
		hear := source.subscribed()[0].of.Event
		for i := range 700_000 {
			hear(jobsQueue, 0, time.Now().Add(time.Duration(i)*10*time.Second))
		}
		hear(jobsQueue, 0, time.Unix(1<<50, 0))
		if got, most := len(l.session.agenda.called.seconds), int(queue.MaxVisibility/time.Second)+2; got > most {
			b.Errorf("got %d instants remembered, want at most %d", got, most)
		}
		b.mustFinish()
	})
}

// A flood of events, of calls of Wake or of lost connections for a queue that is empty costs ten polls and
// then one a second, or one in Idle.Max if that is less, with and without loops that wait. Work
// among them is found at once.
func TestAFloodOfEventsIsNoFloodOfDequeues(t *testing.T) {
	if testing.Short() {
		t.Skip("sends many events")
	}
	floods := map[string]func(*Listener[job], *instances){
		"events": func(_ *Listener[job], s *instances) {
			_ = s.Publish(context.Background(), jobsQueue, 0, time.Time{})
		},
		"Wake":        func(l *Listener[job], _ *instances) { l.Wake() },
		"connections": func(_ *Listener[job], s *instances) { s.connect(false); s.connect(true) },
		"due": func(_ *Listener[job], s *instances) {
			s.subscribed()[0].of.Event(jobsQueue, 0, time.Now().Add(time.Millisecond))
		},
	}
	for name, flood := range floods {
		for _, least := range []int{0, 1} {
			bubble(t, func(b *bundle) {
				source := connected()
				b.queue.latency = time.Millisecond
				o := wakeOptions(source)
				o.Fetch.SafetyPoll, o.Fetch.Loops.Min, o.Fetch.Idle = noSafety, least, Idle{Min: time.Second, Max: time.Hour}
				l := New(b.queue, nothing, o)
				b.run(l)
				advance(3 * time.Hour)
				before := b.dequeues()
				for range 60_000 {
					flood(l, source)
					time.Sleep(time.Millisecond)
				}
				synctest.Wait()
				if got := b.dequeues() - before; got < 50 || got > 10+60+4 {
					b.Errorf("%s, Loops.Min %d: got %d dequeues in a minute of 1,000 a second, want 50…74", name, least, got)
				}
				b.put(1) // its event waits for its turn, and is not forgotten
				b.publish(source)
				advance(1100 * time.Millisecond)
				if l.State().Outcomes[Deleted] != 1 {
					b.Errorf("%s: got the job of the last event not done in 1.1 s", name)
				}
				advance(time.Minute)
				b.put(1)
				b.publish(source)
				advance(10 * time.Millisecond)
				if l.State().Outcomes[Deleted] != 2 {
					b.Errorf("%s: got the job not done at once after the flood", name)
				}
				b.mustFinish()
			})
		}
	}
}

// Messages that do come with their events are never held up by the bound on empty polls.
func TestTrueEventsAreNotHeldUp(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := connected()
		o := wakeOptions(source)
		o.Fetch.Idle.Min = time.Millisecond // so it lingers no longer
		jobsAreNotHeldUp(b, b.queue, o, func() { b.publish(source) }, 15*time.Millisecond)
	})
}

// L-41: requests to the embedded engine are free, so no job waits for those that follow it closely: each is
// there after the one dequeue that fetches it. The first one also waits for the reading of the flag of a pause.
func TestTheEngineHoldsUpNoJobForTheNext(t *testing.T) {
	bubble(t, func(b *bundle) {
		before := b.dequeues()
		jobsAreNotHeldUp(b, promising{b.queue, 2}, wakeOptions(b.engine), func() {}, 4*time.Millisecond)
		if got := b.dequeues() - before; got > 2000+1 {
			b.Errorf("got %d dequeues for 2,000 jobs, want one for each and one at the start", got)
		}
	})
}

// jobsAreNotHeldUp sends 2,000 jobs, one every 10 ms, and fails if one begins later than that after it was sent. A
// request takes 2 ms.
func jobsAreNotHeldUp(b *bundle, q queue.Queue, o *Options[job], publish func(), most time.Duration) {
	b.Helper()
	var worst atomic.Int64
	l := New(q, func(_ context.Context, m *Message[job]) error {
		worst.Store(max(worst.Load(), int64(time.Since(b.begin)-time.Duration(m.Body.N)*10*time.Millisecond)))
		return nil
	}, o)
	b.queue.latency = 2 * time.Millisecond
	b.run(l)
	advance(10 * time.Millisecond)
	for i := 1; i <= 2000; i++ {
		b.putText(fmt.Sprintf(`{"N":%d}`, i))
		publish()
		advance(10 * time.Millisecond)
	}
	if got := time.Duration(worst.Load()); got > most || l.State().Outcomes[Deleted] != 2000 {
		b.Errorf("got %d jobs done, the latest %v after it was sent; want 2000, %v", l.State().Outcomes[Deleted], got, most)
	}
	b.mustFinish()
}

// Loops.Min of one or more keeps that many polling, also when it is set later.
func TestAMinimumOfLoopsKeepsPolling(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := wakeOptions(connected())
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(10 * time.Second)
		b.mustBeIdle(l)
		if err := l.Configure(Settings{Loops: Loops{Min: 2}}); err != nil {
			b.Fatal(err)
		}
		advance(time.Minute)
		before := b.dequeues()
		advance(time.Minute)
		if got := b.dequeues() - before; got < 108 || got > 122 || l.State().Loops != 2 {
			b.Errorf("got %d polls in a minute of %d loops, want 108 to 122 of two", got, l.State().Loops)
		}
		b.mustFinish()
	})
}

// Changed settings reach a listener without loops, with the slots that they open.
func TestSettingsReachAListenerWithoutLoops(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := connected()
		o := wakeOptions(source)
		o.Fetch.SafetyPoll, o.Concurrency = noSafety, 1
		l := New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(20 * time.Second); return nil }, o)
		b.run(l)
		advance(time.Minute)
		if err := l.Configure(Settings{Concurrency: 100}); err != nil {
			b.Fatal(err)
		}
		advance(time.Minute)
		b.mustBeIdle(l)
		b.put(100)
		b.publish(source)
		advance(5 * time.Second)
		if got := l.State().Running; got != 100 {
			b.Errorf("got %d handlers running, want 100", got)
		}
		b.mustFinish()
	})
}

// An event that comes while slow handlers take all open slots opens more of them, if the depth shows
// that there is work.
func TestAnEventOpensSlotsBesideSlowHandlers(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := connected()
		o := wakeOptions(source)
		o.Fetch.SafetyPoll, o.Concurrency, o.Fetch.BatchSize = noSafety, 32, 8
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error { <-ctx.Done(); return ctx.Err() }, o)
		b.run(l)
		advance(time.Second)
		b.put(8)
		b.publish(source)
		advance(time.Second)
		if got := l.State().Running; got != 8 {
			b.Fatalf("got %d handlers running, want 8", got)
		}
		b.publish(source) // for nothing: the next one must count all the same
		advance(time.Second)
		for want := 9; want <= 16; want++ {
			b.put(1)
			b.publish(source)
			advance(time.Second)
			if got := l.State().Running; got != want {
				b.Errorf("got %d handlers running a second after the event, want %d", got, want)
			}
		}
		if got := len(b.queue.sent("properties")); got > 12 {
			b.Errorf("got %d readings of the depth, want at most 12", got)
		}
		b.stop()
		l.Halt()
		<-b.done
	})
}

// A connection that comes and goes is logged, in few lines, of which the last one says what holds.
func TestALostConnectionIsLogged(t *testing.T) {
	bubble(t, func(b *bundle) {
		var log bytes.Buffer
		source := &instances{}
		o := wakeOptions(source)
		o.Logger = textLogger(&log)
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(time.Minute)
		for range 1000 {
			source.connect(true)
			advance(50 * time.Millisecond)
			source.connect(false)
			advance(50 * time.Millisecond)
		}
		source.connect(true)
		advance(time.Minute)
		b.mustFinish()
		lines := 0
		last := ""
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "wake-ups") {
				lines++
				last = line
			}
		}
		if lines < 3 || lines > 14 || !strings.Contains(last, "wake-ups come") {
			b.Errorf("got %d lines, the last %q; want 3 to 14, the last one that they come:\n%s", lines, last, log.String())
		}
	})
}

// The slots of loops that end close with them: what a loop that starts again takes on is bounded by it.
func TestSlotsCloseWithTheLastLoop(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := connected()
		o := wakeOptions(source)
		o.Concurrency, o.Fetch.BatchSize = 32, 8
		loops := 4
		o.Fetch.QueueWorkDetected = func(Load) int { return loops }
		l := New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(time.Second); return nil }, o)
		b.run(l)
		for _, want := range []int{32, 8} {
			advance(10 * time.Second)
			b.mustBeIdle(l)
			b.put(32)
			b.publish(source)
			advance(500 * time.Millisecond)
			if got := l.State().Running; got != want {
				b.Errorf("%d loops: got %d handlers running, want %d", loops, got, want)
			}
			loops = 1
		}
		advance(10 * time.Second)
		b.mustFinish()
	})
}

// A source that is told Ready(false) delivers nothing from then on: if no loop runs at that moment one
// starts, because it could count on no event.
func TestALoopRunsWhenNoEventsCome(t *testing.T) {
	o := &testOwner{state: state{phase: Running, wakeups: true, listening: true, bounds: Loops{Max: 2}}}
	started := o.tell(event{what: deafened})[startLoops] + o.tell(event{what: deafened})[startLoops]
	if started != 1 || o.state.listening {
		t.Errorf("got %d loops started, want 1", started)
	}
	o = &testOwner{state: state{phase: Draining, stopping: true, wakeups: true, bounds: Loops{Max: 2}}}
	if started := o.tell(event{what: deafened})[startLoops]; started != 0 {
		t.Errorf("after the stop: got %d loops started, want none", started)
	}
}

// While the connection is lost a safety poll comes before a long wait of the idle curve.
func TestSafetyPollsEndALongWait(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := wakeOptions(&instances{})
		o.Fetch.Idle = Idle{Min: time.Hour, Max: time.Hour}
		b.run(New(b.queue, nothing, o))
		advance(24 * time.Hour)
		if got := b.dequeues(); got < 24*60*10/11 || got > 24*60+2 {
			b.Errorf("got %d dequeues in a day, want one a minute", got)
		}
		b.mustFinish()
	})
}

// A loop that is not the last one does not leave an event to another whose poll began before it: that one
// may fail, and pause.
func TestALoopDoesNotLeaveAnEventToAPollThatBeganBefore(t *testing.T) {
	o := ownerWith(Loops{Min: 2, Max: 2})
	o.state.bounds.Min, o.state.listening = 0, true
	o.tell(event{what: begins}) // of both
	seen := o.state.heard
	o.tell(event{what: dueNow})
	if counts := o.tell(event{what: emptied, seen: seen}); counts[end] > 0 || counts[again] == 0 {
		t.Errorf("after an event: got %v, want another poll", counts)
	}
	o.tell(event{what: begins})
	if counts := o.tell(event{what: emptied, seen: seen}); counts[end] == 0 {
		t.Error("after a poll for the event has begun: got a loop that stays, want one that leaves")
	}
}

// A message that is visible a little after its event said is found at its event.
func TestClocksMayDifferALittle(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := connected()
		o := wakeOptions(source)
		o.Fetch.SafetyPoll = noSafety
		l := New(b.queue, nothing, o)
		b.run(l)
		synctest.Wait()
		if _, err := b.queue.Queue.Enqueue(b.Context(), `{"N":1}`, &queue.EnqueueOptions{Delay: 10 * time.Second}); err != nil {
			b.Fatal(err)
		}
		source.subscribed()[0].of.Event(jobsQueue, 0, time.Now().Add(10*time.Second-50*time.Millisecond))
		advance(11 * time.Second)
		if l.State().Outcomes[Deleted] != 1 {
			b.Error("got the job not done, want it found at its event")
		}
		b.mustFinish()
	})
}

// A poll for which it is too early is not forgotten.
func TestAPollThatWaitsForItsTurnComes(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := connected()
		o := wakeOptions(source)
		o.Fetch.SafetyPoll = noSafety
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(time.Minute)
		before := b.dequeues()
		for range 2 * eventBurst {
			b.publish(source)
			synctest.Wait()
		}
		b.put(1)
		b.publish(source)
		synctest.Wait()
		if got := b.dequeues() - before; got != eventBurst || l.State().Outcomes[Deleted] != 0 {
			b.Errorf("got %d dequeues at once, want %d, and the job not yet done", got, eventBurst)
		}
		advance(eventInterval + time.Millisecond)
		if l.State().Outcomes[Deleted] != 1 {
			b.Error("got the job not done, want it done in its turn")
		}
		b.mustBeIdle(l)
		b.mustFinish()
	})
}
