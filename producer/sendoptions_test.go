package producer_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

const (
	traceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	traceState  = "vendor=1"
)

// onlyHead returns the head of the only message on the queue.
func onlyHead(t *testing.T, q queue.Queue) envelope.Head {
	t.Helper()
	batch, err := q.Peek(t.Context(), 2)
	if err != nil || len(batch) != 1 {
		t.Fatalf("got %v, %v, want one message", batch, err)
	}
	h, _, _, err := envelope.Open(batch[0].Text, codec.Auto, envelope.Kinds)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestTheEnvelopeSaysWhatTheOptionsSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		q := setup(t)
		p := producer.New(q, &producer.Options[order]{Kind: "order", Trace: func(ctx context.Context) (string, string) {
			if ctx.Value(key{}) != "sender" {
				t.Error("the trace context is not that of the sender")
			}
			return traceParent, traceState
		}})
		sent, err := p.Send(context.WithValue(t.Context(), key{}, "sender"), order{"7"}, &producer.SendOptions{JobID: "job 7", DedupeKey: "d/7", Key: "customer"})
		if err != nil {
			t.Fatal(err)
		}
		want := envelope.Head{ID: "job 7", Kind: "order", Key: "customer", Dedupe: "d/7", Trace: traceParent, TraceState: traceState, Enqueued: time.Now().UTC()}
		if got := onlyHead(t, q); got != want || sent.JobID != "job 7" {
			t.Errorf("got %+v, sent %+v, want %+v", got, sent, want)
		}
	})
}

// A job has an id also when its sender gives none, and the answer has it.
func TestSentHasTheJobID(t *testing.T) {
	q := setup(t)
	sent, err := producer.New[order](q, nil).Send(t.Context(), order{"7"}, nil)
	if err != nil || sent.JobID == "" || onlyHead(t, q).ID != sent.JobID {
		t.Errorf("got %+v, %v", sent, err)
	}
	sent, err = producer.New(setup(t), &producer.Options[order]{Format: codec.Plain}).Send(t.Context(), order{"7"}, nil)
	if err != nil || sent.JobID != "" || sent.ID == "" {
		t.Errorf("without an envelope: got %+v, %v", sent, err)
	}
}

// What exceeds a limit is an error that names it, and nothing is sent.
func TestLimitsAreCheckedBeforeAnythingIsSent(t *testing.T) {
	long := strings.Repeat("x", envelope.MaxHeadText+1)
	trace := func(parent, state string) func(context.Context) (string, string) {
		return func(context.Context) (string, string) { return parent, state }
	}
	sets := func(change func(*producer.Sending)) []producer.Interceptor {
		return []producer.Interceptor{func(ctx context.Context, s *producer.Sending, next func(context.Context) error) error {
			change(s)
			return next(ctx)
		}}
	}
	for name, c := range map[string]struct {
		options producer.Options[order]
		send    producer.SendOptions
		want    string
	}{
		"negative delay":      {send: producer.SendOptions{Delay: -1}, want: "delay -1ns is outside"},
		"long delay":          {send: producer.SendOptions{Delay: queue.MaxVisibility + 1}, want: "is outside 0…168h0m0s"},
		"short TTL":           {send: producer.SendOptions{TTL: time.Millisecond}, want: "TTL 1ms is shorter than 1s"},
		"long TTL":            {send: producer.SendOptions{TTL: (math.MaxInt32 + 1) * time.Second}, want: "is outside"},
		"delay beyond TTL":    {send: producer.SendOptions{Delay: time.Minute, TTL: time.Minute}, want: "is not shorter than the TTL"},
		"long job id":         {send: producer.SendOptions{JobID: long}, want: "the job id has 257 bytes, the limit is 256"},
		"long dedupe key":     {send: producer.SendOptions{DedupeKey: long}, want: "the dedupe key has 257"},
		"long key":            {send: producer.SendOptions{Key: long}, want: "the key has 257"},
		"line in a key":       {send: producer.SendOptions{Key: "a\nb"}, want: "control character U+000A"},
		"long kind":           {options: producer.Options[order]{Kind: long}, want: "the kind has 257"},
		"trace of no form":    {options: producer.Options[order]{Trace: trace("me", "")}, want: `the trace parent "me" is not of the form`},
		"state of no form":    {options: producer.Options[order]{Trace: trace(traceParent, "ü")}, want: "trace state"},
		"head by interceptor": {options: producer.Options[order]{Interceptors: sets(func(s *producer.Sending) { s.Key = long })}, want: "the key has 257"},
		"delay by interceptor": {options: producer.Options[order]{Interceptors: sets(func(s *producer.Sending) { s.Delay = -time.Hour })},
			want: "delay -1h0m0s"},
		"job id without envelope": {options: producer.Options[order]{Format: codec.Plain}, send: producer.SendOptions{JobID: "7"},
			want: `JobID "7" needs an envelope, and the format plain has none`},
		"dedupe without envelope": {options: producer.Options[order]{Format: codec.Base64}, send: producer.SendOptions{DedupeKey: "7"}, want: "DedupeKey"},
		"key without envelope":    {options: producer.Options[order]{Format: codec.Base64}, send: producer.SendOptions{Key: "7"}, want: "Key"},
		"kind without envelope":   {options: producer.Options[order]{Format: codec.Base64, Kind: "7"}, want: "Kind"},
	} {
		u := &failingQueue{Queue: setup(t), failures: 1, err: queue.ErrUnauthorized}
		_, err := producer.New(u, &c.options).Send(t.Context(), order{"7"}, &c.send)
		if !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "send to acme/orders: ") {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		if u.failures != 1 {
			t.Errorf("%s: something was sent", name)
		}
	}
}

// A trace state that is too long is left out, as W3C Trace Context allows, and stops no job. Formats
// without an envelope carry no trace context.
func TestATraceContextStopsNoJob(t *testing.T) {
	q := setup(t)
	long := "a=" + strings.Repeat("b", envelope.MaxTraceState)
	trace := func(context.Context) (string, string) { return traceParent, long }
	if _, err := producer.New(q, &producer.Options[order]{Trace: trace}).Send(t.Context(), order{"7"}, nil); err != nil {
		t.Fatal(err)
	}
	if h := onlyHead(t, q); h.Trace != traceParent || h.TraceState != "" {
		t.Errorf("got %+v", h)
	}
	never := func(context.Context) (string, string) { t.Error("Trace was called"); return "", "" }
	if _, err := producer.New(setup(t), &producer.Options[order]{Trace: never, Format: codec.Plain}).Send(t.Context(), order{"7"}, nil); err != nil {
		t.Error(err)
	}
}

// Sent says that a job may be there twice if, and only if, it was sent again without knowing what
// had become of it.
func TestSentTellsThatTheJobMayBeThereTwice(t *testing.T) {
	for _, c := range []struct {
		err   error
		acts  bool
		twice bool
	}{
		{queue.ErrThrottled, false, false},
		{queue.ErrUnavailable, false, false},
		{queue.ErrOutcomeUnknown, false, true},
		{queue.ErrOutcomeUnknown, true, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := setup(t)
			sent, err := producer.New[order](&failingQueue{Queue: q, failures: 1, err: c.err, acts: c.acts}, nil).Send(t.Context(), order{"7"}, nil)
			if err != nil || sent.MaybeTwice != c.twice {
				t.Errorf("after %v: got %+v, %v", c.err, sent, err)
			}
			batch, err := q.Peek(t.Context(), 32)
			if err != nil || len(batch) == 0 || batch[len(batch)-1].ID != sent.ID {
				t.Errorf("after %v: got %v, %v; want the lease of the later message", c.err, batch, err)
			}
			for _, m := range batch {
				if h, _, _, err := envelope.Open(m.Text, codec.Auto); err != nil || h.ID != sent.JobID {
					t.Errorf("got job %q, %v, want %q in both", h.ID, err, sent.JobID)
				}
			}
		})
	}
}

// oneOf fails the n-th enqueue with the n-th error, and all later ones with the last.
type oneOf struct {
	queue.Queue
	errs []error
}

func (o *oneOf) Enqueue(ctx context.Context, text string, opts *queue.EnqueueOptions) (queue.Message, error) {
	err := o.errs[0]
	if len(o.errs) > 1 {
		o.errs = o.errs[1:]
	}
	if err != nil {
		return queue.Message{}, err
	}
	return o.Queue.Enqueue(ctx, text, opts)
}

// A Send that gives up does not forget that an earlier request may have been accepted.
func TestAnErrorTellsThatTheJobMayBeThere(t *testing.T) {
	for _, c := range []struct {
		errs    []error
		unknown bool
	}{
		{[]error{queue.ErrThrottled, queue.ErrUnauthorized}, false},
		{[]error{queue.ErrOutcomeUnknown, queue.ErrUnauthorized}, true},
		{[]error{queue.ErrOutcomeUnknown, queue.ErrThrottled}, true}, // until the time-out
		{[]error{queue.ErrOutcomeUnknown}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, err := producer.New[order](&oneOf{setup(t), c.errs}, nil).Send(t.Context(), order{"7"}, nil)
			if !errors.Is(err, c.errs[len(c.errs)-1]) || errors.Is(err, queue.ErrOutcomeUnknown) != c.unknown {
				t.Errorf("%v: got %v", c.errs, err)
			}
		})
	}
}

// An interceptor that sends again, or fails after the job was accepted, changes nothing of that.
func TestAnInterceptorCannotHideThatAJobWasSent(t *testing.T) {
	q := setup(t)
	twice := func(ctx context.Context, _ *producer.Sending, next func(context.Context) error) error {
		return errors.Join(next(ctx), next(ctx))
	}
	sent, err := producer.New(q, &producer.Options[order]{Interceptors: []producer.Interceptor{twice}}).Send(t.Context(), order{"7"}, nil)
	if err != nil || !sent.MaybeTwice {
		t.Errorf("got %+v, %v", sent, err)
	}
	broken := errors.New("the audit log is full")
	failing := func(ctx context.Context, _ *producer.Sending, next func(context.Context) error) error {
		return errors.Join(next(ctx), broken)
	}
	_, err = producer.New(q, &producer.Options[order]{Interceptors: []producer.Interceptor{failing}}).Send(t.Context(), order{"7"}, nil)
	if !errors.Is(err, broken) || !errors.Is(err, queue.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "the job was accepted before") {
		t.Errorf("got %v", err)
	}
}

// The job was accepted, and then sent once more by an interceptor that does not say so.
func TestAnInterceptorCannotHideThatAJobMayBeThereTwice(t *testing.T) {
	for _, c := range []struct {
		err   error
		twice bool
	}{{queue.ErrUnauthorized, false}, {queue.ErrOutcomeUnknown, true}} {
		synctest.Test(t, func(t *testing.T) {
			again := func(ctx context.Context, _ *producer.Sending, next func(context.Context) error) error {
				err := next(ctx)
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				_ = next(ctx)
				return err
			}
			q := &oneOf{setup(t), []error{nil, c.err}}
			sent, err := producer.New(q, &producer.Options[order]{Interceptors: []producer.Interceptor{again}}).Send(t.Context(), order{"7"}, nil)
			if err != nil || sent.MaybeTwice != c.twice || sent.ID == "" {
				t.Errorf("after %v: got %+v, %v; want it sent, maybe twice %v", c.err, sent, err, c.twice)
			}
		})
	}
}

// A queue that could not be created is no job that may have been sent twice.
func TestAnUnknownCreateIsNoUnknownSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &unsteadyCreate{Queue: setup(t), missing: 2}
		sent, err := producer.New(q, &producer.Options[order]{Create: true}).Send(t.Context(), order{"7"}, nil)
		if err != nil || sent.MaybeTwice {
			t.Errorf("got %+v, %v", sent, err)
		}
	})
}

// unsteadyCreate is missing for some enqueues, and its first Create has no answer.
type unsteadyCreate struct {
	queue.Queue
	missing, creates int
}

func (q *unsteadyCreate) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if q.missing > 0 {
		q.missing--
		return queue.Message{}, queue.ErrQueueMissing
	}
	return q.Queue.Enqueue(ctx, text, o)
}

func (q *unsteadyCreate) Create(context.Context, map[string]string) error {
	if q.creates++; q.creates == 1 {
		return queue.ErrOutcomeUnknown
	}
	return nil
}
