package listener_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// BenchmarkListener measures the cost of a message in a whole listener over the in-memory engine,
// with the identity codec, a time-out and no observer. The handler sends a new message for each.
// The difference from BenchmarkBare, the same requests from one goroutine, is the cost of the
// listener; with -cpu 1 it is processor time.
func BenchmarkListener(b *testing.B) {
	q := filledQueue(b)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var handled atomic.Int64
	handler := func(context.Context, *listener.Message[[]byte]) error {
		if handled.Add(1) == int64(b.N) {
			cancel()
		}
		return put(b, q)
	}
	l := listener.New(q, handler, &listener.Options[[]byte]{
		Codec: codec.Bytes(), Wire: listener.WireOptions{Format: codec.Plain}, Timeout: time.Minute, Concurrency: 256,
	})
	b.ReportAllocs()
	b.ResetTimer()
	if err := l.Run(ctx); err != nil {
		b.Fatal(err)
	}
	if handled.Load() < int64(b.N) {
		b.Fatalf("got %d messages handled, want at least %d", handled.Load(), b.N)
	}
}

// BenchmarkBare sends the requests of BenchmarkListener from one goroutine.
func BenchmarkBare(b *testing.B) {
	q := filledQueue(b)
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; {
		batch, err := q.Dequeue(b.Context(), 32, 30*time.Second)
		if err != nil {
			b.Fatal(err)
		}
		for _, m := range batch {
			if err := errors.Join(put(b, q), q.Delete(b.Context(), m.Lease)); err != nil {
				b.Fatal(err)
			}
		}
		n += len(batch)
	}
}

// filledQueue returns a queue with enough messages for full batches.
func filledQueue(b *testing.B) queue.Queue {
	q := must(localqueue.New(nil)).Queue(queue.Name{Account: "bench", Queue: "jobs"})
	if err := q.Create(b.Context(), nil); err != nil {
		b.Fatal(err)
	}
	for range 4096 {
		if err := put(b, q); err != nil {
			b.Fatal(err)
		}
	}
	return q
}

var text = strings.Repeat("x", 1024)

func put(b *testing.B, q queue.Queue) error {
	_, err := q.Enqueue(b.Context(), text, nil)
	return err
}
