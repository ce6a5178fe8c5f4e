package faultqueue

import (
	"errors"
	"hash/fnv"
	"sync"
	"time"
)

// ErrDead is in the error of every call that a dead process made or had under
// way, which is a [queue.ErrOutcomeUnknown] too.
var ErrDead = errors.New("the process is dead")

// world is what a queue shares with its siblings.
type injector struct {
	o           Options
	start       time.Time
	died        chan struct{} // closed at death
	dieAt       int           // which call is the last; 0 when none is
	missingFrom time.Duration // since birth, when the queue goes missing

	mu       sync.Mutex
	calls    int             // guarded by mu
	ordinals map[callKey]int // guarded by mu; how often each was called
	trace    []Call          // guarded by mu
	late     int             // requests under way that arrive when their callers have given up; guarded by mu
	lateDone *sync.Cond      // the last of them has; with mu
}

// key is what a call is about: all that its fate depends on, its ordinal aside.
type callKey struct {
	queue   string
	op      Op
	subject string // a message's id, or its text when it is new, or how many are asked for
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

// fate is what happens to one call.
type injection struct {
	callKey
	ordinal        int // how often the same was called before
	started        time.Duration
	fault          Fault
	requestDelay   time.Duration // the request's way
	responseDelay  time.Duration // the answer's
	duplicateDelay time.Duration // from the first arrival of a doubled request to the second
	lateDelay      time.Duration // from when the caller gives up to a late request's arrival
	acts           bool          // whether a call during which the process dies still acts
	kills          bool          // whether the process dies when the request has had its way
}

// begin numbers a call and says what happens to it.
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

// rates returns those that hold for a call at an instant since birth.
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

// skew is how far the server's clock is ahead now.
func (w *injector) skew(queue string) time.Duration {
	at := time.Since(w.start)
	for i := range w.o.Phases {
		if p := &w.o.Phases[i]; p.covers(queue, at) {
			return w.o.Skew + p.Skew
		}
	}
	return w.o.Skew
}

// missing tells whether the queue is away at an instant since birth.
func (w *injector) isMissing(at time.Duration) bool {
	return at >= w.missingFrom && at < w.missingFrom+w.o.Missing.For
}

// draw returns a number from 0 to 1 that depends on nothing but the seed and its
// arguments.
func (w *injector) draw(purpose string, k callKey, ordinal int) float64 {
	h := fnv.New64a()
	for _, s := range []string{purpose, k.queue, string(k.op), k.subject} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	// FNV alone leaves neighbours near each other: mix as splitmix64 does.
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

// kill ends the process; once is enough.
func (w *injector) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isDead() {
		close(w.died)
	}
}
