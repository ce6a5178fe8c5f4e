package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/azurequeue/http1"
	"golang.org/x/sync/errgroup"
)

// load measures the cost of a message for a consumer and the throughput, in cells: every combination of
// concurrency, handler and latency. Processor time is that of this process alone, so it is meaningful even if
// client and server share a machine; messages a second are then those of both together.
type load struct {
	turns
	handlers    []time.Duration
	latencies   []time.Duration
	concurrency []int
	tls         []bool
	contenders  []contender
	only        *regexp.Regexp // of cells
	warmUp      time.Duration
	window      time.Duration
	size        int
}

func (l *load) flags(f *flag.FlagSet) {
	l.turns.flags(f)
	several(f, &l.handlers, []time.Duration{0, time.Millisecond, 20 * time.Millisecond}, orNothing, "handlers", "how long a handler waits")
	several(f, &l.latencies, []time.Duration{0, 10 * time.Millisecond}, orNothing, "latencies", "how long the service takes over a request")
	several(f, &l.concurrency, []int{256, 512}, positive, "concurrency", "how many handlers run at once")
	several(f, &l.tls, []bool{false}, strconv.ParseBool, "tls", "whether over TLS; true needs a system that heeds SSL_CERT_FILE, such as Linux")
	several(f, &l.contenders, contenders[:3], named(contenders), "contenders", fmt.Sprint("which contenders: some of ", contenders))
	one(f, &l.only, regexp.MustCompile(""), regexp.Compile, "only", "a `pattern` that a cell must match, such as \"c512/handler20ms/latency10ms\"")
	one(f, &l.window, time.Second, lasting, "for", "how long a cell is measured")
	one(f, &l.warmUp, 400*time.Millisecond, orNothing, "warm-up", "how long it runs before that")
	one(f, &l.size, 1024, between(1, 48<<10, strconv.Atoi), "size", "bytes of a message")
}

func (l *load) check() error {
	if len(l.cells()) == 0 {
		return fmt.Errorf("-only %q: no cell matches", l.only)
	}
	return nil
}

// cell is one configuration, which is measured for every contender.
type cell struct {
	concurrency int
	handler     time.Duration
	latency     time.Duration
	tls         bool
}

func (c cell) String() string {
	return fmt.Sprintf("c%d/handler%v/latency%v/%s", c.concurrency, c.handler, c.latency, c.network())
}

func (c cell) network() string {
	if c.tls {
		return "TLS"
	}
	return "TCP"
}

// bound returns how many messages a second are possible if a slot is occupied during handler and
// delete, and nothing but their waiting takes time; 0 if the processor is the bound.
func (c cell) bound() float64 {
	if c.handler < 20*time.Millisecond {
		return 0
	}
	return float64(c.concurrency) / (c.handler + c.latency).Seconds()
}

func (l *load) cells() (all []cell) {
	for _, over := range l.tls {
		for _, concurrency := range l.concurrency {
			for _, handler := range l.handlers {
				for _, latency := range l.latencies {
					if c := (cell{concurrency, handler, latency, over}); l.only.MatchString(c.String()) {
						all = append(all, c)
					}
				}
			}
		}
	}
	return all
}

// loadTurn is a contender in a cell.
type loadTurn struct {
	cell
	who     contender
	first   *loadTurn // of its cell
	samples samples
}

func (t *loadTurn) String() string { return fmt.Sprintf("%v, %v", t.cell, t.who) }

func (l *load) run(ctx context.Context, h *harness) (*report, error) {
	var at []endpoint
	for _, latency := range l.latencies {
		for _, over := range l.tls {
			at = append(at, endpoint{latency, over})
		}
	}
	s, err := startServer(serverOptions{Endpoints: at})
	if err != nil {
		return nil, err
	}
	if err := trustOwnCertificate(h); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	var all []*loadTurn
	for _, c := range l.cells() {
		first := len(all)
		for _, who := range l.contenders {
			all = append(all, &loadTurn{cell: c, who: who})
			all[len(all)-1].first = all[first]
		}
	}
	err = takeTurns(ctx, h, l.rounds, all, func(t *loadTurn, _ int) error {
		taken, err := l.once(ctx, s, t, s.started.Locations[slices.Index(at, endpoint{t.latency, t.tls})])
		t.samples = append(t.samples, taken)
		return err
	})
	return &report{head: h.machine + ".\n\n", table: loadTable(all)}, errors.Join(err, s.stop())
}

// full is how many messages are kept in the queue, more than a contender takes between two checks.
const full = 8192

// once measures a contender once, on its own queue.
func (l *load) once(ctx context.Context, s *server, t *loadTurn, location string) (taken sample, err error) {
	name := fmt.Sprintf("bench-%d", time.Now().UnixNano())
	if err := s.ask(serverOrder{Fill: name, Messages: full + t.concurrency, Size: l.size}, nil); err != nil {
		return taken, err
	}
	defer func() { err = errors.Join(err, s.ask(serverOrder{Drop: name}, nil)) }()
	runtime.GC() // so that no contender pays for another's garbage
	r, err := t.who.start(ctx, consumption{location, name, t.concurrency, t.handler})
	if err != nil {
		return taken, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	waiting.For(l.warmUp, ctx.Done())
	// Until all connections are open: over TLS each begins with a handshake, which costs as much as many messages.
	for begun := time.Now(); r.done() < int64(8*t.concurrency) && time.Since(begun) < 20*time.Second && ctx.Err() == nil; {
		waiting.For(20*time.Millisecond, ctx.Done())
	}
	before, err := r.look()
	if err != nil {
		return taken, err
	}
	waiting.For(l.window, ctx.Done())
	after, err := r.look()
	if taken = after.minus(before); err == nil && taken.messages == 0 {
		err = fmt.Errorf("no message was handled in %v", l.window)
	}
	return taken, err
}

// look reads all counters at nearly the same instant.
func (r *running) look() (sample, error) {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	used, err := processorTime()
	return sample{messages: r.done(), wall: time.Since(start), processor: used, mallocs: memory.Mallocs}, err
}

var start = time.Now()

// loadTable returns the results as Markdown. Ratios are to the first contender, in the same round.
func loadTable(all []*loadTurn) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| network | concurrency | handler | latency | bound/s | contender | messages/s | of the bound | × %s | messages per client-processor-second | × %[1]s | allocations a message |\n"+
		"|---|---|---|---|---|---|---|---|---|---|---|---|\n", all[0].who)
	for _, t := range all {
		bound, share, rate := "–", "–", t.samples.median(sample.perSecond)
		if most := t.bound(); most > 0 {
			bound, share = fmt.Sprintf("%.0f", most), fmt.Sprintf("%.2f", rate/most)
		}
		fmt.Fprintf(&b, "| %s | %d | %v | %v | %s | %v | %.0f | %s | %.2f | %.0f | %.2f | %.0f |\n",
			t.network(), t.concurrency, t.handler, t.latency, bound, t.who, rate, share,
			t.samples.times(t.first.samples, sample.perSecond),
			t.samples.median(sample.perProcessorSecond), t.samples.times(t.first.samples, sample.perProcessorSecond),
			t.samples.median(func(s sample) float64 { return s.perMessage(float64(s.mallocs)) }))
	}
	return b.String()
}

// contender is a way to consume a queue.
type contender struct {
	name  string
	start func(context.Context, consumption) (*running, error)
}

func (c contender) String() string { return c.name }

// By default the first three are measured. The loops separate the cost of the listener from that of its queue.
var contenders = []contender{
	{"ideal", startIdeal},
	{"millrace", listenerOver(false)},
	{"millrace-http1", listenerOver(true)},
	{"loop", loopOver(false)},
	{"loop-http1", loopOver(true)},
}

// consumption is the work of a contender.
type consumption struct {
	location    string // a connection string
	queue       string
	concurrency int           // handlers at once
	handler     time.Duration // how long each waits
}

// connections returns the size of every contender's connection pool. Deletes may be in flight together
// with those of the next handlers and the dequeues.
func (c consumption) connections() int { return 2*c.concurrency + 64 }

// loops returns how many goroutines fetch.
func (c consumption) loops() int { return (c.concurrency + 31) / 32 }

// handle is the handler: it waits, as for a database.
func (c consumption) handle() {
	if c.handler > 0 {
		time.Sleep(c.handler)
	}
}

type running struct {
	done func() int64 // messages handled and deleted so far
	stop func() error // stops it, waits and returns its error
}

// open opens the queue, over http1 or net/http, and returns how to close it.
func (c consumption) open(fast bool) (*azurequeue.Queue, func() error, error) {
	o := &azurequeue.Options{Connections: c.connections(), TryTimeout: time.Minute}
	var closing closers
	if fast {
		transport, err := http1.New(&http1.Options{Connections: c.connections()})
		if err != nil {
			return nil, nil, err
		}
		closing.add(transport.Close)
		o.Transport = transport
	}
	q, err := azurequeue.Open(c.location, c.queue, o)
	if err != nil {
		return nil, nil, errors.Join(err, closing.close())
	}
	closing.add(q.Close)
	return q, closing.close, nil
}

// listenerOver starts a listener with the defaults for everything that a cell does not set.
func listenerOver(fast bool) func(context.Context, consumption) (*running, error) {
	return func(ctx context.Context, c consumption) (*running, error) {
		q, closing, err := c.open(fast)
		if err != nil {
			return nil, err
		}
		w := &listening{failed: make(chan error, 1), closing: closers{closing}}
		l := listener.New(q, func(context.Context, *listener.Message[[]byte]) error { c.handle(); return nil }, &listener.Options[[]byte]{
			Codec: codec.Bytes(), Wire: listener.WireOptions{Format: codec.Plain}, Concurrency: c.concurrency, OnError: w.fail,
		})
		err = w.start(ctx, l.Run, func() bool { return true })
		return &running{func() int64 { return l.State().Outcomes[listener.Deleted] }, w.stop}, err
	}
}

// loopOver starts the ideal loop over azurequeue, without a listener.
func loopOver(fast bool) func(context.Context, consumption) (*running, error) {
	return func(_ context.Context, c consumption) (*running, error) {
		q, closing, err := c.open(fast)
		if err != nil {
			return nil, err
		}
		return c.startSemaphore(func(ctx context.Context, n int) ([]taken, error) {
			batch, err := q.Dequeue(ctx, n, visibility*time.Second)
			messages := make([]taken, len(batch))
			for i, m := range batch {
				messages[i] = func(ctx context.Context) error { return q.Delete(ctx, m.Lease) }
			}
			return messages, err
		}, closing), nil
	}
}

const visibility = 60 // seconds; longer than any cell takes

// taken deletes a dequeued message.
type taken func(context.Context) error

// fetch dequeues up to n messages.
type fetch func(ctx context.Context, n int) ([]taken, error)

// sdkFetch dequeues with azqueue and a large enough connection pool, as a careful user configures it.
func sdkFetch(c consumption) (fetch, func() error, error) {
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		MaxIdleConnsPerHost: c.connections(),
		IdleConnTimeout:     90 * time.Second,
	}
	o := &azqueue.ClientOptions{}
	o.Transport = &http.Client{Transport: transport}
	q, err := azqueue.NewQueueClientFromConnectionString(c.location, c.queue, o)
	return func(ctx context.Context, n int) ([]taken, error) {
		batch, err := q.DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{
			NumberOfMessages: new(int32(n)), VisibilityTimeout: new(int32(visibility)),
		})
		messages := make([]taken, len(batch.Messages))
		for i, m := range batch.Messages {
			messages[i] = func(ctx context.Context) error {
				_, err := q.DeleteMessage(ctx, *m.MessageID, *m.PopReceipt, nil)
				return err
			}
		}
		return messages, err
	}, func() error { transport.CloseIdleConnections(); return nil }, err
}

// startIdeal starts the best loop that one would write by hand, over azqueue.
func startIdeal(_ context.Context, c consumption) (*running, error) {
	get, closing, err := sdkFetch(c)
	if err != nil {
		return nil, err
	}
	return c.startSemaphore(get, closing), nil
}

// startSemaphore starts a loop with a semaphore of slots, from which each fetcher takes one and up to 31 more
// that are free. It dequeues that many messages, and a goroutine for each handles it, deletes it and frees its slot.
func (c consumption) startSemaphore(get fetch, closing func() error) *running {
	stopping, stop := context.WithCancel(context.Background())
	work, fetching := errgroup.WithContext(stopping)
	var done atomic.Int64
	slots := make(chan struct{}, c.concurrency)
	for range c.loops() {
		work.Go(func() error {
			for {
				select {
				case slots <- struct{}{}:
				case <-fetching.Done():
					return nil
				}
				n := 1
			more:
				for n < 32 {
					select {
					case slots <- struct{}{}:
						n++
					default:
						break more
					}
				}
				batch, err := get(context.Background(), n)
				if err != nil {
					return err
				}
				for range n - len(batch) {
					<-slots
				}
				for _, m := range batch {
					work.Go(func() error {
						defer func() { <-slots }()
						c.handle()
						if err := m(context.Background()); err != nil {
							return err
						}
						done.Add(1)
						return nil
					})
				}
			}
		})
	}
	return &running{done.Load, func() error {
		stop()
		err := work.Wait()
		if err != nil {
			err = fmt.Errorf("consume the queue: %w", err)
		}
		return errors.Join(err, closing())
	}}
}
