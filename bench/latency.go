package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/wakeup"
	"github.com/millrace/millrace/wakeup/natswakeup"
	"github.com/millrace/millrace/wakeup/serverwakeup"
)

// latency measures how long a job waits: from the return of Send to the first line of its handler, with
// polling at the defaults and with wake-ups.
//
// Before each measurement the worker's process measures the round trip of a dequeue of one message, on a
// queue without other requests, at the pace of the jobs: processors that rested in between take longer. That is
// the least that any job takes, and the table says what is beyond it, percentile by percentile.
type latency struct {
	turns
	transports []transport
	rates      []rate
	trips      int // round trips before each measurement, at most
	warmUp     int // jobs before it, which open the connections
	seed       uint64
}

func (l *latency) flags(f *flag.FlagSet) {
	l.turns.flags(f)
	several(f, &l.transports, transports, named(transports), "transports", "how a worker learns of a job")
	several(f, &l.rates, []rate{{1, 100 * time.Second}, {100, 10 * time.Second}, {1000, 5 * time.Second}}, parseRate, "rates", "jobs a second, and for how long")
	one(f, &l.trips, 200, positive, "round-trips", "how many dequeues are measured before each, at most")
	one(f, &l.warmUp, 64, positive, "warm-up", "how many jobs are sent before that")
	one(f, &l.seed, 1, seed, "seed", "of the schedules")
}

func (l *latency) check() error { return nil }

// rate is how many jobs a second are sent, and for how long.
type rate struct {
	perSecond float64
	window    time.Duration
}

func (r rate) String() string { return fmt.Sprintf("%g:%v", r.perSecond, short(r.window)) }

func parseRate(text string) (r rate, err error) {
	count, window, _ := strings.Cut(text, ":")
	var err1, err2 error
	r.perSecond, err1 = strconv.ParseFloat(count, 64)
	r.window, err2 = time.ParseDuration(window)
	if err1 != nil || err2 != nil || !(r.perSecond > 0 && r.perSecond <= 100_000) || r.window <= 0 {
		return r, errors.New("write jobs a second and for how long, such as 100:10s")
	}
	return r, nil
}

// latencyTurn is a transport at a rate.
type latencyTurn struct {
	rate
	how transport
	waited
	trips []time.Duration // of a dequeue of one message, sorted
}

func (t *latencyTurn) String() string { return fmt.Sprintf("%v, %g a second", t.how, t.perSecond) }

func (l *latency) run(ctx context.Context, h *harness) (*report, error) {
	s, err := startServer(serverOptions{NATS: true})
	if err != nil {
		return nil, err
	}
	var all []*latencyTurn
	for _, r := range l.rates {
		for _, how := range l.transports {
			all = append(all, &latencyTurn{rate: r, how: how})
		}
	}
	err = takeTurns(ctx, h, l.rounds, all, func(t *latencyTurn, round int) error {
		return l.once(ctx, s, t, l.seed+uint64(round))
	})
	if err = errors.Join(err, s.stop()); err != nil {
		return nil, err
	}
	return &report{head: h.machine + ".\n\n", table: latencyTable(all)}, nil
}

// once measures a transport at a rate, on a queue of its own.
func (l *latency) once(ctx context.Context, s *server, t *latencyTurn, seed uint64) (err error) {
	due := schedule(t.perSecond, t.window, seed)
	a := assignment{
		Server: s.started, Transport: t.how.name, Queue: fmt.Sprintf("latency-%d", time.Now().UnixNano()),
		Jobs: l.warmUp + len(due), bus: new(wakeup.Bus),
	}
	p, closing, err := a.sender(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closing()) }()
	w, err := t.how.consume(ctx, a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	return t.add(ctx, p, l.warmUp, due, w.starts, func() error {
		trips, err := w.roundTrips(ctx, min(l.trips, len(due)), time.Duration(float64(time.Second)/t.perSecond))
		t.trips = append(t.trips, trips...)
		slices.Sort(t.trips)
		return err
	})
}

// assignment says what a worker consumes.
type assignment struct {
	Server    serverState
	Transport string // by name
	Queue     string
	Jobs      int // how many are sent in all

	bus *wakeup.Bus // for a sender and a worker in one process
}

// transport is a way in which a worker learns of a job.
type transport struct {
	name      string
	processes int // of sender and worker

	// source and publisher are nil for none. What they open they add to the closers.
	source    func(assignment, *closers) (listener.Wakeups, error)
	publisher func(assignment, *closers) (producer.Wakeups, error)
}

func (t transport) String() string { return t.name }

var transports = []transport{
	{name: "polling", processes: 2},
	{
		name: "bus", processes: 1,
		source:    func(a assignment, _ *closers) (listener.Wakeups, error) { return a.bus, nil },
		publisher: func(a assignment, _ *closers) (producer.Wakeups, error) { return a.bus, nil },
	},
	{
		name: "stream", processes: 2, // the server sees what is sent
		source: func(a assignment, c *closers) (listener.Wakeups, error) {
			s, err := serverwakeup.Open(a.Server.Locations[0], nil)
			if err == nil {
				c.add(s.Close)
			}
			return s, err
		},
	},
	{
		name: "nats", processes: 2,
		source:    func(a assignment, c *closers) (listener.Wakeups, error) { return connectNATS(a, c) },
		publisher: func(a assignment, c *closers) (producer.Wakeups, error) { return connectNATS(a, c) },
	},
}

func connectNATS(a assignment, c *closers) (*natswakeup.Transport, error) {
	connection, err := nats.Connect(a.Server.NATS)
	if err != nil {
		return nil, err
	}
	t, err := natswakeup.New(connection, nil)
	if err != nil {
		connection.Close()
		return nil, err
	}
	c.add(func() error { defer connection.Close(); return t.Close() })
	return t, nil
}

// sender creates the queue and returns a producer for it.
func (a assignment) sender(ctx context.Context) (*producer.Producer[job], func() error, error) {
	how, err := named(transports)(a.Transport)
	if err != nil {
		return nil, nil, err
	}
	q, err := azurequeue.Open(a.Server.Locations[0], a.Queue, nil)
	if err != nil {
		return nil, nil, err
	}
	closing := closers{q.Close}
	o := &producer.Options[job]{}
	if how.publisher != nil {
		o.Wakeups, err = how.publisher(a, &closing)
	}
	if err = errors.Join(err, q.Create(ctx, nil)); err != nil {
		return nil, nil, errors.Join(err, closing.close())
	}
	return producer.New(q, o), closing.close, nil
}

// consumer is a worker in this process or in another.
type consumer interface {
	// roundTrips measures dequeues of one message from another queue, each after a rest of the pace.
	roundTrips(ctx context.Context, n int, pace time.Duration) ([]time.Duration, error)

	// starts waits until the handlers of so many jobs have begun, and returns when each did.
	starts(ctx context.Context, n int) ([]instant, error)

	stop() error
}

func (t transport) consume(ctx context.Context, a assignment) (consumer, error) {
	if t.processes == 1 {
		return startWorker(ctx, a)
	}
	c, err := startChild(ctx, "worker", a, nil)
	return remote{c}, err
}

// worker is a listener with the defaults whose handler only notes the time.
type worker struct {
	listening
	queue *azurequeue.Queue
	begun *starts
}

// startWorker starts a worker and waits until it listens.
func startWorker(ctx context.Context, a assignment) (_ *worker, err error) {
	w := &worker{listening: listening{failed: make(chan error, 1)}, begun: newStarts(a.Jobs)}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.stop())
		}
	}()
	how, err := named(transports)(a.Transport)
	if err != nil {
		return nil, err
	}
	if w.queue, err = azurequeue.Open(a.Server.Locations[0], a.Queue, nil); err != nil {
		return nil, err
	}
	w.closing.add(w.queue.Close)
	o := &listener.Options[job]{Logger: slog.New(slog.DiscardHandler), OnError: w.fail}
	if how.source != nil {
		if o.Wakeups, err = how.source(a, &w.closing); err != nil {
			return nil, err
		}
	}
	l := listener.New(w.queue, func(_ context.Context, m *listener.Message[job]) error { return w.begun.note(m) }, o)
	return w, w.start(ctx, l.Run, func() bool { return l.State().Ready() })
}

// roundTrips implements consumer. The messages are put before the rest, one by one, and deleted after.
func (w *worker) roundTrips(ctx context.Context, n int, pace time.Duration) ([]time.Duration, error) {
	q := w.queue.Sibling("-round-trips")
	if err := q.Create(ctx, nil); err != nil {
		return nil, err
	}
	var all []time.Duration
	for range n {
		if _, err := q.Enqueue(ctx, `{"Number":0}`, nil); err != nil {
			return nil, err
		}
		waiting.For(pace, ctx.Done())
		begin := now()
		batch, err := q.Dequeue(ctx, queue.MaxBatch, time.Minute)
		took := time.Duration(now() - begin)
		if err == nil && len(batch) != 1 {
			err = fmt.Errorf("a dequeue of the only message returned %d", len(batch))
		}
		if err == nil {
			err = q.Delete(ctx, batch[0].Lease)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, took)
	}
	return all, nil
}

// starts implements consumer.
func (w *worker) starts(ctx context.Context, n int) ([]instant, error) {
	return w.begun.await(ctx, n, w.ended)
}

// workerRequest asks a worker in another process for one of two things.
type workerRequest struct {
	RoundTrips int           // so many of them
	Pace       time.Duration // between them
	Starts     int           // or the starts of so many jobs
}

// work is the role of a worker. The first value is its assignment, the others are requests.
func work(first json.RawMessage) (any, answerer, error) {
	var a assignment
	if err := json.Unmarshal(first, &a); err != nil {
		return nil, nil, err
	}
	ctx := context.Background()
	w, err := startWorker(ctx, a)
	if err != nil {
		return nil, nil, err
	}
	return nil, func(line json.RawMessage) (any, error) {
		var asked workerRequest
		if err := json.Unmarshal(line, &asked); err != nil {
			return nil, err
		}
		if asked.RoundTrips > 0 {
			return w.roundTrips(ctx, asked.RoundTrips, asked.Pace)
		}
		return w.starts(ctx, asked.Starts)
	}, nil
}

// remote is a worker in another process.
type remote struct{ *child }

func (r remote) roundTrips(_ context.Context, n int, pace time.Duration) (all []time.Duration, err error) {
	err = r.ask(workerRequest{RoundTrips: n, Pace: pace}, &all)
	return all, err
}

func (r remote) starts(_ context.Context, n int) (all []instant, err error) {
	err = r.ask(workerRequest{Starts: n}, &all)
	return all, err
}

// latencyTable returns the results as Markdown.
func latencyTable(all []*latencyTurn) string {
	var b strings.Builder
	b.WriteString("| jobs a second | how | processes | jobs | p50 | p95 | p99 | longest | one dequeue, p50 | one dequeue, p99 | p50 beyond it | p99 beyond it | sent late, p99 |\n" +
		"|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, t := range all {
		fmt.Fprintf(&b, "| %g | %v | %d | %d | %s | %s | %s | %s | %s |\n", t.perSecond, t.how, t.how.processes, len(t.waits),
			percentiles(t.waits, 50, 95, 99, 100), percentiles(t.trips, 50, 99), milliseconds(t.beyond(50)), milliseconds(t.beyond(99)), percentiles(t.late, 99))
	}
	return b.String()
}

// beyond returns how much longer this percentile of the jobs waited than that of the dequeues took.
func (t *latencyTurn) beyond(percent int) time.Duration {
	return percentile(t.waits, percent) - percentile(t.trips, percent)
}
