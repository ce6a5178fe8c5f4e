package listener

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// X-21, L-41: an idle account sees no request but the safety polls, however many instances there are, and
// none without those.
func TestAnIdleDayCostsTheSafetyPollsAlone(t *testing.T) {
	const day = 24 * time.Hour
	for _, n := range []int{0, 1, 5} {
		for _, safety := range []time.Duration{0, noSafety} {
			bubble(t, func(b *bundle) {
				source := connected()
				var all []*Listener[job]
				for range n {
					o := wakeOptions(source)
					o.SafetyPoll = safety
					all = append(all, New(b.queue, nothing, o))
				}
				finish := b.runAll(all)
				synctest.Wait()
				if got := b.dequeues(); got != n {
					b.Errorf("%d instances: got %d dequeues at the start, want one each", n, got)
				}
				advance(day)
				got, least, most := len(b.queue.log)-n, int(float64(n)*day.Minutes()/1.1), n*int(day.Minutes())
				if safety < 0 {
					least, most = 0, 0
				}
				if got < least || got > most {
					b.Errorf("%d instances, safety poll %v: got %d requests in a day, want %d…%d", n, safety, got, least, most)
				}
				for _, l := range all {
					b.mustBeIdle(l)
				}
				finish()
			})
		}
	}
}

// L-32, L-36: an event starts a loop at once; one message costs two dequeues in all, however many
// instances are idle. Each listener on a Bus hears it: those that find nothing cost one dequeue each.
func TestAnEventForOneMessageCostsTwoDequeues(t *testing.T) {
	for _, k := range []int{1, 2, 5} {
		for _, between := range []bool{true, false} {
			bubble(t, func(b *bundle) {
				source, publisher, want := wakeup.Source(nil), wakeup.Publisher(nil), 2
				if between {
					s := connected()
					source, publisher = s, s
				} else {
					s := new(wakeup.Bus)
					source, publisher, want = s, s, k+1
				}
				var all []*Listener[job]
				for range k {
					o := wakeOptions(source)
					o.SafetyPoll = noSafety
					all = append(all, New(b.queue, nothing, o))
				}
				finish := b.runAll(all)
				advance(time.Hour)
				before := b.dequeues()
				b.put(1)
				b.publish(publisher)
				synctest.Wait() // no time passes
				succeeded := int64(0)
				for _, l := range all {
					succeeded += l.State().Succeeded
				}
				if got := b.dequeues() - before; got != want || succeeded != 1 {
					b.Errorf("%d idle instances: got %d dequeues and %d jobs done, want %d and 1", k, got, succeeded, want)
				}
				finish()
			})
		}
	}
}

// a message whose event was lost waits for one safety interval at most; without safety polls it
// waits for the next event.
func TestALostEventCostsOneSafetyIntervalAtMost(t *testing.T) {
	for _, safety := range []time.Duration{0, 5 * time.Second, noSafety} {
		bubble(t, func(b *bundle) {
			source := connected()
			o := wakeOptions(source)
			o.SafetyPoll = safety
			l := New(b.queue, nothing, o)
			b.run(l)
			advance(73 * time.Second)
			interval := safety
			if safety == 0 {
				interval = time.Minute
			}
			for range 20 {
				done := l.State().Succeeded
				b.put(1)
				if safety < 0 {
					advance(time.Hour)
					if l.State().Succeeded != done {
						b.Error("got the job done without any event or safety poll")
					}
					b.publish(source)
					synctest.Wait()
				} else {
					advance(interval + interval/10)
				}
				if l.State().Succeeded != done+1 {
					b.Errorf("safety poll %v: got the job not done", safety)
				}
				advance(7 * time.Second)
			}
			b.mustFinish()
		})
	}
}

// L-39: without a connection a loop polls by the curve; when events come, it polls once more and ends.
func TestALoopPollsWhileTheConnectionIsLost(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := &instances{}
		o := wakeOptions(source)
		o.Idle = Idle{Min: time.Second, Max: time.Second}
		l := New(b.queue, nothing, o)
		b.run(l)
		polls := func(d time.Duration) int {
			before := b.dequeues()
			advance(d)
			return b.dequeues() - before
		}
		for range 3 {
			if got := polls(time.Minute); got < 54 || got > 62 || l.State().Listening || l.State().Loops != 1 {
				b.Errorf("got %d polls in a minute without a connection, %+v; want 54 to 62 of one loop", got, l.State())
			}
			before := b.dequeues()
			source.connect(true)
			synctest.Wait()
			if got := b.dequeues() - before; got != 1 {
				b.Errorf("got %d polls when the connection came, want 1", got)
			}
			b.mustBeIdle(l)
			if got := polls(50 * time.Second); got != 0 {
				b.Errorf("got %d polls with a connection, want 0", got)
			}
			b.put(1) // and its event is lost
			source.connect(false)
			synctest.Wait()
			if got := l.State(); got.Loops != 1 || got.Received == 0 {
				b.Errorf("got %+v after the loss, want a loop that has polled at once", got)
			}
		}
		if done := l.State().Succeeded; done != 3 {
			b.Errorf("got %d jobs done, want 3", done)
		}
		b.mustFinish()
	})
}

// A listener whose slots are all taken lets events go to others: it says so once, and that it has room at
// its first empty poll.
func TestReadyChangesOnceInABusyPeriod(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := connected()
		o := wakeOptions(source)
		o.Concurrency, o.BatchSize, o.SafetyPoll = 4, 4, noSafety
		l := New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(time.Second); return nil }, o)
		b.run(l)
		for range 3 {
			advance(time.Minute)
			b.mustBeIdle(l)
			source.called()
			b.put(50)
			b.publish(source)
			advance(5 * time.Second)
			if l.State().Listening || source.pick(nil) != nil {
				b.Error("got a listener without a free slot to which events go, want one to which none go")
			}
			advance(time.Minute)
			calls := slices.DeleteFunc(source.called(), func(c string) bool { return c == "More" })
			if want := []string{"Ready(false)", "Ready(true)"}; !slices.Equal(calls, want) {
				b.Errorf("got calls %v, want %v", calls, want)
			}
			b.mustBeIdle(l)
		}
		if done := l.State().Succeeded; done != 150 {
			b.Errorf("got %d jobs done, want 150", done)
		}
		b.mustFinish()
	})
}

// A full batch wakes the next instance, so that a backlog with one event gets all of them; others
// stay idle for what one can take.
func TestFullBatchesWakeTheNextInstance(t *testing.T) {
	for _, c := range []struct{ messages, woken int }{{1, 1}, {31, 1}, {33, 2}, {1000, 6}} {
		bubble(t, func(b *bundle) {
			source := connected()
			var all []*Listener[job]
			for range 6 {
				o := wakeOptions(source)
				o.SafetyPoll = noSafety
				o.Concurrency = 64
				all = append(all, New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(time.Second); return nil }, o))
			}
			finish := b.runAll(all)
			advance(time.Minute)
			before := b.dequeues()
			b.put(c.messages)
			b.publish(source)
			advance(time.Minute)
			woken, done := 0, 0
			for _, l := range all {
				if st := l.State(); st.Polls > 1 {
					woken++
				}
				done += int(l.State().Succeeded)
			}
			if woken != c.woken || done != c.messages {
				b.Errorf("%d messages: got %d instances woken and %d done, want %d and all", c.messages, woken, done, c.woken)
			}
			if c.messages == 31 && b.dequeues()-before != 2 {
				b.Errorf("31 messages: got %d dequeues, want 2", b.dequeues()-before)
			}
			finish()
		})
	}
}

// L-33: events of another queue or account are ignored. An account that is not known may be ours.
func TestEventsOfOtherQueuesAreIgnored(t *testing.T) {
	for event, concerned := range map[queue.Name]bool{
		{Account: "test", Queue: "jobs"}:    true,
		{Queue: "jobs"}:                     true,
		{Account: "other", Queue: "jobs"}:   false,
		{Account: "test", Queue: "job"}:     false,
		{Account: "test", Queue: "Jobs"}:    false,
		{Account: "test"}:                   false,
		{}:                                  false,
		{Account: "jobs", Queue: "test"}:    false,
		{Account: "", Queue: "jobs-poison"}: false,
	} {
		bubble(t, func(b *bundle) {
			bus := new(wakeup.Bus)
			l := New(b.queue, nothing, wakeOptions(bus))
			b.run(l)
			synctest.Wait()
			before := b.dequeues()
			for _, due := range []time.Time{{}, time.Now().Add(time.Second)} {
				if err := bus.Publish(b.Context(), wakeup.Event{Queue: event, Due: due}); err != nil {
					b.Fatal(err)
				}
			}
			advance(2 * time.Second)
			want := 0
			if concerned {
				want = 2
			}
			if got := b.dequeues() - before; got != want {
				b.Errorf("event of %v: got %d dequeues, want %d", event, got, want)
			}
			b.mustFinish()
		})
	}
	if ours := (queue.Name{Queue: "jobs"}); !concerns(queue.Name{Account: "any", Queue: "jobs"}, ours) {
		t.Error("a queue without an account: got an event ignored, want it heard")
	}
}

// Messages that are given back or sent with a delay are fetched when they become visible, however many
// they are, by a loop that starts for them.
func TestWhatFallsDueStartsALoop(t *testing.T) {
	const n = 12_000
	bubble(t, func(b *bundle) {
		source := connected()
		o := wakeOptions(source)
		o.SafetyPoll, o.Concurrency = noSafety, 256
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
			source.members[0].of.Event(wakeup.Event{Queue: jobsQueue, Due: b.begin.Add(time.Duration(1+i%600) * 10 * time.Second)})
		}
		advance(5 * time.Second)
		b.mustBeIdle(l)
		advance(7 * time.Second)
		b.mustBeIdle(l)
		advance(2 * time.Hour)
		if st := l.State(); st.Succeeded != n || late.Load() > 0 {
			b.Errorf("got %d of %d done, %d of them at the wrong time", st.Succeeded, n, late.Load())
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
		hear := source.members[0].of.Event
		for i := range 700_000 {
			hear(wakeup.Event{Queue: jobsQueue, Due: time.Now().Add(time.Duration(i) * 10 * time.Second)})
		}
		hear(wakeup.Event{Queue: jobsQueue, Due: time.Unix(1<<50, 0)})
		if got, most := len(l.session.dues.seconds), int(queue.MaxVisibility/time.Second)+2; got > most {
			b.Errorf("got %d instants remembered, want at most %d", got, most)
		}
		b.mustFinish()
	})
}

// A flood of events, of calls of Wake or of lost connections for a queue that is empty costs ten polls and
// then one a second, or one in Idle.Max if that is less, with and without loops that wait. Work
// among them is found at once.
func TestAFloodOfEventsIsNoFloodOfDequeues(t *testing.T) {
	floods := map[string]func(*Listener[job], *instances){
		"events": func(_ *Listener[job], s *instances) {
			_ = s.Publish(context.Background(), wakeup.Event{Queue: jobsQueue})
		},
		"Wake":        func(l *Listener[job], _ *instances) { l.Wake() },
		"connections": func(_ *Listener[job], s *instances) { s.connect(false); s.connect(true) },
		"due": func(_ *Listener[job], s *instances) {
			s.members[0].of.Event(wakeup.Event{Queue: jobsQueue, Due: time.Now().Add(time.Millisecond)})
		},
	}
	for name, flood := range floods {
		for _, least := range []int{0, 1} {
			bubble(t, func(b *bundle) {
				source := connected()
				b.queue.latency = time.Millisecond
				o := wakeOptions(source)
				o.SafetyPoll, o.Loops.Min, o.Idle = noSafety, least, Idle{Min: time.Second, Max: time.Hour}
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
				advance(time.Minute)
				b.put(1)
				b.publish(source)
				advance(10 * time.Millisecond)
				if l.State().Succeeded != 1 {
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
		var worst atomic.Int64
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			worst.Store(max(worst.Load(), int64(time.Since(b.begin)-time.Duration(m.Body.N)*10*time.Millisecond)))
			return nil
		}, wakeOptions(source))
		b.queue.latency = 2 * time.Millisecond
		b.run(l)
		advance(10 * time.Millisecond)
		for i := 1; i <= 2000; i++ {
			b.putText(fmt.Sprintf(`{"N":%d}`, i))
			b.publish(source)
			advance(10 * time.Millisecond)
		}
		if got := time.Duration(worst.Load()); got > 15*time.Millisecond || l.State().Succeeded != 2000 {
			b.Errorf("got %d jobs done, the latest %v after it was sent; want 2000, 15 ms", l.State().Succeeded, got)
		}
		b.mustFinish()
	})
}

// Wake makes a listener poll at once, with and without a source; before Run and after the stop it does
// nothing.
func TestWakePollsAtOnce(t *testing.T) {
	for name, source := range map[string]wakeup.Source{"polling": nil, "with a source": connected(), "with a lost one": &instances{}} {
		bubble(t, func(b *bundle) {
			o := wakeOptions(source)
			o.Idle, o.SafetyPoll = Idle{Min: time.Hour, Max: time.Hour}, noSafety
			l := New(b.queue, nothing, o)
			l.Wake()
			b.run(l)
			advance(time.Minute)
			for n := range int64(3) {
				b.put(1)
				l.Wake()
				synctest.Wait()
				if got := l.State().Succeeded; got != n+1 {
					b.Errorf("%s: got %d jobs done at once, want %d", name, got, n+1)
				}
				advance(time.Minute)
			}
			b.mustFinish()
			before := b.dequeues()
			l.Wake()
			advance(time.Hour)
			if got := b.dequeues() - before; got != 0 {
				b.Errorf("%s: got %d dequeues after the stop, want none", name, got)
			}
		})
	}
}

// failingSource fails to subscribe.
type failingSource func() (wakeup.Subscription, error)

func (f failingSource) Subscribe(queue.Name, wakeup.Subscriber) (wakeup.Subscription, error) {
	return f()
}

// A source that cannot subscribe ends Run with an error that says so, before anything is dequeued.
func TestASourceThatFailsEndsRun(t *testing.T) {
	refused := errors.New("no such subject")
	for name, source := range map[string]wakeup.Source{
		"error":          failingSource(func() (wakeup.Subscription, error) { return nil, refused }),
		"panic":          failingSource(func() (wakeup.Subscription, error) { panic(refused) }),
		"nothing":        failingSource(func() (wakeup.Subscription, error) { return nil, nil }),
		"a nil instance": failingSource(func() (wakeup.Subscription, error) { return (*instance)(nil), nil }),
		"a nil source":   (*wakeup.Bus)(nil),
	} {
		bubble(t, func(b *bundle) {
			l := New(b.queue, nothing, wakeOptions(source))
			err := l.Run(b.Context())
			if err == nil || !strings.Contains(strings.ToLower(err.Error()), "wakeups") && !strings.Contains(err.Error(), "wake-ups") || !strings.Contains(err.Error(), "test/jobs") {
				b.Errorf("%s: got error %v, want one about wake-ups and the queue", name, err)
			}
			if name == "error" && !errors.Is(err, refused) {
				b.Errorf("got error %v, want the source's", err)
			}
			if b.dequeues() != 0 {
				b.Errorf("%s: got %d dequeues, want none", name, b.dequeues())
			}
		})
	}
}

// At the stop the source is told that there is no room, and the subscription is closed before Run
// returns. What was given back meanwhile wakes another instance. What comes later does nothing.
func TestTheStopEndsTheSubscription(t *testing.T) {
	for _, givesBack := range []bool{false, true} {
		bubble(t, func(b *bundle) {
			source := connected()
			o := wakeOptions(source)
			o.Grace = time.Minute
			if givesBack {
				o.Grace = time.Second
			}
			l := New(b.queue, func(ctx context.Context, _ *Message[job]) error {
				select {
				case <-ctx.Done():
				case <-time.After(30 * time.Second):
				}
				return context.Cause(ctx)
			}, o)
			b.run(l)
			b.put(1)
			advance(time.Second)
			b.publish(source)
			synctest.Wait()
			source.called()
			b.stop()
			synctest.Wait()
			if calls := source.called(); !slices.Equal(calls, []string{"Ready(false)"}) {
				b.Errorf("at the stop: got calls %v, want Ready(false)", calls)
			}
			b.mustFinish()
			want := []string{"Close"}
			if givesBack {
				want = []string{"More", "Close"}
			}
			if calls := source.called(); !slices.Equal(calls, want) {
				b.Errorf("given back %v, after the stop: got calls %v, want %v", givesBack, calls, want)
			}
			before := b.dequeues()
			late := eager{source, source.members[0].of}
			late.flood()
			advance(time.Hour)
			if got := b.dequeues() - before; got != 0 || len(l.session.dues.seconds) > 0 {
				b.Errorf("got %d dequeues after the end, and %d instants remembered; want none", got, len(l.session.dues.seconds))
			}
		})
	}
}

// While the queue is missing a loop polls by the curve, so that the state is ready soon after it was
// created, and not only at the next event.
func TestAMissingQueueIsPolledUntilItIsThere(t *testing.T) {
	bubble(t, func(b *bundle) {
		missing := b.queue.Sibling("-later")
		o := wakeOptions(connected())
		o.SafetyPoll = noSafety
		l := New(missing, nothing, o)
		b.run(l)
		advance(time.Hour)
		if st := l.State(); st.Ready() || !st.Healthy() || st.Loops != 1 || st.Polls > 0 {
			b.Errorf("queue missing: got %+v, want a loop, and not ready", st)
		}
		if err := missing.Create(b.Context(), nil); err != nil {
			b.Fatal(err)
		}
		advance(2 * time.Second)
		b.mustBeIdle(l)
		advance(12 * time.Hour)
		b.mustBeIdle(l)
		b.mustFinish()
	})
}

// Errors keep a loop: the state says what is wrong until a dequeue succeeds, and then nothing is polled.
func TestALoopStaysWhileDequeuesFail(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := connected()
		var down atomic.Bool
		b.queue.intercept = func(op string, act func() error) error {
			if down.Load() {
				return &queue.Error{Op: op, Kind: queue.ErrUnavailable, Status: 503}
			}
			return act()
		}
		o := wakeOptions(source)
		o.SafetyPoll = noSafety
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(time.Minute)
		down.Store(true)
		b.put(1)
		b.publish(source)
		advance(10 * time.Minute)
		if st := l.State(); st.Ready() || st.PollError == nil || st.Loops != 1 {
			b.Errorf("in an outage: got %+v, want a loop and the error", st)
		}
		down.Store(false)
		advance(time.Minute)
		b.mustBeIdle(l)
		if done := l.State().Succeeded; done != 1 {
			b.Errorf("got %d jobs done after the outage, want 1", done)
		}
		b.mustFinish()
	})
}

// L-36: a QueueEmpty hook decides with a source too, down to no loop.
func TestAQueueEmptyHookEndsTheLastLoop(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := connected()
		o := wakeOptions(source)
		o.SafetyPoll = noSafety
		o.QueueEmpty = func(idle int) (time.Duration, bool) { return 10 * time.Second, idle >= 3 }
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(15 * time.Second)
		if got := l.State().Loops; got != 1 || b.dequeues() != 2 {
			b.Errorf("got %d loops after %d polls, want 1 after 2: the hook has not said stop", got, b.dequeues())
		}
		advance(time.Hour)
		if got := b.dequeues(); got != 3 {
			b.Errorf("got %d polls, want 3", got)
		}
		b.mustBeIdle(l)
		b.put(1)
		b.publish(source)
		advance(0)
		if l.State().Succeeded != 1 {
			b.Error("got the job not done at its event")
		}
		source.connect(false)
		advance(time.Hour)
		if got := l.State().Loops; got != 1 {
			b.Errorf("got %d loops without a connection, want 1", got)
		}
		b.mustFinish()
	})
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
		o.SafetyPoll, o.Concurrency = noSafety, 1
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
		o.SafetyPoll, o.Concurrency, o.BatchSize = noSafety, 32, 8
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error { <-ctx.Done(); return ctx.Err() }, o)
		b.run(l)
		advance(time.Second)
		b.put(8)
		b.publish(source)
		advance(time.Second)
		if got := l.State().Running; got != 8 {
			b.Fatalf("got %d handlers running, want 8", got)
		}
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

// In an outage of the handlers events go to other instances.
func TestEventsGoToOthersInAnOutageOfTheHandlers(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := connected()
		o := wakeOptions(source)
		o.SafetyPoll, o.Concurrency = noSafety, 32
		var down atomic.Bool
		down.Store(true)
		o.RetryDelay = func(int, error) time.Duration { return 30 * time.Second }
		l := New(b.queue, func(context.Context, *Message[job]) error {
			if down.Load() {
				return errors.New("the database is away")
			}
			return nil
		}, o)
		b.run(l)
		advance(time.Second)
		b.put(40)
		b.publish(source)
		advance(500 * time.Millisecond)
		if source.pick(nil) != nil || l.State().Listening {
			b.Error("got a listener to which events go in an outage, want none")
		}
		down.Store(false)
		advance(10 * time.Minute)
		if got := l.State().Succeeded; got != 40 {
			b.Errorf("got %d done, want 40", got)
		}
		b.mustBeIdle(l)
		b.mustFinish()
	})
}

// A source that connects at once is what is expected; one that does not costs a line.
func TestASourceThatConnectsSoonIsNotLogged(t *testing.T) {
	for wait, want := range map[time.Duration]int{0: 0, connectWithin / 2: 0, 2 * connectWithin: 2} {
		bubble(t, func(b *bundle) {
			var log bytes.Buffer
			source := &instances{}
			o := wakeOptions(source)
			o.Logger = textLogger(&log)
			l := New(b.queue, nothing, o)
			b.run(l)
			advance(wait)
			source.connect(true)
			advance(time.Minute)
			b.mustFinish()
			if got := strings.Count(log.String(), "wake-ups"); got != want {
				b.Errorf("connected after %v: got %d lines about wake-ups, want %d:\n%s", wait, got, want, log.String())
			}
		})
	}
}
