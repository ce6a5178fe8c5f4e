package listener

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
)

// generous is a queue that returns more messages than requested.
type generous struct {
	*wire
	always int
}

func (q generous) Dequeue(ctx context.Context, _ int, visibility time.Duration) ([]queue.Message, error) {
	return q.wire.Dequeue(ctx, q.always, visibility)
}

// If a queue returns more messages than requested, no handlers beyond the bound start: the
// excess is given back at once, and the error names the implementation.
func TestAQueueThatReturnsTooMuchDoesNotExceedTheBound(t *testing.T) {
	for _, concurrency := range []int{1, 3, 40} {
		bubble(t, func(b *bundle) {
			const n = 200
			for i := range n {
				b.send(i)
			}
			var running, most, told atomic.Int64
			var log strings.Builder // read when nobody writes any more
			o := options()
			o.Logger = textLogger(&log)
			o.Concurrency, o.BatchSize = concurrency, 8
			o.OnError = func(err error) {
				if strings.Contains(err.Error(), "generous") && strings.Contains(err.Error(), b.queue.Name().String()) {
					told.Add(1)
				} else {
					t.Error(err)
				}
			}
			l := New(generous{b.queue, 32}, func(ctx context.Context, m *Message[job]) error {
				now := running.Add(1)
				defer running.Add(-1)
				for {
					old := most.Load()
					if now <= old || most.CompareAndSwap(old, now) {
						break
					}
				}
				if m.Attempt != 1 {
					t.Errorf("attempt %d: to be given back is none", m.Attempt)
				}
				return sleep(ctx, time.Duration(1+m.Body.N%7)*time.Second)
			}, o)
			b.run(l)
			after(time.Hour)
			st := l.State()
			b.finished()
			if most.Load() != int64(concurrency) {
				t.Errorf("%d handlers ran at once, want %d", most.Load(), concurrency)
			}
			if st.Succeeded != n || told.Load() == 0 || st.Errors != told.Load() {
				t.Errorf("%d of %d done, %d errors, told of the queue's fault %d times", st.Succeeded, n, st.Errors, told.Load())
			}
			if want := (concurrency + 7) / 8; st.LoopsPeak != want {
				t.Errorf("%d loops at the peak, want %d: too full a batch is a full one", st.LoopsPeak, want)
			}
			if !strings.Contains(log.String(), "poll failed") || strings.Contains(log.String(), "renewal") {
				t.Errorf("the log says\n%s", log.String())
			}
			if left := b.depth(b.queue.Queue); left != 0 || st.Poisoned != 0 {
				t.Errorf("%d left, %d poisoned", left, st.Poisoned)
			}
		})
	}
}
