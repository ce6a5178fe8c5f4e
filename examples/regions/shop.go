package main

import (
	"context"
	"time"

	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue/paired"
)

// Order is a job.
type Order struct{ N int }

// shop sends orders until it is stopped.
type shop struct {
	queue  *paired.Queue
	ledger *ledger
	pause  time.Duration // between orders
}

// Run implements millrace.Runner. Nothing is sent before the backlog queues are there.
func (s *shop) Run(ctx context.Context) error {
	if err := s.queue.Pair(ctx); err != nil {
		return err
	}
	p := producer.New(s.queue, &producer.Options[Order]{Create: true})
	for n := 1; ctx.Err() == nil; n++ {
		sent, err := p.Send(context.WithoutCancel(ctx), Order{n}, nil)
		s.ledger.sent(n, sent, err)
		select {
		case <-time.After(s.pause):
		case <-ctx.Done():
		}
	}
	return nil
}

// Halt implements millrace.Runner. A send takes half a minute at most.
func (s *shop) Halt() {}
