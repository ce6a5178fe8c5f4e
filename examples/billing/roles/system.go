package roles

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/beacon"
	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/claimcheck"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/billing/shipping"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/meter"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/wakeup"
)

// Roles is a set of roles. The zero value is empty.
type Roles uint8

// The roles.
const (
	Initiator  Roles = 1 << iota // splits batches into items
	Worker                       // charges the records of items
	Controller                   // records batches in the books; one process plays it

	// All is every role.
	All = Initiator | Worker | Controller
)

// Has reports whether the set has all roles of the other.
func (r Roles) Has(other Roles) bool { return r&other == other }

// String returns the names of the roles, such as "initiator, worker".
func (r Roles) String() string {
	var names []string
	for i, name := range []string{"initiator", "worker", "controller"} {
		if r.Has(1 << i) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// DefaultGroup is the default of Options.Group.
const DefaultGroup = 1000

// Options configure a [System]. Nil and the zero value mean the defaults.
type Options struct {
	// Roles are the roles that this process plays. None is right for a process that only submits batches. Defaults to none.
	Roles Roles

	// Books are where the Controller records batches. The other roles do not need them. Defaults to none.
	Books Books

	// Tariffs are the prices for batches whose first item is not sent yet. Only the Initiator needs them. Defaults to
	// [records.BuiltInTariffs].
	Tariffs *records.Tariffs

	// Group is how many records an item has at most, 1…[shipping.MaxPieceRecords], in batches whose first item is not sent yet.
	// Only the Initiator needs it. Defaults to 1,000.
	Group int

	// Source says when messages come, instead of polling. Defaults to none.
	Source wakeup.Source

	// Publisher is told of the messages that this process sends, unless the server wakes the others. Defaults to none.
	Publisher wakeup.Publisher

	// Idle is how long listeners wait between polls of an empty queue. Defaults to the default of package listener.
	Idle scaling.Idle

	// Visibility is how long a message is hidden while it is handled, which a live process prolongs. If a process is killed, its
	// messages come back after that. At least 5 s. Defaults to 30 s.
	Visibility time.Duration

	// Grace is how long handlers may finish after the stop. Defaults to the default of package listener.
	Grace time.Duration

	// Work is how long a Worker takes for each item beside charging it, as if it asked a tariff service for each. Defaults to none.
	Work time.Duration

	// Beacon makes the Worker report in a control queue, so that an agent sees how busy it is. Defaults to none.
	Beacon beacon.Options

	// Charged, if set, is called when a Worker of this process has stored the part of an item, concurrently, and again for an
	// item that comes again. Defaults to none.
	Charged func(Charged)

	// Reported, if set, is called when the Controller of this process has recorded a batch, or found it recorded by one that
	// was killed right then. The time between HandedOver and Reported is the latency. Defaults to none.
	Reported func(books.Batch)

	// Rejected, if set, is called when the Controller of this process has recorded a batch with records that could not be
	// charged, of an unknown tariff for example. It is called again if the process is killed right then. Lines that were rejected
	// before the batch was shipped are not among them. Defaults to none.
	Rejected func(batch string, uncharged []records.Rejection)

	// Logger logs what the listeners log, one line for a batch that is reported, and what keeps a batch from it. Defaults to
	// slog.Default().
	Logger *slog.Logger
}

// System plays roles in one process. Make one with [New]. It is safe for concurrent use.
type System struct {
	batches   *batches
	requests  *producer.Producer[Batch]
	listeners map[string]*listener.Listener[any] // by queue
	meter     *meter.Meter
}

// New returns a System on the queues of an account and a store, which all processes must share. It sends nothing, starts
// nothing, and fails if an option is invalid: run the result of [System.Runners]. Queues that do not exist are created when
// they are needed.
func New(account queue.Account, store blob.Store, o *Options) (*System, error) {
	options, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("billing roles: %w", err)
	}
	b, err := newBatches(store)
	if err != nil {
		return nil, err
	}
	claims, err := claimcheck.New(store, "billing-claims", nil)
	if err != nil {
		return nil, err
	}
	s := &System{batches: b, listeners: make(map[string]*listener.Listener[any]), meter: meter.New()}
	queues := make(map[string]queue.Queue)
	for _, name := range QueueNames() {
		q, err := account.Open(name)
		if err != nil {
			return nil, err
		}
		queues[name] = s.meter.Wrap(q)
	}
	s.requests = batchKind.Producer(queues[BatchesQueue], sending[Batch](&options))
	tariffs := newTariffStore(store)
	if options.Roles.Has(Initiator) {
		sendItems := sending[WorkItem](&options)
		sendItems.Claims = claims
		i := &initiator{
			batches: b, tariffs: tariffs, items: itemKind.Producer(queues[WorkQueue], sendItems),
			current: options.Tariffs, group: options.Group, logger: options.Logger,
		}
		// A batch takes long and fills memory, so a larger dequeue would keep it from idle processes.
		s.listen(&options, queues[BatchesQueue], batchKind.Handle(i.split, limits), tuning{concurrency: 2, batch: 1})
	}
	if options.Roles.Has(Worker) {
		w := &worker{
			batches: b, tariffs: tariffs, results: resultKind.Producer(queues[ResultsQueue], sending[Result](&options)),
			work: options.Work, charged: options.Charged,
		}
		slots := WorkerSlots()
		s.listen(&options, queues[WorkQueue], itemKind.Handle(listener.Batch(w.charge, together, collecting), limits),
			tuning{concurrency: slots, batch: 2 * together, minFetch: together, claims: claims, beacon: options.Beacon})
	}
	if options.Roles.Has(Controller) {
		c := &controller{batches: b, books: options.Books, claims: claims, turn: make(chan struct{}, 1), reported: options.Reported, rejected: options.Rejected, logger: options.Logger}
		s.listen(&options, queues[ResultsQueue], resultKind.Handle(c.collect, limits), tuning{concurrency: 16, batch: 16})
	}
	return s, nil
}

// WorkerSlots returns how many items a Worker on this machine has in hand at once: a set for each processor, and one that is fetched or
// answered for meanwhile.
func WorkerSlots() int { return together * min(1+runtime.GOMAXPROCS(0), 16) }

// WorkerHandling returns how long a Worker has an item in hand that is charged with others, each of which takes Options.Work.
func WorkerHandling(work time.Duration) time.Duration { return collecting + together*work }

func (o *Options) withDefaults() (Options, error) {
	var d Options
	if o != nil {
		d = *o
	}
	if d.Tariffs == nil {
		d.Tariffs = records.BuiltInTariffs()
	}
	if d.Group == 0 {
		d.Group = DefaultGroup
	}
	if d.Visibility == 0 {
		d.Visibility = 30 * time.Second
	}
	if d.Charged == nil {
		d.Charged = func(Charged) {}
	}
	if d.Reported == nil {
		d.Reported = func(books.Batch) {}
	}
	if d.Rejected == nil {
		d.Rejected = func(string, []records.Rejection) {}
	}
	if d.Logger == nil {
		d.Logger = slog.Default()
	}
	switch {
	case d.Roles&^All != 0:
		return d, fmt.Errorf("there is no role %#x", uint8(d.Roles&^All))
	case d.Roles.Has(Controller) && d.Books == nil:
		return d, errors.New("the controller needs books")
	case d.Group < 1 || d.Group > shipping.MaxPieceRecords:
		return d, fmt.Errorf("an item cannot have %d records: 1 to %d", d.Group, shipping.MaxPieceRecords)
	case d.Work < 0:
		return d, fmt.Errorf("an item cannot take %v", d.Work)
	case d.Visibility < dispatcher.MinVisibility:
		return d, fmt.Errorf("messages cannot be hidden for %v: at least %v", d.Visibility, dispatcher.MinVisibility)
	}
	return d, nil
}

func sending[T any](o *Options) *producer.Options[T] {
	return &producer.Options[T]{Create: true, Wakeups: o.Publisher}
}

// Submit asks for the bill of a batch whose pieces are all stored. It may be repeated: a batch is billed once.
func (s *System) Submit(ctx context.Context, batch string) error {
	b := Batch{Name: batch}
	if err := b.check(); err != nil {
		return err
	}
	_, err := s.requests.Send(ctx, b, &producer.SendOptions{JobID: batch})
	return err
}

// Reported reports whether a batch is in the books.
func (s *System) Reported(ctx context.Context, batch string) (bool, error) {
	_, ended, err := s.batches.ended(ctx, batch)
	return ended, err
}

// Runners returns the roles for [millrace.Run], none if the process plays none.
func (s *System) Runners() []millrace.Runner {
	var all []millrace.Runner
	for _, name := range QueueNames() {
		if l := s.listeners[name]; l != nil {
			all = append(all, l)
		}
	}
	return all
}

// States returns what the listeners of this process do, by the name of the queue.
func (s *System) States() map[string]listener.State {
	states := make(map[string]listener.State, len(s.listeners))
	for name, l := range s.listeners {
		states[name] = l.State()
	}
	return states
}

// Counts returns the requests that this process has sent to the queues.
func (s *System) Counts() meter.Counts { return s.meter.Counts() }
