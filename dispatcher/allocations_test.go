package dispatcher_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/queue"
)

// The dispatcher's allocations per message, beyond those of its queue, are bounded: with the
// identity codec, a time-out and no observer. BenchmarkDispatch measures the time.
func TestAllocationsPerMessageAreBounded(t *testing.T) {
	jobs, done := signalling()
	d, err := dispatcher.New(instantQueue{}, jobs, &dispatcher.Options{Format: codec.Plain, Timeout: time.Minute, Concurrency: 256})
	if err != nil {
		t.Fatal(err)
	}
	checkAllocations(t, d, done, "text", 8)
}

// A job of a kind takes one allocation more than others, for what depends on its type, and those of its
// envelope.
func TestAllocationsPerMessageOfAKindAreBounded(t *testing.T) {
	jobs, done := signalling()
	d, err := dispatcher.NewKinds(instantQueue{}, []dispatcher.Kind{
		jobs.Kind("order", nil), jobs.Kind("email", nil),
	}, &dispatcher.Options{Timeout: time.Minute, Concurrency: 256})
	if err != nil {
		t.Fatal(err)
	}
	checkAllocations(t, d, done, "millrace/2?kd=email\ntext", 9)
}

// The slots of a pool take no allocation.
func TestAllocationsPerMessageInAPoolAreBounded(t *testing.T) {
	jobs, done := signalling()
	p := must(slots.NewShared(&slots.SharedOptions{Slots: 256}))
	p.Member(nil)
	d, err := dispatcher.New(instantQueue{}, jobs, &dispatcher.Options{Format: codec.Plain, Timeout: time.Minute, Slots: p.Member(nil)})
	if err != nil {
		t.Fatal(err)
	}
	checkAllocations(t, d, done, "text", 8)
}

// signalling returns jobs whose handler signals each call.
func signalling() (dispatcher.Jobs[[]byte], <-chan struct{}) {
	done := make(chan struct{}, 32)
	handler := func(context.Context, *dispatcher.Message[[]byte]) error { done <- struct{}{}; return nil }
	return dispatcher.Jobs[[]byte]{Handler: handler, Codec: codec.Bytes()}, done
}

// checkAllocations counts the allocations of a dispatcher whose handlers signal done.
func checkAllocations(t *testing.T, d *dispatcher.Dispatcher, done <-chan struct{}, text string, maxAllocations float64) {
	t.Helper()
	const messages = 32_000
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	batch := make([]queue.Message, 32)
	for i := range batch {
		batch[i] = queue.Message{Lease: queue.Lease{ID: "id", Receipt: "r"}, Text: text, DequeueCount: 1}
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
		t.Errorf("got %.2f allocations a message, want at most %v", perMessage, maxAllocations)
	}
}
