package producer_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/localqueue"
)

// orders returns so many orders, numbered from 0.
func orders(n int) iter.Seq[order] {
	return func(yield func(order) bool) {
		for i := 0; i < n && yield(order{fmt.Sprint(i)}); i++ {
		}
	}
}

const endless = 1 << 30

// scripted calls a function before each enqueue, whose error the enqueue has.
type scripted struct {
	queue.Queue
	before func(ctx context.Context, text string) error
}

func (s *scripted) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if err := s.before(ctx, text); err != nil {
		return queue.Message{}, err
	}
	return s.Queue.Enqueue(ctx, text, o)
}

// ordersIn returns the orders of a message: one, or those of a group.
func ordersIn(t testing.TB, text string) []order {
	t.Helper()
	h, body, _, err := envelope.Open(text, codec.Auto, envelope.Groups)
	if err != nil {
		t.Fatal(err)
	}
	bodies := envelope.Group{body}
	if h.Items > 0 {
		if bodies, err = envelope.DecodeGroup(body, h.Items); err != nil {
			t.Fatal(err)
		}
	}
	all := make([]order, len(bodies))
	for i, one := range bodies {
		if all[i], err = codec.JSON[order]().Decode(one); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// onQueue returns how often each order is on the queue, and empties it.
func onQueue(t testing.TB, q queue.Queue) map[string]int {
	t.Helper()
	times := map[string]int{}
	for {
		batch, err := q.Dequeue(context.Background(), queue.MaxBatch, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range batch {
			for _, one := range ordersIn(t, m.Text) {
				times[one.ID]++
			}
		}
		if len(batch) == 0 {
			return times
		}
	}
}

// Many jobs go over the wire with one request each and without a goroutine of the caller's: ten thousand, or with -short
// or the race detector, which makes each slower, a tenth of them.
func TestManyJobsAreAsManyRequests(t *testing.T) {
	jobs := 10_000
	if testing.Short() || raceEnabled {
		jobs /= 10
	}
	engine := must(localqueue.New(nil))
	server := must(emulator.New(engine, nil))
	endpoint, err := server.Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer endpoint.Close()
	q, err := azurequeue.Open(endpoint.ConnectionString(), "orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	before := server.Counts().Requests()
	results, err := producer.New[order](q, nil).SendAllSeq(t.Context(), orders(jobs), nil)
	if err != nil || len(results) != jobs {
		t.Fatalf("got %d results, %v", len(results), err)
	}
	if requests := server.Counts().Requests() - before; requests != int64(jobs) {
		t.Errorf("%d requests for %d jobs", requests, jobs)
	}
	ids := map[queue.ID]bool{}
	for i, r := range results {
		if r.Index != i || r.Err != nil || r.Sent.MaybeTwice || r.Sent.Receipt == "" || ids[r.Sent.ID] {
			t.Fatalf("result %d is %+v", i, r)
		}
		ids[r.Sent.ID] = true
	}
	times := onQueue(t, engine.Queue(q.Name()))
	for i := range jobs {
		if times[fmt.Sprint(i)] != 1 {
			t.Fatalf("order %d is there %d times", i, times[fmt.Sprint(i)])
		}
	}
	if len(times) != jobs {
		t.Errorf("%d orders are there", len(times))
	}
}

// The next job is taken only when it can be sent at once.
func TestSendAllTakesNoMoreThanItCanSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var atOnce, most atomic.Int32
		q := &scripted{setup(t), func(context.Context, string) error {
			n := atOnce.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			<-gate
			atOnce.Add(-1)
			return nil
		}}
		taken := 0
		jobs := func(yield func(order) bool) {
			for one := range orders(10) {
				taken++
				if !yield(one) {
					return
				}
			}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			results, err := producer.New[order](q, nil).SendAllSeq(t.Context(), jobs, &producer.SendAllOptions[order]{Concurrency: 3})
			if err != nil || len(results) != 10 {
				t.Errorf("got %v, %v", results, err)
			}
		}()
		synctest.Wait()
		if taken != 3 {
			t.Errorf("took %d jobs with 3 at once", taken)
		}
		gate <- struct{}{}
		synctest.Wait()
		if taken != 4 {
			t.Errorf("took %d jobs when one of 3 had been sent", taken)
		}
		close(gate)
		<-done
		if most.Load() != 3 {
			t.Errorf("sent %d at once, want 3", most.Load())
		}
	})
}

// Whatever fails, and however: what was accepted is on the queue, what was not is not unless its
// error says so, and every job that was taken has a result.
func TestSendAllKeepsTheBooks(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 60).Draw(rt, "jobs")
		concurrency := rapid.IntRange(0, 8).Draw(rt, "concurrency")
		perMessage := rapid.IntRange(0, 7).Draw(rt, "per message")
		// What becomes of the requests for a job, or for the first of a message, in turn; the ones after these
		// succeed.
		plan := rapid.MapOf(rapid.IntRange(0, 59), rapid.SliceOfN(rapid.SampledFrom([]string{"throttled", "lost", "unanswered", "invalid", "denied"}), 1, 3)).Draw(rt, "plan")
		cancelAt := rapid.IntRange(-1, 60).Draw(rt, "cancel at job")
		synctest.Test(t, func(t *testing.T) {
			q := setup(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			failing := &planned{Queue: q, t: t, plan: plan, tries: map[string]int{}}
			jobs := func(yield func(order) bool) {
				i := 0
				for one := range orders(n) {
					if i == cancelAt {
						cancel()
					}
					i++
					if !yield(one) {
						return
					}
				}
			}
			results, err := producer.New[order](failing, nil).SendAllSeq(ctx, jobs, &producer.SendAllOptions[order]{Concurrency: concurrency, PerMessage: perMessage})
			checkBooks(rt, results, onQueue(t, q))
			failed := slices.ContainsFunc(results, func(r producer.Result) bool { return r.Err != nil })
			if all := !failed && len(results) == n && ctx.Err() == nil; all != (err == nil) {
				rt.Fatalf("%d of %d results, failed %v, and the error %v", len(results), n, failed, err)
			}
		})
	})
}

// planned fails requests as planned for each order, or for the first of a message.
type planned struct {
	queue.Queue
	t     testing.TB
	plan  map[int][]string
	mu    sync.Mutex
	tries map[string]int
}

func (p *planned) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	time.Sleep(time.Millisecond)
	one := ordersIn(p.t, text)[0]
	p.mu.Lock()
	var i int
	fmt.Sscan(one.ID, &i)
	try, steps := p.tries[one.ID], p.plan[i]
	p.tries[one.ID]++
	p.mu.Unlock()
	if ctx.Err() != nil {
		return queue.Message{}, ctx.Err()
	}
	if try >= len(steps) {
		return p.Queue.Enqueue(ctx, text, o)
	}
	switch steps[try] {
	case "throttled":
		return queue.Message{}, queue.ErrThrottled
	case "unanswered": // it took effect
		if _, err := p.Queue.Enqueue(ctx, text, o); err != nil {
			return queue.Message{}, err
		}
		return queue.Message{}, queue.ErrOutcomeUnknown
	case "lost": // it did not
		return queue.Message{}, queue.ErrOutcomeUnknown
	case "invalid":
		return queue.Message{}, queue.ErrInvalid
	}
	return queue.Message{}, queue.ErrUnauthorized
}

func checkBooks(t *rapid.T, results []producer.Result, times map[string]int) {
	for i, r := range results {
		there := times[fmt.Sprint(i)]
		delete(times, fmt.Sprint(i))
		switch {
		case r.Index != i:
			t.Fatalf("result %d has index %d", i, r.Index)
		case r.Err == nil && (there == 0 || there > 1 && !r.Sent.MaybeTwice || r.Sent.ID == ""):
			t.Fatalf("job %d is %d times on the queue, and its result %+v", i, there, r)
		case r.Err != nil && there > 0 && !errors.Is(r.Err, queue.ErrOutcomeUnknown):
			t.Fatalf("job %d is %d times on the queue, and its error is %v", i, there, r.Err)
		}
	}
	if len(times) > 0 {
		t.Fatalf("on the queue without a result: %v", slices.Collect(maps.Keys(times)))
	}
}

// A job that cannot be sent as it is stops no other.
func TestABadJobStopsNoOther(t *testing.T) {
	q := setup(t)
	jobs := []order{{"0"}, {strings.Repeat("x", queue.MaxText)}, {"2"}, {"3"}}
	options := func(i int, _ order) producer.SendOptions {
		if i == 2 {
			return producer.SendOptions{Delay: -1}
		}
		return producer.SendOptions{}
	}
	results, err := producer.New[order](q, nil).SendAll(t.Context(), jobs, &producer.SendAllOptions[order]{Options: options})
	if !errors.Is(err, queue.ErrTooLarge) || !strings.HasPrefix(err.Error(), "2 of 4 jobs were not accepted, the first with index 1: send to acme/orders: ") {
		t.Errorf("got %v", err)
	}
	if len(results) != 4 || results[0].Err != nil || !errors.Is(results[1].Err, queue.ErrTooLarge) || !errors.Is(results[2].Err, queue.ErrInvalid) || results[3].Err != nil {
		t.Errorf("got %+v", results)
	}
	if times := onQueue(t, q); len(times) != 2 || times["0"] != 1 || times["3"] != 1 {
		t.Errorf("on the queue are %v", times)
	}
}

// What would meet every job ends an endless sequence.
func TestAnErrorThatMeetsEveryJobEndsSendAll(t *testing.T) {
	for _, failure := range []error{queue.ErrUnauthorized, queue.ErrQueueMissing, queue.ErrQueueBeingDeleted, queue.ErrThrottled, queue.ErrUnavailable, queue.ErrOutcomeUnknown} {
		synctest.Test(t, func(t *testing.T) {
			sent := 0
			var mu sync.Mutex
			q := &scripted{setup(t), func(context.Context, string) error {
				mu.Lock()
				defer mu.Unlock()
				if sent++; sent <= 100 {
					return nil
				}
				return failure
			}}
			results, err := producer.New[order](q, nil).SendAllSeq(t.Context(), orders(endless), nil)
			if !errors.Is(err, failure) || !strings.Contains(err.Error(), "no further job was taken after") {
				t.Errorf("got %v", err)
			}
			if n := len(results); n < 101 || n > 100+32+32 {
				t.Errorf("%v: %d jobs were taken", failure, n)
			}
		})
	}
}

// When the context ends no further job is taken, and those on their way say what became of them.
func TestSendAllEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := setup(t)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("closing time"))
		defer cancel()
		slow := &scripted{q, func(ctx context.Context, _ string) error {
			select {
			case <-time.After(70 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return queue.ErrOutcomeUnknown
			}
		}}
		results, err := producer.New[order](slow, nil).SendAllSeq(ctx, orders(endless), &producer.SendAllOptions[order]{Concurrency: 2})
		if err == nil || !strings.Contains(err.Error(), "closing time") {
			t.Errorf("got %v", err)
		}
		if len(results) != 30 || len(onQueue(t, q)) != 28 {
			t.Errorf("%d jobs were taken, want 28 accepted and two on their way", len(results))
		}
		for i, r := range results {
			if (r.Err != nil) != (i >= 28) || r.Err != nil && !errors.Is(r.Err, queue.ErrOutcomeUnknown) {
				t.Errorf("result %d is %+v", i, r)
			}
		}
		taken := false
		jobs := func(func(order) bool) { taken = true }
		for range 20 { // a select that drew lots would take a job in half of them
			if results, err := producer.New[order](q, nil).SendAllSeq(ctx, jobs, nil); err == nil || len(results) > 0 || taken {
				t.Fatalf("with a context that has ended: got %v, error %v, taken %v; want none taken", results, err, taken)
			}
		}
	})
}

func TestSendAllOfNothing(t *testing.T) {
	results, err := producer.New[order](setup(t), nil).SendAllSeq(t.Context(), orders(0), nil)
	if err != nil || len(results) != 0 {
		t.Errorf("got %v, %v", results, err)
	}
	if _, err := producer.New[order](setup(t), nil).SendAllSeq(t.Context(), orders(1), &producer.SendAllOptions[order]{Concurrency: -1}); err == nil {
		t.Error("a negative Concurrency was taken")
	}
	var zero producer.Producer[order]
	if _, err := zero.SendAllSeq(t.Context(), orders(1), nil); err == nil {
		t.Error("the zero producer sent something")
	}
}

// Report gets every result, one after the other, and nothing else keeps them.
func TestReportGetsEveryResult(t *testing.T) {
	q := setup(t)
	var indices []int
	results, err := producer.New[order](q, nil).SendAllSeq(t.Context(), orders(200), &producer.SendAllOptions[order]{
		Report: func(r producer.Result) {
			if r.Err != nil || r.Sent.ID == "" {
				t.Errorf("got %+v", r)
			}
			indices = append(indices, r.Index) // the race detector sees calls at the same time
		},
		Options: func(i int, one order) producer.SendOptions {
			return producer.SendOptions{JobID: fmt.Sprint(i, " ", one.ID)}
		},
	})
	slices.Sort(indices)
	if err != nil || results != nil || len(indices) != 200 || indices[0] != 0 || len(slices.Compact(indices)) != 200 {
		t.Errorf("got %v, %v, %v", results, indices, err)
	}
	batch, err := q.Dequeue(t.Context(), 32, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range batch {
		h, body, _, _ := envelope.Open(m.Text, codec.Auto)
		if i, id, _ := strings.Cut(h.ID, " "); i != id || string(body) != fmt.Sprintf(`{"ID":%q}`, id) {
			t.Errorf("job %q has the body %s", h.ID, body)
		}
	}
}

// failingCodec calls a function for each value.
type failingCodec struct{ fail func() }

func (c failingCodec) Encode(v order) ([]byte, error) {
	if v.ID == "3" {
		c.fail()
	}
	return codec.JSON[order]().Encode(v)
}

func (failingCodec) Decode([]byte) (order, error) { return order{}, nil }

var errPanic = errors.New("a bug")

// A panic of the user's comes out of SendAll, but only when everything on its way has been answered.
func TestPanicsComeOutOfSendAll(t *testing.T) {
	fail := func() { panic(errPanic) }
	at3 := func(yield func(order) bool) {
		for one := range orders(endless) {
			if one.ID == "3" {
				fail()
			}
			if !yield(one) {
				return
			}
		}
	}
	type userCode struct {
		jobs    iter.Seq[order]
		options producer.Options[order]
		all     producer.SendAllOptions[order]
	}
	cases := map[string]userCode{
		"sequence": {jobs: at3},
		"codec":    {options: producer.Options[order]{Codec: failingCodec{fail}}},
		"trace":    {options: producer.Options[order]{Trace: func(context.Context) (string, string) { fail(); return "", "" }}},
		"interceptor": {options: producer.Options[order]{Interceptors: []producer.Interceptor{
			func(context.Context, *producer.Sending, func(context.Context) error) error { fail(); return nil }}}},
		"options": {all: producer.SendAllOptions[order]{Options: func(int, order) producer.SendOptions { fail(); return producer.SendOptions{} }}},
		"report":  {all: producer.SendAllOptions[order]{Report: func(producer.Result) { fail() }}},
	}
	test := func(where string, c userCode, perMessage int) {
		synctest.Test(t, func(t *testing.T) {
			var onTheWay atomic.Int32
			q := &scripted{setup(t), func(context.Context, string) error {
				onTheWay.Add(1)
				defer onTheWay.Add(-1)
				time.Sleep(time.Second)
				return nil
			}}
			c.all.PerMessage = perMessage
			jobs := c.jobs
			if jobs == nil {
				jobs = orders(endless)
			}
			defer func() {
				if err, _ := recover().(error); !errors.Is(err, errPanic) {
					t.Errorf("panic of %s: recovered %v", where, err)
				}
				if onTheWay.Load() != 0 {
					t.Errorf("panic of %s: %d requests outlive SendAll", where, onTheWay.Load())
				}
			}()
			producer.New(q, &c.options).SendAllSeq(t.Context(), jobs, &c.all)
			t.Errorf("panic of %s: SendAll returned", where)
		})
	}
	for where, c := range cases {
		test(where, c, 1)
		test(where+" with two jobs in a message", c, 2)
	}
}

// A panic on a goroutine of SendAll's says where it came from.
func TestAPanicOfACodecHasItsStack(t *testing.T) {
	defer func() {
		err, _ := recover().(error)
		if err == nil || !strings.Contains(err.Error(), "a bug") || !strings.Contains(err.Error(), "failingCodec.Encode") {
			t.Errorf("got %v", err)
		}
	}()
	producer.New(setup(t), &producer.Options[order]{Codec: failingCodec{func() { panic("a bug") }}}).SendAllSeq(t.Context(), orders(10), nil)
}

// A function that ends its goroutine, as t.FailNow does, has accepted nothing: that comes out as a panic does. The
// goroutine is missing from then on, and nobody waits for it.
func TestACodecThatEndsItsGoroutineEndsSendAll(t *testing.T) {
	for concurrency := 1; concurrency <= 3; concurrency++ {
		func() {
			defer func() {
				if err, _ := recover().(error); err == nil || !strings.Contains(err.Error(), "has ended its goroutine") {
					t.Errorf("got %v", err)
				}
			}()
			results, err := producer.New(setup(t), &producer.Options[order]{Codec: failingCodec{runtime.Goexit}}).
				SendAllSeq(t.Context(), orders(endless), &producer.SendAllOptions[order]{Concurrency: concurrency})
			t.Errorf("got %v, %v", results, err)
		}()
	}
}

// A sequence that yields after false is a mistake in the program: the runtime's panic comes out when no
// request is under way any more, and nothing further is sent.
func TestASequenceThatYieldsAfterFalsePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var onTheWay, sent atomic.Int32
		q := &scripted{setup(t), func(context.Context, string) error {
			onTheWay.Add(1)
			defer onTheWay.Add(-1)
			time.Sleep(300 * time.Millisecond)
			sent.Add(1)
			return nil
		}}
		refused := 0
		jobs := func(yield func(order) bool) {
			for one := range orders(endless) {
				if !yield(one) {
					refused++
				}
			}
		}
		defer func() {
			if _, ok := recover().(runtime.Error); !ok || refused != 1 || onTheWay.Load() != 0 || sent.Load() != 8 {
				t.Errorf("got %d refusals, %d on the way, %d sent; want the runtime's panic after 1, with 0 and 8", refused, onTheWay.Load(), sent.Load())
			}
		}()
		results, err := producer.New[order](q, nil).SendAllSeq(ctx, jobs, &producer.SendAllOptions[order]{Concurrency: 2})
		t.Errorf("got %v, %v; want a panic", results, err)
	})
}
