package localqueue_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// TestWorkedTrace plays the trace in the source, to the second: two producers enqueue m1
// and m2; C1 dequeues m1 for 30 s and crashes; C2 dequeues and deletes m2, dequeues m1 after the
// 30 s, and deletes it.
func TestWorkedTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		q := must(localqueue.New(nil)).Queue(queue.Name{Account: "a", Queue: "trace"})
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		take := func(want string, count int64) queue.Message {
			t.Helper()
			batch, err := q.Dequeue(ctx, 1, 30*time.Second)
			must(err)
			if want == "" {
				if len(batch) > 0 {
					t.Fatalf("dequeued: got %q, want nothing", batch[0].Text)
				}
				return queue.Message{}
			}
			if len(batch) != 1 || batch[0].Text != want || batch[0].DequeueCount != count {
				t.Fatalf("dequeued: got %+v, want %q with count %d", batch, want, count)
			}
			return batch[0]
		}
		must(q.Create(ctx, nil))
		for _, text := range []string{"m1", "m2"} { // P1, P2
			_, err := q.Enqueue(ctx, text, nil)
			must(err)
		}
		crashed := take("m1", 1) // C1
		time.Sleep(time.Second)
		m2 := take("m2", 1) // C2
		must(q.Delete(ctx, m2.Lease))
		time.Sleep(29*time.Second - time.Nanosecond)
		take("", 0)
		time.Sleep(time.Nanosecond)
		m1 := take("m1", 2) // C2
		if err := q.Delete(ctx, crashed.Lease); !errors.Is(err, queue.ErrReceiptMismatch) {
			t.Fatalf("delete by C1 with its old lease: got %v, want ErrReceiptMismatch", err)
		}
		must(q.Delete(ctx, m1.Lease))
		if p, err := q.Properties(ctx); err != nil || p.Depth != 0 {
			t.Fatalf("properties at the end: got %+v, %v; want depth 0", p, err)
		}
	})
}
