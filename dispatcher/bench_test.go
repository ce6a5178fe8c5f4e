package dispatcher_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/queue"
)

// instantQueue is a queue whose requests succeed at once and cost nothing, so that only the
// dispatcher is measured.
type instantQueue struct{ queue.Queue }

func (instantQueue) Name() queue.Name                          { return queue.Name{Account: "a", Queue: "jobs"} }
func (q instantQueue) Sibling(string) queue.Queue              { return poisonQueue{q} }
func (instantQueue) Delete(context.Context, queue.Lease) error { return nil }

type poisonQueue struct{ instantQueue }

func (poisonQueue) Name() queue.Name { return queue.Name{Account: "a", Queue: "jobs-poison"} }

// BenchmarkDispatch measures the dispatcher's cost of a message: slot, lease, handler and
// settlement, with the identity codec and a time-out. BenchmarkGoroutine is the lower bound,
// one goroutine per message.
func BenchmarkDispatch(b *testing.B) {
	done := make(chan struct{}, 32)
	handler := func(context.Context, *dispatcher.Message[[]byte]) error { done <- struct{}{}; return nil }
	d, err := dispatcher.New(instantQueue{}, dispatcher.Jobs[[]byte]{Handler: handler, Codec: codec.Bytes()}, &dispatcher.Options{
		Format: codec.Plain, Timeout: time.Minute, Concurrency: 256,
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := d.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	batch := make([]queue.Message, 32)
	for i := range batch {
		batch[i] = queue.Message{Lease: queue.Lease{ID: "id", Receipt: "r"}, Text: "text", DequeueCount: 1}
	}
	b.ReportAllocs()
	for n := 0; n < b.N; {
		reserved := d.Reserve(b.Context())
		send := batch[:min(reserved, b.N-n)]
		d.Dispatch(send, reserved, time.Now(), 30*time.Second)
		for range send {
			<-done
		}
		n += len(send)
	}
	if err := d.Drain(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkGoroutine(b *testing.B) {
	done := make(chan struct{}, 32)
	b.ReportAllocs()
	for n := 0; n < b.N; n += 32 {
		for range 32 {
			go func() { done <- struct{}{} }()
		}
		for range 32 {
			<-done
		}
	}
}
