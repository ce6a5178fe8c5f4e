package listener

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// X-21, L-41, L-36: an idle account sees no request but the safety polls, however many instances there are, and
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
					o.Fetch.SafetyPoll = safety
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
				bus := new(wakeup.Bus)
				source, publisher, want := wakeup.Source(bus), wakeup.Publisher(bus), k+1
				if between {
					s := connected()
					source, publisher, want = s, s, 2
				}
				var all []*Listener[job]
				for range k {
					o := wakeOptions(source)
					o.Fetch.SafetyPoll = noSafety
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
					succeeded += l.State().Outcomes[Deleted]
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
			o.Fetch.SafetyPoll = safety
			l := New(b.queue, nothing, o)
			b.run(l)
			advance(73 * time.Second)
			interval := safety
			if safety == 0 {
				interval = time.Minute
			}
			for range 20 {
				done := l.State().Outcomes[Deleted]
				b.put(1)
				if safety < 0 {
					advance(time.Hour)
					if l.State().Outcomes[Deleted] != done {
						b.Error("got the job done without any event or safety poll")
					}
					b.publish(source)
					synctest.Wait()
				} else {
					advance(interval + interval/10)
				}
				if l.State().Outcomes[Deleted] != done+1 {
					b.Errorf("safety poll %v: got the job not done", safety)
				}
				advance(7 * time.Second)
			}
			b.mustFinish()
		})
	}
}

// L-32: the engine sees that the lease of a killed worker ends. A bus carries only what producers
// publish, so there the safety poll finds the message.
func TestTheEngineWakesForTheMessageOfAKilledWorker(t *testing.T) {
	for name, want := range map[string]time.Duration{"bus": 66 * time.Second, "engine": 5 * time.Second} {
		bubble(t, func(b *bundle) {
			source := wakeup.Source(new(wakeup.Bus))
			if name == "engine" {
				source = b.engine
			}
			l := New(b.queue, nothing, wakeOptions(source))
			b.run(l)
			advance(time.Second)
			b.mustBeIdle(l)
			b.put(1)
			if _, err := b.queue.Queue.Dequeue(b.Context(), 1, 5*time.Second); err != nil { // by a worker that is killed
				b.Fatal(err)
			}
			killed := time.Now()
			for l.State().Outcomes[Deleted] == 0 && time.Since(killed) < time.Hour {
				advance(time.Second)
			}
			got := time.Since(killed)
			t.Logf("%s: the message of a killed worker, whose lease is 5 s, was found %v later", name, got)
			if got > want {
				b.Errorf("%s: found %v later, want within %v", name, got, want)
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
		o.Fetch.Idle = Idle{Min: time.Second, Max: time.Second}
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
		if done := l.State().Outcomes[Deleted]; done != 3 {
			b.Errorf("got %d jobs done, want 3", done)
		}
		b.mustFinish()
	})
}

// A listener whose slots are all taken lets events go to others: it says so, says that it has room before its
// second dequeue, which may be the last one, and from then on once.
func TestReadyChangesTwiceInABusyPeriodAtMost(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := connected()
		o := wakeOptions(source)
		o.Concurrency, o.Fetch.BatchSize, o.Fetch.SafetyPoll = 4, 4, noSafety
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
			if want := []string{"Ready(false)", "Ready(true)", "Ready(false)", "Ready(true)"}; !slices.Equal(calls, want) {
				b.Errorf("got calls %v, want %v", calls, want)
			}
			b.mustBeIdle(l)
		}
		if done := l.State().Outcomes[Deleted]; done != 150 {
			b.Errorf("got %d jobs done, want 150", done)
		}
		b.mustFinish()
	})
}

// A full batch wakes the next instance, so that a backlog with one event gets all of them; others
// stay idle for what one can take.
func TestFullBatchesWakeTheNextInstance(t *testing.T) {
	for _, c := range []struct{ messages, woken int }{{1, 1}, {31, 1}, {32, 1}, {33, 2}, {1000, 6}} {
		bubble(t, func(b *bundle) {
			source := connected()
			var all []*Listener[job]
			for range 6 {
				o := wakeOptions(source)
				o.Fetch.SafetyPoll = noSafety
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
				done += int(l.State().Outcomes[Deleted])
			}
			if woken != c.woken || done != c.messages {
				b.Errorf("%d messages: got %d instances woken and %d done, want %d and all", c.messages, woken, done, c.woken)
			}
			if c.messages < 33 && b.dequeues()-before != 2 {
				b.Errorf("%d messages: got %d dequeues, want 2", c.messages, b.dequeues()-before)
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
				if err := bus.Publish(b.Context(), event, 0, due); err != nil {
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

// Wake makes a listener poll at once, with and without a source; before Run and after the stop it does
// nothing.
func TestWakePollsAtOnce(t *testing.T) {
	for name, source := range map[string]wakeup.Source{"polling": nil, "with a source": connected(), "with a lost one": &instances{}} {
		bubble(t, func(b *bundle) {
			o := wakeOptions(source)
			o.Fetch.Idle, o.Fetch.SafetyPoll = Idle{Min: time.Hour, Max: time.Hour}, noSafety
			l := New(b.queue, nothing, o)
			l.Wake()
			b.run(l)
			advance(time.Minute)
			for n := range int64(3) {
				b.put(1)
				l.Wake()
				synctest.Wait()
				if got := l.State().Outcomes[Deleted]; got != n+1 {
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
