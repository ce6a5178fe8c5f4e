package faultqueue

import (
	"errors"
	"hash/fnv"
	"sync"
	"time"
)

// ErrDead is in the error of every call that a dead process made or had in flight. Such an error
// is also a [queue.ErrOutcomeUnknown].
var ErrDead = errors.New("the process is dead")

// injector decides faults and keeps the trace. A queue shares it with its siblings.
type injector struct {
	o           Options
	start       time.Time
	died        chan struct{} // closed when the process dies
	dieAt       int           // number of the call at which the process dies; 0 for none
	missingFrom time.Duration // when the queue goes missing, since start

	mu       sync.Mutex
	calls    int             // guarded by mu
	ordinals map[callKey]int // calls so far by key; guarded by mu
	trace    []Call          // guarded by mu
	late     int             // late requests in flight; guarded by mu
	lateDone *sync.Cond      // late is 0; with mu
}

// callKey is what the fault of a call depends on, besides its ordinal.
type callKey struct {
	queue   string
	op      Op
	subject string // a message id, a new message's text, or the number of messages asked for
}

func newInjector(o Options) *injector {
	o.Latency = o.Latency.or(Range{time.Millisecond, 100 * time.Millisecond})
	o.SlowLatency = o.SlowLatency.or(Range{time.Second, 20 * time.Second})
	o.LateBy = o.LateBy.or(Range{time.Second, 30 * time.Second})
	w := &injector{o: o, start: time.Now(), died: make(chan struct{}), ordinals: make(map[callKey]int)}
	w.lateDone = sync.NewCond(&w.mu)
	if o.DieAfter > 0 {
		w.dieAt = 1 + int(w.draw("death", callKey{}, 0)*float64(o.DieAfter))
	}
	w.missingFrom = Range{0, o.Missing.Within}.at(w.draw("missing", callKey{}, 0))
	return w
}

// injection is what happens to one call.
type injection struct {
	callKey
	ordinal        int // number of earlier calls with the same key
	started        time.Duration
	fault          Fault
	requestDelay   time.Duration // until the request arrives
	responseDelay  time.Duration // until the response arrives
	duplicateDelay time.Duration // between the two arrivals of a duplicate request
	lateDelay      time.Duration // from the caller's giving up to a late request's arrival
	acts           bool          // whether a call in which the process dies takes effect
	kills          bool          // whether the process dies when the request arrives
}

// begin numbers a call and decides what happens to it.
func (w *injector) begin(k callKey) injection {
	f := injection{callKey: k, started: time.Since(w.start)}
	w.mu.Lock()
	w.calls++
	last := w.calls == w.dieAt
	f.ordinal = w.ordinals[k]
	w.ordinals[k]++
	w.mu.Unlock()

	f.fault = w.rates(k, f.started).choose(w.draw("fault", k, f.ordinal))
	took := w.o.Latency
	switch {
	case w.isDead() || last:
		// A call in which the process dies takes no time of its own.
		f.acts = last && !w.isDead() && w.draw("acts", k, f.ordinal) < 0.5
		w.kill()
		f.fault, took = Death, Range{}
	case w.isMissing(f.started):
		f.fault = Missing
	case f.fault == Death:
		// It dies when the request arrives or just before: at an instant of its own.
		f.acts = w.draw("acts", k, f.ordinal) < 0.5
		f.kills = true
	case f.fault == Duplicate:
		f.duplicateDelay = took.at(w.draw("between", k, f.ordinal))
	case f.fault == Late:
		f.lateDelay = w.o.LateBy.at(w.draw("late", k, f.ordinal))
	case f.fault == Slow:
		took = w.o.SlowLatency
	case f.fault == "":
		took = w.o.UsualLatency
	}
	latency := took.at(w.draw("latency", k, f.ordinal))
	f.requestDelay = latency / 2
	f.responseDelay = latency - f.requestDelay
	return f
}

// rates returns the rates for a call at an instant since start.
func (w *injector) rates(k callKey, at time.Duration) Rates {
	for i := range w.o.Phases {
		p := &w.o.Phases[i]
		if rates, named := p.Faults[k.op]; named && p.covers(k.queue, at) {
			return rates
		}
	}
	if rates, named := w.o.Faults[k.op]; named {
		return rates
	}
	return w.o.Every
}

// skew returns how far the server's clock is ahead now.
func (w *injector) skew(queue string) time.Duration {
	at := time.Since(w.start)
	for i := range w.o.Phases {
		if p := &w.o.Phases[i]; p.covers(queue, at) {
			return w.o.Skew + p.Skew
		}
	}
	return w.o.Skew
}

// isMissing reports whether the queue is missing at an instant since start.
func (w *injector) isMissing(at time.Duration) bool {
	return at >= w.missingFrom && at < w.missingFrom+w.o.Missing.For
}

// draw returns a number from 0 to 1 that depends only on the seed and its arguments.
func (w *injector) draw(purpose string, k callKey, ordinal int) float64 {
	h := fnv.New64a()
	for _, s := range []string{purpose, k.queue, string(k.op), k.subject} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	// FNV maps similar inputs to similar outputs: mix the result as splitmix64 does.
	x := h.Sum64() ^ mix(w.o.Seed) ^ mix(uint64(ordinal)+0x9E3779B97F4A7C15)
	return float64(mix(x)>>11) / (1 << 53)
}

func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

func (w *injector) isDead() bool {
	select {
	case <-w.died:
		return true
	default:
		return false
	}
}

// kill lets the process die. Calling it again is fine.
func (w *injector) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isDead() {
		close(w.died)
	}
}
