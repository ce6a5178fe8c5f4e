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

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// busy is a queue that is too busy to accept anything for a while.
type busy struct {
	queue.Queue
	until time.Time
}

func (b *busy) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if time.Now().Before(b.until) {
		return queue.Message{}, queue.ErrThrottled
	}
	return b.Queue.Enqueue(ctx, text, o)
}

// A send is retried for 30 s unless told otherwise: for its Timeout, or for as long as its
// context lasts.
func TestASendIsRetriedForAsLongAsItsTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		timeout  time.Duration
		busy     time.Duration
		accepted bool
		most     time.Duration
	}{
		"default":                  {0, time.Hour, false, 30 * time.Second},
		"default, busy for 20 s":   {0, 20 * time.Second, true, 30 * time.Second},
		"10 s":                     {10 * time.Second, time.Hour, false, 10 * time.Second},
		"negative, busy for 5 min": {-1, 5 * time.Minute, true, 6 * time.Minute},
		"a millisecond":            {time.Millisecond, 0, true, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			q := &busy{Queue: setup(t), until: begin.Add(c.busy)}
			_, err := producer.New(q, &producer.Options[order]{Timeout: c.timeout}).Send(t.Context(), order{"7"}, nil)
			took := time.Since(begin)
			if (err == nil) != c.accepted || err != nil && !errors.Is(err, queue.ErrThrottled) {
				t.Errorf("%s: got %v, want accepted: %v", name, err, c.accepted)
			}
			if least := c.most * 3 / 4; took > c.most || !c.accepted && took < least {
				t.Errorf("%s: it took %v, want %v…%v", name, took, least, c.most)
			}
		})
	}
}

// recovering is a queue that is too busy for 35 s, and then accepts a message 900 ms after its request began,
// even if the sender has given up by then.
type recovering struct {
	queue.Queue
	begin    time.Time
	requests atomic.Int64
}

func (r *recovering) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	r.requests.Add(1)
	if time.Since(r.begin) < 35*time.Second {
		return queue.Message{}, queue.ErrThrottled
	}
	time.Sleep(900 * time.Millisecond)
	m, err := r.Queue.Enqueue(context.WithoutCancel(ctx), text, o)
	if ctx.Err() != nil {
		return queue.Message{}, queue.ErrOutcomeUnknown
	}
	return m, err
}

// no request begins so late that its message is handled although its Send has failed.
func TestNoFailedSendIsHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &recovering{Queue: setup(t), begin: time.Now()}
		p := producer.New[order](q, nil)
		var mu sync.Mutex
		failed := map[string]error{} // by order; guarded by mu
		var sends sync.WaitGroup
		for i := range 500 {
			sends.Go(func() {
				id := fmt.Sprint(i)
				_, err := p.Send(t.Context(), order{id}, nil)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed[id] = err
				}
			})
			time.Sleep(20 * time.Millisecond)
		}
		sends.Wait()
		handled := 0
		for body := range onQueue(t, q.Queue) {
			if failed[body] != nil {
				handled++
			}
		}
		t.Logf("of 500 sends %d failed, and %d of these were handled", len(failed), handled)
		if len(failed) == 0 || handled != 0 {
			t.Errorf("got %d that failed and %d of these handled, want some and 0", len(failed), handled)
		}
		for id, err := range failed {
			if !errors.Is(err, queue.ErrThrottled) || errors.Is(err, queue.ErrOutcomeUnknown) {
				t.Errorf("%s: got %v, want %v", id, err, queue.ErrThrottled)
			}
		}
	})
}

// A send with little time makes its first request all the same, and repeats it in the first half of that time.
func TestASendWithLittleTimeIsSent(t *testing.T) {
	for _, c := range []struct{ timeout, busy time.Duration }{
		{time.Millisecond, 0}, {500 * time.Millisecond, 0}, {500 * time.Millisecond, 50 * time.Millisecond}, {2 * time.Second, 500 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := &busy{Queue: setup(t), until: time.Now().Add(c.busy)}
			ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
			defer cancel()
			if _, err := producer.New[order](q, nil).Send(ctx, order{"7"}, nil); err != nil {
				t.Errorf("%v, busy for %v: %v", c.timeout, c.busy, err)
			}
		})
	}
}

// slowClaims store a body in 29.5 s.
type slowClaims struct{}

func (slowClaims) Limit() int { return 0 }
func (slowClaims) Put(context.Context, []byte) (string, error) {
	time.Sleep(29500 * time.Millisecond)
	return "claim", nil
}

// A send whose time is used up before its first request says that it sent nothing.
func TestASendThatIsTooLateSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &recovering{Queue: setup(t), begin: time.Now().Add(-time.Hour)}
		_, err := producer.New(q, &producer.Options[order]{Claims: slowClaims{}}).Send(t.Context(), order{"7"}, nil)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "nothing was sent") || q.requests.Load() != 0 {
			t.Errorf("got %v after %d requests, want that nothing was sent", err, q.requests.Load())
		}
	})
}

// created is a queue that is missing at the first enqueue, and that another program creates
// before us if told so.
type created struct {
	queue.Queue
	byAnother bool
	options   []queue.EnqueueOptions
}

func (c *created) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if o == nil {
		o = &queue.EnqueueOptions{}
	}
	if c.options = append(c.options, *o); len(c.options) == 1 {
		return queue.Message{}, queue.ErrQueueMissing
	}
	return c.Queue.Enqueue(ctx, text, o)
}

func (c *created) Create(context.Context, map[string]string) error {
	if c.byAnother {
		return queue.ErrQueueExists
	}
	return nil
}

// A job is sent to the queue that was created for it with the same options, whoever created it.
func TestAJobKeepsItsOptionsInAQueueMadeForIt(t *testing.T) {
	for _, byAnother := range []bool{false, true} {
		q := &created{Queue: setup(t), byAnother: byAnother}
		want := queue.EnqueueOptions{Delay: time.Minute, TTL: time.Hour}
		o := producer.SendOptions{Delay: want.Delay, TTL: want.TTL}
		if _, err := producer.New(q, &producer.Options[order]{Create: true}).Send(t.Context(), order{"7"}, &o); err != nil {
			t.Fatalf("created by another %v: %v", byAnother, err)
		}
		if len(q.options) != 2 || q.options[0] != want || q.options[1] != want {
			t.Errorf("created by another %v: enqueued with %+v, want %+v twice", byAnother, q.options, want)
		}
	}
}

// unmakable is a queue that is missing and cannot be created.
type unmakable struct{ queue.Manager }

func (unmakable) Create(context.Context, map[string]string) error { return queue.ErrUnauthorized }

func TestAQueueThatCannotBeMadeSaysWhy(t *testing.T) {
	q := unmakable{must(localqueue.New(nil)).Queue(queue.Name{Account: "acme", Queue: "orders"})}
	_, err := producer.New(q, &producer.Options[order]{Create: true}).Send(t.Context(), order{"7"}, nil)
	if !errors.Is(err, queue.ErrUnauthorized) || errors.Is(err, queue.ErrQueueMissing) {
		t.Errorf("got %v, want %v", err, queue.ErrUnauthorized)
	}
}

// Formats without a head may be as large as any text: nothing is recorded in them.
func TestABareJobMayBeAsLargeAsAnyText(t *testing.T) {
	for _, size := range []int{queue.MaxText, queue.MaxText + 1} {
		q := setup(t)
		p := producer.New(q, &producer.Options[string]{Codec: codec.Text(), Format: codec.Plain})
		_, err := p.Send(t.Context(), strings.Repeat("x", size), nil)
		if fits := size <= queue.MaxText; (err == nil) != fits || err != nil && !errors.Is(err, queue.ErrTooLarge) {
			t.Errorf("%d bytes: got %v, want accepted: %v", size, err, fits)
		}
	}
}

// The codec of the options is the one that encodes.
func TestTheCodecOfTheOptionsEncodes(t *testing.T) {
	q := setup(t)
	p := producer.New(q, &producer.Options[string]{Codec: codec.Text(), Format: codec.Plain})
	if _, err := p.Send(t.Context(), "no JSON", nil); err != nil {
		t.Fatal(err)
	}
	if batch, err := q.Peek(t.Context(), 1); err != nil || len(batch) != 1 || batch[0].Text != "no JSON" {
		t.Errorf("got %+v, %v; want the text as it was", batch, err)
	}
}

// contextual is a queue that records a value of the context of each enqueue.
type contextual struct {
	queue.Queue
	seen []any
}

type whoseSend struct{}

func (c *contextual) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	c.seen = append(c.seen, ctx.Value(whoseSend{}))
	return c.Queue.Enqueue(ctx, text, o)
}

// The context that an interceptor passes on is that of the next one and of the request.
func TestTheContextOfAnInterceptorReachesTheQueue(t *testing.T) {
	q := &contextual{Queue: setup(t)}
	var inner any
	p := producer.New(q, &producer.Options[order]{Interceptors: []producer.Interceptor{
		func(ctx context.Context, _ *producer.Sending, next func(context.Context) error) error {
			return next(context.WithValue(ctx, whoseSend{}, "outer"))
		},
		func(ctx context.Context, _ *producer.Sending, next func(context.Context) error) error {
			inner = ctx.Value(whoseSend{})
			return next(context.WithValue(ctx, whoseSend{}, "inner"))
		},
	}})
	if _, err := p.Send(t.Context(), order{"7"}, nil); err != nil {
		t.Fatal(err)
	}
	if inner != "outer" || len(q.seen) != 1 || q.seen[0] != "inner" {
		t.Errorf("the inner interceptor saw %v, the queue %v; want outer and inner", inner, q.seen)
	}
}

// An error of an interceptor is the result of the send, also after the job was accepted.
func TestAnErrorAfterTheSendHasNoResult(t *testing.T) {
	after := errors.New("the audit failed")
	p := producer.New(setup(t), &producer.Options[order]{Interceptors: []producer.Interceptor{
		func(ctx context.Context, s *producer.Sending, next func(context.Context) error) error {
			if err := next(ctx); err != nil || s.Sent.ID == "" {
				t.Errorf("next: %v, sent %+v; want a sent job", err, s.Sent)
			}
			return after
		},
	}})
	if sent, err := p.Send(t.Context(), order{"7"}, nil); !errors.Is(err, after) || sent != (producer.Sent{}) {
		t.Errorf("got %+v, %v; want nothing and %v", sent, err, after)
	}
}
