package producer_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
)

// acceptingQueue accepts everything at once, so that what remains is the producer's own cost.
type acceptingQueue struct{ queue.Queue }

func (acceptingQueue) Name() queue.Name { return queue.Name{Account: "bench", Queue: "jobs"} }

func (acceptingQueue) Enqueue(context.Context, string, *queue.EnqueueOptions) (queue.Message, error) {
	return queue.Message{Lease: queue.Lease{ID: "id", Receipt: "receipt"}}, nil
}

func BenchmarkSend(b *testing.B) {
	p := producer.New[order](acceptingQueue{}, nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Send(b.Context(), order{"7"}, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOverTheWire sends to a server on a socket: with a plain loop of Send, and with SendAll.
func BenchmarkOverTheWire(b *testing.B) {
	endpoint, err := must(emulator.New(nil, nil)).Start("")
	if err != nil {
		b.Fatal(err)
	}
	defer endpoint.Close()
	q, err := azurequeue.Open(endpoint.ConnectionString(), "orders", nil)
	if err != nil {
		b.Fatal(err)
	}
	defer q.Close()
	if err := q.Create(b.Context(), nil); err != nil {
		b.Fatal(err)
	}
	p := producer.New[order](q, nil)
	b.Run("a loop of Send", func(b *testing.B) {
		for range b.N {
			if _, err := p.Send(b.Context(), order{"7"}, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("SendAll", func(b *testing.B) {
		if _, err := p.SendAllSeq(b.Context(), orders(b.N), nil); err != nil {
			b.Fatal(err)
		}
	})
	b.Run("SendAll, 40 in a message", func(b *testing.B) {
		if _, err := p.SendAllSeq(b.Context(), orders(b.N), &producer.SendAllOptions[order]{PerMessage: 40}); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkSendAll is BenchmarkSend by SendAll: what it adds to a Send.
func BenchmarkSendAllSeq(b *testing.B) {
	b.ReportAllocs()
	if _, err := producer.New[order](acceptingQueue{}, nil).SendAllSeq(b.Context(), orders(b.N), nil); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkFarAway sends to a service that takes 5 ms to answer.
func BenchmarkFarAway(b *testing.B) {
	p := producer.New[order](&scripted{acceptingQueue{}, func(context.Context, string) error {
		time.Sleep(5 * time.Millisecond)
		return nil
	}}, nil)
	b.Run("a loop of Send", func(b *testing.B) {
		for range b.N {
			if _, err := p.Send(b.Context(), order{"7"}, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("SendAll", func(b *testing.B) {
		if _, err := p.SendAllSeq(b.Context(), orders(b.N), nil); err != nil {
			b.Fatal(err)
		}
	})
}
