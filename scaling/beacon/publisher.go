package beacon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/internal/resources"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

// The bounds of [Options.Interval], and of Next of a [Report].
const (
	MinInterval     = 100 * time.Millisecond
	MaxInterval     = 10 * time.Minute
	defaultInterval = 10 * time.Second
)

// maxName is how long the name of an instance may be, in bytes.
const maxName = 200

// Options say where an instance reports and how often. The zero value reports nowhere. It may be copied.
type Options struct {
	// Queue is the control queue. It must be a queue of its own, from which nobody takes messages. Defaults to none: the
	// instance is not seen.
	Queue queue.Queue

	// Create creates the control queue when it is missing. Defaults to false: reports fail until there is one.
	Create bool

	// Interval is how long lies between reports while something changes, at least 100 ms and at most 1 h. Each is one
	// request. While nothing changes the next ones follow after twice as long each, up to six times Interval.
	// Defaults to 10 s.
	Interval time.Duration

	// Instance identifies the instance among all that report, in at most 200 bytes. All listeners of one process should
	// have the same. Those on the same queue must have different ones: they hide each other otherwise.
	// Defaults to the host's name, the process id and a random number.
	Instance string
}

// validate returns everything that is wrong with the options of a listener that takes jobs from this queue, or nil.
func (o *Options) validate(jobs queue.Name) error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case o.Queue == nil:
		refuse("there is no control queue: set Queue")
	case hook.IsNil(o.Queue):
		refuse("the control queue is a nil %T: leave it out to report nowhere", o.Queue)
	case o.Queue.Name() == jobs:
		refuse("the control queue is the queue of the jobs, %v: reports need a queue of their own", jobs)
	}
	if o.Interval != 0 && (o.Interval < MinInterval || o.Interval > MaxInterval) {
		refuse("the interval %v is outside %v…%v: give it a unit, such as 10*time.Second", o.Interval, MinInterval, MaxInterval)
	}
	if err := checkInstance(o.Instance); o.Instance != "" && err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func checkInstance(name string) error {
	switch {
	case name == "":
		return errors.New("the instance has no name")
	case len(name) > maxName:
		return fmt.Errorf("the name of the instance has %d bytes, at most %d are allowed", len(name), maxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("the name of the instance, %q, is not valid UTF-8", name)
	}
	return nil
}

func (o Options) withDefaults() Options {
	o.Interval = cmp.Or(o.Interval, defaultInterval)
	o.Instance = cmp.Or(o.Instance, thisProcess())
	return o
}

// thisProcess returns the default name of the instance, which is the same for all listeners of the process.
var thisProcess = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil || !utf8.ValidString(host) {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d-%08x", host[:min(len(host), maxName/2)], os.Getpid(), rand.Uint32())
})

// idleFactor is how many times Interval lies between reports at most, while nothing changes or requests fail.
const idleFactor = 6

// messageLife is how many times Interval a message lives, at least minMessageLife: so long it is in the queue after its instance
// was killed.
const (
	messageLife    = 60
	minMessageLife = 10 * time.Minute
)

// lastReportLife is how many times Interval the last report lives, at least minLastReportLife: viewers look at intervals of their own.
const (
	lastReportLife    = 3
	minLastReportLife = 30 * time.Second
)

// fewLeft is how many reports a queue beside the control queue has at most when those in it go back.
const fewLeft = 3

// maxDoublings bounds how often the wait after failures is doubled: it is at its longest before.
const maxDoublings = 4

// farewell is how long the last report may take.
const farewell = time.Second

// Publisher keeps the report of one listener up to date: one message in the control queue, which it updates in place. Make one
// with [NewPublisher]; [Publisher.Run] runs it once. A listener with the option Beacon has one: other programs need none.
type Publisher struct {
	_ [0]sync.Mutex // go vet reports copies

	options Options
	report  func() Report
	onError func(error)
	spent   func() (used time.Duration, processors float64, known bool) // of the process

	run     string
	begun   time.Time
	changed chan struct{} // buffered, one

	// Of Run's goroutine.
	sequence int64
	last     Report        // what report returned last
	wait     time.Duration // Next of the last report
	spot     spot          // where the message is; none before the first
	placed   int64         // the sequence of the first report there
	lease    *queue.Lease  // of the message; nil if there is none whose receipt is known
	putAt    time.Time     // when it was put
	failures int           // in a row
	used     time.Duration // processor time of the process
	measured time.Time     // when that was
}

// NewPublisher returns a publisher for a listener that takes jobs from this queue, of the reports that report returns. It fills
// in what identifies them, and CPU and memory of the process. OnError gets what goes wrong; the publisher tries again. Both
// functions are called by Run, one at a time. NewPublisher sends nothing. It refuses a nil function, and options without a
// control queue or with other mistakes.
func NewPublisher(jobs queue.Name, report func() Report, onError func(error), o *Options) (*Publisher, error) {
	o = cmp.Or(o, &Options{})
	err := o.validate(jobs)
	if report == nil || onError == nil {
		err = errors.Join(err, errors.New("report or onError is nil: pass both functions"))
	}
	if err != nil {
		return nil, fmt.Errorf("beacon: %w", err)
	}
	return &Publisher{
		options: o.withDefaults(), report: report, onError: onError, spent: resources.Processor,
		run: fmt.Sprintf("%016x", rand.Uint64()), changed: make(chan struct{}, 1),
	}, nil
}

// Changed says that the next report should follow after Interval at most. It does not wait, and is safe for concurrent use.
func (p *Publisher) Changed() { waiting.Signal(p.changed, struct{}{}) }

// Run reports until ctx ends, then puts the last report, deletes its message and returns, a second later at most. A request in
// flight is not cut off at once: where its message is would be unknown. The error is always nil: OnError gets those of requests.
func (p *Publisher) Run(ctx context.Context) error {
	p.begun = time.Now()
	p.cpu(p.begun)
	requests, hangUp := context.WithCancel(request.WithCause(context.WithoutCancel(ctx), request.CauseBeacon))
	defer hangUp()
	bound := time.AfterFunc(farewell, hangUp)
	bound.Stop()
	defer bound.Stop()
	defer context.AfterFunc(ctx, func() { bound.Reset(farewell) })()
	for ctx.Err() == nil {
		at := time.Now()
		wait := p.beat(requests)
		p.pause(ctx, at, wait)
	}
	p.end(requests)
	return nil
}

// together is the shortest wait before a report, so that all that changes at one instant is in it.
const together = time.Microsecond

// pause waits until the next report is due, wait after the last one at that time, or until ctx ends.
func (p *Publisher) pause(ctx context.Context, at time.Time, wait time.Duration) {
	timer := time.NewTimer(max(wait-time.Since(at), together))
	defer timer.Stop()
	changed := p.changed
	if p.failures > 0 {
		changed = nil // a change is no reason to ask a service that fails more often
	}
	for {
		select {
		case <-changed:
			changed = nil
			timer.Reset(max(min(wait, p.options.Interval)-time.Since(at), together))
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// beat sends one report and returns how long to wait for the next.
func (p *Publisher) beat(ctx context.Context) (wait time.Duration) {
	r, same := p.next()
	longest := min(idleFactor*p.options.Interval, MaxInterval)
	r.Next = p.options.Interval
	if same {
		r.Next = min(2*p.wait, longest)
	}
	p.wait = r.Next
	if err := p.send(ctx, r); err != nil {
		p.failures++
		p.tell(ctx, err)
		return p.backOff(longest)
	}
	p.failures = 0
	return r.Next
}

func (p *Publisher) next() (r Report, same bool) {
	r = p.report()
	same = p.sequence > 0 && r == p.last
	p.last = r
	p.sequence++
	r.Instance, r.Run, r.Sequence = p.options.Instance, p.run, p.sequence
	now := time.Now()
	r.At, r.Up, r.CPU = now.UTC(), now.Sub(p.begun), p.cpu(now)
	memory := resources.Process()
	r.Memory, r.MemoryLimit = scaling.Known(memory.Used), scaling.Optional[int64]{}
	if memory.Limit > 0 {
		r.MemoryLimit = scaling.Known(memory.Limit)
	}
	r.limit()
	return r, same
}

// cpu returns the share of its processor time that the process has used since the last call. It is unknown over a time that is
// too short.
func (p *Publisher) cpu(now time.Time) (share scaling.Optional[float64]) {
	used, processors, known := p.spent()
	passed, spent := now.Sub(p.measured), used-p.used
	p.used, p.measured = used, now
	if known && passed >= MinInterval/2 && spent >= 0 {
		share = scaling.Known(min(spent.Seconds()/passed.Seconds()/processors, 1))
	}
	return share
}

// tell passes on an error, unless the request was cut off at the stop.
func (p *Publisher) tell(ctx context.Context, err error) {
	if ctx.Err() == nil {
		p.onError(fmt.Errorf("beacon: report %s in the control queue %v: %w", p.options.Instance, p.options.Queue.Name(), err))
	}
}

// backOff returns how long to wait after failures: half an Interval after the first two, so that viewers do not find the
// last report stale even if the third try is late, then twice as long each time, ± 10 %.
func (p *Publisher) backOff(longest time.Duration) time.Duration {
	wait := min(p.options.Interval/2<<min(max(p.failures-patience+1, 0), maxDoublings), longest)
	return time.Duration(float64(wait) * (0.9 + 0.2*waiting.Jitter(p.options.Instance, int(p.sequence))))
}

// send brings the report into the control queue: by an update, or by a new message if there is none, it soon expires, or its
// queue has too many.
func (p *Publisher) send(ctx context.Context, r Report) error {
	life := max(messageLife*p.options.Interval, minMessageLife)
	replace := p.lease == nil || time.Since(p.putAt)+2*r.Next >= life
	level, move := p.crowded(ctx, replace)
	if !replace && !move {
		err := p.update(ctx, r)
		if !errors.Is(err, queue.ErrLeaseLost) && !errors.Is(err, queue.ErrQueueMissing) {
			return err
		}
		// Somebody took the message, or the answer to the last update was lost: viewers delete it, or it expires. Or the queue was
		// dropped.
		p.lease = nil
		move = errors.Is(err, queue.ErrQueueMissing)
	}
	old, from, to := p.lease, p.spot, p.spot
	if move {
		var err error
		if to, err = p.place(ctx, level); err != nil {
			return err
		}
	}
	if err := p.put(ctx, r, life, to); err != nil {
		return err
	}
	if move {
		p.placed = p.sequence
	}
	p.remove(ctx, from, old)
	return nil
}

// crowded reports whether the message should go to another queue, and from which level on to look for one. Instances that start
// together all find the same room, so each looks again before its second, fourth and eighth report there, and when it replaces
// the message. Of those that see too many at least half leave. When the control queue and their own one are nearly empty,
// they go back: the control queue alone does not tell how many others would go too.
func (p *Publisher) crowded(ctx context.Context, replace bool) (level int, move bool) {
	if p.spot.queue == nil {
		return 0, true
	}
	if n := p.sequence - p.placed; !replace && n != 1 && n != 3 && n != 7 {
		return 0, false
	}
	properties, err := p.spot.queue.Properties(ctx)
	if err != nil { // perhaps it may not: no reason to move
		return 0, false
	}
	if depth := properties.Depth; depth >= queue.MaxBatch && rand.Int64N(depth) >= min(room, depth/2) {
		for level = 1; level < levels-1 && depth > int64(room*firstOf(level+1)); level++ {
		}
		return max(level, p.spot.level), true
	}
	if replace && p.spot.level > 0 && properties.Depth <= fewLeft {
		properties, err = p.options.Queue.Properties(ctx)
		return 0, err == nil && properties.Depth < room/2
	}
	return 0, false
}

// place returns where there is room for the message, on this level or the next ones. Where it sees reports of killed runs of
// the instance, it removes them.
func (p *Publisher) place(ctx context.Context, level int) (spot, error) {
	control := spot{queue: p.options.Queue}
	for ; level < levels; level++ {
		for range min(level+1, 2) {
			n := 0
			if level > 0 {
				n = 1 + rand.IntN(firstOf(level+1)-1) // also of the levels between: viewers must find them in use
			}
			at := spot{level: level, queue: nth(p.options.Queue, n)}
			shown, err := at.queue.Peek(ctx, queue.MaxBatch)
			switch missing := errors.Is(err, queue.ErrQueueMissing); {
			case missing && level == 0 && !p.options.Create:
				return at, err
			case missing && p.options.Create:
				return at, nil
			case err != nil:
				return control, nil //nolint:nilerr // it is no reason not to report
			}
			sweep(ctx, at.queue, shown, p.earlier)
			if len(shown) < room {
				return at, nil
			}
		}
	}
	return control, nil
}

// earlier reports whether a message is of a run of this instance that was killed: its last report would say that it stopped.
func (p *Publisher) earlier(m queue.Message) bool {
	var r Report
	return json.Unmarshal([]byte(m.Text), &r) == nil && r.Instance == p.options.Instance && r.Queue == p.last.Queue &&
		r.Run != p.run && r.Phase != stopped
}

// update replaces the text of the message. An update with an unknown outcome is repeated with the next report: if it took
// effect the receipt is not the newest one any more.
func (p *Publisher) update(ctx context.Context, r Report) error {
	r.Put = p.putAt.Sub(p.begun)
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	lease, err := p.spot.queue.Update(ctx, *p.lease, string(text), 0)
	if err == nil {
		p.lease = &lease
	}
	return err
}

// put sends a new message with the report.
func (p *Publisher) put(ctx context.Context, r Report, life time.Duration, to spot) error {
	at := time.Now()
	r.Put = at.Sub(p.begun)
	r.Up = r.Put
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	m, err := to.queue.Enqueue(ctx, string(text), &queue.EnqueueOptions{TTL: life})
	if p.options.Create && errors.Is(err, queue.ErrQueueMissing) {
		needed := []queue.Queue{to.queue}
		for level := 1; level <= to.level; level++ { // the first queue of a level tells viewers that there is one
			needed = append(needed, nth(p.options.Queue, firstOf(level)))
		}
		for _, q := range needed {
			if err = q.Create(ctx, nil); err != nil && !errors.Is(err, queue.ErrQueueExists) {
				return err
			}
		}
		m, err = to.queue.Enqueue(ctx, string(text), &queue.EnqueueOptions{TTL: life})
	}
	if err == nil {
		p.lease, p.putAt, p.spot = &m.Lease, at, to
	}
	return err
}

// remove deletes a message that another one has replaced. If that fails it expires; viewers know that it is older.
func (p *Publisher) remove(ctx context.Context, from spot, old *queue.Lease) {
	if old == nil {
		return
	}
	if err := from.queue.Delete(ctx, *old); err != nil && !errors.Is(err, queue.ErrLeaseLost) {
		p.tell(ctx, err)
	}
}

// end puts the last report, with the final counts, in a message that goes by itself when viewers have had the time to see it,
// and deletes the one before.
func (p *Publisher) end(ctx context.Context) {
	old := p.lease
	if old == nil { // the control queue does not work
		return
	}
	r, _ := p.next()
	r.Phase, r.Next = stopped, 0
	if err := p.put(ctx, r, max(lastReportLife*p.options.Interval, minLastReportLife), p.spot); err != nil {
		p.tell(ctx, err)
	}
	p.remove(ctx, p.spot, old)
}
