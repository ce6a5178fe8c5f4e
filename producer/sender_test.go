package producer_test

import (
	"context"
	"strings"
	"testing"

	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// sender sends to one of two queues, by the key, and can do nothing else.
type sender struct {
	first, second queue.Queue
	keys          []string
}

func (s *sender) Name() queue.Name { return queue.Name{Account: "test", Queue: "both"} }

func (s *sender) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	s.keys = append(s.keys, o.Key)
	q := s.first
	if o.Key != "" {
		q = s.second
	}
	m, err := q.Enqueue(ctx, text, o)
	m.Queue = q.Name()
	return m, err
}

// A sender over several queues is enough for a producer. It sees the key of the job, which an interceptor
// may replace, and the result says which queue the message is in.
func TestASenderIsEnough(t *testing.T) {
	first := setup(t)
	second := first.Sibling("-second")
	if err := second.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	s := &sender{first: first, second: second}
	replaced := ""
	p := producer.New(s, &producer.Options[order]{Interceptors: []producer.Interceptor{
		func(ctx context.Context, sending *producer.Sending, next func(context.Context) error) error {
			if replaced != "" {
				sending.Key = replaced
			}
			return next(ctx)
		},
	}})
	for _, c := range []struct {
		key, replaced, want string
		queue               queue.Queue
	}{{"", "", "", first}, {"customer 7", "", "customer 7", second}, {"customer 7", "tenant 1", "tenant 1", second}} {
		replaced, s.keys = c.replaced, nil
		sent, err := p.Send(t.Context(), order{"7"}, &producer.SendOptions{Key: c.key})
		if err != nil || sent.Queue != c.queue.Name() || len(s.keys) != 1 || s.keys[0] != c.want {
			t.Errorf("key %q: got %+v, %v with the keys %q; want the queue %v and the key %q", c.key, sent, err, s.keys, c.queue.Name(), c.want)
		}
	}
	sent, err := producer.New[order](first, nil).Send(t.Context(), order{"7"}, nil)
	if err != nil || sent.Queue != first.Name() {
		t.Errorf("one queue: got %+v, %v; want its name", sent, err)
	}
}

// What a sender cannot do is refused before anything is sent.
func TestWhatASenderCannotDoIsRefused(t *testing.T) {
	s := &sender{first: setup(t)}
	for want, o := range map[string]*producer.Options[order]{
		"Create":      {Create: true},
		"WakeupDepth": {WakeupDepth: 10},
	} {
		if _, err := producer.New(s, o).Send(t.Context(), order{"7"}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error that names it", want, err)
		}
	}
	p := producer.New[order](s, nil)
	sent, err := p.Send(t.Context(), order{"7"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Cancel(t.Context(), sent); err == nil || !strings.Contains(err.Error(), "cannot delete") {
		t.Errorf("cancel: got %v, want an error that says so", err)
	}
	if len(s.keys) != 1 {
		t.Errorf("got %d requests, want that of the Send", len(s.keys))
	}
}
