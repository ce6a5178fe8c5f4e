package paired_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/paired"
)

// diverted messages are spread over all backlog queues.
func TestDivertedMessagesAreSpreadAtRandom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1})
		b.failOver()
		for range 999 {
			b.send("text")
		}
		s := b.queue.State()
		if len(s.Backlogs) != paired.DefaultBacklogs || s.Diverted != 1000 {
			t.Fatalf("got %+v, want 10 backlog queues with 1000 messages", s)
		}
		for i, one := range s.Backlogs { // 100 each, with a standard deviation of 9.5
			if want := fmt.Sprintf("east/orders-backlog-%02d", i); one.Queue.String() != want || one.Accepted < 40 || one.Accepted > 160 {
				t.Errorf("backlog queue %d: got %+v, want %s with about 100 messages", i, one, want)
			}
		}
		backlog, err := b.queue.Backlog(b.ctx)
		if err != nil || backlog.Depth != 1000 || len(backlog.Queues) != 10 {
			t.Errorf("got %+v and %v, want a depth of 1000 in 10 queues", backlog, err)
		}
		if p, err := b.queue.Properties(b.ctx); err != nil || p.Depth != 0 {
			t.Errorf("the primary queue: got %+v and %v, want it empty", p, err)
		}
	})
}

// a backlog queue that fails leaves the rotation for a minute, and its message goes to another.
func TestAFailingBacklogQueueLeavesTheRotation(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		rest time.Duration
	}{
		"unavailable":  {unavailable, time.Minute},
		"unauthorized": {unauthorized, time.Minute},
		"missing":      {&queue.Error{Kind: queue.ErrQueueMissing}, time.Minute},
		"throttled":    {throttled, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := setup(t, paired.Options{FailoverInterval: -1, Backlogs: 2, ProbeInterval: time.Hour})
				b.failOver()
				b.east.called("")
				b.east.fault("orders-backlog-00", fault{err: c.err})
				for range 100 {
					b.sends("text", "east")
				}
				if n := b.east.called("send orders-backlog-00"); n != 1 {
					t.Errorf("sends to the failing queue: got %d, want 1", n)
				}
				failing := b.queue.State().Backlogs[0]
				if failing.Failed != 1 || time.Until(failing.RestsUntil) != c.rest || !errors.Is(failing.LastError, c.err) {
					t.Errorf("got %+v, want a rest of %v", failing, c.rest)
				}
				b.east.fault("orders-backlog-00", fault{})
				time.Sleep(c.rest - 1)
				for range 30 {
					b.sends("text", "east")
				}
				if n := b.east.called("send orders-backlog-00"); n != 0 {
					t.Errorf("sends to the resting queue: got %d, want 0", n)
				}
				time.Sleep(time.Nanosecond)
				for range 30 {
					b.sends("text", "east")
				}
				if n := b.east.called("send orders-backlog-00"); n == 0 {
					t.Error("sends to the queue after its rest: got none")
				}
				if back := b.queue.State().Backlogs[0]; back.LastError != nil || !back.RestsUntil.IsZero() {
					t.Errorf("got %+v, want it in the rotation", back)
				}
			})
		})
	}
}

// with one backlog queue there is no alternative when it fails.
func TestWithOneBacklogQueueThereIsNoAlternative(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1, Backlogs: 1})
		b.failOver()
		b.east.fault("orders-backlog-00", fault{err: unavailable})
		if _, err := b.queue.Enqueue(b.ctx, "text", nil); !errors.Is(err, paired.ErrBothDown) {
			t.Errorf("got %v, want %v", err, paired.ErrBothDown)
		}
		b.east.fault("orders-backlog-00", fault{})
		b.sends("during its rest, for want of another", "east")
	})
}

// Both down is an error that says so, with both causes, and is transient. What this message never met does not
// make its outcome unknown.
func TestBothDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1, Backlogs: 3, ProbeInterval: time.Hour})
		b.west.fault("orders", fault{err: unknown})
		b.sends("fails over", "east")
		b.east.fault("", fault{err: unavailable})
		b.east.called("")
		_, err := b.queue.Enqueue(b.ctx, "text", nil)
		if !errors.Is(err, paired.ErrBothDown) || !errors.Is(err, queue.ErrUnavailable) || !queue.Transient(err) {
			t.Errorf("got %v, want both down, transient", err)
		}
		if errors.Is(err, queue.ErrOutcomeUnknown) {
			t.Errorf("got %v, want a known outcome: that of another message was unknown", err)
		}
		for _, part := range []string{"enqueue on west/orders", "neither", "no response", "east/orders-backlog-0", "(500)", "later"} {
			if !strings.Contains(fmt.Sprint(err), part) {
				t.Errorf("got %v, want %q in it", err, part)
			}
		}
		if n := b.east.called("send"); n != 3 {
			t.Errorf("sends to backlog queues: got %d, want one to each", n)
		}
		b.send("again")
		if n := b.east.called("send"); n != 1 {
			t.Errorf("sends while all rest: got %d, want 1", n)
		}
		s := b.queue.State()
		if s.Refused != 2 || s.Diverted != 1 {
			t.Errorf("got %+v, want 2 refused and 1 diverted", s)
		}

		b.east.fault("", fault{err: unknown, acts: true})
		if _, err = b.queue.Enqueue(b.ctx, "somewhere", nil); !errors.Is(err, queue.ErrOutcomeUnknown) || !errors.Is(err, paired.ErrBothDown) {
			t.Errorf("got %v, want an unknown outcome", err)
		}
		if got := b.texts(b.east); !slices.Contains(got, "somewhere") {
			t.Errorf("got %q, want the message there", got)
		}
	})
}

// A send whose context ends says what it has met, and sends nothing if it had ended before.
func TestAContextEndsASend(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1})
		b.failOver()
		ended, cancel := context.WithCancel(b.ctx)
		cancel()
		b.east.called("")
		_, err := b.queue.Enqueue(ended, "text", nil)
		if !errors.Is(err, context.Canceled) || queue.Transient(err) || b.east.called("") != 0 {
			t.Errorf("got %v, want %v and nothing sent", err, context.Canceled)
		}
		b.east.fault("", fault{takes: time.Minute})
		ctx, cancel := context.WithTimeout(b.ctx, time.Second)
		defer cancel()
		_, err = b.queue.Enqueue(ctx, "text", nil)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, queue.ErrOutcomeUnknown) {
			t.Errorf("got %v, want the deadline and an unknown outcome", err)
		}
		if n := b.east.called("send"); n != 1 {
			t.Errorf("sends to backlog queues: got %d, want 1", n)
		}
	})
}

// After a primary queue without an answer the message may be in both, and says so; after one that surely did
// not take it, it does not.
func TestAMessageThatMayBeInBothSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1, ProbeInterval: time.Hour})
		b.west.fault("orders", fault{err: unknown, acts: true})
		m, err := b.queue.Enqueue(b.ctx, "both", nil)
		if err != nil || !m.MaybeTwice || m.Queue.Account != "east" || m.Text != "both" {
			t.Errorf("got %+v and %v, want it in the backlog, maybe twice", m, err)
		}
		if west, east := b.texts(b.west), b.texts(b.east); !slices.Equal(west, []string{"both"}) || !slices.Equal(east, west) {
			t.Errorf("got %q and %q, want the message in both", west, east)
		}
		if m, err = b.queue.Enqueue(b.ctx, "one", nil); err != nil || m.MaybeTwice {
			t.Errorf("got %+v and %v, want it once", m, err)
		}
		if s := b.queue.State(); s.MaybeTwice != 1 || s.Diverted != 2 {
			t.Errorf("got %+v, want 2 diverted, 1 of them maybe twice", s)
		}
	})
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1, Backlogs: 2})
		b.failOver()
		b.east.fault("orders-backlog-00", fault{err: unknown, acts: true})
		twice := 0
		for range 30 {
			m, err := b.queue.Enqueue(b.ctx, "text", nil)
			b.ok(err)
			if m.MaybeTwice {
				twice++
			}
		}
		if twice != 1 {
			t.Errorf("messages that two backlog queues may have: got %d, want 1", twice)
		}
	})
}

// in a backlog queue a message is visible at once, lives as long as it was to live, and says where it
// belongs and what delay it was to have.
func TestADivertedMessageKeepsItsLifeAndDelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1, Backlogs: 1})
		b.failOver()
		b.ok(b.east.open("orders-backlog-00").Clear(b.ctx))
		sent, err := b.queue.Enqueue(b.ctx, "text", &queue.EnqueueOptions{Delay: time.Minute, TTL: time.Hour, Key: "customer"})
		b.ok(err)
		if sent.Until.Sub(sent.Inserted) != time.Minute || sent.Expires.Sub(sent.Inserted) != time.Hour {
			t.Errorf("got %+v, want a delay of a minute and a life of an hour", sent)
		}
		found, err := b.east.open("orders-backlog-00").Peek(b.ctx, 1)
		if err != nil || len(found) != 1 || found[0].Text != "backlog/2 west/orders 60\ntext" || found[0].Expires.Sub(found[0].Inserted) != time.Hour {
			t.Errorf("got %+v and %v, want it visible with a record and a life of an hour", found, err)
		}
	})
}

// A text that is too large for a record goes to the primary queue alone, whatever its state; one that a producer may
// send always fits.
func TestATextWithoutRoomForARecordGoesToThePrimaryAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1})
		largest := strings.Repeat("x", queue.MaxText)
		b.sends(largest, "west")
		b.failOver()
		b.east.called("")
		_, err := b.queue.Enqueue(b.ctx, largest, nil)
		if !errors.Is(err, paired.ErrBothDown) || !errors.Is(err, queue.ErrTooLarge) || !queue.Transient(err) {
			t.Errorf("got %v, want both down because it is too large for the backlog, transient", err)
		}
		if n := b.east.called(""); n != 0 {
			t.Errorf("requests to the secondary account: got %d, want 0", n)
		}
		b.sends(largest[envelope.Room:], "east")
		b.west.fault("orders", fault{})
		b.sends(largest, "west")
		b.is(paired.Healthy)
	})
}

// Arguments that the service would refuse are refused without a request, also in an outage.
func TestInvalidMessagesAreRefusedInAnOutageToo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1})
		b.failOver()
		b.east.called("")
		b.west.called("")
		for _, c := range []struct {
			text string
			o    queue.EnqueueOptions
			want error
		}{
			{"\x00", queue.EnqueueOptions{}, queue.ErrInvalid},
			{"text", queue.EnqueueOptions{Delay: -1}, queue.ErrInvalid},
			{strings.Repeat("x", queue.MaxText+1), queue.EnqueueOptions{}, queue.ErrTooLarge},
		} {
			if _, err := b.queue.Enqueue(b.ctx, c.text, &c.o); !errors.Is(err, c.want) || queue.Transient(err) {
				t.Errorf("%.10q: got %v, want %v", c.text, err, c.want)
			}
		}
		if n := b.east.called("") + b.west.called(""); n != 0 {
			t.Errorf("requests: got %d, want 0", n)
		}
	})
}

// A message in a backlog queue is found there and deleted with its lease, as a producer does that cancels a job; one
// that somebody has taken is not.
func TestADivertedMessageCanBeDeleted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1})
		where := func(m queue.Message) queue.Queue {
			q, found := b.queue.Lookup(m.Queue)
			if !found || q.Name() != m.Queue {
				t.Fatalf("Lookup(%v): got %v", m.Queue, q)
			}
			return q
		}
		there, err := b.queue.Enqueue(b.ctx, "primary", nil)
		b.ok(err)
		b.ok(where(there).Delete(b.ctx, there.Lease))
		b.sends("stays", "west")
		if q, found := b.queue.Lookup(queue.Name{Account: "east", Queue: "orders"}); found {
			t.Errorf("got %v, want nothing: the secondary queue itself is not used", q)
		}
		b.west.fault("orders", fault{err: unavailable})
		first, err := b.queue.Enqueue(b.ctx, "deleted", nil)
		b.ok(err)
		b.ok(where(first).Delete(b.ctx, first.Lease))
		if got := b.texts(b.east); len(got) != 0 {
			t.Errorf("got %q, want no message in the backlog", got)
		}
		if err = where(first).Delete(b.ctx, first.Lease); !errors.Is(err, queue.ErrLeaseLost) {
			t.Errorf("got %v, want %v", err, queue.ErrLeaseLost)
		}
		second, err := b.queue.Enqueue(b.ctx, "taken", nil)
		b.ok(err)
		if _, err = b.east.open(second.Queue.Queue).Dequeue(b.ctx, 1, time.Minute); err != nil {
			t.Fatal(err)
		}
		if err = where(second).Delete(b.ctx, second.Lease); !errors.Is(err, queue.ErrLeaseLost) {
			t.Errorf("got %v, want %v", err, queue.ErrLeaseLost)
		}
		if got := b.texts(b.west); !slices.Equal(got, []string{"stays"}) {
			t.Errorf("got %q in the primary queue, want what was there", got)
		}
	})
}

// the requests to the secondary account are counted, each of them.
func TestRequestsToTheSecondaryAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1})
		b.failOver()
		b.east.fault("orders-backlog-03", fault{err: unavailable})
		for range 50 {
			b.send("text")
		}
		_, err := b.queue.Backlog(b.ctx)
		b.ok(err)
		if got, want := b.queue.State().SecondaryRequests, int64(b.east.called("")); got != want || want < 80 {
			t.Errorf("got %d requests, want the account's %d", got, want)
		}
	})
}

// A backlog queue whose depth cannot be read is an error, and the others are read all the same.
func TestTheBacklogIsReadAsFarAsItCanBe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1, Backlogs: 3})
		b.failOver()
		for range 59 {
			b.send("text")
		}
		b.east.fault("orders-backlog-01", fault{err: unavailable, all: true})
		backlog, err := b.queue.Backlog(b.ctx)
		if !errors.Is(err, queue.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "1 of 3") {
			t.Errorf("got %v, want that 1 of 3 queues cannot be read", err)
		}
		s := b.queue.State()
		want := s.Backlogs[0].Accepted + s.Backlogs[2].Accepted
		if backlog.Depth != want || !errors.Is(backlog.Queues[1].Err, queue.ErrUnavailable) || backlog.Queues[0].Err != nil {
			t.Errorf("got %+v, want a depth of %d and one error", backlog, want)
		}
	})
}

// a busy secondary account is waited for too, when every backlog queue has said so.
func TestABusyBacklogIsSentToAgainAfterTenSeconds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1, Backlogs: 3, ProbeInterval: time.Hour})
		b.failOver()
		b.east.called("")
		b.east.fault("", fault{err: throttled})
		time.AfterFunc(15*time.Second, func() { b.east.fault("", fault{}) })
		begin := time.Now()
		b.sends("patient", "east")
		if took := time.Since(begin); took < 20*time.Second || took > 30*time.Second {
			t.Errorf("the send took %v, want 20 to 30s", took)
		}
		if n := b.east.called("send"); n != 7 {
			t.Errorf("sends: got %d, want 7", n)
		}
		b.east.fault("", fault{err: throttled})
		ctx, cancel := context.WithTimeout(b.ctx, 15*time.Second)
		defer cancel()
		_, err := b.queue.Enqueue(ctx, "in a hurry", nil)
		if !errors.Is(err, paired.ErrBothDown) || !errors.Is(err, queue.ErrThrottled) || errors.Is(err, queue.ErrOutcomeUnknown) {
			t.Errorf("got %v, want both down", err)
		}
		if s := b.queue.State(); s.Refused != 1 {
			t.Errorf("got %+v, want one refused", s)
		}
	})
}

// A limit of the program is no failure of a queue: nothing fails over and nothing rests, and a probe that it holds
// back costs no message.
func TestALimitIsNoFailureOfAQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1, Backlogs: 3, ProbeInterval: time.Hour})
		limit := fault{err: &queue.Error{Kind: queue.ErrLimited, RetryAfter: time.Minute}}
		b.west.fault("orders", limit)
		if _, err := b.queue.Enqueue(b.ctx, "text", nil); !errors.Is(err, queue.ErrLimited) {
			t.Errorf("got %v, want the limit", err)
		}
		if s := b.queue.State(); s.Status != paired.Healthy || s.LastError != nil {
			t.Errorf("got %+v, want a healthy queue", s)
		}
		b.failOver()
		b.east.fault("", limit)
		if _, err := b.queue.Enqueue(b.ctx, "text", nil); !errors.Is(err, queue.ErrLimited) || !errors.Is(err, paired.ErrBothDown) {
			t.Errorf("got %v, want both down because of a limit", err)
		}
		for _, one := range b.queue.State().Backlogs {
			if one.Failed != 0 || one.LastError != nil || !one.RestsUntil.IsZero() {
				t.Errorf("got %+v, want that it does not rest", one)
			}
		}
		b.east.fault("", fault{})
		b.west.fault("orders", limit)
		time.Sleep(time.Hour)
		b.sends("probe", "east")
		b.is(paired.FailedOver)
	})
}

// What was unknown before a wait stays so, wherever the message goes in the end.
func TestAnUnknownOutcomeOutlivesAWait(t *testing.T) {
	for name, c := range map[string]struct {
		then fault
		want string
	}{"accepted": {fault{}, "west"}, "refused": {fault{err: unauthorized}, ""}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := setup(t, paired.Options{FailoverInterval: -1, Backlogs: 1, ProbeInterval: 3 * time.Second})
				b.west.fault("orders", fault{err: unknown, acts: true})
				b.east.fault("", fault{err: throttled})
				time.AfterFunc(9*time.Second, func() { b.west.fault("orders", c.then) }) // readings succeed
				m, err := b.queue.Enqueue(b.ctx, "text", nil)
				if m.Queue.Account != c.want || m.MaybeTwice != (err == nil) || err != nil && !errors.Is(err, queue.ErrOutcomeUnknown) {
					t.Errorf("got %+v and %v, want it in %q, and that it may be there twice", m, err, c.want)
				}
			})
		})
	}
}

// A context that has ended takes no probe, and is no error of the primary queue.
func TestAContextThatHasEndedDoesNotProbe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1, ProbeInterval: time.Minute})
		b.failOver()
		time.Sleep(time.Minute)
		ended, cancel := context.WithTimeout(b.ctx, -1)
		defer cancel()
		if _, err := b.queue.Enqueue(ended, "late", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
		}
		if s := b.queue.State(); s.Probes != 0 || !errors.Is(s.LastError, unavailable) {
			t.Errorf("got %+v, want no probe", s)
		}
		caused, stop := context.WithCancelCause(b.ctx)
		stop(errors.New("closing time"))
		if _, err := b.queue.Enqueue(caused, "late", nil); !errors.Is(err, context.Canceled) || !strings.Contains(fmt.Sprint(err), "closing time") {
			t.Errorf("got %v, want %v and its cause", err, context.Canceled)
		}
	})
}

// a text that only the primary queue can take waits for it like any other when it is busy.
func TestATextWithoutRoomWaitsForABusyPrimary(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1})
		b.failOver()
		b.west.fault("orders", fault{err: throttled})
		time.AfterFunc(time.Second, func() { b.west.fault("orders", fault{}) })
		begin := time.Now()
		b.sends(strings.Repeat("x", queue.MaxText), "west")
		if took := time.Since(begin); took < 10*time.Second || took > 15*time.Second {
			t.Errorf("the send took %v, want 10 to 15s", took)
		}
	})
}

// A message that a backlog queue refuses is not tried with every other one, and no queue rests because of it.
func TestARefusedMessageRestsNoBacklogQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1})
		b.failOver()
		b.east.called("")
		b.east.fault("", fault{err: &queue.Error{Kind: queue.ErrInvalid, Status: 400}})
		if _, err := b.queue.Enqueue(b.ctx, "text", nil); !errors.Is(err, queue.ErrInvalid) || !errors.Is(err, paired.ErrBothDown) {
			t.Errorf("got %v, want both down because the message is invalid", err)
		}
		if n := b.east.called("send"); n != 1 {
			t.Errorf("sends: got %d, want 1", n)
		}
		for _, one := range b.queue.State().Backlogs {
			if !one.RestsUntil.IsZero() {
				t.Errorf("got %+v, want no rest", one)
			}
		}
	})
}
