package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue/azurequeue"
)

// sender sends jobs on a schedule.
type sender struct {
	assignment assignment // of the worker that it sends to
	queue      *azurequeue.Queue
	producer   *producer.Producer[job]
	closing    []io.Closer
}

// newSender creates the queue and a sender for it.
func newSender(ctx context.Context, a assignment, how transport) (_ *sender, err error) {
	s := &sender{assignment: a}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.queue, err = azurequeue.Open(a.Servers.Queue, a.Queue, nil); err != nil {
		return nil, err
	}
	s.closing = append(s.closing, s.queue)
	o := &producer.Options[job]{}
	if err := how.send(s, o); err != nil {
		return nil, err
	}
	s.producer = producer.New(s.queue, o)
	return s, s.queue.Create(ctx, nil)
}

// close closes what the sender has opened, the last first.
func (s *sender) close() error {
	var errs []error
	for _, c := range slices.Backward(s.closing) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// sending is what became of the jobs that were sent.
type sending struct {
	late     []time.Duration // after it was due, the call of Send
	returned []instant       // the return of Send
}

// send sends jobs, the first of which has this number, each on a goroutine of its own when it is due.
func (s *sender) send(ctx context.Context, first int, due []time.Duration) (sending, error) {
	done := sending{make([]time.Duration, len(due)), make([]instant, len(due))}
	errs := make([]error, len(due))
	begin := now()
	var all sync.WaitGroup
	for i, after := range due {
		if wait := after - time.Duration(now()-begin); wait > 0 {
			waiting.For(wait, ctx.Done())
		}
		all.Go(func() {
			done.late[i] = time.Duration(now()-begin) - after
			_, errs[i] = s.producer.Send(ctx, job{first + i}, nil)
			done.returned[i] = now()
		})
	}
	all.Wait()
	return done, errors.Join(errs...)
}
