package faultqueue

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/serviceerror"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
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

// do is [call] for an operation without a result.
func (q *Queue) do(ctx context.Context, op Op, about string, id queue.ID, bad error, act func(context.Context) error) error {
	_, err := call(ctx, q, op, about, id, bad, func(ctx context.Context) (struct{}, error) { return struct{}{}, act(ctx) })
	return err
}

// call runs one operation with its fault. The fault depends on subject; errors name id.
func call[T any](ctx context.Context, q *Queue, op Op, about string, id queue.ID, bad error, act func(context.Context) (T, error)) (result T, _ error) {
	bad = cmp.Or(bad, driver.CheckName(q.inner.Name().Queue))
	if bad != nil { // a client would not send it, so it has no fault
		return result, driver.Explain(bad, string(op), q.inner.Name(), id)
	}
	if ctx.Err() != nil && !q.injector.isDead() {
		return act(ctx) // the inner queue returns the error
	}
	f := q.injector.begin(callKey{q.inner.Name().Queue, op, about})
	if f.fault == Late {
		sendLate(ctx, q.injector, f, id, act)
	}
	result, count, err := inject(ctx, q.injector, f, act)
	q.injector.record(f, messageID(result, id), count, err)
	if injected := (*queue.Error)(nil); errors.As(err, &injected) && injected.Op == "" {
		err = driver.Explain(injected, string(op), q.inner.Name(), id)
	}
	return result, err
}

// messageID returns the id of the message that a result is about: an enqueue creates one.
func messageID(result any, id queue.ID) queue.ID {
	if created, ok := result.(queue.Message); ok {
		return created.ID
	}
	return id
}

func messageCount(result any) int {
	batch, _ := result.([]queue.Message)
	return len(batch)
}

// sendLate lets a request arrive after its caller has given up, even if the process has died: it
// has left the process. [Queue.Wait] waits for it.
func sendLate[T any](ctx context.Context, w *injector, f injection, id queue.ID, act func(context.Context) (T, error)) {
	ctx = context.WithoutCancel(ctx)
	w.mu.Lock()
	w.late++
	w.mu.Unlock()
	go func() {
		defer w.finishLate()
		time.Sleep(f.requestDelay + f.responseDelay + f.lateDelay)
		f.started, f.fault = time.Since(w.start), Arrival
		if w.isMissing(f.started) {
			w.record(f, id, 0, Missing.asError())
			return
		}
		result, err := act(ctx)
		w.record(f, messageID(result, id), messageCount(result), err)
	}()
}

// finishLate counts an arrival of a late request.
func (w *injector) finishLate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.late--; w.late == 0 {
		w.lateDone.Broadcast()
	}
}

// waitLate returns when no late request is in flight.
func (w *injector) waitLate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.late > 0 {
		w.lateDone.Wait()
	}
}

// inject runs one request with its fault. It also returns the number of messages in the response,
// even if that was lost.
func inject[T any](ctx context.Context, w *injector, f injection, act func(context.Context) (T, error)) (result T, count int, _ error) {
	var nothing T
	if f.fault == Death {
		if f.kills {
			if err := w.transit(ctx, f.requestDelay); err != nil {
				return nothing, 0, err
			}
			defer w.kill()
		}
		if f.acts {
			_, _ = act(ctx) // the response is lost
		}
		return nothing, 0, Death.asError()
	}
	if err := w.transit(ctx, f.requestDelay); err != nil {
		return nothing, 0, err
	}
	var err error
	switch f.fault {
	case Throttled, Unavailable, LostRequest, Missing, Late:
	case Duplicate:
		_, _ = act(ctx) // the first response is lost
		if err = w.transit(ctx, f.duplicateDelay); err != nil {
			return nothing, 0, err
		}
		result, err = act(ctx)
	default:
		result, err = act(ctx)
	}
	count = messageCount(result)
	if err := w.transit(ctx, f.responseDelay); err != nil {
		return nothing, count, err
	}
	if failed := f.fault.asError(); failed != nil {
		return nothing, count, failed
	}
	return result, count, err
}

// transit waits while a request or a response is in flight. It fails if the process dies or ctx
// ends meanwhile.
func (w *injector) transit(ctx context.Context, d time.Duration) error {
	if d > 0 {
		arrived := time.NewTimer(d)
		defer arrived.Stop()
		select {
		case <-arrived.C:
		case <-w.died:
		case <-ctx.Done():
			return &queue.Error{Kind: queue.ErrOutcomeUnknown, Detail: "the wait for the response ended", Err: serviceerror.Ended(ctx)}
		}
	}
	if w.isDead() {
		return Death.asError()
	}
	return nil
}

// Call is a call in the trace, or the [Arrival] of a late one. Calls can be compared with ==.
type Call struct {
	At      time.Duration // when it began, since [New]
	Took    time.Duration // its duration
	Queue   string        // the queue's name
	Op      Op
	Message queue.ID // its message; for an enqueue the new one; "" if none
	Ordinal int      // number of earlier calls with the same operation and subject
	Fault   Fault    // "" if none
	Count   int      // messages returned, or lost on the way; for a duplicate dequeue those of the second
	Error   string   // kind of the error, such as "throttled"; "" if none
}

// Trace returns all calls that have ended, sorted by time, queue, message, operation and ordinal.
// It is empty without [Options].Record.
func (q *Queue) Trace() []Call {
	q.injector.mu.Lock()
	trace := slices.Clone(q.injector.trace)
	q.injector.mu.Unlock()
	slices.SortStableFunc(trace, func(a, b Call) int {
		return cmp.Or(
			cmp.Compare(a.At, b.At), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Message, b.Message),
			cmp.Compare(a.Op, b.Op), cmp.Compare(a.Ordinal, b.Ordinal), cmp.Compare(a.Took, b.Took), cmp.Compare(a.Fault, b.Fault),
		)
	})
	return trace
}

// record adds a finished call to the trace.
func (w *injector) record(f injection, id queue.ID, count int, err error) {
	if !w.o.Record {
		return
	}
	c := Call{
		At: f.started, Took: time.Since(w.start) - f.started,
		Queue: f.queue, Op: f.op, Message: id, Ordinal: f.ordinal, Fault: f.fault, Count: count,
	}
	if err != nil {
		c.Error = "failed"
		if known := (*queue.Error)(nil); errors.As(err, &known) && known.Kind != nil {
			c.Error = known.Kind.Error()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, c)
}
