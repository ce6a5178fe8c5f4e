package listener

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// head returns the head of the only message of the queue, visible or not, and whether it is
// visible.
func (b *bundle) head() (h envelope.Head, visible bool) {
	b.Helper()
	batch, err := b.queue.Queue.Peek(b.Context(), 2)
	if err != nil {
		b.Fatal(err)
	}
	visible = len(batch) == 1
	for len(batch) == 0 { // until it is visible
		advance(time.Second)
		if batch, err = b.queue.Queue.Peek(b.Context(), 2); err != nil {
			b.Fatal(err)
		}
	}
	h, _, _, err = envelope.Open(batch[0].Text, codec.Auto)
	if err != nil {
		b.Fatal(err)
	}
	return h, visible
}

// A handler that is interrupted at the end of the grace period has not failed, whether it returns
// an error, Retry or Snooze, or any result because its context was cancelled: its message is
// given back at once, and no attempt is recorded. What it decided for other reasons counts.
func TestWhatIsInterruptedAtTheEndOfTheGracePeriodIsNoAttempt(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		result func(ctx context.Context) error
		want   dispatcher.Outcome
	}{
		"error":              {func(context.Context) error { return failed }, dispatcher.Returned},
		"Retry":              {func(context.Context) error { return dispatcher.Retry(time.Hour, failed) }, dispatcher.Returned},
		"Snooze":             {func(context.Context) error { return dispatcher.Snooze(time.Hour) }, dispatcher.Returned},
		"Poison, cancelled":  {func(ctx context.Context) error { return dispatcher.Poison(ctx.Err()) }, dispatcher.Returned},
		"Discard, cancelled": {func(ctx context.Context) error { return dispatcher.Discard(ctx.Err()) }, dispatcher.Returned},
		"Poison":             {func(context.Context) error { return dispatcher.Poison(failed) }, dispatcher.Poisoned},
		"Discard":            {func(context.Context) error { return dispatcher.Discard(failed) }, dispatcher.Discarded},
		"success":            {func(context.Context) error { return nil }, dispatcher.Deleted},
	} {
		bubble(t, func(b *bundle) {
			b.send(1)
			o := options()
			o.Grace = 5 * time.Second
			var got []dispatcher.Outcome
			o.Observer.Settled = func(_ dispatcher.Delivery, outcome dispatcher.Outcome, _ time.Duration) { got = append(got, outcome) }
			l := New(b.queue, func(ctx context.Context, _ *Message[job]) error { <-ctx.Done(); return c.result(ctx) }, o)
			b.run(l)
			advance(time.Second)
			b.mustFinish()
			if len(got) != 1 || got[0] != c.want {
				t.Fatalf("%s: outcomes %v, want %v once", name, got, c.want)
			}
			if c.want != dispatcher.Returned {
				return
			}
			if h, visible := b.head(); h.Attempts != 0 || !visible {
				t.Errorf("%s: %d attempts are recorded, visible at once: %v; want 0 and true", name, h.Attempts, visible)
			}
		})
	}
}

// A handler that succeeded after its lease had expired tries one delete: if that fails nobody
// knows whose the message is.
func TestAnExpiredLeaseIsWorthOneDelete(t *testing.T) {
	for _, kind := range []error{queue.ErrUnavailable, queue.ErrOutcomeUnknown, queue.ErrThrottled} {
		bubble(t, func(b *bundle) {
			b.put(1)
			b.queue.intercept = func(op string, act func() error) error {
				if op == "update" || op == "delete" {
					return &queue.Error{Op: op, Kind: kind}
				}
				return act()
			}
			l := New(b.queue, func(ctx context.Context, _ *Message[job]) error { <-ctx.Done(); return nil }, fixed(30*time.Second))
			b.run(l)
			advance(29*time.Second + 900*time.Millisecond) // it ended by our clock a second before the service's
			if n := len(b.queue.sent("delete")); n != 1 {
				t.Errorf("%v: %d deletes with the expired lease, want 1", kind, n)
			}
			if st := l.State(); st.Outcomes[Unsettled] != 1 || st.Outcomes[Deleted] != 0 {
				t.Errorf("%v: unsettled %d, succeeded %d, want 1 and 0", kind, st.Outcomes[Unsettled], st.Outcomes[Deleted])
			}
			l.Halt()
			b.mustFinish()
		})
	}
}

// A delete is tried until its lease ends. While the service only refuses to delete, the lease is
// renewed with the newest text, and the job is not handled again. Without the permission to delete,
// or a token, there is no renewal to be had either.
func TestADeleteIsTriedUntilItsLeaseEnds(t *testing.T) {
	for name, c := range map[string]struct {
		err      error
		updates  bool          // are refused too
		refused  time.Duration // from the beginning
		wantRuns int
	}{
		"throttled":                    {queue.ErrThrottled, false, 10 * time.Minute, 1},
		"unavailable":                  {queue.ErrUnavailable, false, 10 * time.Minute, 1},
		"limited":                      {&queue.Error{Kind: queue.ErrLimited, Op: "delete"}, false, 10 * time.Minute, 1},
		"everything, within a lease":   {queue.ErrThrottled, true, 22 * time.Second, 1},
		"everything, for longer":       {queue.ErrThrottled, true, 55 * time.Second, 2},
		"unauthorized, within a lease": {queue.ErrUnauthorized, true, 22 * time.Second, 1},
		"unauthorized, for longer":     {queue.ErrUnauthorized, true, 55 * time.Second, 2},
	} {
		bubble(t, func(b *bundle) {
			b.send(1)
			b.queue.intercept = func(op string, act func() error) error {
				if time.Since(b.begin) < c.refused && (op == "delete" || op == "update" && c.updates) {
					return &queue.Error{Op: op, Kind: c.err}
				}
				return act()
			}
			var told errorList
			o := fixed(30 * time.Second)
			o.OnError = told.add
			runs := 0
			l := New(b.queue, func(context.Context, *Message[job]) error { runs++; return nil }, o)
			b.run(l)
			advance(c.refused - time.Second)
			if c.wantRuns == 1 && c.refused > time.Minute {
				if st := l.State(); st.Settling != 1 || len(told.list) != 1 || !errors.Is(told.list[0], c.err) {
					t.Errorf("%s: %d settlements in progress, told %v; want 1, and of the refusal once", name, st.Settling, told.list)
				}
			}
			advance(time.Minute)
			b.mustFinish()
			if st := l.State(); runs != c.wantRuns || st.Outcomes[Deleted] != 1 || st.Outcomes[Unsettled] != int64(c.wantRuns-1) || b.depth(b.queue.Queue) != 0 {
				t.Errorf("%s: %d runs, %d succeeded, %d unsettled, depth %d; want %d, 1, %d, 0",
					name, runs, st.Outcomes[Deleted], st.Outcomes[Unsettled], b.depth(b.queue.Queue), c.wantRuns, c.wantRuns-1)
			}
		})
	}
}

// The renewals while a delete is refused keep what the handler saved.
func TestARefusedDeleteKeepsWhatWasSaved(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		b.queue.intercept = func(op string, act func() error) error {
			if op == "delete" {
				return &queue.Error{Op: op, Kind: queue.ErrThrottled}
			}
			return act()
		}
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error { return m.Save(ctx, job{N: 77}) }, fixed(30*time.Second))
		b.run(l)
		advance(5 * time.Minute)
		l.Halt()
		b.mustFinish()
		advance(30 * time.Second)
		batch, err := b.queue.Queue.Peek(b.Context(), 1)
		if err != nil || len(batch) != 1 || !strings.Contains(batch[0].Text, `{"N":77}`) {
			t.Errorf("%v, %v is left, want the message with the body that was saved", batch, err)
		}
		if n := len(b.queue.sent("update")); n < 15 || n > 22 {
			t.Errorf("%d updates in 5 min, want one save, and a renewal in each half of a lease", n)
		}
	})
}

// While deletes are refused nothing is fetched once a few are waiting, whatever the number of slots.
func TestNothingIsFetchedWhileDeletesAreRefused(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1000)
		b.queue.intercept = func(op string, act func() error) error {
			if op == "delete" && time.Since(b.begin) < 10*time.Minute {
				return &queue.Error{Op: op, Kind: queue.ErrThrottled}
			}
			return act()
		}
		l := New(b.queue, nothing, options())
		b.run(l)
		advance(10 * time.Minute)
		if st := l.State(); st.Received > 128 {
			t.Errorf("%d messages received while no delete succeeds, want at most 128", st.Received)
		}
		advance(time.Minute)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != 1000 || st.Received != 1000 {
			t.Errorf("%d received and %d deleted after that, want 1000 each", st.Received, st.Outcomes[Deleted])
		}
	})
}

// A delete that took most of the lease renews it before it is tried again, which may take as long.
func TestASlowDeleteIsRepeatedWithAFreshLease(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		var deletes atomic.Int32
		b.queue.intercept = func(op string, act func() error) error {
			if op == "delete" {
				n := deletes.Add(1)
				if time.Sleep(20 * time.Second); n == 1 {
					return &queue.Error{Op: op, Kind: queue.ErrOutcomeUnknown}
				}
			}
			return act()
		}
		l := New(b.queue, nothing, fixed(30*time.Second))
		b.run(l)
		advance(2 * time.Minute)
		b.mustFinish()
		if st := l.State(); st.Received != 1 || st.Outcomes[Deleted] != 1 || deletes.Load() != 2 {
			t.Errorf("got %d deliveries, %d jobs done and %d deletes, want 1, 1 and 2", st.Received, st.Outcomes[Deleted], deletes.Load())
		}
	})
}

// A delete without an answer, after refusals, keeps no other message from being fetched for long.
func TestADeleteThatHangsDoesNotStopTheFetches(t *testing.T) {
	bubble(t, func(b *bundle) {
		hang := make(chan struct{})
		var deletes atomic.Int32 // of one message, until it hangs
		b.queue.intercept = func(op string, act func() error) error {
			if op != "delete" {
				return act()
			}
			switch n := deletes.Add(1); {
			case n <= 7: // more than it takes to fetch one message at a time
				return &queue.Error{Op: op, Kind: queue.ErrThrottled}
			case n == 8:
				<-hang
			}
			return act()
		}
		b.put(1)
		l := New(b.queue, nothing, options())
		b.run(l)
		advance(12 * time.Second)
		b.put(1)
		advance(15 * time.Second) // the lease of the first one still lasts
		if st := l.State(); st.Outcomes[Deleted] != 1 || deletes.Load() != 9 {
			t.Errorf("got %d jobs done and %d deletes beside one that hangs, want 1 and 9", st.Outcomes[Deleted], deletes.Load())
		}
		close(hang)
		b.mustFinish()
	})
}

// A message that is gone when its copy is in the poison queue, because it expired meanwhile, was
// moved: it is not lost, and nobody is told of an error of the delete.
func TestAMessageThatIsGoneAfterItsCopyWasMoved(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		b.queue.intercept = func(op string, act func() error) error {
			err := act()
			if op == "enqueue" && err == nil {
				clearQueue(b)
			}
			return err
		}
		var told errorList
		o := options()
		o.OnError = told.add
		l := New(b.queue, func(context.Context, *Message[job]) error { return dispatcher.Poison(errors.New("no stock")) }, o)
		b.run(l)
		advance(time.Minute)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Poisoned] != 1 || st.Outcomes[Lost] != 0 || st.Outcomes[Unsettled] != 0 || st.Late != 0 {
			t.Errorf("poisoned %d, lost %d, unsettled %d, late %d; want 1 and nothing else", st.Outcomes[Poisoned], st.Outcomes[Lost], st.Outcomes[Unsettled], st.Late)
		}
		if n := len(b.poisonRecords()); n != 1 {
			t.Errorf("%d copies, want 1", n)
		}
		delivery := (*dispatcher.DeliveryError)(nil)
		if len(told.list) != 1 || !errors.As(told.list[0], &delivery) || delivery.Outcome != dispatcher.Poisoned || errors.Is(told.list[0], queue.ErrMessageGone) {
			t.Errorf("told %v, want of the poison alone", told.list)
		}
	})
}

func TestAFailureTellsWhenItsMessageComesAgain(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		var told errorList
		o := options()
		o.OnError = told.add
		b.run(New(b.queue, func(context.Context, *Message[job]) error {
			return dispatcher.Retry(7*time.Minute, errors.New("no stock"))
		}, o))
		advance(time.Minute)
		b.mustFinish()
		delivery := (*dispatcher.DeliveryError)(nil)
		if len(told.list) != 1 || !errors.As(told.list[0], &delivery) || delivery.Delay != 7*time.Minute {
			t.Errorf("told %v, want one delivery that comes again after 7m0s", told.list)
		}
	})
}

// A message that cannot be moved to the poison queue says why it is poison and how many attempts
// failed: the last one too, if it failed, and not a rejection, nor a body that nobody read.
func TestPoisonThatStaysRecordsItsFailures(t *testing.T) {
	for name, c := range map[string]struct {
		result error
		text   string
		want   int
		reason poison.Reason
	}{
		"failed":      {errors.New("no stock"), `millrace/1?id=7` + "\n" + `{"N":1}`, 2, poison.ReasonAttempts},
		"rejected":    {dispatcher.Poison(errors.New("no stock")), `millrace/1?id=7` + "\n" + `{"N":1}`, 0, poison.ReasonRejected},
		"undecodable": {nil, `millrace/1?id=7&n=1` + "\n" + `words`, 1, poison.ReasonUndecodable},
	} {
		for _, keep := range []bool{false, true} {
			bubble(t, func(b *bundle) {
				b.putText(c.text)
				b.queue.intercept = func(op string, act func() error) error {
					if op == "enqueue" {
						return &queue.Error{Op: op, Kind: queue.ErrUnauthorized, Status: 403}
					}
					return act()
				}
				o := options()
				o.Poison.MaxAttempts, o.Poison.Keep = 2, keep
				o.RetryDelay = func(int, error) time.Duration { return time.Second }
				l := New(b.queue, func(context.Context, *Message[job]) error { return c.result }, o)
				b.run(l)
				advance(5 * time.Second)
				b.mustFinish()
				if h, _ := b.head(); h.Attempts != c.want || h.Poison != string(c.reason) {
					t.Errorf("%s, kept %v: the head says %d attempts and poison %q, want %d and %q", name, keep, h.Attempts, h.Poison, c.want, c.reason)
				}
			})
		}
	}
}

// A snooze for which the message's life is too short is poison and no failed attempt.
func TestASnoozeBeyondTheMessagesLifeIsNoFailure(t *testing.T) {
	for name, c := range map[string]struct {
		result error
		want   int
	}{
		"snoozed": {dispatcher.Snooze(time.Hour), 0},
		"failed":  {errors.New("no stock"), 1},
	} {
		bubble(t, func(b *bundle) {
			b.sendWithTTL(time.Minute)
			b.queue.intercept = func(op string, act func() error) error {
				if op == "enqueue" {
					return &queue.Error{Op: op, Kind: queue.ErrUnauthorized, Status: 403}
				}
				return act()
			}
			o := fixed(30 * time.Second)
			o.Timeout = 40 * time.Second
			l := New(b.queue, func(ctx context.Context, _ *Message[job]) error { <-ctx.Done(); return c.result }, o)
			b.run(l)
			advance(41 * time.Second)
			l.Halt()
			b.mustFinish()
			if h, _ := b.head(); h.Attempts != c.want || h.Poison != string(poison.ReasonExpiring) {
				t.Errorf("%s: the head says %d attempts and poison %q, want %d and %q", name, h.Attempts, h.Poison, c.want, poison.ReasonExpiring)
			}
		})
	}
}

// P-05: every copy in the poison queue stays for ever, also of a message that expires, in a queue
// that had to be created, after tries that failed, after another lease, and of the bare text.
func TestNoCopyExpires(t *testing.T) {
	rejects := func(context.Context, *Message[job]) error { return dispatcher.Poison(errors.New("no stock")) }
	for name, c := range map[string]struct {
		fails   time.Duration // how long enqueues fail after they took effect
		slow    time.Duration // how long each takes
		set     func(*Options[job])
		handler Handler[job]
		updates bool // whether its message is updated on the way
	}{
		"rejected":                 {handler: rejects},
		"copied several times":     {fails: 3 * time.Second, handler: rejects},
		"copied with a new lease":  {slow: 9 * time.Second, updates: true, handler: rejects, set: func(o *Options[job]) { o.Lease.Visibility.First = 10 * time.Second }},
		"copied after a give-back": {fails: time.Minute, updates: true, handler: rejects},
		"bare":                     {handler: rejects, set: func(o *Options[job]) { o.Poison.Bare = true }},
		"expiring": {handler: func(ctx context.Context, _ *Message[job]) error {
			<-ctx.Done()
			return ctx.Err()
		}},
	} {
		bubble(t, func(b *bundle) {
			b.sendWithTTL(10 * time.Minute)
			b.queue.intercept = func(op string, act func() error) error {
				if op != "enqueue" {
					return act()
				}
				time.Sleep(c.slow)
				if err := act(); err != nil || time.Since(b.begin) >= c.fails {
					return err
				}
				return &queue.Error{Op: op, Kind: queue.ErrOutcomeUnknown}
			}
			o := options()
			if c.set != nil {
				c.set(o)
			}
			b.run(New(b.queue, c.handler, o))
			advance(11 * time.Minute)
			b.mustFinish()
			copies := b.poisoned()
			if updates := len(b.queue.sent("update")); len(copies) == 0 || c.updates && updates == 0 {
				t.Errorf("%s: %d copies, %d updates; want some copies, and updates: %v", name, len(copies), updates, c.updates)
			}
			for i, m := range copies {
				if m.Expires.Year() != 9999 {
					t.Errorf("%s: copy %d of %d expires at %v, want never", name, i+1, len(copies), m.Expires)
				}
			}
		})
	}
}
