package listener

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/load"
	"github.com/millrace/millrace/internal/waiting"
)

// Rates are means over the last rateWindow, or since the start if that is less: long enough that
// ten messages in it are no burst, and short against the minute in which a backlog should be gone
// and the time an instance takes to start. The totals are noted every rateStep while they grow, so
// the window is exact to that.
const (
	rateStep   = time.Second
	rateWindow = 30 * time.Second
)

// Arrival is the mean since the youngest reading of the depth that is at least rateWindow older
// than the newest, or since the oldest one. Readings older than maxBaseline do not count, and a
// newest reading older than maxReadingAge says nothing about the present: under load the depth is
// read every 30 s.
const (
	maxBaseline   = 5 * time.Minute
	maxReadingAge = time.Minute
)

// totals are the counts of a listener since its start.
type totals struct {
	received int64         // messages
	settled  int64         // deliveries with any outcome
	ended    int64         // messages taken off the queue
	handled  int64         // handlers that returned
	handling time.Duration // which they took together
}

// moment are totals at one time.
type moment struct {
	at time.Time
	totals
}

// reading is a depth that was read.
type reading struct {
	at           time.Time
	depth, ended int64
	open         int64 // deliveries in progress, which may be off the queue and not yet in ended
}

// figures are the results of rates.
type figures struct {
	arrival, intake, service Optional[float64]
	handling                 Optional[time.Duration]
}

// rates derives rates from counts that are there anyway, so that a message costs nothing.
type rates struct {
	count func() totals
	busy  chan struct{} // buffered, one: messages were received

	mu       sync.Mutex
	moments  []moment                // oldest first, rateStep apart; empty before begin; guarded by mu
	over     time.Time               // when the run ended; zero before; guarded by mu
	handling Optional[time.Duration] // of the last window with a handler that returned; guarded by mu
	readings []reading               // oldest first, at least rateStep apart; guarded by mu
}

func newRates(count func() totals) *rates {
	return &rates{count: count, busy: make(chan struct{}, 1)}
}

// begin begins the first window.
func (r *rates) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moments = append(make([]moment, 0, rateWindow/rateStep+1), moment{time.Now(), r.count()})
}

// received says that there are messages: it ends a quiet time.
func (r *rates) received() { waiting.Signal(r.busy, struct{}{}) }

// watch notes the totals every rateStep until ctx ends, but not while the listener is idle: a timer
// for nothing would keep a machine awake.
func (r *rates) watch(ctx context.Context) {
	timer := time.NewTimer(rateStep)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			r.end()
			return
		}
		if !r.note() {
			timer.Reset(rateStep)
			continue
		}
		select {
		case <-r.busy:
			r.resume()
			timer.Reset(rateStep)
		case <-ctx.Done():
			r.end()
			return
		}
	}
}

// note notes the totals, and reports whether it is quiet: a whole window has passed without a
// change, and no delivery is in progress.
func (r *rates) note() (quiet bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.noteIfDue()
}

// noteIfDue is note, unless the totals were noted less than rateStep ago. A report that is made at
// the instant of a note therefore has the same rates whichever of the two comes first. Requires mu.
func (r *rates) noteIfDue() (quiet bool) {
	now := moment{time.Now(), r.count()}
	if now.at.Sub(r.moments[len(r.moments)-1].at) < rateStep {
		return false
	}
	full := len(r.moments) == cap(r.moments)
	if full && now.totals == r.moments[0].totals && now.received == now.settled {
		return true
	}
	r.noteHandling(now)
	if full {
		r.moments = r.moments[:copy(r.moments, r.moments[1:])]
	}
	r.moments = append(r.moments, now)
	return false
}

// resume ends a quiet time: the totals have changed in the last moment, and not before.
func (r *rates) resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for i := range r.moments {
		r.moments[i].at = now.Add(-time.Duration(len(r.moments)-1-i) * rateStep)
	}
}

// end keeps the figures as they are now.
func (r *rates) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = time.Now()
}

// noteHandling keeps the mean handling time of the window that ends now. Requires mu.
func (r *rates) noteHandling(now moment) {
	if n := now.handled - r.moments[0].handled; n > 0 {
		r.handling = load.Known((now.handling - r.moments[0].handling) / time.Duration(n))
	}
}

func (r *rates) current() (f figures) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.moments) == 0 {
		return f
	}
	now := moment{time.Now(), r.count()}
	if !r.over.IsZero() {
		now.at = r.over
	} else {
		r.noteIfDue()
	}
	first := r.moments[0]
	if elapsed := now.at.Sub(first.at); elapsed >= rateStep {
		f.intake = load.Known(float64(now.received-first.received) / elapsed.Seconds())
		f.service = load.Known(float64(now.ended-first.ended) / elapsed.Seconds())
	}
	r.noteHandling(now)
	f.handling = r.handling
	f.arrival = r.arrival(now.at)
	return f
}

// depthRead notes a reading of the depth. One that failed is not noted: the arrival stays the same
// until it is too old.
func (r *rates) depthRead(depth int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	counted := r.count()
	now := reading{time.Now(), depth, counted.ended, counted.received - counted.settled}
	for len(r.readings) > 0 && now.at.Sub(r.readings[0].at) > maxBaseline {
		r.readings = r.readings[1:]
	}
	// The first reading before rateWindow is not needed while there is a second.
	for len(r.readings) > 1 && now.at.Sub(r.readings[1].at) >= rateWindow {
		r.readings = r.readings[1:]
	}
	if n := len(r.readings); n > 1 && now.at.Sub(r.readings[n-2].at) < rateStep {
		r.readings = r.readings[:n-1] // the one before the last is near enough: readings stay few
	}
	r.readings = append(r.readings, now)
}

// arrival returns the arrival rate. Requires mu.
func (r *rates) arrival(now time.Time) (unknown Optional[float64]) {
	if len(r.readings) < 2 {
		return unknown
	}
	first, last := r.readings[0], r.readings[len(r.readings)-1]
	elapsed := last.at.Sub(first.at)
	came := last.depth - first.depth + last.ended - first.ended
	if elapsed < rateStep || now.Sub(last.at) > maxReadingAge || came < -last.open {
		return unknown
	}
	return load.Known(float64(max(came, 0)) / elapsed.Seconds())
}
