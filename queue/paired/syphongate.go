package paired

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
)

// The rests of a syphon whose primary queue does not accept, and of a backlog queue that fails.
const (
	minRest = time.Second
	maxRest = time.Minute

	// maxWait is how long a message waits at most because its primary queue does not accept.
	maxWait = 10 * time.Minute

	// failuresToRest is how many copies in a row fail before the syphon rests: one may be the fault of
	// its message, or of its connection.
	failuresToRest = 3
)

// restFor returns how long to rest after an error.
func restFor(w *retry.Waits, err error) time.Duration {
	wait := w.Next()
	if errors.Is(err, queue.ErrThrottled) {
		wait = max(wait, busyWait)
	}
	return wait
}

// home is a primary queue to which messages are brought.
type home struct {
	queue queue.Queue
	waits *retry.Waits

	// These are guarded by homes.mu.
	failed int           // copies since the last success
	since  time.Time     // start of the failure; zero while it accepts
	probe  waiting.Probe // a copy tries whether it accepts again
}

func (h *home) open() bool { return h.since.IsZero() }

// homes lets lanes and copies through while the primary queues accept. To one that does not, a single
// message at a time is copied, after ever longer rests.
type homes struct {
	all map[string]*home // by name of the queue

	mu      sync.Mutex
	trying  bool           // whether a lane polls although no home is open; guarded by mu
	changed waiting.Change // guarded by mu
}

func newHomes(primaries []queue.Queue, spread string) *homes {
	h := &homes{all: make(map[string]*home)}
	for _, q := range primaries {
		name := q.Name().Queue
		h.all[name] = &home{queue: q, waits: retry.NewWaits(spread+name, minRest, maxRest)}
	}
	return h
}

// enter waits until a lane may poll. If no home is open it is to try with as few messages as tell something,
// and then to call left. It reports false if ctx has ended.
func (h *homes) enter(ctx context.Context) (try, ok bool) {
	for ctx.Err() == nil {
		h.mu.Lock()
		open, left := h.next()
		try = !open && left <= 0 && !h.trying
		if open || try {
			h.trying = h.trying || try
			h.mu.Unlock()
			return try, true
		}
		changed := h.changed.Next()
		h.mu.Unlock()
		waiting.ForChange(left, changed, ctx.Done())
	}
	return false, false
}

// next reports whether a home is open, or how long the shortest rest takes. Requires mu.
func (h *homes) next() (open bool, left time.Duration) {
	left = maxRest
	for _, one := range h.all {
		if one.open() {
			return true, 0
		}
		left = min(left, time.Until(one.probe.Due()))
	}
	return false, left
}

// left ends the try of a lane. A home whose rest is over, and for which none of the messages was that it found, rests
// again: there may be none for it anywhere.
func (h *homes) left(found bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trying = false
	now := time.Now()
	for _, one := range h.all {
		if found && !one.open() && !now.Before(one.probe.Due()) {
			one.probe.Pause(now.Add(one.waits.Next()))
		}
	}
	h.changed.Announce()
}

// batch returns how many messages a lane is to poll for. One tells whether the only home accepts; of several
// homes the first message may be for another.
func (h *homes) batch(try bool) int {
	if try && len(h.all) == 1 {
		return 1
	}
	return queue.MaxBatch
}

// admit reports whether a message may be copied, or else how long it waits: for the rest, and at least for
// as long as the failure has lasted, so that each is taken only a few times while others are brought home
// from the same backlog queue. The end of the copy is told by accepted, refused or unsaid.
func (h *homes) admit(one *home) (ok bool, wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one.open() || one.probe.Begin(time.Now()) {
		return true, 0
	}
	return false, max(time.Until(one.probe.Due()), minRest, min(time.Since(one.since), maxWait))
}

// accepted notes that a primary queue accepted a message.
func (h *homes) accepted(one *home) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one.failed = 0
	one.probe.End()
	if !one.open() {
		one.since = time.Time{}
		one.waits.Reset()
		h.changed.Announce()
	}
}

// refused notes that it did not.
func (h *homes) refused(one *home, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one.failed++
	tried := one.probe.End()
	switch {
	case !one.open() && !tried, one.open() && one.failed < failuresToRest:
		return // a copy that began before the rest, or too few to tell
	case one.open():
		one.since = time.Now()
	}
	one.probe.Pause(time.Now().Add(restFor(one.waits, err)))
	h.changed.Announce()
}

// unsaid notes that a copy told nothing of its primary queue.
func (h *homes) unsaid(one *home) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one.probe.End()
}

// failing returns since when a primary queue has not accepted, of those the one that is longest; zero if
// all do.
func (h *homes) failing() (since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.all {
		if !one.open() && (since.IsZero() || one.since.Before(since)) {
			since = one.since
		}
	}
	return since
}
