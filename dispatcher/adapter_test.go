package dispatcher_test

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// A handler sees in its message everything that is known of the delivery, and every message of
// a batch has its own.
func TestAHandlerSeesItsWholeDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(chan *dispatcher.Message[string], 3)
		var described []dispatcher.Delivery
		handler := func(ctx context.Context, m *dispatcher.Message[string]) error {
			d, _ := dispatcher.DeliveryFrom(ctx)
			described = append(described, d)
			seen <- m
			return nil
		}
		d, err := dispatcher.New(instantQueue{}, dispatcher.Jobs[string]{Handler: handler}, &dispatcher.Options{
			Concurrency: 3, Poison: poison.Policy{MaxAttempts: 7},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		sent := now.Add(-time.Hour).UTC()
		const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		var batch []queue.Message
		for _, id := range []string{"a", "b", "c"} {
			head := envelope.Head{ID: "job " + id, Attempts: 2, Settled: 3, Enqueued: sent, Key: "key", Dedupe: "dedupe key", Trace: trace, TraceState: "a=b"}
			text, err := envelope.Seal(head, []byte(`"body `+id+`"`), codec.Envelope)
			if err != nil {
				t.Fatal(err)
			}
			batch = append(batch, queue.Message{
				Lease: queue.Lease{ID: queue.ID(id), Receipt: "r", Until: now.Add(30 * time.Second)}, Text: text, DequeueCount: 4,
				Inserted: now.Add(-time.Hour), Expires: now.Add(time.Hour),
			})
		}
		for _, m := range batch { // one after the other, so that described needs no lock
			d.Dispatch([]queue.Message{m}, 1, now, 30*time.Second)
			got := *<-seen
			id := string(m.ID)
			want := dispatcher.Delivery{
				Queue: instantQueue{}.Name(), ID: m.ID, Job: "job " + id, Key: "key", DedupeKey: "dedupe key",
				Attempt: 3, MaxAttempts: 7, DequeueCount: 4,
				Inserted: m.Inserted, Enqueued: sent, Expires: m.Expires, Trace: trace, TraceState: "a=b",
			}
			if got.Body != "body "+id || got.Delivery != want {
				t.Errorf("got %+v, want body %s and %+v", got, id, want)
			}
			synctest.Wait()
			if last := described[len(described)-1]; last != want {
				t.Errorf("DeliveryFrom: got %+v, want %+v", last, want)
			}
		}
		if err := d.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// All messages of one batch are handled, each by its own handler call, and only as many start as
// slots were reserved.
func TestEveryMessageOfABatchIsHandledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bodies := make(chan string, 9)
		handler := func(_ context.Context, m *dispatcher.Message[[]byte]) error { bodies <- string(m.Body); return nil }
		d, err := dispatcher.New(settlingQueue{}, dispatcher.Jobs[[]byte]{Handler: handler, Codec: codec.Bytes()}, &dispatcher.Options{Format: codec.Plain})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		var batch []queue.Message
		for _, body := range []string{"a", "b", "c", "d"} {
			batch = append(batch, queue.Message{Lease: queue.Lease{ID: queue.ID(body), Receipt: "r"}, Text: body, DequeueCount: 1})
		}
		const reserved = 3
		d.Dispatch(batch, reserved, time.Now(), 30*time.Second)
		synctest.Wait()
		if err := d.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		close(bodies)
		got := map[string]int{}
		for body := range bodies {
			got[body]++
		}
		if want := map[string]int{"a": 1, "b": 1, "c": 1}; !reflect.DeepEqual(got, want) {
			t.Errorf("handled %v, want %v", got, want)
		}
		if n := d.Outcomes()[dispatcher.Returned]; n != 1 {
			t.Errorf("gave back %d messages, want the one without a slot", n)
		}
	})
}

// A dispatcher without a queue or a handler is refused.
func TestADispatcherNeedsAQueueAndAHandler(t *testing.T) {
	handler := func(context.Context, *dispatcher.Message[int]) error { return nil }
	if _, err := dispatcher.New(nil, dispatcher.Jobs[int]{Handler: handler}, nil); err == nil {
		t.Error("a nil queue was accepted")
	}
	if _, err := dispatcher.New(instantQueue{}, dispatcher.Jobs[int]{}, nil); err == nil {
		t.Error("a nil handler was accepted")
	}
}

// What an interceptor puts into the context reaches the interceptors inside it and the handler.
func TestTheContextOfAnInterceptorReachesTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key string
		add := func(k key) dispatcher.Interceptor {
			return func(ctx context.Context, _ dispatcher.Delivery, next func(context.Context) error) error {
				seen, _ := ctx.Value(key("path")).(string)
				return next(context.WithValue(ctx, key("path"), seen+string(k)))
			}
		}
		path := make(chan any, 1)
		handler := func(ctx context.Context, _ *dispatcher.Message[[]byte]) error {
			path <- ctx.Value(key("path"))
			return nil
		}
		d, err := dispatcher.New(instantQueue{}, dispatcher.Jobs[[]byte]{Handler: handler, Codec: codec.Bytes()}, &dispatcher.Options{
			Format: codec.Plain, Interceptors: []dispatcher.Interceptor{add("a"), add("b"), add("c")},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.Dispatch([]queue.Message{{Lease: queue.Lease{ID: "id", Receipt: "r"}, Text: "text", DequeueCount: 1}}, 1, time.Now(), 30*time.Second)
		if got := <-path; got != "abc" {
			t.Errorf("the handler got %v, want abc", got)
		}
		if err := d.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
