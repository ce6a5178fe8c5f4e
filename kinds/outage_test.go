package kinds_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// failsFor returns a handler that records what it sees and fails until the outage is over.
func failsFor[T any](b *bundle, outage time.Duration) listener.Handler[T] {
	begin := time.Now()
	fails, succeeds := handler[T](b, errFails), handler[T](b, nil)
	return func(ctx context.Context, m *listener.Message[T]) error {
		if time.Since(begin) < outage {
			return fails(ctx, m)
		}
		return succeeds(ctx, m)
	}
}

// runs returns how often handlers of the kind ran.
func (b *bundle) runs(kind string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.handled[kind])
}

// trickle sends an order every ten seconds, so that something works.
func (b *bundle) trickle() {
	for i := range 120 {
		time.AfterFunc(time.Duration(i)*10*time.Second, func() { send(b, orders, order{-1}) })
	}
}

// sendMany sends n jobs of the kind of emails.
func (b *bundle) sendMany(n int) {
	for i := range n {
		send(b, emails, email{fmt.Sprint(i)})
	}
}

// A thousand jobs whose kind fails hold back no job of another kind. If nothing else is there to do,
// none of them becomes poison, and all are handled when the outage is over.
func TestABrokenKindDoesNotStopTheOthers(t *testing.T) {
	bubble(t, func(b *bundle) {
		const n, outage = 1000, 20 * time.Minute
		b.sendMany(n)
		send(b, orders, order{1})
		begin, waited := time.Now(), time.Duration(-1)
		bill := func(context.Context, *listener.Message[order]) error {
			waited = time.Since(begin)
			return nil
		}
		state := b.run(outage, b.kindsOf(emails.Handle(handler[email](b, errFails), nil), orders.Handle(bill, nil)))
		// Three attempts in the first minute, and then two in each round, with pauses of up to 15 s.
		if runs := b.runs("email"); waited < 0 || waited > 10*time.Second || runs < 3*n || runs > 3*n+200 || state.Outcomes[listener.Poisoned] != 0 {
			b.Errorf("the other job waited for %v; %d runs of the broken kind; %+v", waited, runs, state)
		}
		state = b.run(outage, b.kindsOf(emails.Handle(handler[email](b, nil), nil), orders.Handle(bill, nil)))
		if state.Outcomes[listener.Deleted] != n || state.Outcomes[listener.Poisoned] != 0 || b.depth() != 0 {
			b.Errorf("after the outage: %+v, %d left", state, b.depth())
		}
	})
}

// A kind that fails beside one that works becomes poison, and what waits says why.
func TestAKindThatFailsBesideAnotherBecomesPoison(t *testing.T) {
	bubble(t, func(b *bundle) {
		const n = 300
		for i := range n {
			send(b, emails, email{fmt.Sprint(i)})
			send(b, orders, order{i})
		}
		b.trickle()
		fails := handler[email](b, errFails)
		slowly := func(ctx context.Context, m *listener.Message[email]) error {
			time.Sleep(100 * time.Millisecond)
			return fails(ctx, m)
		}
		state := b.run(12*time.Minute, b.kindsOf(emails.Handle(slowly, nil), orders.Handle(handler[order](b, nil), nil)))
		if runs := b.runs("email"); b.runs("order") < n || runs != 5*n || state.Outcomes[listener.Poisoned] != n {
			b.Errorf("%d and %d runs: %+v", runs, b.runs("order"), state)
		}
		held := 0
		for _, err := range b.reported {
			var failed *listener.DeliveryError
			if !errors.Is(err, listener.ErrOutage) {
				continue
			}
			held++
			if !errors.As(err, &failed) || failed.Outcome != listener.Snoozed || failed.Kind != "email" || errors.Is(err, errFails) ||
				!strings.Contains(err.Error(), "; the last error: no") || failed.Delay > 10*time.Minute {
				b.Fatalf("reported %v", err)
			}
		}
		if int64(held) != state.Outcomes[listener.Snoozed] || held < n {
			b.Errorf("reported %d of %d", held, state.Outcomes[listener.Snoozed])
		}
	})
}

// When all kinds fail the listener polls in rounds, and the first success of any kind resumes the work.
func TestAnOutageOfAllKindsPausesTheListener(t *testing.T) {
	bubble(t, func(b *bundle) {
		const n, outage = 300, time.Hour
		for i := range n {
			send(b, emails, email{fmt.Sprint(i)})
			send(b, orders, order{i})
		}
		ks := []listener.Kind{emails.Handle(failsFor[email](b, outage), nil), orders.Handle(failsFor[order](b, outage), nil)}
		l := b.kindsOf(ks...)
		var during listener.State
		time.AfterFunc(outage-time.Minute, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			during = l.State()
		})
		state := b.run(2*outage, l)
		b.mu.Lock()
		defer b.mu.Unlock()
		// About four rounds a minute, and each gives up to 32 messages back.
		if during.Requests < 5000 || during.Requests > 3*2*n+60*5*34 || during.Outcomes[listener.Poisoned] != 0 {
			b.Errorf("sent %d requests in the outage, want three for each of %d messages and 33 for each round: %+v", during.Requests, 2*n, during)
		}
		if state.Outcomes[listener.Deleted] != 2*n || state.Outcomes[listener.Poisoned] != 0 {
			b.Errorf("after the outage: %+v", state)
		}
	})
}

// An outage of the only kind is one of everything.
func TestAnOutageOfTheOnlyKindIsOneOfEverything(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.sendMany(500)
		b.options.Poison.MaxAttempts = 50
		state := b.run(20*time.Minute, b.kindsOf(emails.Handle(handler[email](b, errFails), nil)))
		if runs := b.runs("email"); runs < 3*500+60 || runs > 3*500+200 || state.Outcomes[listener.Poisoned] != 0 {
			b.Errorf("%d runs: %+v", runs, state)
		}
	})
}

// A short outage costs a kind no more than the delays of its retries.
func TestAShortOutageOfAKindEndsSoon(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.sendMany(300)
		send(b, orders, order{1})
		state := b.run(30*time.Second, b.kindsOf(emails.Handle(failsFor[email](b, 2500*time.Millisecond), nil), orders.Handle(handler[order](b, nil), nil)))
		if state.Outcomes[listener.Deleted] != 301 || state.Outcomes[listener.Poisoned] != 0 {
			b.Errorf("thirty seconds after the beginning of an outage of 2.5 s: %+v", state)
		}
	})
}

// A handler that hangs does not keep its kind from recovering.
func TestAKindRecoversWhateverItsProbesDo(t *testing.T) {
	bubble(t, func(b *bundle) {
		const n, outage = 200, 3 * time.Second
		begin := time.Now()
		var hung atomic.Bool
		b.sendMany(n)
		send(b, orders, order{1})
		release := make(chan struct{})
		time.AfterFunc(20*time.Minute, func() { close(release) })
		state := b.run(30*time.Minute, b.kindsOf(emails.Handle(func(context.Context, *listener.Message[email]) error {
			if time.Since(begin) > 500*time.Millisecond && hung.CompareAndSwap(false, true) {
				<-release
			}
			if time.Since(begin) < outage {
				return errFails
			}
			return nil
		}, nil), orders.Handle(handler[order](b, errFails), &kinds.Options{MaxAttempts: 50})))
		if state.Outcomes[listener.Deleted] != n || state.Outcomes[listener.Poisoned] != 0 {
			b.Errorf("got %+v, want %d successes", state, n)
		}
	})
}

// A batch that fills does not wait in an outage of its kind, and batches of other kinds still fill.
func TestOnlyBatchesOfABrokenKindStartEarly(t *testing.T) {
	bubble(t, func(b *bundle) {
		var broken, other []int
		sizes := func(all *[]int, result error) listener.BatchHandler[email] {
			return func(_ context.Context, ms []*listener.Message[email]) []error {
				b.mu.Lock()
				defer b.mu.Unlock()
				*all = append(*all, len(ms))
				return slices.Repeat([]error{result}, len(ms))
			}
		}
		others := kinds.Kind[email]{Name: "other"}
		b.sendMany(200)
		for i := range 39 {
			send(b, others, email{fmt.Sprint(i)})
		}
		time.AfterFunc(time.Minute, func() { send(b, others, email{"the last"}) })
		b.options.Concurrency = 100
		b.run(2*time.Minute, b.kindsOf(emails.Handle(listener.Batch(sizes(&broken, errFails), 30, time.Hour), nil),
			others.Handle(listener.Batch(sizes(&other, nil), 20, time.Hour), nil)))
		if n := len(broken); n < 6 || broken[0] != 30 || slices.Max(broken[n/2:]) > 10 || !slices.Equal(other, []int{20, 20}) { // it has ten places
			b.Errorf("got batches of %v and %v", broken, other)
		}
	})
}

// A message without an envelope is not held back, because its deliveries count as attempts.
func TestAMessageWithoutAnEnvelopeIsNotHeldBack(t *testing.T) {
	bubble(t, func(b *bundle) {
		for range 100 {
			if _, err := b.queue.Enqueue(b.Context(), `{"Total":2}`, nil); err != nil {
				b.Fatal(err)
			}
		}
		b.options.RetryDelay = func(int, error) time.Duration { return time.Second }
		send(b, orders, order{1})
		state := b.run(time.Hour, b.kindsOf(unnamed.Handle(handler[order](b, errFails), nil), orders.Handle(handler[order](b, nil), nil)))
		if runs := b.runs(""); runs != 500 || state.Outcomes[listener.Poisoned] != 100 || state.Outcomes[listener.Snoozed] != 0 {
			b.Errorf("%d runs: %+v; want five for each message", runs, state)
		}
	})
}

// Nor is one whose envelope has no room for the record: it would be poison as lost without a run.
func TestAMessageWithoutRoomIsNotHeldBack(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.sendMany(300)
		send(b, orders, order{1})
		time.AfterFunc(time.Second/2, func() { // the outage has begun
			text := "millrace/2?id=7&kd=email\n{\"To\":\""
			if _, err := b.queue.Enqueue(b.Context(), text+strings.Repeat("x", queue.MaxText-len(text)-2)+`"}`, nil); err != nil {
				b.Error(err)
			}
		})
		large := 0
		state := b.run(20*time.Minute, b.kindsOf(emails.Handle(func(_ context.Context, m *listener.Message[email]) error {
			if len(m.Body.To) < 1000 {
				return errFails
			}
			large++
			return nil
		}, nil), orders.Handle(handler[order](b, nil), nil)))
		if large != 1 || state.Outcomes[listener.Poisoned] != 0 {
			b.Errorf("the handler of the large message ran %d times: %+v", large, state)
		}
	})
}

// A message whose life ends in an outage of its kind is tried before it is poison.
func TestAMessageThatExpiresInAnOutageIsTried(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.sendMany(300)
		b.trickle()
		time.AfterFunc(time.Second/2, func() { // the outage has begun
			for range 10 {
				if _, err := emails.Producer(b.queue, nil).Send(b.Context(), email{"brief"}, &producer.SendOptions{TTL: 5 * time.Minute}); err != nil {
					b.Error(err)
				}
			}
		})
		begin, tried := time.Now(), map[string]time.Duration{}
		b.run(20*time.Minute, b.kindsOf(emails.Handle(func(_ context.Context, m *listener.Message[email]) error {
			if m.Body.To == "brief" {
				b.mu.Lock()
				defer b.mu.Unlock()
				tried[string(m.ID)] = time.Since(begin)
			}
			return errFails
		}, &kinds.Options{MaxAttempts: 50}), orders.Handle(handler[order](b, nil), nil)))
		for id, last := range tried {
			if last < 3*time.Minute {
				b.Errorf("%s was last tried after %v", id, last)
			}
		}
		records := b.records()
		for _, r := range records {
			// With short delays the attempts of one may end before its life.
			tried := r.Reason == poison.ReasonExpiring || r.Reason == poison.ReasonAttempts
			if !tried || strings.Contains(r.Error, listener.ErrOutage.Error()) {
				b.Errorf("got the record %+v, want one that the life ends, with the error of the handler", r)
			}
		}
		if len(tried) != 10 || len(records) != 10 {
			b.Errorf("%d of the brief messages were tried, %d are poison; want all 10", len(tried), len(records))
		}
	})
}

// With AcceptForeign it gets an envelope when it is first held back, without an attempt.
func TestAnAdoptedMessageIsHeldBack(t *testing.T) {
	bubble(t, func(b *bundle) {
		for range 200 {
			if _, err := b.queue.Enqueue(b.Context(), `{"Total":2}`, nil); err != nil {
				b.Fatal(err)
			}
		}
		send(b, orders, order{1})
		b.options.Wire.AcceptForeign = true
		state := b.run(20*time.Minute, b.kindsOf(unnamed.Handle(failsFor[order](b, 5*time.Minute), nil), orders.Handle(handler[order](b, nil), nil)))
		if state.Outcomes[listener.Snoozed] < 72 || state.Outcomes[listener.Poisoned] != 0 || state.Outcomes[listener.Deleted] != 201 {
			b.Errorf("got %+v", state)
		}
	})
}

// A kind that always fails, beside one that works, is poison within twice the time that a lone job
// needs, and each of its attempts costs a few requests.
func TestABrokenKindIsSoonPoison(t *testing.T) {
	fails := func(context.Context, *listener.Message[email]) error {
		time.Sleep(10 * time.Millisecond)
		return errFails
	}
	// day runs for an hour with so many jobs that fail, and returns the end of the last, the requests,
	// and the longest wait of the others.
	day := func(broken int) (last time.Duration, requests int64, wait time.Duration) {
		bubble(t, func(b *bundle) {
			begin := time.Now()
			b.options.Observer.Poisoned = func(listener.Delivery, listener.PoisonReason, error) {
				b.mu.Lock()
				defer b.mu.Unlock()
				last = time.Since(begin)
			}
			b.sendMany(broken)
			for i := range 3600 {
				time.AfterFunc(time.Duration(i)*time.Second, func() { send(b, orders, order{i}) })
			}
			bill := func(_ context.Context, m *listener.Message[order]) error {
				b.mu.Lock()
				defer b.mu.Unlock()
				wait = max(wait, time.Since(m.Enqueued))
				return nil
			}
			state := b.run(time.Hour+time.Second, b.kindsOf(emails.Handle(fails, nil), orders.Handle(bill, nil)))
			if state.Outcomes[listener.Poisoned] != int64(broken) || state.Outcomes[listener.Deleted] != 3600 {
				b.Errorf("%d broken jobs: %+v", broken, state)
			}
			requests = state.Requests
		})
		return last, requests, wait
	}
	alone, _, _ := day(1)
	_, without, _ := day(0)
	last, with, wait := day(200)
	each := float64(with-without) / (200 * 5)
	t.Logf("200 broken jobs are poison after %v, a lone one after %v; %.1f requests an attempt; the others wait %v at most", last, alone, each, wait)
	if last > 2*alone || each > 10 || wait > 2*time.Second {
		t.Errorf("200 broken jobs are poison after %v, a lone one after %v; %.1f requests an attempt; the others wait %v", last, alone, each, wait)
	}
}
