package listener

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
)

// limit lets dequeues be held back: those before end are, for after.
func (b *bundle) limit(after, end time.Duration) {
	b.queue.intercept = func(op string, act func() error) error {
		if op == "dequeue" && time.Since(b.begin) < end {
			return &queue.Error{Kind: queue.ErrLimited, Op: op, Queue: b.queue.Name(), RetryAfter: after}
		}
		return act()
	}
}

// refusals returns when dequeues were held back, since the beginning.
func (b *bundle) refusals() (at []time.Duration) {
	for _, r := range b.queue.sent("dequeue") {
		if errors.Is(r.err, queue.ErrLimited) {
			at = append(at, r.at.Sub(b.begin))
		}
	}
	return at
}

// A dequeue that a limit holds back is no poll: nobody is told, it counts neither as empty nor as a
// failure, and the next one follows when the limit says.
func TestALimitIsNoPoll(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(3)
		b.limit(10*time.Second, 25*time.Second)
		var told, handled atomic.Int64
		o := options()
		o.Observer.Polled = func(p Poll) {
			if errors.Is(p.Err, queue.ErrLimited) {
				told.Add(1)
			}
		}
		o.OnError = func(error) { told.Add(1) }
		o.Fetch.QueueEmpty = func(int) (time.Duration, bool) {
			if time.Since(b.begin) < 25*time.Second {
				told.Add(1)
			}
			return time.Minute, false
		}
		l := New(b.queue, func(context.Context, *Message[job]) error { handled.Add(1); return nil }, o)
		b.run(l)
		advance(25 * time.Second)
		st := l.State()
		if told.Load() != 0 || st.Polls+st.EmptyPolls+st.Errors+st.Requests != 0 || st.PollError != nil || !st.LastPoll.IsZero() {
			b.Errorf("limited: %d calls of hooks, state %+v; want none, and nothing counted", told.Load(), st)
		}
		if at := b.refusals(); len(at) != 3 || int64(len(at)) != st.Limited {
			b.Errorf("asked at %v, counted %d times; want three times in 25 s", at, st.Limited)
		}
		for i, at := range b.refusals() {
			if least := time.Duration(i) * 10 * time.Second; at < least || at > least+time.Duration(i)*maxLimitSpread {
				b.Errorf("asked at %v, want at %v or up to %v later each time", at, least, maxLimitSpread)
			}
		}
		advance(10 * time.Second)
		if handled.Load() != 3 {
			b.Errorf("after the limit: %d of 3 messages handled", handled.Load())
		}
		b.mustFinish()
	})
}

// While a limit holds a loop back its slots are free for others.
func TestALimitGivesTheSlotsBack(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.limit(10*time.Second, time.Hour)
		o := options()
		o.Concurrency = 16
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(5 * time.Second)
		d := l.current().dispatcher
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		n := d.Reserve(ctx)
		if n != 16 {
			b.Errorf("%d slots were free, want all 16", n)
		}
		d.Dispatch(nil, n, time.Now(), 0)
		b.mustFinish()
	})
}

// Loops that were refused together do not ask together.
func TestLoopsThatALimitHoldsBackAreSpread(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.limit(10*time.Second, time.Hour)
		o := options()
		o.Concurrency, o.Fetch.Loops = 128, Loops{Min: 4, Max: 4}
		b.run(New(b.queue, nothing, o))
		advance(15 * time.Second)
		at := b.refusals()
		if len(at) != 8 || at[3] != 0 {
			b.Fatalf("asked at %v, want four times at once, and four times after 10 s", at)
		}
		if second := at[4:]; len(slices.Compact(slices.Clone(second))) != 4 {
			b.Errorf("asked again at %v, want four different times", second)
		}
		b.mustFinish()
	})
}

// A wait that makes no sense is bounded: neither a busy loop nor a listener that never asks again.
func TestTheWaitForALimitIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("asks a hundred thousand times")
	}
	for after, most := range map[time.Duration]int{-time.Second: 60_000, 0: 60_000, time.Hour: 2} {
		bubble(t, func(b *bundle) {
			b.limit(after, time.Hour)
			b.run(New(b.queue, nothing, options()))
			advance(time.Minute - time.Millisecond)
			if n := len(b.refusals()); n < 2 || n > most {
				b.Errorf("wait of %v: asked %d times in a minute, want 2 to %d times", after, n, most)
			}
			b.mustFinish()
		})
	}
}

// A reason to poll does not shorten the wait for a limit, and is not lost: the poll after the wait serves it,
// whether it came before the refusal or during the wait.
func TestAWakeUpOutlivesALimit(t *testing.T) {
	for name, during := range map[string]bool{"before": false, "during": true} {
		bubble(t, func(b *bundle) {
			source := connected()
			o := wakeOptions(source)
			o.Fetch.SafetyPoll = -1
			var handled atomic.Int64
			b.queue.intercept = func(op string, act func() error) error {
				if since := time.Since(b.begin); op == "dequeue" && since >= time.Second && since < 12*time.Second {
					return &queue.Error{Kind: queue.ErrLimited, Op: op, RetryAfter: 15 * time.Second}
				}
				return act()
			}
			l := New(b.queue, func(context.Context, *Message[job]) error { handled.Add(1); return nil }, o)
			b.run(l)
			advance(2 * time.Second) // no loop runs
			if !during {
				b.put(1)
			}
			b.publish(source) // a poll that is refused
			advance(time.Second)
			if during {
				b.put(1)
				l.Wake()
			}
			advance(13 * time.Second)
			if n := len(b.refusals()); n != 1 {
				b.Errorf("%s: asked %d times while the limit held, want once", name, n)
			}
			advance(3 * time.Second)
			if handled.Load() != 1 {
				b.Errorf("%s: the message is stranded after the limit", name)
			}
			advance(time.Minute)
			sent := len(b.queue.sent("dequeue"))
			advance(time.Hour)
			if more := len(b.queue.sent("dequeue")) - sent; more != 0 {
				b.Errorf("%s: %d dequeues of an idle listener that hears events, want none", name, more)
			}
			b.mustFinish()
		})
	}
}

// An instance that a limit holds back for long lets events go to others.
func TestALongLimitPassesEventsOn(t *testing.T) {
	for after, want := range map[time.Duration][]string{
		100 * time.Millisecond: nil,
		20 * time.Second:       {"Ready(false)", "More"},
	} {
		bubble(t, func(b *bundle) {
			source := connected()
			b.queue.intercept = func(op string, act func() error) error {
				if op == "dequeue" && time.Since(b.begin) > time.Second {
					return &queue.Error{Kind: queue.ErrLimited, Op: op, RetryAfter: after}
				}
				return act()
			}
			b.run(New(b.queue, nothing, wakeOptions(source)))
			advance(2 * time.Second)
			source.called()
			b.publish(source)
			advance(500 * time.Millisecond)
			// Who hears the event may see that no event is wanted any more, and wakes another one too: two are woken rather than none.
			if calls := slices.Compact(source.called()); !slices.Equal(calls, want) {
				b.Errorf("limited for %v: got calls %v, want %v", after, calls, want)
			}
			b.mustFinish()
		})
	}
}

// The stop does not wait for a limit.
func TestTheStopEndsTheWaitForALimit(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.limit(time.Hour, time.Hour)
		b.run(New(b.queue, nothing, options()))
		advance(time.Second)
		b.mustFinish()
		synctest.Wait()
		if took := time.Since(b.begin); took != time.Second {
			b.Errorf("stopped after %v, want at once", took)
		}
	})
}

// A poll that a limit held back has served nothing: what it was for is owed still, and no other loop may leave.
func TestAPollThatWasHeldBackIsOwed(t *testing.T) {
	for _, owed := range []bool{false, true} {
		o := ownerWith(Loops{Min: 2, Max: 2})
		o.state.bounds.Min, o.state.listening = 0, true
		if owed {
			o.tell(event{what: dueNow})
		}
		o.tell(event{what: begins})
		seen := o.state.heard
		o.tell(event{what: refused, owed: o.state.served})
		if counts := o.tell(event{what: emptied, seen: seen}); (counts[end] > 0) == owed || (counts[again] > 0) != owed {
			t.Errorf("owed before %v: another loop left %v and polls again %v", owed, counts[end] > 0, counts[again] > 0)
		}
	}
}

// A listener that polls does not ask sooner because of Wake either, and asks at once after the wait.
func TestWakeDoesNotShortenALimit(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.limit(10*time.Second, 5*time.Second)
		l := New(b.queue, nothing, options())
		b.run(l)
		advance(3 * time.Second)
		l.Wake()
		b.put(1)
		advance(6 * time.Second)
		if at := b.refusals(); len(at) != 1 || len(b.queue.sent("dequeue")) != 1 {
			b.Errorf("asked at %v, want once within 10 s", at)
		}
		advance(2 * time.Second)
		if done := l.State().Outcomes[Deleted]; done != 1 {
			b.Errorf("%d jobs done after the limit, want 1", done)
		}
		b.mustFinish()
	})
}
