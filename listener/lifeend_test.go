package listener

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// A dequeue may hide a message beyond its life. Its lease ends with that life all the same:
// the handler is told while what it did can still be recorded.
func TestALeaseEndsWithTheMessagesLife(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.mortal(20 * time.Second)
		var ran time.Duration
		var cause error
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error {
			<-ctx.Done()
			ran, cause = time.Since(b.begin), context.Cause(ctx)
			return ctx.Err()
		}, fixed(30*time.Second))
		b.run(l)
		after(5 * time.Minute)
		if ran >= 20*time.Second || !errors.Is(cause, dispatcher.ErrLeaseExpired) {
			t.Errorf("the handler was told after %v, because %v", ran, cause)
		}
		records := b.copies()
		if len(records) != 1 || records[0].Reason != poison.ReasonExpiring {
			t.Errorf("copies %+v", records)
		}
		b.finished()
	})
}

// counting is a queue whose dequeues say that messages were delivered so often.
type counting struct {
	queue.Queue
	count int64
}

func (q counting) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	batch, err := q.Queue.Dequeue(ctx, n, visibility)
	for i := range batch {
		batch[i].DequeueCount = q.count
	}
	return batch, err
}

// A dequeue count that stands for the attempt may be larger than any int.
func TestALargeDequeueCountIsPoison(t *testing.T) {
	for _, count := range []int64{6, 1 << 31, 1<<32 + 1, math.MaxInt64} {
		for _, text := range []string{`{"N":1}`, "millrace/1?n=5\n{}", "millrace/1?n=2147483647&s=1\n{}"} {
			bubble(t, func(b *bundle) {
				b.putText(text)
				runs := 0
				b.run(New(counting{b.queue, count}, func(context.Context, *Message[job]) error { runs++; return nil }, options()))
				after(time.Minute)
				if records := b.copies(); runs > 0 || len(records) != 1 || records[0].Reason != poison.ReasonAttempts {
					t.Errorf("%q delivered %d times: %d runs, copies %+v", text, count, runs, records)
				}
				b.finished()
			})
		}
	}
}
