package listener

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
)

// process is a worker process that can be killed: its requests then fail.
func (b *bundle) process(o *faultqueue.Options, h Handler[job], lo *Options[job]) (*Listener[job], *faultqueue.Queue) {
	q := faultqueue.New(b.queue, o)
	return New(q, h, lo), q
}

// killers runs the jobs in a series of processes, each killed by its first handler after it has
// run this long, until none starts any more, and returns how many handlers started.
func (b *bundle) killers(o faultqueue.Options, ran time.Duration) (runs int) {
	b.Helper()
	for quiet := false; !quiet && runs < 50; o.Seed++ {
		var q *faultqueue.Queue
		var l *Listener[job]
		started := make(chan struct{}, queue.MaxBatch)
		handler := func(ctx context.Context, _ *Message[job]) error {
			started <- struct{}{}
			<-ctx.Done()
			return nil
		}
		l, q = b.process(&o, handler, options())
		b.run(l)
		select {
		case <-started:
			runs++
			after(ran)
			q.Kill()
		case <-time.After(3 * time.Hour):
			quiet = true
		}
		l.Halt()
		b.finished()
		q.Wait()
	}
	return runs
}

// copies returns the records in the poison queue.
func (b *bundle) copies() (records []poison.Record) {
	b.Helper()
	batch, err := b.queue.Queue.Sibling("-poison").Peek(b.Context(), queue.MaxBatch)
	if err != nil && !errors.Is(err, queue.ErrQueueMissing) {
		b.Fatal(err)
	}
	for _, m := range batch {
		r, err := poison.ParseRecord(m.Text)
		if err != nil {
			b.Error(err)
		}
		records = append(records, r)
	}
	return records
}

// Invariant 5: a job that kills its worker runs MaxLost times after the first, unrecorded
// start, and is then poison.
func TestInvariant5_AKillerIsPoison(t *testing.T) {
	for _, ran := range []time.Duration{0, time.Minute} { // a minute is renewed
		bubble(t, func(b *bundle) {
			b.send(1)
			runs := b.killers(faultqueue.Options{}, ran)
			c := b.copies()
			if runs != 1+poison.DefaultMaxLost || len(c) != 1 || c[0].Reason != poison.ReasonLost || b.depth(b.queue.Queue) != 0 {
				t.Errorf("after %v: %d runs, records %+v", ran, runs, c)
			}
		})
	}
}

// The same behind a network that loses a third of everything.
func TestInvariant5_AKillerIsPoisonBehindABadNetwork(t *testing.T) {
	seeds := uint64(10)
	if testing.Short() || underRace() {
		seeds = 3
	}
	for seed := range seeds {
		bubble(t, func(b *bundle) {
			b.send(1)
			runs := b.killers(faultqueue.Options{Seed: seed * 1000, Every: bad}, 0)
			c := b.copies()
			if runs < 2 || runs > 1+poison.DefaultMaxLost || len(c) == 0 || c[0].Reason != poison.ReasonLost {
				t.Errorf("seed %d: %d runs, records %+v", seed, runs, c)
			}
		})
	}
}

// bad is a network that loses a third of all requests, half of them after the service has
// acted.
var bad = faultqueue.Rates{LostRequest: 0.1, LostResponse: 0.15, Throttled: 0.03, Unavailable: 0.02}

// Behind it no healthy job becomes poison, whether it is short or takes longer than its lease,
// while jobs that kill their worker do (see above).
func TestABadNetworkPoisonsNothing(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() || underRace() {
		seeds = 3
	}
	for _, faults := range []faultqueue.Rates{bad, {LostResponse: 0.3}, {LostRequest: 0.3}, {Duplicate: 0.15, Late: 0.15}} {
		for seed := range seeds {
			bubble(t, func(b *bundle) {
				const jobs = 60
				for n := range jobs {
					b.send(n)
				}
				var done sync.Map
				l, q := b.process(&faultqueue.Options{Seed: seed, Every: faults}, func(ctx context.Context, m *Message[job]) error {
					long := time.Duration(m.Body.N%10) * 10 * time.Second
					select {
					case <-time.After(long + time.Duration(m.Body.N)*time.Millisecond):
						done.Store(m.Body.N, true)
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}, options())
				b.run(l)
				for hours := 0; b.depth(b.queue.Queue) > 0 && hours < 48; hours++ {
					after(time.Hour)
				}
				b.finished()
				q.Wait()
				left, handled := b.depth(b.queue.Queue), 0
				done.Range(func(any, any) bool { handled++; return true })
				if c := b.copies(); len(c) > 0 || left > 0 || handled != jobs {
					t.Errorf("%+v, seed %d: %d jobs handled, %d left, %d poison: %+v", faults, seed, handled, left, len(c), c)
				}
			})
		}
	}
}

// For four minutes no answer to a dequeue arrives: no handler ever saw the jobs, and none
// becomes poison.
func TestLostAnswersToDequeuesPoisonNothing(t *testing.T) {
	bubble(t, func(b *bundle) {
		const jobs = 100
		for n := range jobs {
			b.send(n)
		}
		b.queue.tamper = func(op string, act func() error) error {
			err := act()
			if op == "dequeue" && time.Since(b.begin) < 4*time.Minute {
				return &queue.Error{Op: op, Kind: queue.ErrOutcomeUnknown}
			}
			return err
		}
		o := options()
		o.Visibility = dispatcher.Visibility{First: 10 * time.Second} // 20 deliveries or so
		l := New(b.queue, nothing, o)
		b.run(l)
		after(10 * time.Minute)
		b.finished()
		if st := l.State(); st.Succeeded != jobs || st.Poisoned != 0 || len(b.copies()) != 0 {
			t.Errorf("state %+v", st)
		}
		if n := len(b.queue.sent("update")); n != jobs {
			t.Errorf("%d starts recorded of %d jobs", n, jobs)
		}
	})
}

// Answers to dequeues take longer than the visibility, which brief jobs have lowered: it rises
// until they come in time, stays there while they are slow, and falls again.
func TestSlowDequeuesRaiseTheVisibility(t *testing.T) {
	bubble(t, func(b *bundle) {
		var slow atomic.Bool
		b.queue.tamper = func(op string, act func() error) error {
			err := act()
			if op == "dequeue" && slow.Load() {
				time.Sleep(9200 * time.Millisecond)
			}
			return err
		}
		l := New(b.queue, nothing, options())
		b.run(l)
		batch := func(n int) {
			for i := range n {
				b.send(i)
			}
		}
		batch(300)
		after(time.Minute)
		if v := l.State().Visibility; v != 10*time.Second {
			t.Fatalf("visibility %v after brief jobs", v)
		}
		slow.Store(true)
		batch(500)
		after(5 * time.Minute)
		if st := l.State(); st.Succeeded != 800 || st.Poisoned != 0 || st.Visibility != 20*time.Second {
			t.Errorf("while dequeues are slow: state %+v", st)
		}
		refused := l.State().Lost
		if refused == 0 || refused > 64 {
			t.Errorf("%d came too late until the visibility was up", refused)
		}
		for range 12 { // an hour
			after(5 * time.Minute)
			batch(100)
		}
		after(5 * time.Minute)
		if st := l.State(); st.Succeeded != 2000 || st.Lost != refused || st.Visibility != 20*time.Second {
			t.Errorf("after another hour: state %+v, %d lost before", st, refused)
		}
		slow.Store(false)
		for range 4 {
			after(5 * time.Minute)
			batch(10)
		}
		if st := l.State(); st.Visibility != 10*time.Second {
			t.Errorf("when dequeues are quick again: state %+v", st)
		}
		b.finished()
	})
}

// The first delivery costs no update, nor does one after a recorded failure.
func TestAFirstDeliveryRecordsNoStart(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		runs := 0
		l := New(b.queue, func(context.Context, *Message[job]) error {
			if runs++; runs < 4 {
				return errors.New("no")
			}
			return nil
		}, options())
		b.run(l)
		after(time.Hour)
		b.finished()
		if n := len(b.queue.sent("update")); runs != 4 || n != 3 {
			t.Errorf("%d runs, %d updates, want one for each failure", runs, n)
		}
	})
}

// A start whose record is answered too late, or never, does not count: however often, the job
// is handled when the service answers again.
func TestAStartThatNeverHappenedDoesNotCount(t *testing.T) {
	for name, answer := range map[string]func(act func() error) error{
		"lost":    func(act func() error) error { _ = act(); return &queue.Error{Kind: queue.ErrOutcomeUnknown} },
		"never":   func(func() error) error { return &queue.Error{Kind: queue.ErrOutcomeUnknown} },
		"doubled": func(act func() error) error { _ = act(); return act() },
		"late":    func(act func() error) error { err := act(); time.Sleep(29 * time.Second); return err },
		"busy":    func(func() error) error { return &queue.Error{Kind: queue.ErrThrottled} },
	} {
		bubble(t, func(b *bundle) {
			b.send(1)
			b.die()
			b.queue.tamper = func(op string, act func() error) error {
				if op == "update" && time.Since(b.begin) < time.Hour {
					return answer(act)
				}
				return act()
			}
			var runs atomic.Int64
			l := New(b.queue, func(context.Context, *Message[job]) error { runs.Add(1); return nil }, fixed(30*time.Second))
			b.run(l)
			after(59 * time.Minute)
			if st := l.State(); runs.Load() != 0 || st.Lost < 20 {
				t.Errorf("%s: %d runs while no start could be recorded, state %+v", name, runs.Load(), st)
			}
			after(5 * time.Minute)
			b.finished()
			if st := l.State(); runs.Load() != 1 || st.Succeeded != 1 || len(b.copies()) != 0 {
				t.Errorf("%s: %d runs, state %+v", name, runs.Load(), st)
			}
		})
	}
}

// If that answer takes as long as the lease, the next lease is longer.
func TestAStartThatIsRecordedTooLateRaisesTheVisibility(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		b.die()
		b.queue.tamper = func(op string, act func() error) error {
			err := act()
			if op == "update" {
				time.Sleep(29200 * time.Millisecond)
			}
			return err
		}
		l := New(b.queue, nothing, options())
		b.run(l)
		after(5 * time.Minute)
		b.finished()
		if st := l.State(); st.Lost != 1 || st.Succeeded != 1 || st.Visibility != time.Minute {
			t.Errorf("state %+v", st)
		}
	})
}

// A body is decoded after its start is recorded, because decoding may kill the worker too; an
// undecodable one is then poison, settled with the receipt of the record.
func TestWhatCannotBeDecodedIsPoisonAfterItsStartIsRecorded(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putText("millrace/1?id=7\nno job")
		b.die()
		l := New(b.queue, nothing, options())
		b.run(l)
		after(time.Minute)
		b.finished()
		c := b.copies()
		if st := l.State(); st.Poisoned != 1 || b.depth(b.queue.Queue) != 0 || len(c) != 1 || c[0].Reason != poison.ReasonUndecodable || len(b.queue.sent("update")) != 1 {
			t.Errorf("state %+v, records %+v", st, c)
		}
	})
}

// A process keeps what it knows of a message after a settlement of unknown outcome.
func TestAHandlerThatReturnedIsNotLostThoughItsGiveBackIs(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		b.die()
		var updates atomic.Int64
		b.queue.tamper = func(op string, act func() error) error {
			switch {
			case op == "dequeue" && updates.Load() > 1 && updates.Load() < 4:
				return &queue.Error{Op: op, Kind: queue.ErrThrottled} // somebody else is to have it
			case op != "update":
				return act()
			}
			switch updates.Add(1) {
			case 2: // the give-back after the recorded start
				return &queue.Error{Op: op, Kind: queue.ErrOutcomeUnknown}
			case 3: // and again, when somebody else has had it
				time.Sleep(6 * time.Second)
				b.die()
				defer updates.Add(1)
			}
			return act()
		}
		runs := 0
		o := fixed(5 * time.Second)
		o.Poison.MaxLost = 1
		l := New(b.queue, func(context.Context, *Message[job]) error {
			if runs++; runs == 1 {
				return errors.New("no")
			}
			return nil
		}, o)
		b.run(l)
		after(5 * time.Minute)
		b.finished()
		if st := l.State(); runs != 2 || st.Retried != 1 || st.Succeeded != 1 || len(b.copies()) != 0 {
			t.Errorf("%d runs, state %+v, records %+v", runs, st, b.copies())
		}
	})
}

// A handler that returned has not killed its worker, even if its lease was lost. But a job that
// loses its lease every time does not run for ever.
func TestAHandlerThatReturnedIsNotLostUntilItLosesItsLeaseTooOften(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		b.queue.tamper = func(op string, act func() error) error {
			if op == "delete" {
				return queue.ErrReceiptMismatch
			}
			return act()
		}
		runs := 0
		l := New(b.queue, func(context.Context, *Message[job]) error { runs++; return nil }, options())
		b.run(l)
		after(24 * time.Hour)
		b.finished()
		if c := b.copies(); runs != 1+20+poison.DefaultMaxLost || len(c) == 0 || c[0].Reason != poison.ReasonLost {
			t.Errorf("%d runs, %d records", runs, len(c))
		}
	})
}

// A text without room for a record cannot tell starts from deliveries: deliveries count.
func TestWithoutRoomForARecordDeliveriesCount(t *testing.T) {
	for lost, want := range map[int]int{poison.DefaultMaxLost - 1: 1, poison.DefaultMaxLost: 0} {
		bubble(t, func(b *bundle) {
			text, err := codec.Seal(codec.Head{ID: "full"}, []byte(`{"N":1}`), codec.Envelope)
			if err != nil {
				t.Fatal(err)
			}
			b.putText(text + strings.Repeat(" ", queue.MaxText-len(text)))
			for range lost {
				b.die()
			}
			runs := 0
			l := New(b.queue, func(context.Context, *Message[job]) error { runs++; return nil }, options())
			b.run(l)
			after(time.Minute)
			b.finished()
			if st := l.State(); runs != want || st.Poisoned != int64(1-want) { // the copy is bare
				t.Errorf("%d runs after %d lost deliveries, want %d; state %+v", runs, lost, want, st)
			}
		})
	}
}

// translated is a queue whose messages have a newer envelope when an old worker reads them.
type translated struct{ queue.Queue }

func (q translated) Dequeue(ctx context.Context, n int, v time.Duration) ([]queue.Message, error) {
	batch, err := q.Queue.Dequeue(ctx, n, v)
	for i := range batch {
		batch[i].Text = strings.Replace(batch[i].Text, "millrace/1", "millrace/2", 1)
	}
	return batch, err
}

func (q translated) Update(ctx context.Context, l queue.Lease, text string, v time.Duration) (queue.Lease, error) {
	return q.Queue.Update(ctx, l, strings.Replace(text, "millrace/2", "millrace/1", 1), v)
}

// B-19: messages that old workers gave back, however often, are not lost for a newer one.
func TestWhatOldWorkersLeftAloneIsNotLost(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		old := New[job](translated{b.queue}, func(context.Context, *Message[job]) error { t.Error("it was handled"); return nil }, options())
		b.run(old)
		after(10 * time.Minute)
		b.finished()
		after(time.Minute)
		if n := old.State().Snoozed; n < 10 {
			t.Errorf("the old worker left it alone %d times", n)
		}
		runs := 0
		l := New(b.queue, func(context.Context, *Message[job]) error { runs++; return nil }, options())
		b.run(l)
		after(time.Minute)
		b.finished()
		if st := l.State(); runs != 1 || st.Succeeded != 1 {
			t.Errorf("%d runs, state %+v, records %+v", runs, st, b.copies())
		}
	})
}

// There cannot be more settlements or starts than deliveries: such a head is forged or was
// copied from another message.
func TestAForgedCountDoesNotSwitchMaxLostOff(t *testing.T) {
	for _, forged := range []string{"s=9223372036854775807", "s=1000", "s=9223372036854775807&st=2147483647", "st=100"} {
		bubble(t, func(b *bundle) {
			b.putText("millrace/1?id=7&" + forged + "\n" + `{"N":1}`)
			runs := b.killers(faultqueue.Options{}, 0)
			c := b.copies()
			if runs != 1+poison.DefaultMaxLost || len(c) != 1 || c[0].Reason != poison.ReasonLost {
				t.Errorf("%s: %d runs, records %+v", forged, runs, c)
			}
		})
	}
}

// Saved progress restarts the count; saving the same body is not progress.
func TestSavedProgressStartsTheCountOfLostStartsAnew(t *testing.T) {
	for _, progress := range []bool{true, false} {
		bubble(t, func(b *bundle) {
			b.send(1)
			runs, next := 0, 0
			for range 12 {
				var q *faultqueue.Queue
				started := make(chan struct{}, 1)
				l, q := b.process(nil, func(ctx context.Context, m *Message[job]) error {
					runs++
					if progress {
						next = m.Body.N + 1
					} else {
						next = m.Body.N
					}
					for range 2 { // the second has come no further
						if err := m.Save(ctx, job{next}); err != nil {
							t.Error(err)
						}
					}
					started <- struct{}{}
					<-ctx.Done()
					return nil
				}, options())
				b.run(l)
				select {
				case <-started:
					q.Kill()
				case <-time.After(time.Hour):
				}
				l.Halt()
				b.finished()
			}
			if progress && (runs != 12 || next != 13 || len(b.copies()) != 0) {
				t.Errorf("%d runs, up to %d, with progress; records %+v", runs, next, b.copies())
			}
			if !progress && (runs != 1+poison.DefaultMaxLost || len(b.copies()) != 1) {
				t.Errorf("%d runs without progress, records %+v", runs, b.copies())
			}
		})
	}
}

// A second process counts what the first recorded and lost: it cannot know better.
func TestStartsCountAcrossProcesses(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		b.queue.tamper = func(op string, act func() error) error {
			if op == "delete" {
				return queue.ErrReceiptMismatch
			}
			return act()
		}
		runs := 0
		for range 20 {
			started := make(chan struct{}, 1)
			l := New(b.queue, func(context.Context, *Message[job]) error {
				runs++
				started <- struct{}{}
				return nil
			}, options())
			b.run(l)
			select {
			case <-started:
			case <-time.After(time.Hour):
			}
			b.finished()
		}
		if runs != 1+poison.DefaultMaxLost || len(b.copies()) == 0 {
			t.Errorf("%d runs, records %s", runs, fmt.Sprint(b.copies()))
		}
	})
}
