package simulation

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// The marks of the envelopes of this release and of the next, which differ in nothing else. A
// worker of the next release reads and writes both marks, and so sees what workers of this release
// did with its messages.
const (
	thisMark = "millrace/1"
	nextMark = "millrace/3"

	// These are of a text with a claim.
	featureMark     = "millrace/2"
	nextFeatureMark = "millrace/4"
)

// inNewer returns the text with the mark of the next release.
func inNewer(text string) string {
	if rest, is := strings.CutPrefix(text, featureMark); is {
		return nextFeatureMark + rest
	}
	return nextMark + strings.TrimPrefix(text, thisMark)
}

// readable returns the text with the mark of this release.
func readable(text string) string {
	if rest, is := strings.CutPrefix(text, nextMark); is {
		return thisMark + rest
	}
	if rest, is := strings.CutPrefix(text, nextFeatureMark); is {
		return featureMark + rest
	}
	return text
}

// nextRelease is the queue of a worker of the next release.
type nextRelease struct {
	queue.Queue

	mu    sync.Mutex
	newer map[queue.ID]bool // messages with the other mark; guarded by mu
}

func (q *nextRelease) EmptyAfter() int { return driver.EmptyAfter(q.Queue) }

func (q *nextRelease) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	batch, err := q.Queue.Dequeue(ctx, n, visibility)
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range batch {
		if text := readable(batch[i].Text); text != batch[i].Text {
			batch[i].Text = text
			q.newer[batch[i].ID] = true
		}
	}
	return batch, err
}

func (q *nextRelease) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	q.mu.Lock()
	newer := q.newer[l.ID]
	q.mu.Unlock()
	if newer {
		text = inNewer(text)
	}
	return q.Queue.Update(ctx, l, text, visibility)
}
