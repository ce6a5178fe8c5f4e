package listener

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// gaps returns how much time passed between the dequeues that brought a message.
func (b *bundle) gaps() (gaps []time.Duration) {
	var last time.Time
	for _, r := range b.queue.sent("dequeue") {
		if r.got == 0 {
			continue
		}
		if !last.IsZero() {
			gaps = append(gaps, r.at.Sub(last))
		}
		last = r.at
	}
	return gaps
}

// checkDoubling fails the test unless each gap is about twice the one before, and none longer than
// the longest; the polls come up to a second late.
func (b *bundle) checkDoubling(name string, gaps []time.Duration, first, longest time.Duration) {
	b.Helper()
	want := first
	for i, got := range gaps {
		if got < want*9/10 || got > want*11/10+2*time.Second {
			b.Errorf("%s: the message was hidden for %v the %d. time, want about %v; all: %v", name, got, i+1, want, gaps)
			return
		}
		want = min(2*want, longest)
	}
}

// Poison that cannot be moved is tried again less and less often, at most hourly, however few
// attempts it has and whatever RetryDelay returns, with an envelope and without. It is moved when
// that is possible again, with what its record said at first.
func TestPoisonThatCannotBeMovedIsTriedLessAndLessOften(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates days")
	}
	const outage = 24 * time.Hour
	for name, c := range map[string]struct {
		text   string
		reason poison.Reason
	}{
		"failed":            {"millrace/1?id=7\n{\"N\":1}", poison.ReasonAttempts},
		"without envelope":  {`{"N":1}`, poison.ReasonAttempts},
		"undecodable":       {"millrace/1?id=7\nwords", poison.ReasonUndecodable},
		"no job at all":     {"words", poison.ReasonAttempts},
		"no room for marks": {"millrace/1?id=7&n=0\n\"" + strings.Repeat("x", queue.MaxText-22) + `"`, ""}, // copied bare
	} {
		bubble(t, func(b *bundle) {
			b.putText(c.text)
			b.queue.intercept = func(op string, act func() error) error {
				if op == "enqueue" && time.Since(b.begin) < outage {
					return &queue.Error{Op: op, Kind: queue.ErrUnauthorized, Status: 403}
				}
				return act()
			}
			o := options()
			o.Poison.MaxAttempts, o.Fetch.Idle = 1, longIdle
			o.RetryDelay = func(int, error) time.Duration { return 0 }
			runs := 0
			b.run(New(b.queue, func(context.Context, *Message[job]) error { runs++; return errors.New("no") }, o))
			advance(outage)
			gaps := b.gaps()
			b.checkDoubling(name, gaps, time.Second, time.Hour)
			if n, updates := len(b.queue.sent("enqueue")), len(b.queue.sent("update")); n != len(gaps)+1 || n < 32 || n > 38 || updates > 3*n || c.reason != "" && updates != n {
				t.Errorf("%s: %d moves tried in a day, %d updates and %d deliveries, want one each, about 35", name, n, updates, len(gaps)+1)
			}
			advance(2 * time.Hour)
			b.mustFinish()
			if c.reason == "" {
				if copies := b.poisoned(); len(copies) != 1 || copies[0].Text != c.text || runs != 0 {
					t.Errorf("%s: handled %d times and copied %d times, want no run and one copy of the text", name, runs, len(copies))
				}
				return
			}
			records := b.poisonRecords()
			if len(records) != 1 || records[0].Reason != c.reason || records[0].Attempts > 1 && strings.Contains(c.text, "id=7") || records[0].Lost != 0 || runs > 1 {
				t.Errorf("%s: handled %d times, got the records %+v; want one with the reason %s, at most one attempt, none lost", name, runs, records, c.reason)
			}
		})
	}
}

// Poison that may not be moved is hidden for twice as long each time, up to a day, and each time a
// person is told.
func TestKeptPoisonIsHiddenForLongerEachTime(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		o := options()
		o.Poison.Keep, o.Fetch.Idle = true, longIdle
		o.RetryDelay = func(int, error) time.Duration { return 0 }
		var told errorList
		o.OnError = told.add
		l := New(b.queue, func(context.Context, *Message[job]) error { return dispatcher.Poison(errors.New("no")) }, o)
		b.run(l)
		advance(10 * 24 * time.Hour)
		b.mustFinish()
		gaps := b.gaps()
		b.checkDoubling("kept", gaps, time.Minute, 24*time.Hour)
		if st := l.State(); len(gaps) < 17 || len(gaps) > 20 || st.Outcomes[Kept] != int64(len(gaps)+1) || told.count() != len(gaps)+1 {
			t.Errorf("hidden %d times in ten days, state %+v, told %d times; want about 19, and of each", len(gaps), st, told.count())
		}
		if !strings.Contains(told.text(), "kept hidden for 1m") {
			t.Errorf("told %.200q, want for how long", told.text())
		}
	})
}

// Kept poison that expires comes up again and again before it is gone, and the error says when that
// will be.
func TestKeptPoisonIsSeenAgainBeforeItExpires(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.sendWithTTL(time.Hour)
		o := options()
		o.Poison.Keep = true
		var told errorList
		o.OnError = told.add
		b.run(New(b.queue, func(context.Context, *Message[job]) error { return dispatcher.Poison(errors.New("no")) }, o))
		advance(59 * time.Minute)
		if n := told.count(); n < 7 || n > 20 {
			t.Errorf("told of it %d times before it is gone, want 7…20", n)
		}
		if !strings.Contains(told.text(), "and gone at 2000-01-01T01:00:00Z") {
			t.Errorf("told %.300q, want when it is gone", told.text())
		}
		b.mustFinish()
	})
}

// A poison queue that is missing and that this worker must not create loses nothing: the error says
// what to do, and when somebody has created it the message is moved.
func TestPoisonWaitsForAQueueThatMustNotBeCreated(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		var allowed atomic.Bool
		b.queue.intercept = func(op string, act func() error) error {
			if op == "create" && !allowed.Load() {
				return &queue.Error{Op: op, Kind: queue.ErrUnauthorized, Status: 403}
			}
			return act()
		}
		var told errorList
		o := options()
		o.OnError = told.add
		l := New(b.queue, func(context.Context, *Message[job]) error { return dispatcher.Poison(errors.New("no")) }, o)
		b.run(l)
		advance(time.Minute)
		if text := told.text(); !strings.Contains(text, "create jobs-poison, or allow this worker to") || !strings.Contains(text, "hidden for") {
			t.Errorf("told %q, want what to do, and for how long it is hidden", text)
		}
		if st := l.State(); st.Outcomes[Unsettled] < 3 || st.Outcomes[Unsettled] > 7 || b.depth(b.queue.Queue) != 1 {
			t.Errorf("after a minute: state %+v, %d in the queue; want Unsettled 3…7 and 1", st, b.depth(b.queue.Queue))
		}
		allowed.Store(true)
		advance(2 * time.Minute)
		b.mustFinish()
		if records := b.poisonRecords(); len(records) != 1 || records[0].Reason != poison.ReasonRejected || b.depth(b.queue.Queue) != 0 {
			t.Errorf("got the records %+v and %d in the queue, want one and none", records, b.depth(b.queue.Queue))
		}
	})
}

// What could neither be moved nor given back is hidden for as long as its lease, and the error does
// not say otherwise.
func TestPoisonThatCannotBeGivenBackIsNotSaidToBeHidden(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		b.queue.intercept = func(op string, act func() error) error {
			if op == "enqueue" || op == "update" {
				return &queue.Error{Op: op, Kind: queue.ErrInvalid, Status: 400}
			}
			return act()
		}
		var told errorList
		o := options()
		o.OnError = told.add
		b.run(New(b.queue, func(context.Context, *Message[job]) error { return dispatcher.Poison(errors.New("no")) }, o))
		advance(time.Second)
		if text := told.text(); !strings.Contains(text, "unsettled") || strings.Contains(text, "hidden") {
			t.Errorf("told %q, want that it is unsettled and nothing of a delay", text)
		}
		b.mustFinish()
	})
}

// A poison queue that is just being deleted is no sign that the message or its lease is lost.
func TestAPoisonQueueThatIsGoneIsNotALostLease(t *testing.T) {
	for _, kind := range []error{queue.ErrQueueBeingDeleted, queue.ErrQueueMissing} {
		bubble(t, func(b *bundle) {
			b.send(1)
			b.queue.intercept = func(op string, act func() error) error {
				if op == "create" {
					return &queue.Error{Op: op, Kind: kind, Status: 409}
				}
				return act()
			}
			l := New(b.queue, func(context.Context, *Message[job]) error { return dispatcher.Poison(errors.New("no")) }, options())
			b.run(l)
			advance(time.Hour)
			if st := l.State(); st.Outcomes[Lost] != 0 || st.Late != 0 || st.Outcomes[Unsettled] == 0 {
				t.Errorf("%v: got state %+v, want Lost 0, Late 0, Unsettled above 0", kind, st)
			}
			b.mustFinish()
		})
	}
}

// A copy that takes longer than the lease gets one that is long enough but ends with the message's
// life, and a text that keeps handlers away if this worker dies meanwhile.
func TestALongCopyMarksTheMessageAndAsksForNoMoreThanItsLife(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.sendWithTTL(40 * time.Second)
		b.queue.intercept = func(op string, act func() error) error {
			if op == "enqueue" {
				time.Sleep(9 * time.Second)
			}
			return act()
		}
		q := &updateTexts{Queue: b.queue}
		o := options()
		o.Lease.Visibility.First = 10 * time.Second
		b.run(New(q, func(context.Context, *Message[job]) error { return dispatcher.Poison(errors.New("no")) }, o))
		advance(38 * time.Second)
		b.mustFinish()
		if len(q.texts) == 0 || !strings.Contains(q.texts[0], "px="+string(poison.ReasonRejected)) {
			t.Errorf("the message was updated to %q, want a mark", q.texts)
		}
		if n := b.refusedUpdates(); n > 0 || len(b.poisonRecords()) == 0 {
			t.Errorf("%d updates were refused and %d copies made, want none and some", n, len(b.poisonRecords()))
		}
	})
}

// updateTexts is a queue that records the texts of updates.
type updateTexts struct {
	queue.Queue
	texts []string // written by one handler's settlement
}

func (q *updateTexts) Update(ctx context.Context, l queue.Lease, text string, v time.Duration) (queue.Lease, error) {
	q.texts = append(q.texts, text)
	return q.Queue.Update(ctx, l, text, v)
}
