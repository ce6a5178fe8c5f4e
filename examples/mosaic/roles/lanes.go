package roles

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/dispatcher"
)

// spare is how many messages a process may hold in addition to those it works on. More would keep
// work from idle processes.
const spare = 2

// A message of another process that has to wait is snoozed, longer each time.
const (
	standBack    = 2 * time.Second
	maxStandBack = 10 * time.Second
)

// lanes limit how many handlers work at a time. While this process has orders of its own, messages of
// other requests, such as those left by an earlier run, are handled one at a time in a side lane. So
// they neither delay the process's own orders nor block the queue.
type lanes struct {
	own  func(uuid.UUID) bool // reports whether a request belongs to this process
	busy func() bool          // reports whether this process has unfinished requests

	mu      sync.Mutex
	free    int             // free lanes, without the side lane; guarded by mu
	side    bool            // the side lane is taken; guarded by mu
	waiting []chan struct{} // handlers that wait, those of own requests first; guarded by mu
	owners  int             // how many of them are of own requests; guarded by mu

	closed chan struct{} // closed when other requests get no lane any more
	once   sync.Once
}

func newLanes(n int, own func(uuid.UUID) bool, busy func() bool) *lanes {
	return &lanes{own: own, busy: busy, free: n, closed: make(chan struct{})}
}

// close ends the wait of messages of other requests, which are left to other processes.
func (l *lanes) close() { l.once.Do(func() { close(l.closed) }) }

// do calls work in a lane. It returns the error of work, or the reason why there was no lane.
func (l *lanes) do(ctx context.Context, id uuid.UUID, deliveries int64, work func() error) error {
	leave, err := l.enter(ctx, id, deliveries)
	if err != nil {
		return err
	}
	defer leave() // also after a panic
	return work()
}

// enter waits for a lane for a message of the request with this number of deliveries. The caller calls
// leave when it is done. The handler returns the error.
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
			return nil, dispatcher.Snooze(min(standBack*time.Duration(min(deliveries, 100)), maxStandBack))
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
	if !l.forget(turn) { // it got a lane at the same moment
		l.leave()
	}
	return nil, err
}

// forget removes a waiting handler and reports whether it still waited.
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

// leave passes the lane to the next waiting handler, or frees it.
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
