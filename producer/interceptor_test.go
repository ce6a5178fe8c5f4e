package producer_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/localqueue"
)

func TestInterceptorsSeeAndChangeASend(t *testing.T) {
	q := must(localqueue.New(nil)).Queue(queue.Name{Account: "test", Queue: "jobs"})
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	var order []string
	p := producer.New(q, &producer.Options[int]{Interceptors: []producer.Interceptor{
		func(ctx context.Context, s *producer.Sending, next func(context.Context) error) error {
			order = append(order, "outer")
			s.Delay = time.Hour
			err := next(ctx)
			if s.Sent.ID == "" || s.Queue != q.Name() {
				t.Errorf("after next: got %+v; want an id and the queue %v", s, q.Name())
			}
			return err
		},
		func(ctx context.Context, s *producer.Sending, next func(context.Context) error) error {
			order = append(order, "inner")
			s.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
			return next(ctx)
		},
	}})
	sent, err := p.Send(t.Context(), 1, nil)
	if err != nil || sent.ID == "" {
		t.Fatalf("got %+v, %v; want an id", sent, err)
	}
	if want := []string{"outer", "inner"}; !slices.Equal(order, want) {
		t.Errorf("order: got %q, want %q", order, want)
	}
	if visible, err := q.Peek(t.Context(), 1); err != nil || len(visible) != 0 {
		t.Errorf("visible messages: got %v, %v; want none during the delay", visible, err)
	}
}

func TestAnInterceptorCanRefuseASend(t *testing.T) {
	q := must(localqueue.New(nil)).Queue(queue.Name{Account: "test", Queue: "jobs"})
	closed := errors.New("closed for the night")
	p := producer.New(q, &producer.Options[int]{Interceptors: []producer.Interceptor{
		func(context.Context, *producer.Sending, func(context.Context) error) error { return closed },
	}})
	if _, err := p.Send(t.Context(), 1, nil); !errors.Is(err, closed) {
		t.Errorf("got error %v, want %v before anything is sent", err, closed)
	}
}

func TestASendCreatesTheQueueIfCreateIsSet(t *testing.T) {
	q := must(localqueue.New(nil)).Queue(queue.Name{Account: "test", Queue: "jobs"})
	if _, err := producer.New[int](q, nil).Send(t.Context(), 1, nil); !errors.Is(err, queue.ErrQueueMissing) {
		t.Errorf("without Create: got %v, want %v", err, queue.ErrQueueMissing)
	}
	sent, err := producer.New(q, &producer.Options[int]{Create: true}).Send(t.Context(), 1, nil)
	if err != nil || sent.ID == "" {
		t.Fatalf("with Create: got %+v, %v; want an id", sent, err)
	}
	batch, err := q.Peek(t.Context(), 2)
	if err != nil || len(batch) != 1 || batch[0].ID != sent.ID {
		t.Errorf("got messages %v, error %v; want the one job", batch, err)
	}
}

func TestAProducerWithoutAQueueFails(t *testing.T) {
	var zero producer.Producer[int]
	if _, err := zero.Send(t.Context(), 1, nil); err == nil {
		t.Error("Send of the zero producer: got no error, want one")
	}
	if _, err := (*producer.Producer[int])(nil).Send(t.Context(), 1, nil); err == nil {
		t.Error("Send of the nil producer: got no error, want one")
	}
	for name, q := range map[string]queue.Queue{"nil": nil, "a typed nil": (*faultqueue.Queue)(nil)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("New with %s: got no panic, want one", name)
				}
			}()
			producer.New[int](q, nil)
		}()
	}
	q := must(localqueue.New(nil)).Queue(queue.Name{Account: "test", Queue: "jobs"})
	if _, err := producer.New(q, &producer.Options[int]{Format: "xml"}).Send(t.Context(), 1, nil); err == nil {
		t.Error("Send in an unknown format: got no error, want one")
	}
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
