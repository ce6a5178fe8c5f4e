package roles

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/dispatcher"
)

// spare is how many messages a process may have at hand beside those it works on. More
// would keep from others what they could do.
const spare = 2

// A message that has to stand back comes again after a while, ever longer.
const (
	standBack     = 2 * time.Second
	mostStandBack = 10 * time.Second
)

// lanes let so many handlers work at a time. While this process has orders of its own,
// the messages of others, such as an earlier run has left, are worked on one at a time
// in a side lane: they do not take the turn of the process's own, nor are they in their
// way in the queue.
type lanes struct {
	own  func(uuid.UUID) bool // tells whether a request is of this process
	busy func() bool          // tells whether this process has any

	mu      sync.Mutex
	free    int             // lanes, but for the side lane; guarded by mu
	side    bool            // somebody is in the side lane; guarded by mu
	waiting []chan struct{} // handlers that wait, own ones first; guarded by mu
	owners  int             // how many of them are own; guarded by mu

	closed chan struct{} // closed when others are not let in any more
	once   sync.Once
}

func newLanes(n int, own func(uuid.UUID) bool, busy func() bool) *lanes {
	return &lanes{own: own, busy: busy, free: n, closed: make(chan struct{})}
}

// close sends away who waits with somebody else's message: that is left to others.
func (l *lanes) close() { l.once.Do(func() { close(l.closed) }) }

// do works in a lane. The error is work's, or why it was not let in.
func (l *lanes) do(ctx context.Context, id uuid.UUID, deliveries int64, work func() error) error {
	leave, err := l.enter(ctx, id, deliveries)
	if err != nil {
		return err
	}
	defer leave() // also after a panic
	return work()
}

// enter waits for a lane for the request, whose message came for the how-manieth time.
// The caller leaves the lane by calling leave. The error is what the handler returns.
func (l *lanes) enter(ctx context.Context, id uuid.UUID, deliveries int64) (leave func(), err error) {
	own := l.own(id)
	var closed <-chan struct{}
	if !own {
		closed = l.closed
		select {
		case <-closed:
			return nil, dispatcher.Snooze(0)
		default:
		}
	}
	turn := make(chan struct{})
	l.mu.Lock()
	switch {
	case !own && l.busy():
		taken := l.side
		l.side = true
		l.mu.Unlock()
		if taken {
			return nil, dispatcher.Snooze(min(standBack*time.Duration(min(deliveries, 100)), mostStandBack))
		}
		return l.leaveSide, nil
	case l.free > 0:
		l.free--
		l.mu.Unlock()
		return l.leave, nil
	case own:
		l.waiting = slices.Insert(l.waiting, l.owners, turn)
		l.owners++
	default:
		l.waiting = append(l.waiting, turn)
	}
	l.mu.Unlock()

	select {
	case <-turn:
		return l.leave, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-closed:
		err = dispatcher.Snooze(0)
	}
	if !l.forget(turn) { // let in at the same moment
		l.leave()
	}
	return nil, err
}

// forget takes away who does not wait any more, if it still did.
func (l *lanes) forget(turn chan struct{}) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiting, turn)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	if i < l.owners {
		l.owners--
	}
	return true
}

// leave lets the next one in.
func (l *lanes) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.free++
		return
	}
	close(l.waiting[0])
	l.waiting = l.waiting[1:]
	l.owners = max(l.owners-1, 0)
}

func (l *lanes) leaveSide() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.side = false
}
