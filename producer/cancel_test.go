package producer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// unsteadyDelete fails the first deletes, before or after they took effect.
type unsteadyDelete struct {
	queue.Queue
	failures int
	acts     bool
}

func (u *unsteadyDelete) Delete(ctx context.Context, l queue.Lease) error {
	if u.failures == 0 {
		return u.Queue.Delete(ctx, l)
	}
	u.failures--
	if u.acts {
		if err := u.Queue.Delete(ctx, l); err != nil {
			return err
		}
	}
	return queue.ErrOutcomeUnknown
}

func TestWhatWasSentCanBeCancelled(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Hour} {
		for _, acts := range []bool{false, true} {
			if delay == 0 && acts {
				continue // nobody can tell: see the next test
			}
			synctest.Test(t, func(t *testing.T) {
				q := setup(t)
				p := producer.New[order](&unsteadyDelete{Queue: q, failures: 1, acts: acts}, nil)
				sent, err := p.Send(t.Context(), order{"7"}, &producer.SendOptions{Delay: delay})
				if err != nil {
					t.Fatal(err)
				}
				if err := p.Cancel(t.Context(), sent); err != nil {
					t.Errorf("with delay %v: %v", delay, err)
				}
				if properties, err := q.Properties(t.Context()); err != nil || properties.Depth != 0 {
					t.Errorf("with delay %v: %+v, %v", delay, properties, err)
				}
				if err := p.Cancel(t.Context(), sent); !errors.Is(err, queue.ErrLeaseLost) {
					t.Errorf("cancelled twice: got %v", err)
				}
			})
		}
	}
}

// workerBetween deletes a message, as a worker that handled it does, in place of the first delete, whose
// response is lost.
type workerBetween struct {
	queue.Queue
	t    *testing.T
	done bool
}

func (w *workerBetween) Delete(ctx context.Context, l queue.Lease) error {
	if w.done {
		return w.Queue.Delete(ctx, l)
	}
	w.done = true
	batch, err := w.Queue.Dequeue(ctx, 1, time.Minute)
	if err != nil || len(batch) != 1 || w.Queue.Delete(ctx, batch[0].Lease) != nil {
		w.t.Errorf("got %v, %v; want the message", batch, err)
	}
	return queue.ErrOutcomeUnknown
}

// A message that is gone after a delete without a response: deleted by that, or by a worker that handled
// the job. A nil would promise that none did.
func TestACancelWithoutAResponsePromisesNothing(t *testing.T) {
	for name, wrap := range map[string]func(queue.Queue) queue.Queue{
		"deleted by us":       func(q queue.Queue) queue.Queue { return &unsteadyDelete{Queue: q, failures: 1, acts: true} },
		"deleted by a worker": func(q queue.Queue) queue.Queue { return &workerBetween{Queue: q, t: t} },
	} {
		synctest.Test(t, func(t *testing.T) {
			p := producer.New[order](wrap(setup(t)), nil)
			sent, err := p.Send(t.Context(), order{"7"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			err = p.Cancel(t.Context(), sent)
			if !errors.Is(err, queue.ErrOutcomeUnknown) || errors.Is(err, queue.ErrLeaseLost) || !strings.Contains(err.Error(), "or a worker has handled it") {
				t.Errorf("%s: got %v, want an unknown outcome", name, err)
			}
		})
	}
}

// refusedLater is a queue whose first delete takes effect without a response, and which refuses all others.
type refusedLater struct {
	unsteadyDelete
	err error
}

func (r *refusedLater) Delete(ctx context.Context, l queue.Lease) error {
	if r.failures > 0 {
		return r.unsteadyDelete.Delete(ctx, l)
	}
	return r.err
}

// The last error hides no earlier request that may have deleted the message.
func TestACancelThatGivesUpTellsOfItsRequests(t *testing.T) {
	for _, last := range []error{queue.ErrThrottled, queue.ErrUnauthorized} {
		synctest.Test(t, func(t *testing.T) {
			q := setup(t)
			p := producer.New[order](&refusedLater{unsteadyDelete{Queue: q, failures: 1, acts: true}, last}, nil)
			sent, err := p.Send(t.Context(), order{"7"}, &producer.SendOptions{Delay: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Cancel(t.Context(), sent); !errors.Is(err, queue.ErrOutcomeUnknown) || !errors.Is(err, last) {
				t.Errorf("got %v, want %v and an unknown outcome", err, last)
			}
		})
	}
}

// A job that a worker has taken is not cancelled, whatever became of it.
func TestAJobThatWasTakenIsNotCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := setup(t)
		p := producer.New[order](q, nil)
		sent, err := p.Send(t.Context(), order{"7"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		batch, err := q.Dequeue(t.Context(), 1, time.Minute)
		if err != nil || len(batch) != 1 {
			t.Fatalf("got %v, %v", batch, err)
		}
		late := func(when string) {
			t.Helper()
			err := p.Cancel(t.Context(), sent)
			if !errors.Is(err, queue.ErrLeaseLost) || !strings.Contains(err.Error(), "of acme/orders: a worker has taken it") || !strings.Contains(err.Error(), string(sent.ID)) {
				t.Errorf("%s: got %v", when, err)
			}
		}
		late("running")
		if _, err := q.Update(t.Context(), batch[0].Lease, batch[0].Text, 0); err != nil {
			t.Fatal(err)
		}
		late("given back")
		if again, err := q.Dequeue(t.Context(), 1, time.Minute); err != nil || len(again) != 1 || q.Delete(t.Context(), again[0].Lease) != nil {
			t.Fatalf("got %v, %v", again, err)
		}
		late("done")
	})
}

func TestACancelEndsWithItsTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := producer.New(&unsteadyDelete{Queue: setup(t), failures: 1 << 30}, &producer.Options[order]{Timeout: 5 * time.Second})
		begin := time.Now()
		err := p.Cancel(t.Context(), producer.Sent{Lease: queue.Lease{ID: "id", Receipt: "secret"}})
		if !errors.Is(err, queue.ErrOutcomeUnknown) || time.Since(begin) > 5*time.Second || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v after %v", err, time.Since(begin))
		}
	})
	var zero producer.Producer[order]
	if err := zero.Cancel(t.Context(), producer.Sent{}); err == nil {
		t.Error("the zero producer cancelled something")
	}
	if err := producer.New[order](setup(t), nil).Cancel(t.Context(), producer.Sent{}); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("what was never sent: got %v", err)
	}
}

// An error names its queue and its message once, and no message if there is none.
func TestErrorsNameTheirQueueAndMessageOnce(t *testing.T) {
	inner := setup(t)
	sent, err := producer.New[order](inner, nil).Send(t.Context(), order{"7"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	taken, err := inner.Dequeue(t.Context(), 1, time.Minute)
	if err != nil || len(taken) != 1 {
		t.Fatalf("got %v, %v", taken, err)
	}
	missing := must(localqueue.New(nil)).Queue(inner.Name())
	cancel := func(q queue.Queue, s producer.Sent) error { return producer.New[order](q, nil).Cancel(t.Context(), s) }
	send := func(o *producer.Options[order]) error {
		_, err := producer.New(missing, o).Send(t.Context(), order{"7"}, nil)
		return err
	}
	id := string(sent.ID)
	for want, err := range map[string]error{
		"cancel a message of acme/orders: invalid argument: its lease has no id; keep the Sent that Send returned":          cancel(inner, producer.Sent{}),
		"cancel message " + id + " of acme/orders: a worker has taken it, or it has expired: receipt is not the newest one": cancel(inner, sent),
		"cancel message " + id + " of acme/orders: queue does not exist; create it first":                                   cancel(missing, sent),
		"send to acme/orders: queue does not exist; create it first":                                                        send(nil),
	} {
		e := (*queue.Error)(nil)
		if err == nil || err.Error() != want || !errors.As(err, &e) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	// A request for another purpose is named, and what failed is still in the error.
	refused := &queue.Error{Op: "create", Queue: inner.Name(), Kind: queue.ErrUnauthorized}
	_, err = producer.New(&uncreatable{missing, refused}, &producer.Options[order]{Create: true}).Send(t.Context(), order{"7"}, nil)
	if want := "send to acme/orders: create on acme/orders: unauthorized"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if e := (*queue.Error)(nil); !errors.As(send(nil), &e) || e.Op != "enqueue" {
		t.Errorf("got %+v, want the operation of the request", e)
	}
}

// uncreatable is a queue that cannot be created.
type uncreatable struct {
	queue.Queue
	err error
}

func (u *uncreatable) Create(context.Context, map[string]string) error { return u.err }
