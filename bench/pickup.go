package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/pool"
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

func pickupTurns() []*pickupTurn {
	return []*pickupTurn{{reserve: true}, {reserve: true, flood: true}, {}, {flood: true}}
}

func (p *pickup) run(ctx context.Context, h *harness) (*report, error) {
	s, err := startServer(serverOptions{})
	if err != nil {
		return nil, err
	}
	all := pickupTurns()
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
	w := &pickupWorker{
		pickup: p, pool: pool.New(&pool.Options{Slots: p.slots}), begun: newStarts(p.warmUp + len(due)),
		listening: listening{failed: make(chan error, 1)},
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	if err := w.startAll(ctx, location, t.reserve); err != nil {
		return err
	}
	starts := func(ctx context.Context, n int) ([]instant, error) { return w.begun.await(ctx, n, w.ended) }
	var flooding, before int64
	err = t.add(ctx, w.criticalSender, p.warmUp, due, starts, func() (err error) {
		if t.flood {
			flooding, err = w.flood(ctx)
		}
		before = w.heavy.State().Succeeded
		return err
	})
	after := w.heavy.State().Succeeded
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
	pool                        *pool.Pool
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
		Slots: w.pool.Member(&pool.MemberOptions{Name: name, Reserve: reserve}), Wakeups: bus, Grace: time.Millisecond,
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
	if _, err := w.heavySender.SendAll(ctx, slices.Values(jobs), nil); err != nil {
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
