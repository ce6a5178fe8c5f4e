package listener

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
)

// newProcess returns the listener and the queue of a worker process. Killing the queue kills the
// process: its requests then fail.
func (b *bundle) newProcess(o *faultqueue.Options, h Handler[job], lo *Options[job]) (*Listener[job], *faultqueue.Queue) {
	q := must(faultqueue.New(b.queue, o))
	return New(q, h, lo), q
}

// runKilledProcesses runs the jobs in a series of processes until no handler starts any more, and
// returns how many started. Each process is killed once its first handler has run for the given
// time.
func (b *bundle) runKilledProcesses(o faultqueue.Options, ran time.Duration) (runs int) {
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
		l, q = b.newProcess(&o, handler, options())
		b.run(l)
		select {
		case <-started:
			runs++
			advance(ran)
			q.Kill()
		case <-time.After(3 * time.Hour):
			quiet = true
		}
		l.Halt()
		b.mustFinish()
		q.Wait()
	}
	return runs
}

// poisonRecords returns the records in the poison queue.
func (b *bundle) poisonRecords() (records []poison.Record) {
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
func TestAJobThatKillsItsWorkerIsPoison(t *testing.T) {
	for _, ran := range []time.Duration{0, time.Minute} { // a minute is renewed
		bubble(t, func(b *bundle) {
			b.send(1)
			runs := b.runKilledProcesses(faultqueue.Options{}, ran)
			c := b.poisonRecords()
			if runs != 1+poisonrecord.DefaultMaxLost || len(c) != 1 || c[0].Reason != poison.ReasonLost || b.depth(b.queue.Queue) != 0 {
				t.Errorf("after %v: got %d runs, records %+v; want runs %v, records 1, Reason ReasonLost, depth 0", ran, runs, c, 1+poisonrecord.DefaultMaxLost)
			}
		})
	}
}

// Invariant 5 holds behind a network that loses a third of all requests and responses.
func TestAJobThatKillsItsWorkerIsPoisonBehindABadNetwork(t *testing.T) {
	seeds := uint64(10)
	switch {
	case testing.Short():
		seeds = 1
	case underRace():
		seeds = 3
	}
	for seed := range seeds {
		bubble(t, func(b *bundle) {
			b.send(1)
			runs := b.runKilledProcesses(faultqueue.Options{Seed: seed * 1000, Every: badNetwork}, 0)
			c := b.poisonRecords()
			if runs < 2 || runs > 1+poisonrecord.DefaultMaxLost || len(c) == 0 || c[0].Reason != poison.ReasonLost {
				t.Errorf("seed %d: got %d runs, records %+v; want runs at least 2, runs at most %v, records above 0, Reason ReasonLost", seed, runs, c, 1+poisonrecord.DefaultMaxLost)
			}
		})
	}
}

// badNetwork fails a third of all requests, half of them after the service has acted.
var badNetwork = faultqueue.Rates{LostRequest: 0.1, LostResponse: 0.15, Throttled: 0.03, Unavailable: 0.02}

var badNetworks = flag.Int("bad-networks", 8, "seeds of each kind of bad network behind which TestABadNetworkMakesNoHealthyJobPoison has jobs; at most 3 with the race detector, and 1 with -short")

// Behind a bad network no healthy job becomes poison, whether it is short or takes longer than
// its lease.
func TestABadNetworkMakesNoHealthyJobPoison(t *testing.T) {
	seeds := uint64(*badNetworks)
	switch {
	case testing.Short():
		seeds = 1
	case underRace():
		seeds = min(seeds, 3)
	}
	networks := []faultqueue.Rates{badNetwork, {LostResponse: 0.3}, {LostRequest: 0.3}, {Duplicate: 0.15, Late: 0.15}}
	if testing.Short() {
		networks = networks[:1]
	}
	for _, faults := range networks {
		for seed := range seeds {
			bubble(t, func(b *bundle) {
				const jobs = 60
				for n := range jobs {
					b.send(n)
				}
				var done sync.Map
				l, q := b.newProcess(&faultqueue.Options{Seed: seed, Every: faults}, func(ctx context.Context, m *Message[job]) error {
					long := time.Duration(m.Body.N%10) * 10 * time.Second
					if err := sleep(ctx, long+time.Duration(m.Body.N)*time.Millisecond); err != nil {
						return err
					}
					done.Store(m.Body.N, true)
					return nil
				}, options())
				b.run(l)
				for hours := 0; b.depth(b.queue.Queue) > 0 && hours < 48; hours++ {
					advance(time.Hour)
				}
				b.mustFinish()
				q.Wait()
				left, handled := b.depth(b.queue.Queue), 0
				done.Range(func(any, any) bool { handled++; return true })
				if c := b.poisonRecords(); len(c) > 0 || left > 0 || handled != jobs {
					t.Errorf("%+v, seed %d: got %d jobs handled, %d left, poison records %+v; want %d handled and nothing else",
						faults, seed, handled, left, c, jobs)
				}
			})
		}
	}
}

// For four minutes no response to a dequeue arrives. No handler saw the jobs, and none becomes
// poison.
func TestLostResponsesToDequeuesMakeNothingPoison(t *testing.T) {
	bubble(t, func(b *bundle) {
		const jobs = 100
		for n := range jobs {
			b.send(n)
		}
		b.queue.intercept = func(op string, act func() error) error {
			err := act()
			if op == "dequeue" && time.Since(b.begin) < 4*time.Minute {
				return &queue.Error{Op: op, Kind: queue.ErrOutcomeUnknown}
			}
			return err
		}
		o := options()
		o.Lease.Visibility = dispatcher.Visibility{First: 10 * time.Second} // for about 20 deliveries
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(10 * time.Minute)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != jobs || st.Outcomes[Poisoned] != 0 || len(b.poisonRecords()) != 0 {
			t.Errorf("got state %+v; want Succeeded %v, Poisoned 0, poison records 0", st, jobs)
		}
		if n := len(b.queue.sent("update")); n != jobs {
			t.Errorf("got %d starts recorded, want %d", n, jobs)
		}
	})
}

// Responses to dequeues take longer than the visibility, which short jobs have lowered. The
// visibility rises until they come in time, stays while they are slow, and falls again.
func TestSlowDequeuesRaiseTheVisibility(t *testing.T) {
	bubble(t, func(b *bundle) {
		var slow atomic.Bool
		b.queue.intercept = func(op string, act func() error) error {
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
		advance(time.Minute)
		if v := l.State().Visibility; v != 10*time.Second {
			t.Fatalf("got visibility %v after short jobs; want %v", v, 10*time.Second)
		}
		slow.Store(true)
		batch(500)
		advance(5 * time.Minute)
		if st := l.State(); st.Outcomes[Deleted] != 800 || st.Outcomes[Poisoned] != 0 || st.Visibility != 20*time.Second {
			t.Errorf("while dequeues are slow: got state %+v; want Succeeded 800, Poisoned 0, Visibility %v", st, 20*time.Second)
		}
		tooLate := l.State().Outcomes[Lost]
		if tooLate == 0 || tooLate > 64 {
			t.Errorf("got %d responses too late before the visibility had risen, want between 1 and 64", tooLate)
		}
		for range 12 { // an hour
			advance(5 * time.Minute)
			batch(100)
		}
		advance(5 * time.Minute)
		if st := l.State(); st.Outcomes[Deleted] != 2000 || st.Outcomes[Lost] != tooLate || st.Visibility != 20*time.Second {
			t.Errorf("after another hour: got state %+v; want Succeeded 2000, Lost %d, Visibility %v", st, tooLate, 20*time.Second)
		}
		slow.Store(false)
		for range 4 {
			advance(5 * time.Minute)
			batch(10)
		}
		if st := l.State(); st.Visibility != 10*time.Second {
			t.Errorf("when dequeues are quick again: got state %+v; want Visibility %v", st, 10*time.Second)
		}
		b.mustFinish()
	})
}

// Neither the first delivery nor one after a recorded failure costs an update.
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
		advance(time.Hour)
		b.mustFinish()
		if n := len(b.queue.sent("update")); runs != 4 || n != 3 {
			t.Errorf("got %d runs and %d updates, want 4 and 3, one for each failure", runs, n)
		}
	})
}

// A start whose record gets its response too late, or never, does not count. However often that
// happens, the job is handled when the service responds again.
func TestAStartThatNeverHappenedDoesNotCount(t *testing.T) {
	for name, respond := range map[string]func(act func() error) error{
		"lost":    func(act func() error) error { _ = act(); return &queue.Error{Kind: queue.ErrOutcomeUnknown} },
		"never":   func(func() error) error { return &queue.Error{Kind: queue.ErrOutcomeUnknown} },
		"doubled": func(act func() error) error { _ = act(); return act() },
		"late":    func(act func() error) error { err := act(); time.Sleep(29 * time.Second); return err },
		"busy":    func(func() error) error { return &queue.Error{Kind: queue.ErrThrottled} },
	} {
		bubble(t, func(b *bundle) {
			b.send(1)
			b.loseDelivery()
			b.queue.intercept = func(op string, act func() error) error {
				if op == "update" && time.Since(b.begin) < time.Hour {
					return respond(act)
				}
				return act()
			}
			var runs atomic.Int64
			l := New(b.queue, func(context.Context, *Message[job]) error { runs.Add(1); return nil }, fixed(30*time.Second))
			b.run(l)
			advance(59 * time.Minute)
			if st := l.State(); runs.Load() != 0 || st.Outcomes[Lost] < 20 {
				t.Errorf("%s: got %d runs while no start could be recorded, state %+v; want runs 0, Lost at least 20", name, runs.Load(), st)
			}
			advance(5 * time.Minute)
			b.mustFinish()
			if st := l.State(); runs.Load() != 1 || st.Outcomes[Deleted] != 1 || len(b.poisonRecords()) != 0 {
				t.Errorf("%s: got %d runs, state %+v; want runs 1, Succeeded 1, poison records 0", name, runs.Load(), st)
			}
		})
	}
}

// If the response to the record of a start takes as long as the lease, the next lease is longer.
func TestAStartThatIsRecordedTooLateRaisesTheVisibility(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		b.loseDelivery()
		b.queue.intercept = func(op string, act func() error) error {
			err := act()
			if op == "update" {
				time.Sleep(29200 * time.Millisecond)
			}
			return err
		}
		l := New(b.queue, nothing, options())
		b.run(l)
		advance(5 * time.Minute)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Lost] != 1 || st.Outcomes[Deleted] != 1 || st.Visibility != time.Minute {
			t.Errorf("got state %+v; want Lost 1, Succeeded 1, Visibility %v", st, time.Minute)
		}
	})
}

// A body is decoded after its start is recorded, because decoding can kill the worker too. If it
// is undecodable, it is then poison and settled with the receipt of the record.
func TestABodyIsDecodedAfterItsStartIsRecorded(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putText("millrace/1?id=7\nno job")
		b.loseDelivery()
		l := New(b.queue, nothing, options())
		b.run(l)
		advance(time.Minute)
		b.mustFinish()
		records := b.poisonRecords()
		if len(records) != 1 || records[0].Reason != poison.ReasonUndecodable {
			t.Errorf("got records %+v, want one with the reason undecodable", records)
		}
		updates := len(b.queue.sent("update"))
		if st := l.State(); st.Outcomes[Poisoned] != 1 || b.depth(b.queue.Queue) != 0 || updates != 1 {
			t.Errorf("got state %+v and %d updates; want Poisoned 1, depth 0, 1 update", st, updates)
		}
	})
}

// A process remembers that a handler returned even if the outcome of its settlement is unknown.
func TestAHandlerThatReturnedIsNotLostWithItsGiveBack(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		b.loseDelivery()
		var updates atomic.Int64
		b.queue.intercept = func(op string, act func() error) error {
			switch {
			case op == "dequeue" && updates.Load() > 1 && updates.Load() < 4:
				return &queue.Error{Op: op, Kind: queue.ErrThrottled} // another client takes the message
			case op != "update":
				return act()
			}
			switch updates.Add(1) {
			case 2: // the give-back after the recorded start
				return &queue.Error{Op: op, Kind: queue.ErrOutcomeUnknown}
			case 3: // the retry, after another client has had the message
				time.Sleep(6 * time.Second)
				b.loseDelivery()
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
		advance(5 * time.Minute)
		b.mustFinish()
		if st := l.State(); runs != 2 || st.Outcomes[Retried] != 1 || st.Outcomes[Deleted] != 1 || len(b.poisonRecords()) != 0 {
			t.Errorf("got %d runs, state %+v, records %+v; want runs 2, Retried 1, Succeeded 1, poison records 0", runs, st, b.poisonRecords())
		}
	})
}

// A handler that returned has not killed its worker, even if its lease was lost. But a job that
// loses its lease every time does not run for ever.
func TestAJobThatLosesItsLeaseTooOftenIsPoison(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates hours of lost leases")
	}
	bubble(t, func(b *bundle) {
		b.send(1)
		b.queue.intercept = func(op string, act func() error) error {
			if op == "delete" {
				return queue.ErrReceiptMismatch
			}
			return act()
		}
		runs := 0
		l := New(b.queue, func(context.Context, *Message[job]) error { runs++; return nil }, options())
		b.run(l)
		advance(24 * time.Hour)
		b.mustFinish()
		if c := b.poisonRecords(); runs != 1+20+poisonrecord.DefaultMaxLost || len(c) == 0 || c[0].Reason != poison.ReasonOutlived {
			t.Errorf("got %d runs, %d records; want runs %v, records above 0, Reason ReasonOutlived", runs, len(c), 1+20+poisonrecord.DefaultMaxLost)
		}
	})
}

// A text without room for a record cannot tell starts from deliveries: deliveries count.
func TestWithoutRoomForARecordDeliveriesCount(t *testing.T) {
	for lost, want := range map[int]int{poisonrecord.DefaultMaxLost - 1: 1, poisonrecord.DefaultMaxLost: 0} {
		bubble(t, func(b *bundle) {
			text, err := envelope.Seal(envelope.Head{ID: "full"}, []byte(`{"N":1}`), codec.Envelope)
			if err != nil {
				t.Fatal(err)
			}
			b.putText(text + strings.Repeat(" ", queue.MaxText-len(text)))
			for range lost {
				b.loseDelivery()
			}
			runs := 0
			l := New(b.queue, func(context.Context, *Message[job]) error { runs++; return nil }, options())
			b.run(l)
			advance(time.Minute)
			b.mustFinish()
			if st := l.State(); runs != want || st.Outcomes[Poisoned] != int64(1-want) { // the copy is bare
				t.Errorf("%d runs after %d lost deliveries, want %d; state %+v", runs, lost, want, st)
			}
		})
	}
}

// newerEnvelopes is a queue whose messages have a newer envelope when an old worker reads them.
type newerEnvelopes struct{ queue.Queue }

func (q newerEnvelopes) Dequeue(ctx context.Context, n int, v time.Duration) ([]queue.Message, error) {
	batch, err := q.Queue.Dequeue(ctx, n, v)
	for i := range batch {
		batch[i].Text = strings.Replace(batch[i].Text, "millrace/1", "millrace/2", 1)
	}
	return batch, err
}

func (q newerEnvelopes) Update(ctx context.Context, l queue.Lease, text string, v time.Duration) (queue.Lease, error) {
	return q.Queue.Update(ctx, l, strings.Replace(text, "millrace/2", "millrace/1", 1), v)
}

// forbidden is a queue that has a text which no queue accepts.
type forbidden struct{ queue.Queue }

func (q forbidden) Dequeue(ctx context.Context, n int, v time.Duration) ([]queue.Message, error) {
	batch, err := q.Queue.Dequeue(ctx, n, v)
	for i := range batch {
		batch[i].Text = strings.Replace(batch[i].Text, "forbidden", "\x01", 1)
	}
	return batch, err
}

// A message whose text XML forbids cannot be given back with it. It is poison after its attempts, with its text.
func TestAForbiddenTextIsPoisonAfterItsAttempts(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putText("forbidden")
		runs := 0
		o := fixed(10 * time.Second)
		l := New(forbidden{b.queue}, func(context.Context, *Message[string]) error { runs++; return errors.New("broken") }, &Options[string]{
			Codec: codec.Text(), Lease: LeaseOptions{Visibility: o.Lease.Visibility}, Logger: o.Logger,
		})
		b.run(l)
		advance(time.Hour)
		b.mustFinish()
		records := b.poisonRecords()
		if runs != 5 || len(records) != 1 || records[0].Text != "\x01" || records[0].Reason != poison.ReasonAttempts {
			b.Errorf("got %d runs and the records %+v, want 5 and one with the text", runs, records)
		}
	})
}

// B-19: messages that old workers gave back, however often, are handled by a newer one.
func TestGiveBacksOfOldWorkersAreNotLostStarts(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		old := New[job](newerEnvelopes{b.queue}, func(context.Context, *Message[job]) error { t.Error("the message was handled"); return nil }, options())
		b.run(old)
		advance(10 * time.Minute)
		b.mustFinish()
		advance(10 * time.Minute)
		if n := old.State().Outcomes[Snoozed]; n < 40 {
			t.Errorf("give-backs of the old worker: got %d, want at least 40", n)
		}
		runs := 0
		l := New(b.queue, func(context.Context, *Message[job]) error { runs++; return nil }, options())
		b.run(l)
		advance(time.Minute)
		b.mustFinish()
		if st := l.State(); runs != 1 || st.Outcomes[Deleted] != 1 {
			t.Errorf("got %d runs, state %+v, records %+v; want runs 1, Succeeded 1", runs, st, b.poisonRecords())
		}
	})
}

// A head with more settlements or starts than deliveries is forged or was copied from another
// message.
func TestAForgedCountDoesNotDisableMaxLost(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many worlds")
	}
	for _, forged := range []string{"s=9223372036854775807", "s=1000", "s=9223372036854775807&st=2147483647", "st=100"} {
		bubble(t, func(b *bundle) {
			b.putText("millrace/1?id=7&" + forged + "\n" + `{"N":1}`)
			runs := b.runKilledProcesses(faultqueue.Options{}, 0)
			c := b.poisonRecords()
			if runs != 1+poisonrecord.DefaultMaxLost || len(c) != 1 || c[0].Reason != poison.ReasonLost {
				t.Errorf("%s: got %d runs, records %+v; want runs %v, records 1, Reason ReasonLost", forged, runs, c, 1+poisonrecord.DefaultMaxLost)
			}
		})
	}
}

// Saved progress restarts the count; saving the same body is not progress.
func TestSavedProgressResetsTheCountOfLostStarts(t *testing.T) {
	for _, progress := range []bool{true, false} {
		bubble(t, func(b *bundle) {
			b.send(1)
			runs, next := 0, 0
			for range 12 {
				var q *faultqueue.Queue
				started := make(chan struct{}, 1)
				l, q := b.newProcess(nil, func(ctx context.Context, m *Message[job]) error {
					runs++
					if progress {
						next = m.Body.N + 1
					} else {
						next = m.Body.N
					}
					for range 2 { // the second saves the same body
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
				b.mustFinish()
			}
			if progress && (runs != 12 || next != 13 || len(b.poisonRecords()) != 0) {
				t.Errorf("with progress: got %d runs up to %d, records %+v; want 12 up to 13 and none", runs, next, b.poisonRecords())
			}
			if !progress && (runs != 1+poisonrecord.DefaultMaxLost || len(b.poisonRecords()) != 1) {
				t.Errorf("without progress: got %d runs, records %+v; want %d and one", runs, b.poisonRecords(), 1+poisonrecord.DefaultMaxLost)
			}
		})
	}
}

// A second process counts the starts that the first recorded and lost, because it cannot know
// that their handlers returned.
func TestStartsCountAcrossProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many worlds")
	}
	bubble(t, func(b *bundle) {
		b.send(1)
		b.queue.intercept = func(op string, act func() error) error {
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
			b.mustFinish()
		}
		if runs != 1+poisonrecord.DefaultMaxLost || len(b.poisonRecords()) == 0 {
			t.Errorf("got %d runs, records %s; want runs %v, poison records above 0", runs, fmt.Sprint(b.poisonRecords()), 1+poisonrecord.DefaultMaxLost)
		}
	})
}

// A group whose start is recorded when the worker stops, and of which no item was handled, accounts
// for its own delivery only: the deliveries before it may still have killed their workers.
func TestAGroupThatIsNotHandledLeavesEarlierDeliveriesUnaccounted(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putGroup(3)
		b.loseDelivery()
		b.queue.intercept = func(op string, act func() error) error {
			if op == "update" { // the record of the start
				time.Sleep(3 * time.Second)
			}
			return act()
		}
		o := options()
		o.Grace = -1
		b.run(New(b.queue, func(context.Context, *Message[job]) error { t.Error("an item was handled"); return nil }, o))
		advance(time.Second)
		b.mustFinish()
		batch, err := b.queue.Queue.Peek(b.Context(), 1)
		if err != nil || len(batch) != 1 {
			t.Fatalf("got %d messages, %v; want 1, no error", len(batch), err)
		}
		head, _, _, err := envelope.Open(batch[0].Text, codec.Auto, envelope.Groups)
		if err != nil || head.Settled != 1 || head.Starts != 0 || batch[0].DequeueCount != 2 {
			t.Errorf("after 2 deliveries, the first of them lost: got %+v, %v; want 1 accounted for", head, err)
		}
	})
}
