package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/wakeup"
)

// pickup measures how long a critical job waits while another queue of its process is flooded. Two listeners share
// the slots of a pool. The heavy queue has more jobs than can be handled in time, each of which only waits; the
// critical one gets jobs on a schedule. It has a reserve or weights alone, each with the flood and without. A bus
// wakes the listeners.
type pickup struct {
	turns
	slots, reserve int
	heavy          time.Duration // how long a heavy job takes
	critical       time.Duration // and a critical one
	perSecond      float64       // critical jobs
	window         time.Duration // in which they are sent
	warmUp         int           // critical jobs before it, which open the connections
	seed           uint64
}

func (p *pickup) flags(f *flag.FlagSet) {
	p.turns.flags(f)
	one(f, &p.slots, 64, between(3, 1024, strconv.Atoi), "slots", "slots of the pool")
	one(f, &p.reserve, 8, positive, "reserve", "of these, slots that only the critical queue takes, in the rows with a reserve")
	one(f, &p.heavy, time.Second, lasting, "heavy", "how long a heavy job takes")
	one(f, &p.critical, 5*time.Millisecond, orNothing, "critical", "how long a critical job takes")
	one(f, &p.perSecond, 100, between(0.01, 10_000, func(text string) (float64, error) { return strconv.ParseFloat(text, 64) }), "rate", "critical jobs a second")
	one(f, &p.window, 20*time.Second, lasting, "window", "how long critical jobs are sent, for each row and round")
	one(f, &p.warmUp, 64, positive, "warm-up", "how many critical jobs are sent before each")
	one(f, &p.seed, 1, seed, "seed", "of the schedules")
}

// check refuses flags that would measure something else than they say.
func (p *pickup) check() error {
	if p.reserve > p.slots-2 {
		return fmt.Errorf("-reserve %d is more than %d, what -slots leave to it", p.reserve, p.slots-2)
	}
	if p.inUse() > float64(p.reserve)/2 {
		return fmt.Errorf("%g jobs a second of %v take %.1f slots on average: at most half of the %d of -reserve is a load that fits",
			p.perSecond, p.critical, p.inUse(), p.reserve)
	}
	return nil
}

// inUse returns how many slots critical jobs take on average.
func (p *pickup) inUse() float64 { return p.perSecond * p.critical.Seconds() }

// pickupTurn is one way to share the slots, with the flood or without.
type pickupTurn struct {
	reserve, flood bool
	waited
	heavy int64 // heavy jobs that were handled meanwhile
}

func (t *pickupTurn) String() string {
	how, load := "weights alone", "nothing else"
	if t.reserve {
		how = "a reserve"
	}
	if t.flood {
		load = "a flood"
	}
	return how + ", " + load
}

func (p *pickup) run(ctx context.Context, h *harness) (*report, error) {
	s, err := startServer(serverOptions{})
	if err != nil {
		return nil, err
	}
	all := []*pickupTurn{{reserve: true}, {reserve: true, flood: true}, {}, {flood: true}}
	err = takeTurns(ctx, h, p.rounds, all, func(t *pickupTurn, round int) error {
		return p.once(ctx, s.started.Locations[0], t, p.seed+uint64(round))
	})
	if err = errors.Join(err, s.stop()); err != nil {
		return nil, err
	}
	return &report{head: h.machine + ".\n\n", table: p.table(all)}, nil
}

// once measures one row on queues of its own.
func (p *pickup) once(ctx context.Context, location string, t *pickupTurn, seed uint64) (err error) {
	due := schedule(p.perSecond, p.window, seed)
	pool, err := slots.NewShared(&slots.SharedOptions{Slots: p.slots})
	if err != nil {
		return err
	}
	w := &pickupWorker{
		pickup: p, pool: pool, begun: newStarts(p.warmUp + len(due)),
		listening: listening{failed: make(chan error, 1)},
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	if err := w.startAll(ctx, location, t.reserve); err != nil {
		return err
	}
	starts := func(ctx context.Context, n int) ([]instant, error) { return w.begun.await(ctx, n, w.ended) }
	var flooding, before int64
	one := func(ctx context.Context, n int) error {
		_, err := w.criticalSender.Send(ctx, job{Number: n}, nil)
		return err
	}
	err = t.add(ctx, one, 1, make([]time.Duration, p.warmUp), due, starts, func() (err error) {
		if t.flood {
			flooding, err = w.flood(ctx)
		}
		before = w.heavy.State().Outcomes[listener.Deleted]
		return err
	})
	after := w.heavy.State().Outcomes[listener.Deleted]
	t.heavy += after - before
	if err == nil && t.flood && flooding-after <= 2*int64(p.slots) {
		err = errors.New("the heavy queue was empty before the end: the flood was too small")
	}
	return err
}

// pickupWorker is the two listeners and their senders.
type pickupWorker struct {
	listening
	*pickup
	pool                        *slots.Shared
	begun                       *starts // of critical jobs
	critical, heavy             *listener.Listener[job]
	criticalSender, heavySender *producer.Producer[job]
}

func (w *pickupWorker) startAll(ctx context.Context, location string, reserved bool) (err error) {
	reserve := 0
	if reserved {
		reserve = w.reserve
	}
	bus := new(wakeup.Bus)
	name := fmt.Sprintf("pickup-%d", time.Now().UnixNano())
	if w.critical, w.criticalSender, err = w.open(ctx, location, name+"-critical", bus, reserve, w.handleCritical); err != nil {
		return err
	}
	if w.heavy, w.heavySender, err = w.open(ctx, location, name+"-heavy", bus, 0, w.handleHeavy); err != nil {
		return err
	}
	return w.start(ctx, func(ctx context.Context) error { return millrace.Run(ctx, w.critical, w.heavy) },
		func() bool { return w.critical.State().Ready() && w.heavy.State().Ready() })
}

// open creates a queue and returns its listener and its sender.
func (w *pickupWorker) open(ctx context.Context, location, name string, bus *wakeup.Bus, reserve int, h listener.Handler[job]) (*listener.Listener[job], *producer.Producer[job], error) {
	q, err := azurequeue.Open(location, name, nil)
	if err != nil {
		return nil, nil, err
	}
	w.closing.add(q.Close)
	o := &listener.Options[job]{
		Slots: w.pool.Member(&slots.MemberOptions{Name: name, Reserve: reserve}), Wakeups: bus, Grace: time.Millisecond,
		Fetch:   listener.FetchOptions{Idle: listener.Idle{Min: time.Millisecond}}, // a critical job must not wait for the next ones
		Logger:  slog.New(slog.DiscardHandler),
		OnError: w.fail,
	}
	return listener.New(q, h, o), producer.New(q, &producer.Options[job]{Wakeups: bus}), q.Create(ctx, nil)
}

func (w *pickupWorker) handleCritical(_ context.Context, m *listener.Message[job]) error {
	err := w.begun.note(m)
	waiting.For(w.pickup.critical, nil)
	return err
}

// handleHeavy waits half to one and a half times as long as -heavy says. Otherwise jobs that began together would also
// end together.
func (w *pickupWorker) handleHeavy(ctx context.Context, m *listener.Message[job]) error {
	waiting.For(w.pickup.heavy*time.Duration(50+m.Body.Number*37%101)/100, ctx.Done())
	return context.Cause(ctx)
}

// flood sends more heavy jobs than can be handled while critical ones are sent, and waits until they have
// taken all slots that they get, and end evenly. They last for twice the window, and for twenty seconds in which
// a busy machine may stop all this. It returns how many were sent.
func (w *pickupWorker) flood(ctx context.Context) (int64, error) {
	jobs := make([]job, w.slots*int(8+2*(w.window+10*time.Second)/w.pickup.heavy))
	for i := range jobs {
		jobs[i].Number = i
	}
	if _, err := w.heavySender.SendAll(ctx, jobs, nil); err != nil {
		return 0, err
	}
	unreserved := w.slots
	for _, m := range w.pool.State().Members {
		unreserved -= m.Reserve
	}
	limited, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	for w.heavy.State().Running < unreserved*9/10 {
		if !waiting.For(time.Millisecond, limited.Done()) {
			return 0, fmt.Errorf("the flood does not take the slots: %+v", w.pool.State())
		}
	}
	waiting.For(2*w.pickup.heavy, ctx.Done())
	return int64(len(jobs)), ctx.Err()
}

// table returns the results as Markdown.
func (p *pickup) table(all []*pickupTurn) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d slots, of which %d are the reserve where there is one; %g critical jobs a second of %v take %.1f on average; heavy jobs of %v.\n\n",
		p.slots, p.reserve, p.perSecond, p.critical, p.inUse(), p.heavy)
	b.WriteString("| the critical queue has | beside it | critical jobs | p50 | p95 | p99 | longest | p99 to unloaded | sent late, p99 | heavy jobs done |\n" +
		"|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for i, t := range all {
		how, beside, ratio := "weights alone", "nothing", ""
		if t.reserve {
			how = fmt.Sprintf("a reserve of %d", p.reserve)
		}
		if t.flood { // the row before it is that without the flood
			n := float64(percentile(t.waits, 99)) / float64(max(percentile(all[i-1].waits, 99), time.Microsecond))
			beside, ratio = "a flood", fmt.Sprintf("× %.1f", n)
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %s | %s | %s | %d |\n", how, beside, len(t.waits),
			percentiles(t.waits, 50, 95, 99, 100), ratio, percentiles(t.late, 99), t.heavy)
	}
	return b.String()
}

// instant is a time in nanoseconds, of the clock that all processes share; see now.
type instant int64

// job is what is sent. Jobs are numbered from 0.
type job struct {
	Number  int
	Padding string `json:",omitempty"` // makes it large
}

// schedule returns when jobs are due after the start of a window: at random instants, so many a second on
// average, at least one. It depends only on its arguments.
func schedule(perSecond float64, window time.Duration, seed uint64) []time.Duration {
	random := rand.New(rand.NewPCG(seed, 1))
	var due []time.Duration
	for at := 0.0; ; {
		at += random.ExpFloat64() / perSecond
		next := time.Duration(at * float64(time.Second))
		if next >= window && len(due) > 0 {
			return due
		}
		due = append(due, min(next, window))
	}
}

// sending is what became of jobs that were sent.
type sending struct {
	late     []time.Duration // after it was due, the call of Send
	returned []instant       // the return of Send
}

// send sends messages by a function that is given their numbers, from first on, each on a goroutine of its own when it is
// due. So a job that waits delays no later one, and waiting is not hidden by sending less (coordinated omission).
func send(ctx context.Context, one func(ctx context.Context, n int) error, first int, due []time.Duration) (sending, error) {
	done := sending{make([]time.Duration, len(due)), make([]instant, len(due))}
	errs := make([]error, len(due))
	begin := now()
	var all sync.WaitGroup
	for i, after := range due {
		if wait := after - time.Duration(now()-begin); wait > 0 {
			waiting.For(wait, ctx.Done())
		}
		all.Go(func() {
			done.late[i] = time.Duration(now()-begin) - after
			errs[i] = one(ctx, first+i)
			done.returned[i] = now()
		})
	}
	all.Wait()
	return done, errors.Join(errs...)
}

// starts notes when the handlers of jobs begin.
type starts struct {
	begun   []atomic.Int64 // the first time, by number; 0 for none
	count   atomic.Int64   // of jobs that have begun
	changed chan struct{}  // signals count
}

func newStarts(jobs int) *starts {
	return &starts{begun: make([]atomic.Int64, jobs), changed: make(chan struct{}, 1)}
}

// note is the first line of a handler.
func (s *starts) note(m *listener.Message[job]) error {
	at, n := now(), m.Body.Number
	if n < 0 || n >= len(s.begun) {
		return listener.Poison(fmt.Errorf("there is no job %d: %d are sent", n, len(s.begun)))
	}
	if s.begun[n].CompareAndSwap(0, int64(at)) { // otherwise it came twice
		s.count.Add(1)
		waiting.Signal(s.changed, struct{}{})
	}
	return nil
}

// drain is how long the last jobs may take.
const drain = 30 * time.Second

// await waits until so many jobs have begun, and returns when each did.
func (s *starts) await(ctx context.Context, n int, ended <-chan struct{}) ([]instant, error) {
	ctx, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	for s.count.Load() < int64(n) {
		select {
		case <-s.changed:
		case <-ended:
			return nil, errors.New("the listener has ended")
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d jobs were handled: %w", s.count.Load(), n, ctx.Err())
		}
	}
	all := make([]instant, len(s.begun))
	for i := range all {
		all[i] = instant(s.begun[i].Load())
	}
	return all, nil
}

// waited is how long jobs took, in all rounds.
type waited struct {
	waits []time.Duration // from the return of Send to the first line of the handler
	late  []time.Duration // from when it was due to the call of Send
}

// add sends messages of so many jobs and waits until these have begun. Before that it sends others, which open the
// connections, and calls prepare. The starts are those of all.
func (w *waited) add(ctx context.Context, one func(ctx context.Context, n int) error, perMessage int, warmUp, due []time.Duration, starts func(context.Context, int) ([]instant, error), prepare func() error) error {
	if _, err := send(ctx, one, 0, warmUp); err != nil {
		return err
	}
	if _, err := starts(ctx, len(warmUp)*perMessage); err != nil {
		return err
	}
	if err := prepare(); err != nil {
		return err
	}
	sent, err := send(ctx, one, len(warmUp), due)
	if err != nil {
		return err
	}
	begun, err := starts(ctx, (len(warmUp)+len(due))*perMessage)
	if err != nil {
		return err
	}
	for i, at := range begun[len(warmUp)*perMessage:] {
		w.waits = append(w.waits, time.Duration(at-sent.returned[i/perMessage]))
	}
	w.late = append(w.late, sent.late...)
	slices.Sort(w.waits)
	slices.Sort(w.late)
	return nil
}

// listening is a group of listeners that run.
type listening struct {
	cancel  context.CancelFunc
	ended   chan struct{} // closed when they have ended
	failed  chan error    // the first error of one
	failure error         // of Run; written before ended is closed
	closing closers
}

// start runs listeners and waits until they are ready.
func (l *listening) start(ctx context.Context, run func(context.Context) error, ready func() bool) error {
	ctx, l.cancel = context.WithCancel(ctx)
	l.ended = make(chan struct{})
	go func() {
		defer close(l.ended)
		l.failure = run(ctx)
	}()
	for !ready() {
		if !waiting.For(time.Millisecond, l.ended) {
			return errors.Join(errors.New("the listeners have ended"), l.failure)
		}
	}
	return nil
}

// fail notes the first error.
func (l *listening) fail(err error) { waiting.Signal(l.failed, err) }

// stop ends the listeners, if they were started, and closes what they use.
func (l *listening) stop() error {
	if l.cancel != nil {
		l.cancel()
		<-l.ended
	}
	select {
	case err := <-l.failed:
		l.failure = errors.Join(l.failure, err)
	default:
	}
	return errors.Join(l.failure, l.closing.close())
}
