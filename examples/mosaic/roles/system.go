package roles

import (
	"cmp"
	"errors"
	"log/slog"
	"runtime"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
)

// Roles is a set of roles. The zero value is empty.
type Roles uint8

// The roles.
const (
	Client     Roles = 1 << iota // submits requests and delivers mosaics
	Controller                   // chooses the tiles of a picture, and composes its mosaic
	Processor                    // renders slices

	// All is every role.
	All = Client | Controller | Processor
)

// Has reports whether the set has all roles of the other.
func (r Roles) Has(other Roles) bool { return r&other == other }

// Step is a message that a role of this process has handled.
type Step struct {
	// Role is [Controller] after it has requested the slices of a picture, and [Processor] after it
	// has rendered a slice.
	Role Roles

	Request uuid.UUID
	Slice   int // that was rendered, from 0; 0 for a picture
	Slices  int // of the request
}

// Options configure a [System]. The zero value means the defaults.
type Options struct {
	// Roles are the roles that this process plays. Processes together must play all of them.
	// Defaults to [All].
	Roles Roles

	// Handled, if set, is called for every step of this process's controller and processors,
	// concurrently, and before its message is deleted. A step that is repeated is reported again.
	Handled func(Step)

	// Idle is how long listeners wait between polls of an empty queue. Defaults to the
	// default of package listener.
	Idle listener.Idle

	// Wakeups announce messages, in place of polling. Nil means polling, which is the default.
	Wakeups listener.Wakeups

	// Grace is how long handlers may finish after the stop. Defaults to the default of
	// package listener.
	Grace time.Duration

	// Processors is how many slices are rendered at the same time. Defaults to GOMAXPROCS.
	Processors int

	// Slow makes every slice take this much longer, for demonstrations. Defaults to 0.
	Slow time.Duration

	// Logger receives errors. Defaults to slog.Default().
	Logger *slog.Logger
}

// System runs roles in one process. Create one with [Open]. It is safe for
// concurrent use.
type System struct {
	// Broker is the client interface.
	Broker *Broker

	listeners []worker
	names     []string // of the listeners' queues
}

// worker is a listener for any type of message.
type worker interface {
	millrace.Runner
	State() listener.State
}

// Open creates a System. It starts no role: run the result of [System.Runners].
func Open(open func(name string) (queue.Queue, error), store blob.Store, options Options) (*System, error) {
	options.Roles = cmp.Or(options.Roles, All)
	if options.Handled == nil {
		options.Handled = func(Step) {}
	}
	if options.Processors <= 0 {
		options.Processors = runtime.GOMAXPROCS(0)
	}
	options.Logger = cmp.Or(options.Logger, slog.Default())
	jobs, err := newJobs(store)
	if err != nil {
		return nil, err
	}
	shared := &shared{jobs: jobs, logger: options.Logger}
	qs, errs := &queues{}, [4]error{}
	qs.imageRequests, errs[0] = openQueue[ImageRequest](open, shared)
	qs.sliceRequests, errs[1] = openQueue[SliceRequest](open, shared)
	qs.sliceResponses, errs[2] = openQueue[SliceResponse](open, shared)
	qs.imageResponses, errs[3] = openQueue[ImageResponse](open, shared)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	libraries := &libraries{jobs: jobs, turn: make(chan struct{}, 1)}
	controller := &jobController{jobs: jobs, queues: qs, libraries: libraries, composing: make(chan struct{}, 1), handled: options.Handled}
	processor := &imageProcessor{jobs: jobs, queues: qs, libraries: libraries, handled: options.Handled, slow: options.Slow}
	s := &System{Broker: &Broker{jobs, qs, shared}}

	if options.Roles.Has(Controller) {
		// One picture at a time is decoded, because of the memory. Batches of 1 leave work to idle processes.
		s.add(imageRequests, qs.imageRequests.accept(controller.plan, tuned[ImageRequest](options, 1, 1)))
		s.add(sliceResponses, qs.sliceResponses.accept(controller.collect, tuned[SliceResponse](options, 16, 16)))
	}
	if options.Roles.Has(Processor) {
		s.add(sliceRequests, qs.sliceRequests.accept(processor.process, tuned[SliceRequest](options, options.Processors, 1)))
	}
	if options.Roles.Has(Client) {
		s.add(imageResponses, qs.imageResponses.accept(s.Broker.complete, tuned[ImageResponse](options, 4, 4)))
	}
	return s, nil
}

func tuned[T any](o Options, concurrency, batch int) listener.Options[T] {
	return listener.Options[T]{Concurrency: concurrency, Fetch: listener.FetchOptions{BatchSize: batch, Idle: o.Idle}, Wakeups: o.Wakeups, Grace: o.Grace, Logger: o.Logger}
}

func (s *System) add(name string, l worker) {
	s.names, s.listeners = append(s.names, name), append(s.listeners, l)
}

// Runners returns the listeners of the roles for [millrace.Run].
func (s *System) Runners() []millrace.Runner {
	all := make([]millrace.Runner, len(s.listeners))
	for i, l := range s.listeners {
		all[i] = l
	}
	return all
}

// QueueNames returns the names of the four queues, in the order of a request.
func QueueNames() []string {
	return []string{imageRequests, sliceRequests, sliceResponses, imageResponses}
}

// ProcessorQueue is the name of the queue of the image processors.
const ProcessorQueue = sliceRequests

// States returns the states of this process's listeners, by the name of the queue.
func (s *System) States() map[string]listener.State {
	states := make(map[string]listener.State, len(s.listeners))
	for i, l := range s.listeners {
		states[s.names[i]] = l.State()
	}
	return states
}
