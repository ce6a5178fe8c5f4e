package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec/claimcheck"
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
// Meanwhile the worker's process measures the round trip of a dequeue of one message, on a queue of its own, so that both
// suffer the same load. That is the least that any job takes, and the table says what is beyond it, percentile by
// percentile.
type latency struct {
	turns
	transports []transport
	rates      []rate
	trips      int // round trips in each measurement, at most
	warmUp     int // messages before it, which open the connections
	seed       uint64
}

func (l *latency) flags(f *flag.FlagSet) {
	l.turns.flags(f)
	several(f, &l.transports, transports, named(transports), "transports", "how a worker learns of a job; those over the stream with something special are measured at the highest rate")
	several(f, &l.rates, []rate{{1, 100 * time.Second}, {100, 10 * time.Second}, {1000, 5 * time.Second}}, parseRate, "rates", "jobs a second, and for how long")
	one(f, &l.trips, 200, positive, "round-trips", "how many dequeues are measured beside each, at most")
	one(f, &l.warmUp, 64, positive, "warm-up", "how many messages are sent before that")
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
	s, err := startServer(serverOptions{NATS: true, Endpoints: []endpoint{{}, {TLS: true}}})
	if err != nil {
		return nil, err
	}
	if err := trustOwnCertificate(h); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	highest := slices.MaxFunc(l.rates, func(a, b rate) int { return cmp.Compare(a.perSecond, b.perSecond) })
	var all []*latencyTurn
	for _, r := range l.rates {
		for _, how := range l.transports {
			if how.title == "" || r == highest {
				all = append(all, &latencyTurn{rate: r, how: how})
			}
		}
	}
	for _, t := range all {
		if t.how.tls {
			h.say("what saturates %v", t.how)
			if t.perSecond, err = l.saturation(ctx, s, t); err != nil {
				return nil, errors.Join(err, s.stop())
			}
			t.perSecond /= 2
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
	perMessage := max(t.how.group, 1)
	due := schedule(t.perSecond/float64(perMessage), t.window, seed)
	a, err := assign(s, t.how, (l.warmUp+len(due))*perMessage)
	if err != nil {
		return err
	}
	p, closing, err := a.sender(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closing()) }()
	warmUp := make([]time.Duration, l.warmUp)
	if t.how.hang != nil {
		for i := range warmUp { // one by one, so that the server learns which workers hang
			warmUp[i] = time.Duration(i) * 100 * time.Millisecond
		}
		stop, err := a.startHung(ctx, p, t.how.hang)
		defer func() { _ = stop() }() // its errors are those of what hangs
		if err != nil {
			return err
		}
	}
	w, err := t.how.consume(ctx, a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	var beside errgroup.Group // a worker in another process answers one question at a time
	starts := func(ctx context.Context, n int) ([]instant, error) {
		if err := beside.Wait(); err != nil {
			return nil, err
		}
		return w.starts(ctx, n)
	}
	return t.add(ctx, t.how.send(p), perMessage, warmUp, due, starts, func() error {
		n := min(l.trips, len(due))
		beside.Go(func() error {
			trips, err := w.roundTrips(ctx, n, t.window/time.Duration(n))
			t.trips = append(t.trips, trips...)
			slices.Sort(t.trips)
			return err
		})
		return nil
	})
}

// saturation returns how many jobs a second are sent and handled if there are always as many senders as slots.
func (l *latency) saturation(ctx context.Context, s *server, t *latencyTurn) (perSecond float64, err error) {
	const senders, most = 64, 1 << 17
	a, err := assign(s, t.how, most)
	if err != nil {
		return 0, err
	}
	p, closing, err := a.sender(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, closing()) }()
	w, err := t.how.consume(ctx, a)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	var sent atomic.Int64
	begun := time.Now()
	all, sending := errgroup.WithContext(ctx)
	for range senders {
		all.Go(func() error {
			for time.Since(begun) < t.window {
				n := sent.Add(1)
				if n > most {
					return nil
				}
				if _, err := p.Send(sending, job{Number: int(n - 1)}, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return 0, err
	}
	n := min(sent.Load(), most)
	_, err = w.starts(ctx, int(n))
	return float64(n) / time.Since(begun).Seconds(), err
}

// assignment says what a worker consumes.
type assignment struct {
	Location  string // of the queue's account
	NATS      string
	Transport string // by name
	Queue     string
	Jobs      int // how many are sent in all

	// For a sender and a worker in one process.
	bus    *wakeup.Bus
	claims *claimcheck.Claims
}

// assign makes an assignment with a new queue.
func assign(s *server, how transport, jobs int) (a assignment, err error) {
	a = assignment{
		Location: s.started.Locations[0], NATS: s.started.NATS, Transport: how.name, Jobs: jobs,
		Queue: fmt.Sprintf("latency-%d", time.Now().UnixNano()), bus: new(wakeup.Bus),
	}
	if how.tls {
		a.Location = s.started.Locations[1]
	}
	if how.claims {
		a.claims, err = claimcheck.New(blob.Memory(), "bodies", &claimcheck.Options{Limit: 1 << 10})
	}
	return a, err
}

// transport is a way in which a worker learns of a job.
type transport struct {
	name      string
	processes int // of sender and worker

	// source and publisher are nil for none. What they open they add to the closers.
	source    func(assignment, *closers) (listener.Wakeups, error)
	publisher func(assignment, *closers) (producer.Wakeups, error)

	// The rest is for rows over the stream with something special.

	title  string
	group  int  // jobs in a message; 0 for one, and no group
	claims bool // bodies are in blobs
	tls    bool // half of the load that saturates it, in place of the rate
	hang   func(context.Context, assignment) (*hungWorker, error)
}

func (t transport) String() string { return t.name }

// largeBody is the text in a body that goes to a blob, of 4 KiB.
var largeBody = strings.Repeat("x", 4<<10)

// send returns a function that sends the jobs of one message, of which n is the number.
func (t transport) send(p *producer.Producer[job]) func(ctx context.Context, n int) error {
	return func(ctx context.Context, n int) (err error) {
		switch {
		case t.group > 0:
			jobs := make([]job, t.group)
			for i := range jobs {
				jobs[i].Number = n*t.group + i
			}
			_, err = p.SendGroup(ctx, jobs, nil)
		case t.claims:
			_, err = p.Send(ctx, job{n, largeBody}, nil)
		default:
			_, err = p.Send(ctx, job{Number: n}, nil)
		}
		return err
	}
}

func openStream(a assignment, c *closers) (listener.Wakeups, error) {
	s, err := serverwakeup.Open(a.Location, nil)
	if err == nil {
		c.add(s.Close)
	}
	return s, err
}

var transports = []transport{
	{name: "polling", processes: 2},
	{
		name: "bus", processes: 1,
		source:    func(a assignment, _ *closers) (listener.Wakeups, error) { return a.bus, nil },
		publisher: func(a assignment, _ *closers) (producer.Wakeups, error) { return a.bus, nil },
	},
	{
		name: "stream", processes: 2, // the server sees what is sent
		source: openStream,
	},
	{
		name: "nats", processes: 2,
		source:    func(a assignment, c *closers) (listener.Wakeups, error) { return connectNATS(a, c) },
		publisher: func(a assignment, c *closers) (producer.Wakeups, error) { return connectNATS(a, c) },
	},
	{name: "groups", title: "stream, groups of 40", processes: 2, source: openStream, group: 40},
	{name: "claims", title: "stream, bodies of 4 KiB in blobs", processes: 1, source: openStream, claims: true},
	{name: "tls", title: "stream over TLS, half of its most", processes: 2, source: openStream, tls: true},
	{name: "hung-handlers", title: "stream, beside 4 workers with hung handlers", processes: 2, source: openStream, hang: hungHandlers},
	{name: "hung-connections", title: "stream, beside 4 workers with hung connections", processes: 2, source: openStream, hang: hungConnections},
}

func connectNATS(a assignment, c *closers) (*natswakeup.Transport, error) {
	connection, err := nats.Connect(a.NATS)
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
	how, err := byName(a.Transport)
	if err != nil {
		return nil, nil, err
	}
	q, err := azurequeue.Open(a.Location, a.Queue, nil)
	if err != nil {
		return nil, nil, err
	}
	closing := closers{q.Close}
	o := &producer.Options[job]{}
	if a.claims != nil {
		o.Claims = a.claims
	}
	if how.publisher != nil {
		o.Wakeups, err = how.publisher(a, &closing)
	}
	if err = errors.Join(err, q.Create(ctx, nil)); err != nil {
		return nil, nil, errors.Join(err, closing.close())
	}
	return producer.New(q, o), closing.close, nil
}

func byName(name string) (t transport, err error) {
	i := slices.IndexFunc(transports, func(t transport) bool { return t.name == name })
	if i < 0 {
		return t, fmt.Errorf("unknown transport %q", name)
	}
	return transports[i], nil
}

// hungWorker is a worker of the same queue that has a stream, and never handles a job.
type hungWorker struct {
	listening
	takes int // jobs that it takes before it hangs
	hangs func() bool
}

const hungWorkers, hungSlots = 4, 2

// startHung starts workers that hang, and waits until they do. Their jobs, which are not measured, have no number.
func (a assignment) startHung(ctx context.Context, p *producer.Producer[job], hang func(context.Context, assignment) (*hungWorker, error)) (stop func() error, err error) {
	var all closers
	for range hungWorkers {
		w, err := hang(ctx, a)
		if w != nil {
			all.add(w.stop)
		}
		if err != nil {
			return all.close, err
		}
		for range w.takes {
			if _, err := p.Send(ctx, job{Number: -1}, nil); err != nil {
				return all.close, err
			}
		}
		for !w.hangs() {
			if !waiting.For(time.Millisecond, ctx.Done()) {
				return all.close, ctx.Err()
			}
		}
	}
	return all.close, nil
}

// hungHandlers starts a worker whose handlers never return by themselves.
func hungHandlers(ctx context.Context, a assignment) (*hungWorker, error) {
	var running atomic.Int64
	w := &hungWorker{takes: hungSlots, hangs: func() bool { return running.Load() == hungSlots }}
	q, err := azurequeue.Open(a.Location, a.Queue, nil)
	if err != nil {
		return nil, err
	}
	w.closing.add(q.Close)
	return w, w.listen(ctx, a, q, func(ctx context.Context, _ *listener.Message[job]) error {
		running.Add(1)
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

// hungConnections starts a worker whose requests for messages get no response, once it is ready. Its stream works.
func hungConnections(ctx context.Context, a assignment) (*hungWorker, error) {
	t := &hungTransport{}
	w := &hungWorker{hangs: func() bool { return true }}
	q, err := azurequeue.Open(a.Location, a.Queue, &azurequeue.Options{Transport: t})
	if err != nil {
		return nil, err
	}
	w.closing.add(q.Close)
	err = w.listen(ctx, a, q, func(context.Context, *listener.Message[job]) error { return nil })
	t.hangs.Store(true)
	return w, err
}

// hungTransport sends requests until it hangs.
type hungTransport struct{ hangs atomic.Bool }

func (t *hungTransport) Do(r *http.Request) (*http.Response, error) {
	if t.hangs.Load() {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return http.DefaultClient.Do(r)
}

// listen starts the listener of a hung worker.
func (w *hungWorker) listen(ctx context.Context, a assignment, q *azurequeue.Queue, h listener.Handler[job]) error {
	source, err := openStream(a, &w.closing)
	if err != nil {
		return err
	}
	w.failed = make(chan error, 1)
	l := listener.New(q, h, &listener.Options[job]{
		Concurrency: hungSlots, Wakeups: source, Grace: time.Millisecond,
		Logger: slog.New(slog.DiscardHandler), OnError: w.fail,
	})
	return w.start(ctx, l.Run, func() bool { s := l.State(); return s.Ready() && s.Listening })
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
	how, err := byName(a.Transport)
	if err != nil {
		return nil, err
	}
	if w.queue, err = azurequeue.Open(a.Location, a.Queue, nil); err != nil {
		return nil, err
	}
	w.closing.add(w.queue.Close)
	o := &listener.Options[job]{Logger: slog.New(slog.DiscardHandler), OnError: w.fail}
	if how.source != nil {
		if o.Wakeups, err = how.source(a, &w.closing); err != nil {
			return nil, err
		}
	}
	if a.claims != nil {
		o.Claims = a.claims
	}
	handler := func(_ context.Context, m *listener.Message[job]) error { return w.begun.note(m) }
	if how.group > 0 {
		handler = listener.EachItem(handler, how.group)
	}
	l := listener.New(w.queue, handler, o)
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
		fmt.Fprintf(&b, "| %.4g | %v | %d | %d | %s | %s | %s | %s | %s |\n", t.perSecond, cmp.Or(t.how.title, t.how.name), t.how.processes, len(t.waits),
			percentiles(t.waits, 50, 95, 99, 100), percentiles(t.trips, 50, 99), milliseconds(t.beyond(50)), milliseconds(t.beyond(99)), percentiles(t.late, 99))
	}
	return b.String()
}

// beyond returns how much longer this percentile of the jobs waited than that of the dequeues took.
func (t *latencyTurn) beyond(percent int) time.Duration {
	return percentile(t.waits, percent) - percentile(t.trips, percent)
}
