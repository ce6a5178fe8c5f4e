package kinds_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// bodies returns what was handled, by kind.
func (b *bundle) bodies() map[string][]any {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string][]any{}
	for kind, ds := range b.handled {
		for _, d := range ds {
			all[kind] = append(all[kind], d.body)
		}
	}
	return all
}

// L-07: every job reaches the handler of its kind with a body of its type, also with a codec of its own, and
// observers see the kind.
func TestEveryKindReachesItsHandler(t *testing.T) {
	bubble(t, func(b *bundle) {
		invoices := kinds.Kind[order]{Name: "invoice, in XML", Codec: codec.XML[order]()}
		send(b, orders, order{7})
		send(b, emails, email{"ann@example.org"})
		send(b, invoices, order{8})
		send(b, unnamed, order{9})
		settled := map[string]int{}
		b.options.Observer.Settled = func(d listener.Delivery, o listener.Outcome, _ time.Duration) {
			b.mu.Lock()
			defer b.mu.Unlock()
			settled[d.Kind]++
			if text := d.LogValue().String(); strings.Contains(text, "kind="+d.Kind) != (d.Kind != "") {
				b.Errorf("the kind %q is logged as %v", d.Kind, text)
			}
		}
		state := b.run(time.Minute, b.kindsOf(orders.Handle(handler[order](b, nil), nil), emails.Handle(handler[email](b, nil), nil),
			invoices.Handle(handler[order](b, nil), nil), unnamed.Handle(handler[order](b, nil), nil)))
		want := map[string][]any{"order": {order{7}}, "email": {email{"ann@example.org"}}, invoices.Name: {order{8}}, "": {order{9}}}
		if got := b.bodies(); !reflect.DeepEqual(got, want) || state.Outcomes[listener.Deleted] != 4 || b.depth() != 0 {
			b.Errorf("handled %v, want %v; the state is %+v", got, want, state)
		}
		if want := map[string]int{"order": 1, "email": 1, invoices.Name: 1, "": 1}; !reflect.DeepEqual(settled, want) {
			b.Errorf("the observer saw %v, want %v", settled, want)
		}
	})
}

// B-19: a message of an unknown kind goes back with a delay, whatever MaxAttempts and MaxLost say, and
// a newer worker handles it at its first attempt, with all deliveries accounted for.
func TestAnUnknownKindIsLeftToANewerWorker(t *testing.T) {
	bubble(t, func(b *bundle) {
		send(b, emails, email{"ann@example.org"})
		b.options.Poison = listener.PoisonPolicy{MaxAttempts: 1, MaxLost: 1}
		older := b.run(10*time.Minute, b.kindsOf(orders.Handle(handler[order](b, nil), nil)))
		if older.Outcomes[listener.Snoozed] < 40 || older.Outcomes[listener.Snoozed] > 50 || older.Outcomes[listener.Poisoned] != 0 || len(b.handled) != 0 {
			b.Errorf("the older worker handled %v, and says %+v", b.handled, older)
		}
		for _, err := range b.reported {
			if !errors.Is(err, codec.ErrNewer) || !strings.Contains(err.Error(), `a job of the kind "email", which this worker does not handle: it waits for one that does; this one handles "order"`) {
				b.Errorf("reported %v", err)
			}
		}
		time.Sleep(10 * time.Minute)
		waiting, err := b.queue.Peek(b.Context(), 1)
		if err != nil || len(waiting) != 1 {
			b.Fatalf("%d messages wait, %v; want 1", len(waiting), err)
		}
		head, _, _, err := envelope.Open(waiting[0].Text, codec.Auto, envelope.Kinds)
		if dequeues := waiting[0].DequeueCount; err != nil || dequeues < 39 || head.Settled != dequeues || head.Starts != 0 {
			b.Errorf("after %d deliveries, the head is %+v, %v: want all accounted for, and no start", dequeues, head, err)
		}
		newer := b.run(time.Minute, b.kindsOf(emails.Handle(handler[email](b, nil), nil)))
		got := b.handled["email"]
		if len(got) != 1 || got[0].attempt != 1 || got[0].body != (email{"ann@example.org"}) || newer.Outcomes[listener.Deleted] != 1 {
			b.Fatalf("the newer worker handled %+v, and says %+v", got, newer)
		}
	})
}

// An unknown kind keeps the failures that workers who know it have recorded.
func TestAnUnknownKindKeepsItsAttempts(t *testing.T) {
	bubble(t, func(b *bundle) {
		send(b, emails, email{"ann@example.org"})
		b.options.RetryDelay = func(int, error) time.Duration { return time.Second }
		b.run(2500*time.Millisecond, b.kindsOf(emails.Handle(handler[email](b, errFails), &kinds.Options{MaxAttempts: 9})))
		failed := len(b.handled["email"])
		b.options.Poison.MaxAttempts = 1
		if other := b.run(5*time.Minute, b.kindsOf(orders.Handle(handler[order](b, nil), nil))); other.Outcomes[listener.Poisoned] != 0 || other.Outcomes[listener.Snoozed] == 0 {
			b.Errorf("the worker that does not know it says %+v", other)
		}
		time.Sleep(10 * time.Minute)
		b.run(time.Second, b.kindsOf(emails.Handle(handler[email](b, nil), &kinds.Options{MaxAttempts: 9})))
		got := b.handled["email"]
		if failed < 2 || len(got) != failed+1 || got[failed].attempt != failed+1 {
			b.Errorf("failed %d times, handled %+v", failed, got)
		}
	})
}

// what does not decode as its kind is poison at its first delivery, and no handler sees it.
func TestAnUndecodableJobOfAKnownKindIsPoisonAtOnce(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.sendBody("order", `{"Total":"seven"}`)
		b.sendBody("email", `{"To":"ann@example.org"}`)
		state := b.run(time.Minute, b.kindsOf(orders.Handle(handler[order](b, nil), nil), emails.Handle(handler[email](b, nil), nil)))
		records := b.records()
		if len(records) != 1 || records[0].Reason != poison.ReasonUndecodable || records[0].DequeueCount != 1 || !strings.Contains(records[0].Error, "order") {
			b.Errorf("got the records %+v", records)
		}
		if len(b.handled["order"]) != 0 || len(b.handled["email"]) != 1 || state.Outcomes[listener.Poisoned] != 1 {
			b.Errorf("handled %v, and says %+v", b.handled, state)
		}
	})
}

// Each kind has its number of attempts, and a message is told it; without one it is the listener's.
func TestEachKindHasItsAttempts(t *testing.T) {
	bubble(t, func(b *bundle) {
		send(b, orders, order{1})
		send(b, emails, email{"ann@example.org"})
		send(b, unnamed, order{2})
		b.options.Poison.MaxAttempts = 3
		b.options.RetryDelay = func(int, error) time.Duration { return time.Second }
		last := map[string]int{}
		b.options.Observer.Poisoned = func(d listener.Delivery, _ listener.PoisonReason, _ error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if d.Last() {
				last[d.Kind] = d.MaxAttempts
			}
		}
		b.run(time.Hour, b.kindsOf(orders.Handle(handler[order](b, errFails), &kinds.Options{MaxAttempts: 1}),
			emails.Handle(handler[email](b, errFails), &kinds.Options{MaxAttempts: 7}), unnamed.Handle(handler[order](b, errFails), nil)))
		want := map[string]int{"order": 1, "email": 7, "": 3}
		for kind, n := range want {
			got := b.handled[kind]
			if len(got) != n || got[len(got)-1].attempt != n || got[0].max != n {
				b.Errorf("kind %q: handled %+v, want %d attempts", kind, got, n)
			}
		}
		if !reflect.DeepEqual(last, want) {
			b.Errorf("the observer saw the last attempts %v, want %v", last, want)
		}
		if records := b.records(); len(records) != 3 || slices.ContainsFunc(records, func(r poison.Record) bool { return r.Reason != poison.ReasonAttempts }) {
			b.Errorf("got the records %+v", records)
		}
	})
}

// Each kind has its retry delay, or the listener's; one that panics is reported and the default is used.
func TestEachKindHasItsRetryDelay(t *testing.T) {
	bubble(t, func(b *bundle) {
		send(b, orders, order{1})
		send(b, emails, email{"ann@example.org"})
		send(b, unnamed, order{2})
		b.options.RetryDelay = func(int, error) time.Duration { return 10 * time.Minute }
		own := &kinds.Options{RetryDelay: func(attempt int, err error) time.Duration {
			if !errors.Is(err, errFails) {
				b.Errorf("the delay is asked for %v", err)
			}
			return time.Duration(attempt) * time.Minute
		}}
		broken := &kinds.Options{RetryDelay: func(int, error) time.Duration { panic("no delay") }}
		begin, tried := time.Now(), map[string][]time.Duration{}
		b.options.Observer.Settled = func(d listener.Delivery, _ listener.Outcome, _ time.Duration) {
			b.mu.Lock()
			defer b.mu.Unlock()
			tried[d.Kind] = append(tried[d.Kind], time.Since(begin))
		}
		b.run(9*time.Minute, b.kindsOf(orders.Handle(handler[order](b, errFails), own), emails.Handle(handler[email](b, errFails), nil),
			unnamed.Handle(handler[order](b, errFails), broken)))
		minutes := func(kind string) (all []int) {
			for _, at := range tried[kind] {
				all = append(all, int(at.Round(time.Minute).Minutes()))
			}
			return all
		}
		if got := minutes("order"); !slices.Equal(got, []int{0, 1, 3, 6}) {
			b.Errorf("the kind with its own delays was tried after %v minutes", got)
		}
		if got := minutes("email"); !slices.Equal(got, []int{0}) {
			b.Errorf("the kind without was tried after %v minutes", got)
		}
		// The default: 1 s, 16 s, 81 s and 256 s, ± 10 %.
		if got := minutes(""); len(got) != 5 || !slices.Equal(got[:4], []int{0, 0, 0, 2}) || got[4] < 5 || got[4] > 7 {
			b.Errorf("the kind whose delay panics was tried after %v minutes", got)
		}
	})
}

// A release that allows a kind fewer attempts than have failed does not run it again.
func TestAJobBeyondTheAttemptsOfItsKindIsNotRun(t *testing.T) {
	bubble(t, func(b *bundle) {
		text, err := envelope.Seal(envelope.Head{Kind: "order", Attempts: 3}, []byte(`{"Total":1}`), codec.Envelope)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := b.queue.Enqueue(b.Context(), text, nil); err != nil {
			b.Fatal(err)
		}
		b.run(time.Minute, b.kindsOf(orders.Handle(handler[order](b, nil), &kinds.Options{MaxAttempts: 3})))
		if records := b.records(); len(records) != 1 || records[0].Reason != poison.ReasonAttempts || len(b.handled) != 0 {
			b.Errorf("handled %v, got the records %+v", b.handled, records)
		}
	})
}

// Poison that cannot be moved asks for the retry delay of no more than the attempts of its kind.
func TestPoisonThatCannotBeMovedWaitsByTheAttemptsOfItsKind(t *testing.T) {
	bubble(t, func(b *bundle) {
		send(b, orders, order{1})
		b.options.Poison = listener.PoisonPolicy{MaxAttempts: 9, Queue: refusing{b.queue.Sibling(poison.Suffix)}}
		var waits []int
		b.options.RetryDelay = func(attempt int, _ error) time.Duration {
			waits = append(waits, attempt)
			return time.Second
		}
		b.run(time.Minute, b.kindsOf(orders.Handle(handler[order](b, listener.Poison(errFails)), &kinds.Options{MaxAttempts: 3})))
		if len(waits) < 5 || !slices.Equal(waits[:5], []int{1, 2, 3, 3, 3}) || len(b.handled["order"]) != 1 {
			b.Errorf("waited as after the attempts %v, handled %+v", waits, b.handled)
		}
	})
}

// refusing is a poison queue that takes nothing.
type refusing struct{ queue.Queue }

func (q refusing) Enqueue(context.Context, string, *queue.EnqueueOptions) (queue.Message, error) {
	return queue.Message{}, &queue.Error{Op: "enqueue", Queue: q.Name(), Kind: queue.ErrInvalid}
}

// Each kind has its time-out: its own, none, or the listener's.
func TestEachKindHasItsTimeout(t *testing.T) {
	bubble(t, func(b *bundle) {
		ran := map[string]time.Duration{}
		untilEnd := func(ctx context.Context, m *listener.Message[order]) error {
			begin := time.Now()
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			ran[m.Kind] = time.Since(begin)
			if errors.Is(context.Cause(ctx), listener.ErrTimeout) != (ran[m.Kind] < time.Minute) {
				b.Errorf("kind %q: ended after %v with %v", m.Kind, ran[m.Kind], context.Cause(ctx))
			}
			return nil
		}
		b.options.Timeout = 20 * time.Second
		var handled []listener.Kind
		for name, timeout := range map[string]time.Duration{"short": 5 * time.Second, "none": -1, "default": 0} {
			kind := kinds.Kind[order]{Name: name}
			send(b, kind, order{1})
			handled = append(handled, kind.Handle(untilEnd, &kinds.Options{Timeout: timeout}))
		}
		b.run(2*time.Minute, b.kindsOf(handled...))
		if want := map[string]time.Duration{"short": 5 * time.Second, "none": time.Minute, "default": 20 * time.Second}; !reflect.DeepEqual(ran, want) {
			b.Errorf("ran for %v, want %v", ran, want)
		}
	})
}

// B-19: while an old and a new release work on one queue every job is handled, at its first attempt,
// by a worker that knows its kind: also when the old release knows no kinds at all.
func TestTwoReleasesShareAQueue(t *testing.T) {
	const n = 40
	for name, older := range map[string]func(b *bundle) runner{
		"an older set of kinds": func(b *bundle) runner { return b.kindsOf(unnamed.Handle(handler[order](b, nil), nil)) },
		"a release without kinds": func(b *bundle) runner {
			return listener.New(b.queue, handler[order](b, nil), &listener.Options[order]{Logger: b.options.Logger})
		},
		"a release that only knows kinds": func(b *bundle) runner { return b.kindsOf(orders.Handle(handler[order](b, nil), nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bundle) {
				for i := range n {
					send(b, unnamed, order{i})
					send(b, emails, email{fmt.Sprint(i)})
				}
				newer := b.kindsOf(unnamed.Handle(handler[order](b, nil), nil), emails.Handle(handler[email](b, nil), nil))
				b.run(time.Hour, older(b), newer)
				if len(b.handled[""]) != n || len(b.handled["email"]) != n || b.depth() != 0 || len(b.records()) != 0 {
					b.Errorf("handled %d and %d, %d left", len(b.handled[""]), len(b.handled["email"]), b.depth())
				}
				for kind, all := range b.handled {
					for _, d := range all {
						if d.attempt != 1 {
							b.Errorf("kind %q: got attempt %d, want 1", kind, d.attempt)
						}
					}
				}
			})
		})
	}
}

// The error names the kinds that the worker handles, but not any number of them.
func TestTheErrorOfAnUnknownKindNamesTheKnown(t *testing.T) {
	for n, more := range map[int]string{8: "", 10: ", 2 more"} {
		bubble(t, func(b *bundle) {
			var known []listener.Kind
			for i := range n {
				known = append(known, kinds.Kind[order]{Name: fmt.Sprint("kind", i)}.Handle(handler[order](b, nil), nil))
			}
			send(b, emails, email{"ann@example.org"})
			b.run(time.Second, b.kindsOf(known...))
			want := `this one handles "kind0", "kind1", "kind2", "kind3", "kind4", "kind5", "kind6", "kind7"` + more
			if len(b.reported) != 1 || !strings.HasSuffix(b.reported[0].Error(), want) {
				b.Errorf("got %v, want one that ends in %v", b.reported, want)
			}
		})
	}
}

// Without an envelope a message is left to others as often as there are attempts, because nothing else
// bounds it, and waits as it does after failures; with one it waits for its worker.
func TestAJobWithoutAKindIsLeftToOthers(t *testing.T) {
	bubble(t, func(b *bundle) {
		begin := time.Now()
		send(b, unnamed, order{1})
		if _, err := b.queue.Enqueue(b.Context(), `{"Total":2}`, nil); err != nil {
			b.Fatal(err)
		}
		b.options.Poison.MaxAttempts = 3
		state := b.run(10*time.Minute, b.kindsOf(orders.Handle(handler[order](b, nil), nil)))
		records := b.records()
		if len(records) != 1 || records[0].Text != `{"Total":2}` || records[0].Reason != poison.ReasonUndecodable || records[0].DequeueCount != 4 ||
			!strings.Contains(records[0].Error, "it is a job without a kind") {
			b.Fatalf("got the records %+v, want one", records)
		}
		if after := records[0].LastSeen.Sub(begin); after < 88*time.Second || after > 112*time.Second { // 1 s, 16 s and 81 s, and polls
			b.Errorf("it was poison after %v", after)
		}
		if len(b.handled) != 0 || state.Outcomes[listener.Poisoned] != 1 || b.depth() != 1 {
			b.Errorf("handled %v, %d left, and says %+v", b.handled, b.depth(), state)
		}
		time.Sleep(10 * time.Minute)
		b.run(time.Minute, listener.New(b.queue, handler[order](b, nil), &listener.Options[order]{Logger: b.options.Logger}))
		if got := b.handled[""]; len(got) != 1 || got[0].attempt != 1 {
			b.Errorf("the worker without kinds handled %+v", got)
		}
	})
}

// What a handler saves is decoded as the same kind by the next delivery.
func TestSavedProgressKeepsItsKind(t *testing.T) {
	bubble(t, func(b *bundle) {
		send(b, orders, order{10})
		b.options.RetryDelay = func(int, error) time.Duration { return time.Second }
		var seen []int
		b.run(time.Minute, b.kindsOf(orders.Handle(func(ctx context.Context, m *listener.Message[order]) error {
			seen = append(seen, m.Body.Total)
			if m.Body.Total == 0 {
				return nil
			}
			if err := m.Save(ctx, order{m.Body.Total - 5}); err != nil {
				b.Error(err)
			}
			return errFails
		}, nil)))
		if want := []int{10, 5, 0}; !slices.Equal(seen, want) || b.depth() != 0 {
			b.Errorf("got the progress %v, want %v; %d left", seen, want, b.depth())
		}
	})
}

// Batches are of one kind.
func TestABatchHasJobsOfOneKind(t *testing.T) {
	bubble(t, func(b *bundle) {
		for i := range 6 {
			send(b, orders, order{i})
			send(b, emails, email{fmt.Sprint(i)})
		}
		var sizes []int
		batch := listener.Batch(func(_ context.Context, ms []*listener.Message[order]) []error {
			b.mu.Lock()
			defer b.mu.Unlock()
			sizes = append(sizes, len(ms))
			return nil
		}, 3, time.Second)
		state := b.run(time.Minute, b.kindsOf(orders.Handle(batch, nil), emails.Handle(handler[email](b, nil), nil)))
		if !slices.Equal(sizes, []int{3, 3}) || state.Outcomes[listener.Deleted] != 12 {
			b.Errorf("got batches of %v, want two of 3; the state is %+v", sizes, state)
		}
	})
}

// Interceptors wrap the handlers of all kinds and see which one it is.
func TestAnInterceptorSeesTheKind(t *testing.T) {
	bubble(t, func(b *bundle) {
		send(b, orders, order{1})
		send(b, emails, email{"ann@example.org"})
		var seen []string
		b.options.Concurrency = 1
		b.options.Interceptors = []listener.Interceptor{func(ctx context.Context, d listener.Delivery, next func(context.Context) error) error {
			known, _ := listener.DeliveryFrom(ctx)
			seen = append(seen, d.Kind, known.Kind)
			return next(ctx)
		}}
		b.run(time.Minute, b.kindsOf(orders.Handle(handler[order](b, nil), nil), emails.Handle(handler[email](b, nil), nil)))
		if slices.Sort(seen); !slices.Equal(seen, []string{"email", "email", "order", "order"}) {
			b.Errorf("the interceptor saw %v", seen)
		}
	})
}

// A job of a kind that became poison is handled as that kind after a redrive.
func TestARedrivenJobKeepsItsKind(t *testing.T) {
	bubble(t, func(b *bundle) {
		send(b, orders, order{1})
		b.run(time.Minute, b.kindsOf(orders.Handle(handler[order](b, errFails), &kinds.Options{MaxAttempts: 1})))
		if _, err := poison.Redrive(b.Context(), b.queue, nil); err != nil {
			b.Fatal(err)
		}
		b.run(time.Minute, b.kindsOf(orders.Handle(handler[order](b, nil), &kinds.Options{MaxAttempts: 1})))
		if got := b.handled["order"]; len(got) != 2 || got[1].attempt != 1 || got[1].body != (order{1}) || b.depth() != 0 {
			b.Errorf("handled %+v, %d left", got, b.depth())
		}
	})
}
