package dispatcher

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/keyed"
	"github.com/millrace/millrace/internal/units"
	"github.com/millrace/millrace/queue"
)

// Kind is one of several types of jobs on a queue: its name, its handler and its limits. Make one
// with [Jobs.Kind], or with package kinds, which ties a name to a type for senders too. It is safe
// for concurrent use.
type Kind struct {
	name    string
	options KindOptions
	newJob  func(*delivery) job // nil without a handler
	unfit   error               // of its codec
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

	// Concurrency is how many handlers of this kind run at once in this listener, within the
	// Concurrency of all. A group of jobs counts as one. A message beyond that waits in its slot, for
	// at most 5 s and in at most a quarter of the slots, and otherwise comes again when its turn is
	// expected, without an attempt. A message that cannot record its attempts waits in its slot until
	// its turn comes. Negative is an error. Defaults to 0, no limit.
	Concurrency int

	// RetryDelay returns how long a message of this kind waits after a failed attempt, in place of
	// listener.Options.RetryDelay. Defaults to the listener's.
	RetryDelay func(attempt int, err error) time.Duration
}

// Kind returns the kind of these jobs: those with this name in their envelopes, or those without a
// kind if it is empty. Nil options mean the limits of the dispatcher. [NewKinds] refuses an invalid
// kind.
func (jobs Jobs[T]) Kind(name string, o *KindOptions) Kind {
	k := Kind{name: name}
	if o != nil {
		k.options = *o
	}
	if jobs.Codec == nil {
		jobs.Codec = codec.JSON[T]()
	}
	k.unfit = envelope.CheckCodec(jobs.Codec)
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
	if o != nil && envelope.CheckFormat(o.Format) == nil && !envelope.HasHead(o.Format) && !o.AcceptForeign {
		err = errors.Join(err, fmt.Errorf("the format %v has no envelope, which names the kind: leave Format at codec.Auto", o.Format))
	}
	d, invalid := newDispatcher(q, newUntypedDeliveries, byName, o)
	if err = errors.Join(err, errors.Unwrap(invalid)); err != nil { // one prefix for all
		return nil, fmt.Errorf("dispatcher of %v: %w", q.Name(), err)
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
	if err := (envelope.Head{Kind: k.name}).Check(); err != nil {
		errs = append(errs, err)
	}
	if k.newJob == nil {
		refuse("%v needs a handler", k)
	}
	if k.unfit != nil {
		refuse("%v: %w", k, k.unfit)
	}
	if k.options.MaxAttempts < 0 {
		refuse("%v: %d attempts must be at least 1", k, k.options.MaxAttempts)
	}
	if k.options.Concurrency < 0 {
		refuse("%v: concurrency %d must be at least 1", k, k.options.Concurrency)
	}
	if err := units.Wait("handler time-out", k.options.Timeout); err != nil {
		refuse("%v: %w", k, err)
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

// kindTurns is the stage that waits until fewer handlers of the kind run than its Concurrency. It
// comes after the start is recorded, because the lease is renewed while the message waits.
type kindTurns struct {
	passive
	turns *keyed.Turns
}

// The bounds of a wait are those of package perkey, but fewer messages may wait: together, those that
// wait for their kinds and those that wait for their keys leave slots to others.
const (
	longestTurnWait  = 5 * time.Second // in the slot
	longestTurnDelay = 10 * time.Minute
	turnWaiters      = 4 // one slot in this many
)

func (k *kindTurns) admit(v *delivery) (dec decision, refused bool) {
	places := v.kind.options.Concurrency
	if places == 0 {
		return decision{}, false
	}
	v.trackLease()
	waiters := v.dispatcher.slots.capacity() / turnWaiters
	of := keyed.Terms{Places: places, Postponable: v.recordable(), MayWait: waiters, MayWaitHere: waiters}
	for {
		var delay time.Duration
		v.admission.turn, delay = k.turns.Acquire(v.running.ctx.Context, v.kind.name, of)
		switch {
		case delay == 0:
			return decision{}, false
		case !of.Postponable, v.postponable():
			return later(&v.opened, Snoozed, delay, nil), true
		}
		of.Postponable = false // it waits in its slot instead
	}
}

func (k *kindTurns) returned(v *delivery, _ bool) {
	if !v.admission.turn.IsZero() {
		k.turns.Release(v.kind.name, v.admission.turn)
	}
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
