package dispatcher_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/queue"
)

// The dispatcher's allocations per message, beyond those of its queue, are bounded: with the
// identity codec, a time-out and no observer. BenchmarkDispatch measures the time.
func TestAllocationsPerMessageAreBounded(t *testing.T) {
	const messages, maxAllocations = 32_000, 8
	done := make(chan struct{}, 32)
	handler := func(context.Context, *dispatcher.Message[[]byte]) error { done <- struct{}{}; return nil }
	d, err := dispatcher.New(instantQueue{}, dispatcher.Jobs[[]byte]{Handler: handler, Codec: codec.Bytes()}, &dispatcher.Options{
		Format: codec.Plain, Timeout: time.Minute, Concurrency: 256,
	})
	if err != nil {
		t.Fatal(err)
	}
	d.Start(t.Context())
	batch := make([]queue.Message, 32)
	for i := range batch {
		batch[i] = queue.Message{Lease: queue.Lease{ID: "id", Receipt: "r"}, Text: "text", DequeueCount: 1}
	}
	send := func(n int) {
		for range n / len(batch) {
			for sent := 0; sent < len(batch); {
				reserved := d.Reserve(t.Context())
				some := batch[:min(reserved, len(batch)-sent)]
				d.Dispatch(some, reserved, time.Now(), 30*time.Second)
				for range some {
					<-done
				}
				sent += len(some)
			}
		}
	}
	send(3200) // so that workers, heaps and rings have grown
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	send(messages)
	runtime.ReadMemStats(&after)
	if err := d.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	perMessage := float64(after.Mallocs-before.Mallocs) / messages
	t.Logf("%.2f allocations a message", perMessage)
	if perMessage > maxAllocations {
		t.Errorf("got %.2f allocations a message, want at most %d", perMessage, maxAllocations)
	}
}
