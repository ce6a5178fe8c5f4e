package listener

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// failingSource fails to subscribe.
type failingSource func() (wakeup.Subscription, error)

func (f failingSource) Subscribe(queue.Name, func(queue.Name, int64, time.Time), func(bool)) (wakeup.Subscription, error) {
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
			late := eager{source, source.subscribed()[0].of}
			late.flood()
			advance(time.Hour)
			if got := b.dequeues() - before; got != 0 || len(l.session.agenda.called.seconds) > 0 {
				b.Errorf("got %d dequeues after the end, and %d instants remembered; want none", got, len(l.session.agenda.called.seconds))
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
		o.Fetch.SafetyPoll = noSafety
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

// errors keep a loop: the state says what is wrong until a dequeue succeeds, and then nothing is polled.
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
		o.Fetch.SafetyPoll = noSafety
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(time.Minute)
		down.Store(true)
		b.put(1)
		b.publish(source)
		advance(10 * time.Minute)
		if st := l.State(); st.Ready() || !st.Healthy() || st.PollError == nil || st.Loops != 1 {
			b.Errorf("in an outage: got %+v, want a loop and the error", st)
		}
		down.Store(false)
		advance(time.Minute)
		b.mustBeIdle(l)
		if done := l.State().Outcomes[Deleted]; done != 1 {
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
		o.Fetch.SafetyPoll = noSafety
		o.Fetch.QueueEmpty = func(idle int) (time.Duration, bool) { return 10 * time.Second, idle >= 3 }
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
		if l.State().Outcomes[Deleted] != 1 {
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

// In an outage of the handlers events go to other instances.
func TestEventsGoToOthersInAnOutageOfTheHandlers(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := connected()
		o := wakeOptions(source)
		o.Fetch.SafetyPoll, o.Concurrency = noSafety, 32
		var down atomic.Bool
		down.Store(true)
		o.RetryDelay = func(int, error) time.Duration { return 30 * time.Second }
		b.queue.intercept = func(op string, act func() error) error {
			if op == "dequeue" { // meanwhile the handlers of the last one fail
				time.Sleep(10 * time.Millisecond)
			}
			return act()
		}
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
		advance(2 * time.Minute)
		synctest.Wait()
		if source.pick(nil) != nil || l.State().Listening {
			b.Error("got a listener to which events go in an outage, want none")
		}
		down.Store(false)
		advance(10 * time.Minute)
		if got := l.State().Outcomes[Deleted]; got != 40 {
			b.Errorf("got %d done, want 40", got)
		}
		b.mustBeIdle(l)
		b.mustFinish()
	})
}

// An instance whose dequeues fail wakes another one in its place, and gets no events until one succeeds.
func TestAnInstanceWhoseDequeuesFailLetsEventsGoToOthers(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := connected()
		options := func() *Options[job] {
			o := wakeOptions(source)
			o.Fetch.SafetyPoll = noSafety
			return o
		}
		broken := &recordingQueue{Queue: b.queue.Queue, requestLog: &requestLog{}}
		var down atomic.Bool
		broken.intercept = func(_ string, act func() error) error {
			if down.Load() {
				return &queue.Error{Op: "dequeue", Kind: queue.ErrUnavailable, Status: 503}
			}
			return act()
		}
		failing, other := New(broken, nothing, options()), New(b.queue, nothing, options())
		finish := b.runAll([]*Listener[job]{failing, other})
		advance(time.Minute)
		down.Store(true)
		for range 2 { // one goes to each
			b.put(1)
			b.publish(source)
		}
		advance(time.Second)
		for range 5 {
			b.put(1)
			b.publish(source)
		}
		advance(lingerTime)
		if got := other.State().Outcomes[Deleted]; got != 7 {
			b.Errorf("got %d jobs done by the other instance, want 7", got)
		}
		down.Store(false)
		advance(time.Minute)
		b.mustBeIdle(failing)
		finish()
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
