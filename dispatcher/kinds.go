package dispatcher

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/queue"
)

// Kind is one of several types of jobs on a queue: its name, its handler and its limits. Make one
// with [NewKind], or with package kinds, which ties a name to a type for senders too. It is safe
// for concurrent use.
type Kind struct {
	name    string
	options KindOptions
	newJob  func(*delivery) job // nil without a handler
	breaker *breaker            // made by NewKinds, for its copy of the kind
}

// KindOptions are the limits of one [Kind]. Nil and the zero value mean those of the listener.
type KindOptions struct {
	// Timeout ends the context of a handler of this kind when it has run this long, in place of
	// listener.Options.Timeout. Negative means never. Less than 1 µs is refused as a number without
	// a unit. Defaults to the listener's.
	Timeout time.Duration

	// MaxAttempts is how many recorded failures make a message of this kind poison, in place of
	// poison.Policy.MaxAttempts. Negative is an error. Defaults to the listener's.
	MaxAttempts int

	// RetryDelay returns how long a message of this kind waits after a failed attempt, in place of
	// listener.Options.RetryDelay. Defaults to the listener's.
	RetryDelay func(attempt int, err error) time.Duration
}

// NewKind returns the kind of jobs with this name in their envelopes. An empty name is for jobs
// without a kind. Mistakes in it are errors of [NewKinds].
func NewKind[T any](name string, jobs Jobs[T], o *KindOptions) Kind {
	k := Kind{name: name}
	if o != nil {
		k.options = *o
	}
	if jobs.Codec == nil {
		jobs.Codec = codec.JSON[T]()
	}
	if jobs.Handler != nil {
		k.newJob = func(v *delivery) job { return &typedJob[T]{delivery: v, jobs: &jobs} }
	}
	return k
}

// NewKinds returns a dispatcher for a queue with jobs of several kinds. A message of another kind
// is left to other workers: see codec.ErrNewer. It starts and sends nothing. The error names every
// invalid option.
func NewKinds(q queue.Queue, kinds []Kind, o *Options) (*Dispatcher, error) {
	if hook.IsNil(q) {
		return nil, errors.New("dispatcher: a queue is required")
	}
	byName, err := kindsByName(kinds)
	if o != nil && o.Format.Check() == nil && !o.Format.HasHead() && !o.Adopt {
		err = errors.Join(err, fmt.Errorf("the format %v has no envelope, which names the kind: leave Format at codec.Auto", o.Format))
	}
	d, invalid := newDispatcher(q, newUntypedDeliveries, byName, o)
	if err != nil {
		err = fmt.Errorf("dispatcher of %v: %w", q.Name(), err)
	}
	if err := errors.Join(err, invalid); err != nil {
		return nil, err
	}
	return d, nil
}

func kindsByName(kinds []Kind) (map[string]*Kind, error) {
	byName := make(map[string]*Kind, len(kinds))
	var errs []error
	if len(kinds) == 0 {
		errs = append(errs, errors.New("at least one kind is required"))
	}
	for _, k := range kinds {
		errs = append(errs, k.check())
		if byName[k.name] != nil {
			errs = append(errs, fmt.Errorf("%v is there twice", &k))
		}
		byName[k.name] = &k
	}
	return byName, errors.Join(errs...)
}

func (k *Kind) check() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := (codec.Head{Kind: k.name}).Check(); err != nil {
		errs = append(errs, err)
	}
	if k.newJob == nil {
		refuse("%v needs a handler", k)
	}
	if k.options.MaxAttempts < 0 {
		refuse("%v: %d attempts must be at least 1", k, k.options.MaxAttempts)
	}
	if d := k.options.Timeout; lacksUnit(d) {
		refuse("%v: handler time-out %v is too short for any handler: give it a unit, such as %d*time.Second", k, d, d)
	}
	return errors.Join(errs...)
}

// String names the kind in errors.
func (k *Kind) String() string {
	if k.name == "" {
		return "the kind without a name"
	}
	return fmt.Sprintf("the kind %.60q", k.name)
}

// newUntypedDeliveries returns n deliveries, linked by their sibling fields. Their jobs are made
// when their kinds are known. They are one allocation.
func newUntypedDeliveries(n int) *delivery {
	batch := make([]delivery, n)
	var first *delivery
	for i := range batch {
		batch[i].sibling = first
		first = &batch[i]
	}
	return first
}

// kinds is the stage that makes the job of a message on a queue of several kinds. A message of a
// kind that this worker does not know is for another one.
type kinds struct{ passive }

func (kinds) admit(v *delivery) (dec decision, refused bool) {
	if v.kind == nil {
		return unreadable(&v.opened, otherKindError{v.head.Kind, v.dispatcher}), true
	}
	v.job = v.kind.newJob(v)
	return decision{}, false
}

// otherKindError says that a job is of a kind that this worker does not handle. It is a
// [codec.ErrNewer].
type otherKindError struct {
	kind       string
	dispatcher *Dispatcher
}

func (e otherKindError) Error() string {
	it := "without a kind"
	if e.kind != "" {
		it = fmt.Sprintf("of the kind %.60q", e.kind)
	}
	return fmt.Sprintf("it is a job %s, which this worker does not handle: it waits for one that does; this one handles %s", it, e.dispatcher.kindNames())
}

func (otherKindError) Unwrap() error { return codec.ErrNewer }

const maxKindsNamed = 8

func (d *Dispatcher) kindNames() string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(d.kinds)) {
		names = append(names, fmt.Sprintf("%.60q", name))
	}
	if more := len(names) - maxKindsNamed; more > 0 {
		names = append(names[:maxKindsNamed], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// The kinds of a queue fail apart: a broken mail server says nothing about invoices. So each kind
// has a breaker. While it is open, messages of the kind are given back as they come, without an
// attempt, but for a probe now and then; the others are handled. The breaker of the dispatcher is
// open exactly while the breakers of all kinds are open: then only its probes are worth a dequeue.

// ErrOutage means that a message waits because the handlers of its kind keep failing. It is given
// back without an attempt, for as long as the outage has lasted: once in a while one is let
// through, and its success ends the outage. A message that would expire meanwhile does not wait.
var ErrOutage = errors.New("the handlers of its kind keep failing")

// maxHold is the longest delay of a message in an outage of its kind. How often a message comes up
// therefore grows with the logarithm of the outage, up to that.
const maxHold = 10 * time.Minute

func (d *Dispatcher) breakKindsApart() {
	for _, k := range d.kinds {
		k.breaker = newBreaker(d.options.Concurrency, d.options.Seed, "/"+k.name)
	}
	d.breaker.threshold = 1 // all kinds, and each has counted
}

func (d *Dispatcher) breakers() []*breaker {
	if d.kinds == nil {
		return []*breaker{d.breaker}
	}
	var all []*breaker
	for _, k := range d.kinds {
		all = append(all, k.breaker)
	}
	return all
}

// breaker returns the breaker that counts the failures of the message.
func (o *opened) breaker() *breaker {
	if o.kind != nil {
		return o.kind.breaker
	}
	return o.dispatcher.breaker
}

// outages is the stage of the breakers. It leaves a message for later while the handlers of its
// kind keep failing. A message without room for the record is not held back, because each of its
// deliveries counts as an attempt. Nor is one that would expire before it comes up again: it is
// poison when its handler has failed, and not before.
type outages struct{ passive }

func (outages) admit(v *delivery) (dec decision, refused bool) {
	if v.kind == nil || !v.recordable() {
		return decision{}, false
	}
	now := time.Now()
	wait, cause := v.kind.breaker.admit(now, v.dispatcher.breaker.isProbe(v.lease.asked), v.attempt() >= v.maxAttempts())
	if wait == 0 {
		v.admission.letIn = now
		return decision{}, false
	}
	// Not wrapped: it is the error of another message.
	dec = later(&v.opened, Snoozed, wait, fmt.Errorf("%w, %.60q; the last error: %.200s", ErrOutage, v.kind.name, fmt.Sprint(cause)))
	if dec.outcome != Snoozed {
		return decision{}, false
	}
	text := v.recordedText(v.head, v.attempt()-1, false)
	if text == v.queued.Text || queue.CheckRequest(text, 0) != nil { // no room for the record
		return decision{}, false
	}
	return dec, true
}

// decided tells the breakers the result of the delivery.
func (outages) decided(v *delivery, dec decision) {
	d := v.dispatcher
	if v.kind == nil {
		d.breaker.record(dec, v.attempt(), v.lease.asked)
		return
	}
	d.kindResults.Lock() // else the dispatcher's could open after the success of a kind
	defer d.kindResults.Unlock()
	v.kind.breaker.record(dec, v.attempt(), v.admission.letIn)
	if dec.health != unhealthy && dec.health != cutOff || d.allOpen() {
		d.breaker.record(dec, v.attempt(), v.lease.asked)
	}
}

// allOpen reports whether the breakers of all kinds are open.
func (d *Dispatcher) allOpen() bool {
	for _, k := range d.kinds {
		if !k.breaker.isOpen() {
			return false
		}
	}
	return true
}

// admit lets a message through if the breaker is closed, or if it is time for a probe, and returns
// 0. Otherwise it returns how long the message should wait, and the last error. Now is the time by
// which the result of the probe is known: see awaitsResult.
//
// A message on its last attempt would be poison when its probe fails. It is used as the probe only
// if no other message arrived within one full redelivery interval.
func (b *breaker) admit(now time.Time, probe, lastAttempt bool) (wait time.Duration, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return 0, nil
	}
	due := b.until
	if lastAttempt {
		due = due.Add(min(due.Sub(b.since), maxHold))
	}
	if due.After(now) && !probe {
		return min(max(now.Sub(b.since), time.Second), maxHold), b.cause
	}
	b.probed, b.until = now, now.Add(maxPause)
	return 0, nil
}

// isProbe reports whether the delivery requested at that time is the current probe.
func (b *breaker) isProbe(asked time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open && b.awaitsResult(asked)
}
