package millrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/metered"
	"github.com/millrace/millrace/queue/queuetest"
)

// A metered queue behaves as the queue does, and what is refused without a request is not counted.
func TestConformance(t *testing.T) {
	meters := map[queue.Queue]*metered.Meter{}
	var mu sync.Mutex
	queuetest.Run(t, queuetest.Harness{
		Bubble: true,
		Open: func(_ *testing.T, name string) queue.Manager {
			m := new(metered.Meter)
			q := m.Wrap(must(localqueue.New(nil)).Queue(queue.Name{Account: "local", Queue: name})).(queue.Manager)
			mu.Lock()
			defer mu.Unlock()
			meters[q] = m
			return q
		},
		Requests: func(q queue.Manager) int {
			mu.Lock()
			defer mu.Unlock()
			return int(meters[q].Counts().Total().Requests)
		},
	})
}

// answering is a queue whose requests all get one answer.
type answering struct {
	batch []queue.Message
	err   error
}

func (answering) Name() queue.Name { return queue.Name{Account: "a", Queue: "jobs"} }
func (a answering) Enqueue(context.Context, string, *queue.EnqueueOptions) (queue.Message, error) {
	return queue.Message{}, a.err
}
func (a answering) Dequeue(context.Context, int, time.Duration) ([]queue.Message, error) {
	return a.batch, a.err
}
func (a answering) Peek(context.Context, int) ([]queue.Message, error) { return nil, a.err }
func (a answering) Update(context.Context, queue.Lease, string, time.Duration) (queue.Lease, error) {
	return queue.Lease{}, a.err
}
func (a answering) Delete(context.Context, queue.Lease) error { return a.err }
func (a answering) Properties(context.Context) (queue.Properties, error) {
	return queue.Properties{}, a.err
}
func (a answering) Create(context.Context, map[string]string) error { return a.err }
func (a answering) Sibling(string) queue.Queue                      { return a }

// managing is one that can be administered.
type managing struct{ answering }

func (a managing) SetMetadata(context.Context, map[string]string) error { return a.err }
func (a managing) Clear(context.Context) error                          { return a.err }
func (a managing) Drop(context.Context) error                           { return a.err }

// send sends one request of the operation.
func send(ctx context.Context, q queue.Queue, o metered.Operation) {
	switch o {
	case metered.Enqueue:
		_, _ = q.Enqueue(ctx, "text", nil)
	case metered.Dequeue:
		_, _ = q.Dequeue(ctx, 32, time.Minute)
	case metered.Peek:
		_, _ = q.Peek(ctx, 32)
	case metered.Update:
		_, _ = q.Update(ctx, queue.Lease{}, "text", time.Minute)
	case metered.Delete:
		_ = q.Delete(ctx, queue.Lease{})
	case metered.Properties:
		_, _ = q.Properties(ctx)
	case metered.Create:
		_ = q.Create(ctx, nil)
	case metered.SetMetadata:
		_ = q.(queue.Manager).SetMetadata(ctx, nil)
	case metered.Clear:
		_ = q.(queue.Manager).Clear(ctx)
	case metered.Drop:
		_ = q.(queue.Manager).Drop(ctx)
	}
}

// A queue that cannot be administered is none that can because it is metered.
func TestAMeteredQueueIsAManagerIfTheQueueIs(t *testing.T) {
	m := new(metered.Meter)
	for q, want := range map[queue.Queue]bool{&answering{}: false, &managing{}: true} {
		wrapped := m.Wrap(q)
		if _, got := wrapped.(queue.Manager); got != want {
			t.Errorf("%T: got Manager %v, want %v", q, got, want)
		}
		if inner := wrapped.(interface{ Unwrap() queue.Queue }).Unwrap(); inner != q {
			t.Errorf("Unwrap: got %v, want %v", inner, q)
		}
		if wrapped.Name() != q.Name() {
			t.Errorf("Name: got %v, want %v", wrapped.Name(), q.Name())
		}
		send(t.Context(), wrapped.Sibling("-poison"), metered.Delete)
	}
	if n := m.Counts().Operation(metered.Delete).Requests; n != 2 {
		t.Errorf("requests to siblings: got %d, want 2", n)
	}
}

// C-01: an error says whether the request was sent, and so whether it counts and is billed.
func TestHowARequestEnded(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want metered.Tally
	}{
		"success":          {nil, metered.Tally{Requests: 1}},
		"busy":             {&queue.Error{Kind: queue.ErrThrottled, Status: 503}, metered.Tally{Requests: 1, Throttled: 1}},
		"server error":     {&queue.Error{Kind: queue.ErrUnavailable, Status: 500}, metered.Tally{Requests: 1, Failed: 1}},
		"no connection":    {&queue.Error{Kind: queue.ErrUnavailable}, metered.Tally{Requests: 1, Unreached: 1}},
		"no token":         {&queue.Error{Kind: queue.ErrUnauthorized}, metered.Tally{Requests: 1, Unreached: 1}},
		"access denied":    {&queue.Error{Kind: queue.ErrUnauthorized, Status: 403}, metered.Tally{Requests: 1, Failed: 1}},
		"no response":      {&queue.Error{Kind: queue.ErrOutcomeUnknown}, metered.Tally{Requests: 1, Failed: 1}},
		"abandoned":        {&queue.Error{Kind: queue.ErrOutcomeUnknown, Err: context.Canceled}, metered.Tally{Requests: 1, Failed: 1}},
		"lease lost":       {queue.ErrReceiptMismatch, metered.Tally{Requests: 1, Failed: 1}},
		"refused":          {&queue.Error{Kind: queue.ErrInvalid, Status: 400}, metered.Tally{Requests: 1, Failed: 1}},
		"something else":   {errors.New("?"), metered.Tally{Requests: 1, Failed: 1}},
		"invalid argument": {&queue.Error{Kind: queue.ErrInvalid}, metered.Tally{}},
		"text too large":   {&queue.Error{Kind: queue.ErrTooLarge}, metered.Tally{}},
		"ended before":     {&queue.Error{Err: context.Canceled}, metered.Tally{}},
		"deadline before":  {&queue.Error{Err: context.DeadlineExceeded}, metered.Tally{}},
		"limited":          {&queue.Error{Kind: queue.ErrLimited, RetryAfter: time.Second}, metered.Tally{}},
	} {
		for o := metered.Enqueue; o <= metered.Drop; o++ {
			m := new(metered.Meter)
			send(t.Context(), m.Wrap(managing{answering{err: c.err}}), o)
			want := c.want
			if o == metered.Dequeue && c.err == nil {
				want.Empty = 1
			}
			if got := m.Counts().Operation(o); got != want {
				t.Errorf("%v, %s: got %+v, want %+v", o, name, got, want)
			}
			if got := m.Counts().Total(); got != want {
				t.Errorf("%v, %s: got %+v in all, want %+v", o, name, got, want)
			}
		}
	}
}

// request is what a property test sends.
type request struct {
	operation metered.Operation
	cause     metered.Cause
	repeats   int
	answer    int // index in answers
}

var answers = []answering{
	{}, {batch: make([]queue.Message, 7)}, {err: queue.ErrThrottled}, {err: queue.ErrMessageGone},
	{err: queue.ErrUnavailable}, {err: queue.ErrInvalid}, {err: queue.ErrOutcomeUnknown},
}

var requests = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) request {
	return request{
		operation: metered.Operation(rapid.IntRange(0, int(metered.Drop)).Draw(t, "operation")),
		cause:     metered.Cause(rapid.IntRange(0, 20).Draw(t, "cause")), // some do not exist
		repeats:   rapid.IntRange(0, 2).Draw(t, "repeats"),
		answer:    rapid.IntRange(0, len(answers)-1).Draw(t, "answer"),
	}
}), 0, 60)

// sendAll sends the requests to the meter and returns what it should have counted.
func sendAll(m *metered.Meter, all []request) (want metered.Tally) {
	for _, r := range all {
		a := answers[r.answer]
		send(metered.WithRepeats(metered.WithCause(context.Background(), r.cause), r.repeats), m.Wrap(managing{a}), r.operation)
		if errors.Is(a.err, queue.ErrInvalid) {
			continue
		}
		want.Requests++
		if r.repeats > 0 {
			want.Repeated++
		}
		switch {
		case errors.Is(a.err, queue.ErrThrottled):
			want.Throttled++
		case errors.Is(a.err, queue.ErrUnavailable):
			want.Unreached++
		case a.err != nil:
			want.Failed++
		case r.operation == metered.Dequeue && len(a.batch) == 0:
			want.Empty++
		case r.operation == metered.Dequeue:
			want.Messages += int64(len(a.batch))
		}
	}
	return want
}

// C-01: whatever is sent, the counts by cause and those by operation add up to all, differences add
// up again, and JSON keeps them.
func TestCountsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := new(metered.Meter)
		first := sendAll(m, requests.Draw(t, "first"))
		before := m.Counts()
		want := first.Plus(sendAll(m, requests.Draw(t, "second")))
		after := m.Counts()

		if got := after.Total(); got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		var causes, operations metered.Tally
		for _, c := range metered.Causes() {
			causes = causes.Plus(after.Cause(c))
		}
		for o := metered.Enqueue; o <= metered.Drop; o++ {
			operations = operations.Plus(after.Operation(o))
		}
		if causes != want || operations != want {
			t.Fatalf("got %+v by cause and %+v by operation, want %+v", causes, operations, want)
		}
		between := after.Minus(before)
		if got := between.Total(); got != want.Minus(first) {
			t.Fatalf("between: got %+v, want %+v", got, want.Minus(first))
		}
		if got := before.Plus(between); !reflect.DeepEqual(got, after) {
			t.Fatalf("before and between: got %v, want %v", got, after)
		}
		if got := before.Minus(after).Plus(between); len(got) != 0 {
			t.Fatalf("a difference and its reverse: got %v, want none", got)
		}
		text, err := json.Marshal(after)
		var back metered.Counts
		if err != nil || json.Unmarshal(text, &back) != nil || !reflect.DeepEqual(back, after) {
			t.Fatalf("got %s, %v, and back %v", text, err, back)
		}
	})
}

// Many goroutines send and read at once: nothing is lost, and no count ever goes down.
func TestConcurrentRequestsAreAllCounted(t *testing.T) {
	m := new(metered.Meter)
	q := m.Wrap(managing{answering{batch: make([]queue.Message, 3)}})
	const senders, each = 8, 500
	var sending, reading sync.WaitGroup
	done := make(chan struct{})
	reading.Go(func() {
		var last metered.Tally
		for {
			now := m.Counts().Total()
			if now.Requests < last.Requests || now.Messages < last.Messages || now.Messages > 3*now.Requests {
				t.Errorf("got %+v after %+v", now, last)
				return
			}
			last = now
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for i := range senders {
		sending.Go(func() {
			ctx := metered.WithCause(t.Context(), metered.Cause(i%4))
			for range each {
				send(ctx, q, metered.Dequeue)
				send(ctx, q.Sibling("-x"), metered.Delete)
			}
		})
	}
	sending.Wait()
	close(done)
	reading.Wait()
	if got, want := m.Counts().Total(), (metered.Tally{Requests: 2 * senders * each, Messages: 3 * senders * each}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// C-04: price, unit and classes are parameters. Without a price nothing is said about money, and what
// is not billed costs nothing.
func TestThePriceOfRequests(t *testing.T) {
	m := new(metered.Meter)
	ask := func(n int, a answering, operations ...metered.Operation) {
		for range n {
			for _, o := range operations {
				send(t.Context(), m.Wrap(managing{a}), o)
			}
		}
	}
	ask(100, answering{}, metered.Enqueue, metered.Dequeue, metered.Delete)
	ask(10, answering{}, metered.Peek, metered.Properties)
	ask(1000, answering{err: queue.ErrThrottled}, metered.Delete)
	ask(1000, answering{err: queue.ErrUnavailable}, metered.Delete)
	for name, c := range map[string]struct {
		price metered.Price
		want  float64
		known bool
	}{
		"none":         {metered.Price{}, 0, false},
		"only class 2": {metered.Price{Class2: 1}, 0, false},
		"one price":    {metered.Price{Class1: 0.01}, 0.00032, true},
		"another unit": {metered.Price{Class1: 0.01, Unit: 100_000}, 0.000032, true},
		"two classes":  {metered.Price{Class1: 2, Class2: 1, Unit: 10}, 60 + 2, true},
		"own classes":  {metered.Price{Class1: 2, Class2: 1, Unit: 10, Class2Operations: []metered.Operation{metered.Dequeue}}, 40 + 10 + 4, true},
		"one class":    {metered.Price{Class1: 2, Class2: 1, Unit: 10, Class2Operations: []metered.Operation{}}, 64, true},
	} {
		got, known := m.Counts().Cost(c.price)
		if fmt.Sprintf("%.9f", got) != fmt.Sprintf("%.9f", c.want) || known != c.known {
			t.Errorf("%s: got %v, %v, want %v, %v", name, got, known, c.want, c.known)
		}
	}
	if cost, known := metered.Counts(nil).Cost(metered.Price{Class1: 1}); cost != 0 || !known {
		t.Errorf("no requests: got %v, %v, want 0, known", cost, known)
	}
}

// A line of a log names the causes, and what failed only if something did.
func TestCountsAsText(t *testing.T) {
	m := new(metered.Meter)
	if got := m.Counts().String(); got != "none" {
		t.Errorf("got %q, want none", got)
	}
	fetch := metered.WithCause(t.Context(), metered.CauseFetch)
	send(fetch, m.Wrap(answering{batch: make([]queue.Message, 2)}), metered.Dequeue)
	if got := m.Counts().String(); got != "1 fetch" {
		t.Errorf("got %q, want 1 fetch", got)
	}
	send(fetch, m.Wrap(answering{}), metered.Dequeue)
	deletes := metered.WithCause(t.Context(), metered.CauseDelete)
	for _, a := range []answering{{}, {err: queue.ErrThrottled}} {
		send(deletes, m.Wrap(a), metered.Delete)
	}
	send(metered.WithRepeats(deletes, 1), m.Wrap(answering{err: queue.ErrMessageGone}), metered.Delete)
	if got, want := m.Counts().String(), "3 delete, 2 fetch (1 empty); 1 repeated, 1 throttled, 1 failed"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Every operation has a name of its own, which JSON keeps.
func TestOperationsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for o := metered.Enqueue; o <= metered.Drop; o++ {
		if seen[o.String()] || o.String() == "" {
			t.Errorf("operation %d: got the name %q, want one of its own", o, o)
		}
		seen[o.String()] = true
		text, err := json.Marshal(o)
		var back metered.Operation
		if err != nil || json.Unmarshal(text, &back) != nil || back != o {
			t.Errorf("%v: got %s, %v, and back %v", o, text, err, back)
		}
	}
	none := metered.Drop + 1
	if _, err := none.MarshalText(); err == nil || none.String() != "Operation(10)" {
		t.Errorf("got %v and error %v, want Operation(10) and an error", none, err)
	}
	if none.UnmarshalText([]byte("nothing")) == nil {
		t.Error("a name that does not exist: got no error")
	}
}
