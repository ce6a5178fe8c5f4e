package producer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// heard is a publisher that remembers events.
type heard struct {
	publish func(ctx context.Context) error // called by Publish; nil means success

	mu     sync.Mutex
	events []event // guarded by mu
	errors []error // what OnWakeupError received; guarded by mu
}

func (h *heard) Publish(ctx context.Context, q queue.Name, bytes int64, due time.Time) error {
	h.mu.Lock()
	h.events = append(h.events, event{q, bytes, due})
	h.mu.Unlock()
	if h.publish != nil {
		return h.publish(ctx)
	}
	return nil
}

func (h *heard) failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.errors = append(h.errors, err)
}

// take returns the events since the last time.
func (h *heard) take() []event {
	h.mu.Lock()
	defer h.mu.Unlock()
	events := h.events
	h.events = nil
	return events
}

func (h *heard) takeErrors() []error {
	h.mu.Lock()
	defer h.mu.Unlock()
	errs := h.errors
	h.errors = nil
	return errs
}

// telling returns a producer that tells h.
func telling(q queue.Sender, h *heard, change func(*producer.Options[order])) *producer.Producer[order] {
	o := &producer.Options[order]{Wakeups: h, OnWakeupError: h.failed}
	if change != nil {
		change(o)
	}
	return producer.New(q, o)
}

func TestEverySendIsTold(t *testing.T) { // L-35
	q, h := setup(t), &heard{}
	p := telling(q, h, nil)
	for name, send := range map[string]func() (producer.Sent, error){
		"job":   func() (producer.Sent, error) { return p.Send(t.Context(), order{"7"}, nil) },
		"group": func() (producer.Sent, error) { return p.SendGroup(t.Context(), []order{{"8"}, {"9"}}, nil) },
	} {
		if _, err := send(); err != nil {
			t.Fatal(err)
		}
		batch, err := q.Dequeue(t.Context(), 32, time.Minute)
		if err != nil || len(batch) != 1 {
			t.Fatalf("dequeued %v, %v", batch, err)
		}
		want := event{Queue: q.Name(), Bytes: int64(len(batch[0].Text))}
		if got := h.take(); len(got) != 1 || got[0] != want {
			t.Errorf("%s: told of %+v, want %+v", name, got, want)
		}
	}
	var nobody *heard
	if _, err := producer.New(q, &producer.Options[order]{Wakeups: nobody}).Send(t.Context(), order{"7"}, nil); err != nil {
		t.Errorf("a nil pointer as the publisher: %v", err)
	}
}

// A worker that comes when the event says must find the job, and need not wait long for it.
func TestADelayedSendSaysWhenItBecomesVisible(t *testing.T) {
	for _, delay := range []time.Duration{time.Second, 1500 * time.Millisecond, 7*24*time.Hour - time.Second} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(123 * time.Millisecond)
			q, h := setup(t), &heard{}
			if _, err := telling(q, h, nil).Send(t.Context(), order{"7"}, &producer.SendOptions{Delay: delay}); err != nil {
				t.Fatal(err)
			}
			got := h.take()
			if len(got) != 1 || got[0].Bytes == 0 || time.Until(got[0].Due) >= delay+time.Second {
				t.Fatalf("told of %+v", got)
			}
			time.Sleep(time.Until(got[0].Due))
			if batch, err := q.Dequeue(t.Context(), 32, time.Minute); len(batch) != 1 || err != nil {
				t.Errorf("delay %v: dequeued %v, %v when the job was due", delay, batch, err)
			}
		})
	}
}

func TestSendAllTellsOnceAfterTheLastJob(t *testing.T) { // L-35
	q, h := setup(t), &heard{}
	var depth int64
	h.publish = func(ctx context.Context) error {
		p, err := q.Properties(ctx)
		depth = p.Depth
		return err
	}
	large := order{strings.Repeat("x", 100_000)}
	jobs := func(yield func(order) bool) {
		_ = yield(large) // refused; what follows is sent
		orders(100)(yield)
	}
	if _, err := telling(q, h, nil).SendAllSeq(t.Context(), jobs, nil); !errors.Is(err, queue.ErrTooLarge) {
		t.Fatal(err)
	}
	var bytes int64
	for range 4 {
		batch, err := q.Dequeue(t.Context(), 32, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range batch {
			bytes += int64(len(m.Text))
		}
	}
	want := event{Queue: q.Name(), Bytes: bytes}
	if got := h.take(); len(got) != 1 || got[0] != want || depth != 100 {
		t.Errorf("told of %+v at a depth of %d, want %+v and 100", got, depth, want)
	}
}

func TestAnEndlessSendAllTellsEverySecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, h := setup(t), &heard{}
		jobs := func(yield func(order) bool) {
			for _, pause := range []time.Duration{0, 10 * time.Millisecond, 10 * time.Second, 300 * time.Millisecond, 10 * time.Second} {
				time.Sleep(pause)
				if !yield(order{"7"}) {
					return
				}
				if pause == 10*time.Millisecond || pause == 300*time.Millisecond {
					time.Sleep(time.Second)
					synctest.Wait()
					if got := h.take(); len(got) != 1 || got[0].Bytes == 0 {
						t.Errorf("told of %+v within a second, want one event", got)
					}
				}
			}
		}
		if _, err := telling(q, h, nil).SendAllSeq(t.Context(), jobs, nil); err != nil {
			t.Fatal(err)
		}
		if got := h.take(); len(got) != 1 {
			t.Errorf("told of %+v after the last job, want one event", got)
		}
	})
}

func TestSendAllTellsAlsoWhenItFails(t *testing.T) {
	q, h := setup(t), &heard{}
	func() {
		defer func() { _ = recover() }()
		_, _ = telling(q, h, nil).SendAllSeq(t.Context(), func(yield func(order) bool) {
			_ = yield(order{"7"})
			panic("no further order")
		}, nil)
	}()
	if got := h.take(); len(got) != 1 {
		t.Errorf("panic: told of %+v, want one event", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	h = &heard{publish: func(ctx context.Context) error { return ctx.Err() }}
	_, err := telling(setup(t), h, nil).SendAllSeq(ctx, orders(endless), &producer.SendAllOptions[order]{
		Concurrency: 1, Report: func(producer.Result) { cancel() },
	})
	if got := h.take(); !errors.Is(err, context.Canceled) || len(got) != 1 || len(h.takeErrors()) != 0 {
		t.Errorf("cancelled: told of %+v, %v; want one event, whose context has not ended", got, err)
	}
}

func TestSendAllTellsOncePerSecondInWhichJobsBecomeVisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, h := setup(t), &heard{}
		time.Sleep(123 * time.Millisecond)
		jobs := func(yield func(order) bool) {
			for range 300 {
				time.Sleep(time.Millisecond)
				if !yield(order{"7"}) {
					return
				}
			}
		}
		var visible [4]time.Time // the last of each delay, in minutes
		sent := int64(0)
		count := func(ctx context.Context, _ *producer.Sending, next func(context.Context) error) error {
			err := next(ctx)
			sent++
			return err
		}
		p := telling(q, h, func(o *producer.Options[order]) { o.Interceptors = []producer.Interceptor{count} })
		_, err := p.SendAllSeq(t.Context(), jobs, &producer.SendAllOptions[order]{
			Concurrency: 1,
			Options: func(i int, _ order) producer.SendOptions {
				minutes := 1 + i%3
				delay := time.Duration(minutes) * time.Minute
				visible[minutes] = time.Now().Add(delay)
				return producer.SendOptions{Delay: delay}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		got := h.take()
		var told int64
		for _, e := range got {
			told += e.Bytes
			last := visible[int(time.Until(e.Due)/time.Minute)]
			if late := e.Due.Sub(last); late < 0 || late >= time.Second {
				t.Errorf("due at %v, want the second after %v", e.Due, last)
			}
		}
		if len(got) != 3 {
			t.Errorf("told of %+v, want three events", got)
		}
		time.Sleep(4 * time.Minute)
		if want := sent * h.size(t, q); told != want {
			t.Errorf("told of %d bytes, want %d", told, want)
		}
	})
}

// When an event fails, the others for later times would fail too.
func TestAFailureEndsTheEventsOfASendAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("no connection")
		h := &heard{publish: func(context.Context) error { return broken }}
		_, err := telling(setup(t), h, nil).SendAllSeq(t.Context(), orders(300), &producer.SendAllOptions[order]{
			Options: func(i int, _ order) producer.SendOptions {
				return producer.SendOptions{Delay: time.Duration(1+i%3) * time.Minute}
			},
		})
		if got, errs := h.take(), h.takeErrors(); err != nil || len(got) != 1 || len(errs) != 1 || !errors.Is(errs[0], broken) {
			t.Errorf("%v: told of %+v and reported %v, want one event and one error", err, got, errs)
		}
	})
}

// The last event of a SendAll comes when the one before has been published, and SendAll returns after it.
func TestSendAllPublishesOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var publishing atomic.Int64
		h := &heard{publish: func(context.Context) error {
			if publishing.Add(1) > 1 {
				t.Error("events are published at once")
			}
			time.Sleep(500 * time.Millisecond)
			publishing.Add(-1)
			return nil
		}}
		jobs := func(yield func(order) bool) {
			if yield(order{"7"}) {
				time.Sleep(1200 * time.Millisecond)
				yield(order{"8"})
			}
		}
		if _, err := telling(setup(t), h, nil).SendAllSeq(t.Context(), jobs, nil); err != nil {
			t.Fatal(err)
		}
		if got := h.take(); len(got) != 2 || publishing.Load() != 0 {
			t.Errorf("told of %+v, %d of them are still being published; want two events and none", got, publishing.Load())
		}
	})
}

// A panic of OnWakeupError comes out of SendAll, whether an event fails during it or at its end.
func TestAPanicOfOnWakeupErrorComesOutOfSendAll(t *testing.T) {
	for _, pause := range []time.Duration{0, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			h := &heard{publish: func(context.Context) error { return errors.New("no connection") }}
			p := telling(setup(t), h, func(o *producer.Options[order]) { o.OnWakeupError = func(error) { panic("no log") } })
			defer func() {
				if v := recover(); !strings.Contains(fmt.Sprint(v), "no log") {
					t.Errorf("recovered %v, want the panic of OnWakeupError", v)
				}
			}()
			_, err := p.SendAllSeq(t.Context(), func(yield func(order) bool) {
				if yield(order{"7"}) {
					time.Sleep(pause)
				}
			}, nil)
			t.Errorf("SendAll returned %v", err)
		})
	}
}

func TestAFailingPublisherFailsNoSend(t *testing.T) {
	broken := errors.New("no connection")
	for name, publish := range map[string]func(context.Context) error{
		"no connection": func(context.Context) error { return broken },
		"panicked":      func(context.Context) error { panic("nil map") },
	} {
		q, h := setup(t), &heard{publish: publish}
		p := telling(q, h, nil)
		if sent, err := p.Send(t.Context(), order{"7"}, nil); err != nil || sent.JobID == "" {
			t.Errorf("%s: Send: %+v, %v", name, sent, err)
		}
		if results, err := p.SendAllSeq(t.Context(), orders(3), nil); err != nil || len(results) != 3 {
			t.Errorf("%s: SendAll: %+v, %v", name, results, err)
		}
		errs := h.takeErrors()
		if len(errs) != 2 || !strings.Contains(errs[0].Error(), name) || !strings.Contains(errs[0].Error(), "wake the workers of acme/orders") {
			t.Errorf("reported %v", errs)
		}
		if got := onQueue(t, q); len(got) != 4 {
			t.Errorf("%s: on the queue is %v", name, got)
		}
		unheard := telling(q, h, func(o *producer.Options[order]) { o.OnWakeupError = nil })
		if _, err := unheard.Send(t.Context(), order{"7"}, nil); err != nil {
			t.Errorf("%s, without OnWakeupError: %v", name, err)
		}
	}
}

// A publisher that takes as long as its context allows delays a Send by a second at most, and not
// beyond its Timeout. It fails no Send, and each of its errors is reported.
func TestASlowPublisherDelaysASendBriefly(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		0: time.Second, 200 * time.Millisecond: 200 * time.Millisecond, -1: time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			type key struct{}
			var value any
			h := &heard{publish: func(ctx context.Context) error {
				value = ctx.Value(key{})
				<-ctx.Done()
				return ctx.Err()
			}}
			p := telling(setup(t), h, func(o *producer.Options[order]) { o.Timeout = timeout })
			for range 3 {
				start := time.Now()
				_, err := p.Send(context.WithValue(t.Context(), key{}, "trace"), order{"7"}, nil)
				if took := time.Since(start); err != nil || took != want {
					t.Errorf("Timeout %v: Send returned %v after %v, want no error after %v", timeout, err, took, want)
				}
				if events, errs := h.take(), h.takeErrors(); len(events) != 1 || value != "trace" ||
					len(errs) != 1 || !errors.Is(errs[0], context.DeadlineExceeded) {
					t.Errorf("told of %+v with the value %v, reported %v; want one event, the value of the Send, one error", events, value, errs)
				}
			}
		})
	}
}

// size returns the size of the messages, which is the same for all.
func (h *heard) size(t *testing.T, q queue.Queue) int64 {
	t.Helper()
	batch, err := q.Peek(t.Context(), 1)
	if err != nil || len(batch) != 1 {
		t.Fatalf("peeked at %v, %v", batch, err)
	}
	return int64(len(batch[0].Text))
}

// What may be on the queue is told, and what is not is not.
func TestOnlyWhatMayBeOnTheQueueIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for kind, told := range map[error]int{queue.ErrOutcomeUnknown: 1, queue.ErrUnauthorized: 0, queue.ErrUnavailable: 0} {
			h := &heard{}
			q := &failingQueue{Queue: setup(t), failures: 1 << 20, err: &queue.Error{Kind: kind}}
			if _, err := telling(q, h, nil).Send(t.Context(), order{"7"}, nil); !errors.Is(err, kind) {
				t.Fatal(err)
			}
			synctest.Wait() // the Timeout is over, and so nobody waits for the publisher
			if got, errs := h.take(), h.takeErrors(); len(got) != told || len(errs) != 0 {
				t.Errorf("%v: told of %+v and reported %v, want %d events", kind, got, errs, told)
			}
		}
		h := &heard{}
		refused := errors.New("refused afterwards")
		p := telling(setup(t), h, func(o *producer.Options[order]) {
			o.Interceptors = []producer.Interceptor{func(ctx context.Context, _ *producer.Sending, next func(context.Context) error) error {
				return errors.Join(next(ctx), refused)
			}}
		})
		if _, err := p.Send(t.Context(), order{"7"}, nil); !errors.Is(err, refused) || len(h.take()) != 1 {
			t.Errorf("an interceptor failed after the job was accepted: %v, and nobody was told", err)
		}
	})
}

// event is what was published, or heard.
type event struct {
	Queue queue.Name
	Bytes int64
	Due   time.Time
}
