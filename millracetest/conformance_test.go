package millracetest

import (
	"context"
	"errors"
	"testing"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/queuetest"
)

// The recording queue conforms to the port, and its journal agrees with it after any operation.
func TestConformance(t *testing.T) {
	queuetest.Run(t, queuetest.Harness{
		Bubble: true,
		Open: func(t *testing.T, name string) queue.Manager {
			q := newRecordingQueue(t, name)
			t.Cleanup(func() {
				p, err := q.Properties(context.Background())
				if err != nil && !errors.Is(err, queue.ErrQueueMissing) {
					t.Error(err)
				}
				if held := q.journal().texts(); int64(len(held)) != p.Depth {
					t.Errorf("messages in the journal: got %d, want %d as in the queue", len(held), p.Depth)
				}
			})
			return q
		},
	})
}
