package listener

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// occupied runs a listener whose only slot is taken for an hour, and an idle one.
func (b *bundle) occupied(source *instances, o *Options[job]) (idle *Listener[job], finish func()) {
	b.Helper()
	o.Fetch.SafetyPoll, o.Concurrency = noSafety, 1
	full := New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(time.Hour); return nil }, o)
	stopFull := b.runAll([]*Listener[job]{full})
	advance(time.Minute)
	b.put(1)
	b.publish(source)
	advance(time.Minute)
	if full.State().Running != 1 || full.State().Listening {
		b.Fatalf("got %+v, want a listener without room that does not listen", full.State())
	}
	own := wakeOptions(source)
	own.Fetch.SafetyPoll = noSafety
	idle = New(b.queue, nothing, own)
	stopIdle := b.runAll([]*Listener[job]{idle})
	advance(time.Minute)
	source.called()
	return idle, func() {
		advance(2 * time.Hour)
		stopFull()
		stopIdle()
	}
}

// What falls due at an instance that has no room is known to no other one: it wakes one.
func TestAnInstanceWithoutRoomPassesOnWhatFallsDue(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := connected()
		idle, finish := b.occupied(source, wakeOptions(source))
		full := source.subscribed()[0]
		for n := range int64(3) {
			if _, err := b.queue.Queue.Enqueue(b.Context(), `{"N":1}`, &queue.EnqueueOptions{Delay: 10 * time.Second}); err != nil {
				b.Fatal(err)
			}
			for _, s := range source.subscribed() {
				if !s.isReady() {
					full = s
				}
			}
			full.of.Event(jobsQueue, 0, time.Now().Add(10*time.Second))
			advance(11 * time.Second)
			if got := idle.State().Outcomes[Deleted]; got != n+1 {
				b.Errorf("got %d jobs done by the idle instance when they were due, want %d", got, n+1)
			}
		}
		finish()
	})
}

// An event that comes in the moment in which an instance loses its room goes to another one.
func TestAnEventThatCrossesReadyIsPassedOn(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := connected()
		idle, finish := b.occupied(source, wakeOptions(source))
		b.put(1)
		for _, m := range source.subscribed() {
			if !m.isReady() {
				m.of.Event(jobsQueue, 0, time.Time{}) // was under way
			}
		}
		synctest.Wait()
		if got := idle.State().Outcomes[Deleted]; got != 1 {
			b.Errorf("got %d jobs done by the idle instance, want 1", got)
		}
		finish()
	})
}

// A message that an instance gave back goes to another one when it becomes visible, if the first one has no
// room then.
func TestAnInstanceWithoutRoomPassesOnWhatItGaveBack(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := connected()
		o := wakeOptions(source)
		o.Fetch.SafetyPoll, o.Concurrency = noSafety, 1
		var calls atomic.Int64
		failing := New(b.queue, func(context.Context, *Message[job]) error {
			if calls.Add(1) == 1 {
				return Snooze(30 * time.Second)
			}
			time.Sleep(time.Hour)
			return nil
		}, o)
		stopFailing := b.runAll([]*Listener[job]{failing})
		for range 2 { // the second one takes the slot
			advance(time.Second)
			b.put(1)
			b.publish(source)
		}
		advance(time.Second)
		own := wakeOptions(source)
		own.Fetch.SafetyPoll = noSafety
		idle := New(b.queue, nothing, own)
		stopIdle := b.runAll([]*Listener[job]{idle})
		advance(time.Minute)
		if got := idle.State().Outcomes[Deleted]; got != 1 {
			b.Errorf("got %d jobs done by the idle instance, want the one that was given back", got)
		}
		advance(2 * time.Hour)
		stopFailing()
		stopIdle()
	})
}

// A pause of the program is for one instance, so what falls due there goes to others. While the queue is paused
// nobody is woken. The end of a pause wakes no other instance.
func TestWhatFallsDueInAPauseIsPassedOnUnlessAllArePaused(t *testing.T) {
	for _, reasons := range []pauses{programPauses, queuePauses, programPauses | queuePauses} {
		bubble(t, func(b *bundle) {
			source := connected()
			o := wakeOptions(source)
			o.Fetch.SafetyPoll = noSafety
			l := New(b.queue, nothing, o)
			b.run(l)
			advance(time.Minute)
			l.session.tell(event{what: asks}) // so that the flag is not read soon
			l.session.tell(event{what: paused, pause: reasons, on: true})
			source.subscribed()[0].of.Event(jobsQueue, 0, time.Now().Add(time.Second))
			synctest.Wait()
			source.called()
			advance(10 * time.Second)
			calls := source.called()
			if passed := len(calls) > 0 && calls[0] == "More"; passed != (reasons == programPauses) {
				b.Errorf("paused by %v: got calls %v when a message fell due", reasons.by(), calls)
			}
			l.session.tell(event{what: paused, pause: reasons})
			advance(time.Second)
			if calls := source.called(); len(calls) != 1 || calls[0] != "Ready(true)" {
				b.Errorf("paused by %v: got calls %v after the end, want Ready(true)", reasons.by(), calls)
			}
			b.mustFinish()
		})
	}
}

// L-32: a message costs two dequeues in all, also if it takes every slot of its listener for long.
func TestAMessageThatTakesEverySlotCostsTwoDequeues(t *testing.T) {
	for _, instances := range []int{1, 2, 5} {
		for _, handling := range []time.Duration{0, 5 * time.Millisecond, 15 * time.Millisecond, time.Second, time.Hour} {
			bubble(t, func(b *bundle) {
				source := connected()
				var all []*Listener[job]
				for range instances {
					o := wakeOptions(source)
					o.Fetch.SafetyPoll, o.Concurrency = noSafety, 1
					all = append(all, New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(handling); return nil }, o))
				}
				finish := b.runAll(all)
				advance(time.Minute)
				for n := range 4 {
					messages := 1 + n%2
					before := b.dequeues()
					b.put(messages)
					b.publish(source)
					advance(2*handling + time.Second)
					if got := b.dequeues() - before; messages == 1 && got != 2 || instances == 1 && got > 2*messages {
						b.Errorf("%d instances, %v: got %d dequeues for %d messages, want 2 each at most", instances, handling, got, messages)
					}
					advance(time.Minute)
				}
				done := 0
				for _, l := range all {
					done += int(l.State().Outcomes[Deleted])
					b.mustBeIdle(l)
				}
				if done != 6 {
					b.Errorf("%d instances, %v: got %d jobs done, want 6", instances, handling, done)
				}
				finish()
			})
		}
	}
}

// A full batch whose depth cannot be read wakes another instance.
func TestAFullBatchWakesAnotherIfTheDepthIsUnknown(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.queue.intercept = func(op string, act func() error) error {
			if op == "properties" {
				return &queue.Error{Op: op, Kind: queue.ErrUnauthorized, Status: 403}
			}
			return act()
		}
		source := connected()
		var all []*Listener[job]
		for range 2 {
			o := wakeOptions(source)
			o.Fetch.SafetyPoll, o.Concurrency = noSafety, 1
			all = append(all, New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(time.Hour); return nil }, o))
		}
		finish := b.runAll(all)
		advance(time.Minute)
		b.put(2)
		b.publish(source)
		advance(time.Minute)
		for n, l := range all {
			if got := l.State().Running; got != 1 {
				b.Errorf("instance %d: got %d handlers running, want 1", n, got)
			}
		}
		advance(2 * time.Hour)
		finish()
	})
}

// A source that does not say that events come again holds up the second dequeue for a moment only.
func TestASourceThatIsSlowToListenHoldsUpLittle(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := connected()
		o := wakeOptions(source)
		o.Fetch.SafetyPoll, o.Concurrency = noSafety, 1
		l := New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(time.Second); return nil }, o)
		b.run(l)
		advance(time.Minute)
		b.put(3)
		b.publish(source)
		advance(500 * time.Millisecond)
		source.mu.Lock()
		source.connected = false // and nobody says so
		source.mu.Unlock()
		advance(2600*time.Millisecond + listenWithin)
		if got := l.State().Outcomes[Deleted]; got != 3 {
			b.Errorf("got %d jobs done, want 3", got)
		}
		source.connect(true)
		advance(time.Minute)
		b.mustBeIdle(l)
		b.mustFinish()
	})
}

// B-19: for a message that this worker cannot handle another one is woken when it is visible again, without a safety poll. Of nine workers with wake-ups the one that knows a kind finds 95 % of its jobs within 2 min.
func TestTheOneWorkerOfNineThatKnowsAKindIsWoken(t *testing.T) {
	const jobs, apart, within = 200, 17 * time.Second, 2 * time.Minute
	bubble(t, func(b *bundle) {
		source := connected()
		var soon atomic.Int64
		sent := make(map[string]time.Time)
		o := func() *Options[any] {
			return &Options[any]{Wakeups: source, Fetch: FetchOptions{SafetyPoll: noSafety}, Logger: slog.New(slog.DiscardHandler), OnError: func(error) {}}
		}
		known := func(_ context.Context, m *Message[job]) error {
			if time.Since(sent[m.Job]) <= within {
				soon.Add(1)
			}
			return nil
		}
		var all []*Listener[any]
		for i := range 9 {
			kind := dispatcher.Jobs[job]{Handler: nothing}.Kind("other", nil)
			if i == 4 {
				kind = dispatcher.Jobs[job]{Handler: known}.Kind("new", nil)
			}
			all = append(all, must(NewKinds(b.queue, []Kind{kind}, o())))
		}
		ctx, stop := context.WithCancel(b.Context())
		var running sync.WaitGroup
		for _, l := range all {
			running.Go(func() {
				if err := l.Run(ctx); err != nil {
					b.Error(err)
				}
			})
		}
		p := producer.New[job](b.queue, &producer.Options[job]{Kind: "new", Wakeups: source})
		for i := range jobs {
			id := fmt.Sprint("job-", i)
			sent[id] = time.Now()
			if _, err := p.Send(b.Context(), job{}, &producer.SendOptions{JobID: id}); err != nil {
				b.Fatal(err)
			}
			advance(apart)
		}
		advance(2 * time.Minute)
		if n := soon.Load(); n < jobs*95/100 {
			b.Errorf("got %d of %d jobs within %v, want 95 %% of them", n, jobs, within)
		}
		before := b.dequeues()
		advance(10 * time.Minute)
		if n := b.dequeues() - before; n > jobs/20*2 {
			b.Errorf("got %d dequeues in the next 10 min, want them for the jobs only that are left", n)
		}
		stop()
		running.Wait()
	})
}
