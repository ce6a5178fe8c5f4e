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

	life context.Context // of the sends: they outlive the stop, but not Halt
	halt func()          // ends life
}

func newShop(q *paired.Queue, l *ledger, pause time.Duration) *shop {
	life, halt := context.WithCancel(context.Background())
	return &shop{queue: q, ledger: l, pause: pause, life: life, halt: halt}
}

// Run implements millrace.Runner. Nothing is sent before the backlog queues are there.
func (s *shop) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(s.life, stop)()
	if err := s.queue.Pair(ctx); err != nil {
		return err
	}
	p := producer.New(s.queue, &producer.Options[Order]{Create: true})
	for n := 1; ctx.Err() == nil; n++ {
		sent, err := p.Send(s.life, Order{n}, nil)
		s.ledger.sent(n, sent, err)
		select {
		case <-time.After(s.pause):
		case <-ctx.Done():
		}
	}
	return nil
}

// Halt implements millrace.Runner. Without it a send takes half a minute at most.
func (s *shop) Halt() { s.halt() }
