package roles

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/examples/mosaic/tiles"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/wakeup"
)

// DefaultPatience is the default of Options.Patience.
const DefaultPatience = 5 * time.Minute

// Options configure a [System]. Nil and the zero value mean the defaults.
type Options struct {
	// Roles are the roles that this process plays. Processes together must play all of them.
	// Defaults to [All].
	Roles Roles

	// Handled, if set, is called for every step of this process's controller and processors,
	// concurrently, and before its message is deleted. A step that is repeated is reported again.
	Handled func(Step)

	// Idle is how long listeners wait between polls of an empty queue. Defaults to the
	// default of package listener.
	Idle scaling.Idle

	// Wakeups says when messages come, instead of polling. Defaults to none.
	Wakeups wakeup.Source

	// Grace is how long handlers may finish after the stop. Defaults to the default of
	// package listener.
	Grace time.Duration

	// Processors is how many slices are rendered at once. Defaults to GOMAXPROCS.
	Processors int

	// Place describes where the store is, for the warnings of programs with another store.
	// Defaults to "", unknown.
	Place string

	// Patience is how long an order may show no sign of life, in addition to the time for
	// which its messages may be hidden, before it fails. The time while the queues do not respond
	// does not count. Defaults to 5 min, or without limit in a process that does not play all
	// roles: the others may be busy or not started yet.
	Patience time.Duration

	// Logger receives errors, and records about requests of other programs and earlier runs.
	// Defaults to slog.Default().
	Logger *slog.Logger
}

// System runs roles in one process. Create one with [Open]. It is safe for
// concurrent use.
type System struct {
	// Broker is the client interface.
	Broker *Broker

	listeners []worker
	names     []string // of the listeners' queues
	libraries *libraries
	lanes     []*lanes
	memory    memory
}

// Reserve waits until that many bytes of the memory budget for pictures are free, so that a program that decodes pictures itself
// does not do so beside the roles. The caller calls free when it has finished with the picture. It holds one reservation at a
// time: two that wait for each other's second would wait for ever.
func (s *System) Reserve(ctx context.Context, bytes int64) (free func(), err error) {
	return s.memory.take(ctx, bytes)
}

// worker is a listener for any type of message.
type worker interface {
	millrace.Runner
	State() listener.State
}

// queues are the four queues.
type queues struct {
	imageRequests  *ImageProcessingQueue[ImageRequest]
	sliceRequests  *ImageProcessingQueue[SliceRequest]
	sliceResponses *ImageProcessingQueue[SliceResponse]
	imageResponses *ImageProcessingQueue[ImageResponse]
}

// Open creates a System and missing queues. It retries transient failures until ctx ends. It starts no
// role: run the result of [System.Runners].
func Open(ctx context.Context, open func(name string) (queue.Queue, error), store blob.Store, o *Options) (*System, error) {
	var options Options
	if o != nil {
		options = *o
	}
	if options.Roles == 0 {
		options.Roles = All
	}
	if options.Handled == nil {
		options.Handled = func(Step) {}
	}
	if options.Processors <= 0 {
		options.Processors = runtime.GOMAXPROCS(0)
	}
	if options.Patience <= 0 && options.Roles.Has(All) {
		options.Patience = DefaultPatience
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	b := &Broker{
		jobs:     newJobs(store),
		logger:   options.Logger,
		patience: options.Patience,
		orders:   make(map[uuid.UUID]*Order),
	}
	id, err := identify(ctx, store)
	if err != nil {
		return nil, err
	}
	qs, err := openQueues(ctx, shared{open: open, logger: options.Logger, failed: b.fail, sent: b.sent, seen: b.seen, store: id, foreign: b.foreign})
	if err != nil {
		return nil, err
	}
	b.queues = qs
	b.binding.queue, b.binding.store, b.binding.place = qs.imageRequests.RawQueue, id, options.Place
	if err := b.binding.bind(ctx, qs.imageRequests.found.Metadata, qs.depth(), options.Logger); err != nil {
		return nil, err
	}
	memory, libs := newMemory(), newLibraries(store)
	cutting, laying := newLanes(1, b.has, b.busy), newLanes(options.Processors, b.has, b.busy)
	controller := &jobController{jobs: b.jobs, queues: qs, memory: memory, libraries: libs, lanes: cutting, stored: b.stored}
	processor := &imageProcessor{jobs: b.jobs, queues: qs, memory: memory, lanes: laying, libraries: libs}

	with := func(concurrency, batch int) tuning {
		return tuning{concurrency: concurrency, batch: batch, idle: options.Idle, wakeups: options.Wakeups, grace: options.Grace, onError: b.health.failed}
	}
	s := &System{Broker: b, libraries: libs, lanes: []*lanes{cutting, laying}, memory: memory}
	if options.Roles.Has(Controller) {
		// Handlers of requests run long, so a larger batch would keep work from idle processes.
		// One handler more than lanes runs in the side lane. Those of responses are short, except for
		// composing a mosaic.
		s.listeners = append(s.listeners,
			qs.imageRequests.accept(reported(controller.plan, options.Handled), with(1+1+spare, 1)),
			qs.sliceResponses.accept(controller.collect, with(16, 16)))
		s.names = append(s.names, imageRequests, sliceResponses)
	}
	if options.Roles.Has(Processor) {
		s.names = append(s.names, sliceRequests)
		s.listeners = append(s.listeners, qs.sliceRequests.accept(reported(processor.process, options.Handled), with(options.Processors+1+spare, 1)))
	}
	if options.Roles.Has(Client) {
		s.names = append(s.names, imageResponses)
		s.listeners = append(s.listeners, qs.imageResponses.accept(b.complete, with(4, 4)))
	}
	b.health.polls = func() (n int64) {
		for _, l := range s.listeners {
			n += l.State().Polls
		}
		return n
	}
	return s, nil
}

func openQueues(ctx context.Context, s shared) (*queues, error) {
	var qs queues
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) { qs.imageRequests, err = openQueue[ImageRequest](ctx, s); return err })
	group.Go(func() (err error) { qs.sliceRequests, err = openQueue[SliceRequest](ctx, s); return err })
	group.Go(func() (err error) { qs.sliceResponses, err = openQueue[SliceResponse](ctx, s); return err })
	group.Go(func() (err error) { qs.imageResponses, err = openQueue[ImageResponse](ctx, s); return err })
	return &qs, group.Wait()
}

// depth returns how many messages the queues had when they were opened.
func (q *queues) depth() int64 {
	return q.imageRequests.found.Depth + q.sliceRequests.found.Depth + q.sliceResponses.found.Depth + q.imageResponses.found.Depth
}

// Runners returns the listeners of the roles for [millrace.Run], and a runner that calls Yield when they
// stop.
func (s *System) Runners() []millrace.Runner {
	all := make([]millrace.Runner, len(s.listeners), len(s.listeners)+1)
	for i, l := range s.listeners {
		all[i] = l
	}
	return append(all, yielding{s})
}

// yielding is a [millrace.Runner] that calls Yield when its context ends.
type yielding struct{ system *System }

func (y yielding) Run(ctx context.Context) error {
	<-ctx.Done()
	y.system.Yield()
	return nil
}

// Halt does nothing: Run returns when its context ends.
func (yielding) Halt() {}

// Preload caches a library, so that the image processor of this process does not read it from the
// store.
func (s *System) Preload(l *tiles.Library) { s.libraries.hold(libraryRef(l.ID()), l) }

// Yield gives back messages of other requests that wait to be handled. A process calls it before it
// stops, so that the stop does not wait for them.
func (s *System) Yield() {
	for _, l := range s.lanes {
		l.close()
	}
}

// LoopsPeak returns the sum over the queues of the highest number of dequeue loops.
func (s *System) LoopsPeak() (n int) {
	for _, l := range s.listeners {
		n += l.State().LoopsPeak
	}
	return n
}

// health records whether the queues respond.
type health struct {
	polls func() int64 // returns the number of polls that had a response

	mu   sync.Mutex
	last error // of the polls; guarded by mu
}

// failed receives every error of the listeners and records those of polls.
func (h *health) failed(err error) {
	if delivery := (*dispatcher.DeliveryError)(nil); errors.As(err, &delivery) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = err
}

func (h *health) lastError() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}
