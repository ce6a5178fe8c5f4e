package paired

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
)

const (
	// busyWait is how long a busy service is left alone.
	busyWait = 10 * time.Second

	// failedRest is how long a backlog queue that failed is left out.
	failedRest = time.Minute
)

type backlog struct {
	queue  queue.Queue
	suffix string // such as "-backlog-07"

	// These are guarded by rotation.mu.
	restsUntil time.Time
	lastErr    error // why it rests; nil since it has accepted a message
	accepted   int64
	failed     int64
}

// rotation chooses among the backlog queues.
type rotation struct {
	all []*backlog

	mu       sync.Mutex
	requests int64 // sent to the secondary account; guarded by mu
}

func newRotation(secondary queue.Queue, n int) *rotation {
	r := &rotation{}
	for i, q := range backlogQueues(secondary, n) {
		r.all = append(r.all, &backlog{queue: q, suffix: backlogSuffix(i)})
	}
	return r
}

// name returns the name of the first backlog queue, for logs.
func (r *rotation) name() string { return r.all[0].queue.Name().String() }

// choose returns a random one of the backlog queues that do not rest and were not tried. If all rest and
// none was tried, it is the one that rests for the shortest time still: there is nothing better to do with
// the message. Nil means that there is none left. What it returns counts as tried and as a request.
func (r *rotation) choose(tried map[*backlog]bool) *backlog {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ready []*backlog
	soonest := r.all[0]
	now := time.Now()
	for _, b := range r.all {
		if !tried[b] && !now.Before(b.restsUntil) {
			ready = append(ready, b)
		}
		if b.restsUntil.Before(soonest.restsUntil) {
			soonest = b
		}
	}
	var chosen *backlog
	switch {
	case len(ready) > 0:
		chosen = ready[rand.IntN(len(ready))]
	case len(tried) == 0:
		chosen = soonest
	default:
		return nil
	}
	tried[chosen] = true
	r.requests++
	return chosen
}

// ended takes the result of a send to a backlog queue. One that failed rests, unless it is the message's or
// the sender's fault, or that of a limit of the program.
func (r *rotation) ended(b *backlog, v verdict, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch v {
	case accepted:
		b.accepted++
		b.restsUntil, b.lastErr = time.Time{}, nil
	case refused, limited:
	default:
		rest := failedRest
		if errors.Is(err, queue.ErrThrottled) {
			rest = busyWait
		}
		b.failed++
		b.restsUntil, b.lastErr = time.Now().Add(rest), err
	}
}

// verified takes the result of looking at a backlog queue: one that is there rests no longer.
func (r *rotation) verified(b *backlog, err error) {
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		b.restsUntil, b.lastErr = time.Time{}, nil
	}
}

// request counts a request to the secondary account.
func (r *rotation) request() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
}
