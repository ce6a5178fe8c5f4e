package producer

import (
	"context"
	"fmt"
	"sync"

	"github.com/millrace/millrace/queue"
)

// readTimeout bounds the reading of the depth. It leaves time for an event if that fails.
const readTimeout = publishTimeout / 2

// level decides which events are published if only depths from a level on are worth one.
type level struct {
	depth int64

	mu    sync.Mutex
	wait  int64 // messages until the depth is read; guarded by mu
	bytes int64 // of the messages since the last event; guarded by mu
}

// reached reports whether the depth has reached the level, and returns the bytes of the messages since
// the last time. The depth is read when enough messages were sent since the last reading to have
// reached the level, had nobody else sent any. A queue whose depth stays just below the level is read
// once in a tenth of the level.
func (l *level) reached(ctx context.Context, q queue.Sender, h hints) (bytes int64, reached bool, err error) {
	l.mu.Lock()
	l.bytes += h.bytes
	l.wait -= h.now
	read := l.wait <= 0
	if read {
		l.wait = l.depth // others that are sent during the reading do not read
	}
	l.mu.Unlock()
	if !read {
		return 0, false, nil
	}
	ctx, cancel := context.WithTimeout(queue.WithCause(ctx, queue.CauseDepth), readTimeout)
	defer cancel()
	p, err := depthOf(ctx, q, h.queue)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && p.Depth < l.depth {
		meanwhile := l.depth - l.wait
		l.wait = max(l.depth-p.Depth, (l.depth+9)/10) - meanwhile
		return 0, false, nil
	}
	if err != nil { // an event too many costs less than one too few
		err = fmt.Errorf("read the depth: %w", err)
	}
	bytes, l.bytes = l.bytes, 0
	return bytes, true, err
}
