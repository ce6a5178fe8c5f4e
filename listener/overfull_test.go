package listener

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
)

// overfillingQueue is a queue that returns more messages than requested.
type overfillingQueue struct {
	*recordingQueue
	always int
}

func (q overfillingQueue) Dequeue(ctx context.Context, _ int, visibility time.Duration) ([]queue.Message, error) {
	return q.recordingQueue.Dequeue(ctx, q.always, visibility)
}

// If a queue returns more messages than requested, no handlers beyond the bound start: the
// excess is given back at once, and the error names the implementation.
func TestAQueueThatReturnsTooManyMessagesStartsNoMoreHandlers(t *testing.T) {
	for _, concurrency := range []int{1, 3, 40} {
		bubble(t, func(b *bundle) {
			const n = 200
			for i := range n {
				b.send(i)
			}
			var running, peak, reported atomic.Int64
			var log strings.Builder // read after Run has returned
			o := options()
			o.Logger = textLogger(&log)
			o.Concurrency, o.Fetch.BatchSize = concurrency, 8
			o.OnError = func(err error) {
				if strings.Contains(err.Error(), "overfillingQueue") && strings.Contains(err.Error(), b.queue.Name().String()) {
					reported.Add(1)
				} else {
					t.Error(err)
				}
			}
			l := New(overfillingQueue{b.queue, 32}, func(ctx context.Context, m *Message[job]) error {
				now := running.Add(1)
				defer running.Add(-1)
				for {
					old := peak.Load()
					if now <= old || peak.CompareAndSwap(old, now) {
						break
					}
				}
				if m.Attempt != 1 {
					t.Errorf("got attempt %d, want 1: a give-back is not an attempt", m.Attempt)
				}
				return sleep(ctx, time.Duration(1+m.Body.N%7)*time.Second)
			}, o)
			b.run(l)
			advance(time.Hour)
			st := l.State()
			b.mustFinish()
			if peak.Load() != int64(concurrency) {
				t.Errorf("got %d handlers at once, want %d", peak.Load(), concurrency)
			}
			if st.Outcomes[Deleted] != n || reported.Load() == 0 || st.Errors != reported.Load() {
				t.Errorf("got %d of %d done, %d errors, the queue's fault reported %d times; want all done and only such reports",
					st.Outcomes[Deleted], n, st.Errors, reported.Load())
			}
			if want := (concurrency + 7) / 8; st.LoopsPeak != want {
				t.Errorf("LoopsPeak: got %d, want %d: an overfull batch counts as a full one", st.LoopsPeak, want)
			}
			if !strings.Contains(log.String(), "poll failed") || strings.Contains(log.String(), "renewal") {
				t.Errorf("got log\n%s\nwant \"poll failed\" and nothing of renewals", log.String())
			}
			if left := b.depth(b.queue.Queue); left != 0 || st.Outcomes[Poisoned] != 0 {
				t.Errorf("got %d left, %d poisoned; want left 0, Poisoned 0", left, st.Outcomes[Poisoned])
			}
		})
	}
}
