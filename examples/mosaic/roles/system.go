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
)

// DefaultPatience is that of [Options].
const DefaultPatience = 5 * time.Minute

// Options configure a [System]. Nil and the zero value are the defaults.
type Options struct {
	// Idle sets how long a listener waits when its queue is empty. Defaults to that
	// of package listener.
	Idle scaling.Idle

	// Grace is how long handlers may finish after the stop. Defaults to that of
	// package listener.
	Grace time.Duration

	// Processors is how many slices are rendered at once. Defaults to GOMAXPROCS.
	Processors int

	// Place says where the store is, for people: programs that look elsewhere show it.
	// Defaults to "", not known.
	Place string

	// Patience is how long an order may go without a sign of life, beside the time for
	// which its messages may be hidden. Defaults to 5 min.
	Patience time.Duration

	// Logger receives errors and reports of work that others left. Defaults to
	// slog.Default().
	Logger *slog.Logger
}

// System is the three roles in one process. Make one with [Open]; it is safe for
// concurrent use.
type System struct {
	// Broker is the client interface.
	Broker *Broker

	listeners []worker
	libraries *libraries
	lanes     []*lanes
}

// worker is a listener, of whatever type of message.
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

// Open makes the roles. It creates missing queues, retrying transient failures until ctx ends, and
// starts nothing: run what [System.Runners] returns.
func Open(ctx context.Context, open func(name string) (queue.Queue, error), store blob.Store, o *Options) (*System, error) {
	var options Options
	if o != nil {
		options = *o
	}
	if options.Processors <= 0 {
		options.Processors = runtime.GOMAXPROCS(0)
	}
	if options.Patience <= 0 {
		options.Patience = DefaultPatience
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	b := &Broker{
		jobs:     jobs{store},
		logger:   options.Logger,
		patience: options.Patience,
		orders:   make(map[uuid.UUID]*Order),
		misled:   make(chan struct{}),
	}
	id, err := identify(ctx, store)
	if err != nil {
		return nil, err
	}
	qs, err := openQueues(ctx, shared{open: open, logger: options.Logger, failed: b.fail, sent: b.sent, seen: b.seen, store: id, strange: b.strange})
	if err != nil {
		return nil, err
	}
	b.queues = qs
	b.binding = binding{queue: qs.imageRequests.RawQueue, store: id, place: options.Place}
	if err := b.binding.bind(ctx, qs.imageRequests.found.Metadata, qs.depth(), options.Logger); err != nil {
		return nil, err
	}
	memory, libs := newMemory(), newLibraries(store)
	cutting, laying := newLanes(1, b.has, b.busy), newLanes(options.Processors, b.has, b.busy)
	controller := &jobController{jobs: b.jobs, queues: qs, memory: memory, lanes: cutting, locks: newLocks(), stored: b.stored}
	processor := &imageProcessor{jobs: b.jobs, queues: qs, memory: memory, lanes: laying, libraries: libs}

	with := func(concurrency, batch int) tuning {
		return tuning{concurrency: concurrency, batch: batch, idle: options.Idle, grace: options.Grace, onError: b.health.failed}
	}
	s := &System{Broker: b, libraries: libs, lanes: []*lanes{cutting, laying}}
	s.listeners = []worker{
		// These two are long work: a batch would keep from others what they could do.
		// Beside the lanes there is the side lane.
		qs.imageRequests.accept(controller.plan, with(1+1+spare, 1)),
		qs.sliceRequests.accept(processor.process, with(options.Processors+1+spare, 1)),
		// These are short, but for the one that puts a mosaic together.
		qs.sliceResponses.accept(controller.collect, with(16, 16)),
		qs.imageResponses.accept(b.complete, with(4, 4)),
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

// depth is how many messages the queues had when they were opened.
func (q *queues) depth() int64 {
	return q.imageRequests.found.Depth + q.sliceRequests.found.Depth + q.sliceResponses.found.Depth + q.imageResponses.found.Depth
}

// Runners are the listeners of the roles, for [millrace.Run], and one that ends all of
// them with an [*ElsewhereError] when the account turns out to be in use with other blobs.
func (s *System) Runners() []millrace.Runner {
	all := make([]millrace.Runner, len(s.listeners), len(s.listeners)+1)
	for i, l := range s.listeners {
		all[i] = l
	}
	return append(all, misled{s.Broker})
}

// Preload keeps a library at hand that this process has anyway, so that its image
// processor need not read it back from the store.
func (s *System) Preload(l *tiles.Library) { s.libraries.hold(libraryRef(l.ID()), l) }

// Yield gives back what this process holds of other requests and has not begun with.
// A process that is about to stop calls it, so that its stop is not spent on them.
func (s *System) Yield() {
	for _, l := range s.lanes {
		l.close()
	}
}

// LoopsPeak is how many dequeue loops ran at most, added up over the queues.
func (s *System) LoopsPeak() (n int) {
	for _, l := range s.listeners {
		n += l.State().LoopsPeak
	}
	return n
}

// health records whether the queues respond.
type health struct {
	polls func() int64 // how many polls were ever answered

	mu   sync.Mutex
	last error // of the polls; guarded by mu
}

// failed receives every error of the listeners and keeps those of the service.
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
