package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/localqueue/filequeue"
	"golang.org/x/sync/errgroup"
)

// growth measures how figures change as one thing grows: the messages that wait in a queue, the queues of a process, the
// slots of a listener. Each size has a process of its own, with the embedded engine, and the sizes take turns.
type growth struct {
	turns
	messages, queues, slots []int
	window, quiet           time.Duration
	size                    int
}

func (g *growth) flags(f *flag.FlagSet) {
	g.turns.flags(f)
	several(f, &g.messages, []int{1_000, 1_000_000, 2_000_000, 5_000_000}, positive, "messages", "how many messages wait in a queue")
	several(f, &g.queues, []int{10, 100, 1_000, 10_000}, positive, "queues", "how many queues a process listens to, with a listener each")
	several(f, &g.slots, []int{16, 256, 4_096, 20_000, 100_000}, positive, "handlers", "how many handlers of a listener run at once")
	one(f, &g.window, time.Second, lasting, "for", "how long each figure is measured, at least")
	one(f, &g.quiet, 35*time.Second, orNothing, "quiet", "how long queues are idle before that is measured: until then listeners watch their rates")
	one(f, &g.size, 128, between(1, 48<<10, positive), "size", "bytes of a message")
}

func (g *growth) check() error { return nil }

// curve is a table, with a row for each size.
type curve struct {
	name, grows string
	figures     []figure
	sizes       func(*growth) []int
	start       func(growthOrder) (once func() ([]float64, error), err error)
}

// figure is a column.
type figure struct {
	name   string
	format string
	less   bool // is better
}

// unknown is a figure that a round did not measure.
var unknown = math.NaN()

var curves = []curve{
	{
		name: "memory", grows: "messages waiting, in memory",
		figures: []figure{{"enqueued a second", "%.0f", false}, {"dequeued and deleted a second", "%.0f", false}, {"bytes of memory a message", "%.0f", true}},
		sizes:   func(g *growth) []int { return g.messages }, start: startBacklog,
	},
	{
		name: "disk", grows: "messages waiting, on disk",
		figures: []figure{{"enqueued a second", "%.0f", false}, {"dequeued and deleted a second", "%.0f", false}, {"bytes of memory a message", "%.0f", true}, {"µs to open, a message", "%.2f", true}},
		sizes:   func(g *growth) []int { return g.messages }, start: startBacklog,
	},
	{
		name: "queues", grows: "queues",
		figures: []figure{
			{"goroutines of an idle queue", "%.1f", true}, {"bytes of memory of it", "%.0f", true}, {"its requests, of those due", "%.2f", true},
			{"allocations a request", "%.0f", true}, {"jobs a second, if all have some", "%.0f", false},
		},
		sizes: func(g *growth) []int { return g.queues }, start: startQueues,
	},
	{
		name: "handlers", grows: "handlers",
		figures: []figure{
			{"jobs a second", "%.0f", false}, {"of the ideal", "%.2f", false},
			{"bytes of memory a handler", "%.0f", true}, {"goroutines a handler", "%.1f", true},
		},
		sizes: func(g *growth) []int { return g.slots }, start: startSlots,
	},
}

// growthTurn is a size of a curve.
type growthTurn struct {
	of     curve
	size   int
	child  *child
	rounds [][]float64
}

func (t *growthTurn) String() string { return fmt.Sprintf("%d %s", t.size, t.of.grows) }

func (g *growth) run(ctx context.Context, h *harness) (*report, error) {
	r := &report{head: h.machine + ".\n\n"}
	for i, c := range curves {
		all, err := g.measure(ctx, h, c)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			r.table += "\n"
		}
		r.table += growthTable(c, all)
	}
	return r, nil
}

// measure measures all sizes of a curve.
func (g *growth) measure(ctx context.Context, h *harness, c curve) (all []*growthTurn, err error) {
	defer func() {
		for _, t := range all {
			err = errors.Join(err, t.child.stop())
		}
	}()
	for _, size := range ascending(slices.Clone(c.sizes(g))) {
		dir, err := h.folder(c.name)
		if err != nil {
			return nil, err
		}
		t := &growthTurn{of: c, size: size}
		h.say("prepare %v", t)
		o := growthOrder{Curve: c.name, Dir: dir, Size: size, TextBytes: g.size, Window: g.window, Quiet: g.quiet}
		if t.child, err = startChild(ctx, "growth", o, nil); err != nil {
			return all, fmt.Errorf("%v: %w", t, err)
		}
		all = append(all, t)
	}
	return all, takeTurns(ctx, h, g.rounds, all, func(t *growthTurn, _ int) error {
		var figures []*float64
		err := t.child.ask(struct{}{}, &figures)
		round := make([]float64, len(c.figures))
		for i := range figures {
			if round[i] = unknown; figures[i] != nil {
				round[i] = *figures[i]
			}
		}
		t.rounds = append(t.rounds, round)
		return err
	})
}

// median returns the median of a figure.
func (t *growthTurn) median(i int) float64 {
	var all []float64
	for _, round := range t.rounds {
		if !math.IsNaN(round[i]) {
			all = append(all, round[i])
		}
	}
	return median(all)
}

// bend is what a figure may differ from that of the smallest size, for the better or the worse, and still be flat.
const bend = 1.3

// growthTable returns a curve as Markdown. Ratios are to the smallest size.
func growthTable(c curve, all []*growthTurn) string {
	var b, flat strings.Builder
	fmt.Fprintf(&b, "| %s |", c.grows)
	for _, f := range c.figures {
		fmt.Fprintf(&b, " %s | × |", f.name)
	}
	b.WriteString("\n|--:|" + strings.Repeat("--:|", 2*len(c.figures)) + "\n")
	for _, t := range all {
		fmt.Fprintf(&b, "| %d |", t.size)
		for i, f := range c.figures {
			fmt.Fprintf(&b, " "+f.format+" | %.2f |", t.median(i), t.median(i)/all[0].median(i))
		}
		b.WriteString("\n")
	}
	for i, f := range c.figures {
		until := all[0].size
		for _, t := range all {
			worse := t.median(i) / all[0].median(i)
			if !f.less {
				worse = 1 / worse
			}
			if worse <= bend {
				until = t.size
			}
		}
		if until < all[len(all)-1].size {
			fmt.Fprintf(&flat, "- **%s**: only up to %d.\n", f.name, until)
		}
	}
	if flat.Len() == 0 {
		return b.String() + fmt.Sprintf("\nEvery figure is flat: none is more than %.1f times worse than in the first row.\n", bend)
	}
	return b.String() + fmt.Sprintf("\nNo figure is more than %.1f times worse than in the first row, except:\n\n", bend) + flat.String()
}

// growthOrder says what a process holds.
type growthOrder struct {
	Curve     string
	Dir       string
	Size      int // messages, queues, or slots
	TextBytes int
	Window    time.Duration
	Quiet     time.Duration
}

// grow is the role of a process that holds one size of a curve. Each value after the first asks for a round.
func grow(first json.RawMessage) (any, answerer, error) {
	var o growthOrder
	if err := json.Unmarshal(first, &o); err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(curves, func(c curve) bool { return c.name == o.Curve })
	if i < 0 {
		return nil, nil, fmt.Errorf("unknown curve %q", o.Curve)
	}
	once, err := curves[i].start(o)
	if err != nil {
		return nil, nil, err
	}
	return nil, func(json.RawMessage) (any, error) {
		figures, err := once()
		known := make([]*float64, len(figures)) // JSON has no NaN
		for i := range figures {
			if !math.IsNaN(figures[i]) {
				known[i] = &figures[i]
			}
		}
		return known, err
	}, nil
}

// memory returns the bytes of memory that are in use, stacks included.
func memory() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

func mallocs() float64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.Mallocs)
}

// together calls a function until it returns false, from many goroutines.
func together(callers int, next func() (bool, error)) error {
	var all errgroup.Group
	for range callers {
		all.Go(func() error {
			for {
				if more, err := next(); err != nil || !more {
					return err
				}
			}
		})
	}
	return all.Wait()
}

func (o growthOrder) text() string { return strings.Repeat("x", o.TextBytes) }

// put enqueues n messages, each with a text of its own, or as many as fit into a window if n is 0. It returns how many.
func (o growthOrder) put(q queue.Queue, callers, n int) (int, error) {
	var put atomic.Int64
	text, begun := o.text(), time.Now()
	err := together(callers, func() (bool, error) {
		if i := put.Add(1); n > 0 && i > int64(n) || n == 0 && time.Since(begun) >= o.Window {
			put.Add(-1)
			return false, nil
		}
		_, err := q.Enqueue(context.Background(), strings.Clone(text), nil)
		return true, err
	})
	return int(put.Load()), err
}

// take dequeues and deletes at least n messages.
func take(q queue.Queue, callers, n int) (int, error) {
	var taken atomic.Int64
	err := together(callers, func() (bool, error) {
		batch, err := q.Dequeue(context.Background(), queue.MaxBatch, time.Hour)
		for _, m := range batch {
			err = errors.Join(err, q.Delete(context.Background(), m.Lease))
		}
		return taken.Add(int64(len(batch))) < int64(n) && len(batch) > 0, err
	})
	return int(taken.Load()), err
}

// startBacklog puts messages into a queue, which is opened again if it is on disk. A round puts messages and takes as
// many.
func startBacklog(o growthOrder) (func() ([]float64, error), error) {
	callers := 16
	ctx, name := context.Background(), queue.Name{Account: emulator.DevelopmentAccount, Queue: "growth"}
	before := memory()
	var q queue.Manager
	var opened time.Duration
	if o.Curve == "memory" {
		e, err := localqueue.New(nil)
		if err != nil {
			return nil, err
		}
		q = e.Queue(name)
		if err := q.Create(ctx, nil); err != nil {
			return nil, err
		}
		if _, err := o.put(q, callers, o.Size); err != nil {
			return nil, err
		}
	} else {
		callers = 64
		e, err := filequeue.Open(o.Dir, nil)
		if err != nil {
			return nil, err
		}
		q = e.Queue(name)
		if err := q.Create(ctx, nil); err != nil {
			return nil, err
		}
		if _, err := o.put(q, 4096, o.Size); err != nil {
			return nil, err
		}
		if err := e.Close(); err != nil {
			return nil, err
		}
		debug.FreeOSMemory()
		begun := time.Now()
		if e, err = filequeue.Open(o.Dir, nil); err != nil {
			return nil, err
		}
		q = e.Queue(name)
		if _, err := q.Properties(ctx); err != nil {
			return nil, err
		}
		opened = time.Since(begun)
	}
	perMessage := (memory() - before) / float64(o.Size)
	return func() ([]float64, error) {
		begun := time.Now()
		n, err := o.put(q, callers, 0)
		if err != nil {
			return nil, err
		}
		put := float64(n) / time.Since(begun).Seconds()
		begun = time.Now()
		n, err = take(q, callers, n)
		figures := []float64{put, float64(n) / time.Since(begun).Seconds(), perMessage}
		if o.Curve == "disk" {
			figures = append(figures, float64(opened.Microseconds())/float64(o.Size))
		}
		return figures, err
	}, nil
}

// plainTexts returns the options of a listener whose messages are plain texts.
func plainTexts(w *listening, e *localqueue.Engine) *listener.Options[[]byte] {
	return &listener.Options[[]byte]{
		Codec: codec.Bytes(), Wire: listener.WireOptions{Format: codec.Plain}, Wakeups: e,
		Grace: time.Millisecond, Logger: slog.New(slog.DiscardHandler), OnError: w.fail,
	}
}

// startQueues starts a listener for each of many queues. A round gives each its share of some jobs. The first one watches
// them before, while they are idle, with safety polls that are more frequent than by default.
func startQueues(o growthOrder) (func() ([]float64, error), error) {
	ctx := context.Background()
	e, err := localqueue.New(nil)
	if err != nil {
		return nil, err
	}
	var handled atomic.Int64
	w := &listening{failed: make(chan error, 1)}
	safetyPolls := 2 * o.Window
	before, goroutines := memory(), runtime.NumGoroutine()
	queues, listeners := make([]queue.Manager, o.Size), make([]*listener.Listener[[]byte], o.Size)
	for i := range queues {
		queues[i] = e.Queue(queue.Name{Account: emulator.DevelopmentAccount, Queue: fmt.Sprintf("growth-%d", i)})
		if err := queues[i].Create(ctx, nil); err != nil {
			return nil, err
		}
		options := plainTexts(w, e)
		options.Fetch.SafetyPoll = safetyPolls
		listeners[i] = listener.New(queues[i], func(context.Context, *listener.Message[[]byte]) error { handled.Add(1); return nil }, options)
	}
	err = w.start(ctx, func(ctx context.Context) error {
		var all sync.WaitGroup
		for _, l := range listeners {
			all.Go(func() {
				if err := l.Run(ctx); err != nil {
					w.fail(err)
				}
			})
		}
		all.Wait()
		return nil
	}, func() bool {
		return !slices.ContainsFunc(listeners, func(l *listener.Listener[[]byte]) bool { return !l.State().Ready() })
	})
	if err != nil {
		return nil, err
	}
	polls := func() (n int64) {
		for _, l := range listeners {
			n += l.State().Polls
		}
		return n
	}
	ready := time.Now()
	perQueue := func(n float64) float64 { return n / float64(o.Size) }
	jobs := max(20_000, o.Size)
	measured := false
	return func() ([]float64, error) {
		figures := []float64{unknown, unknown, unknown, unknown, unknown}
		if !measured {
			measured = true
			waiting.For(o.Quiet-time.Since(ready), nil)
			figures[0], figures[1] = perQueue(float64(runtime.NumGoroutine()-goroutines)), perQueue(memory()-before)
			polled, made := polls(), mallocs()
			waiting.For(2*safetyPolls, nil)
			polled, made = polls()-polled, mallocs()-made
			if figures[2] = perQueue(float64(polled)) / 2; polled > 0 {
				figures[3] = made / float64(polled)
			}
		}
		begun, from := time.Now(), handled.Load()
		var put atomic.Int64
		err := together(16, func() (bool, error) {
			i := put.Add(1) - 1
			if i >= int64(jobs) {
				return false, nil
			}
			_, err := queues[i%int64(o.Size)].Enqueue(ctx, o.text(), nil)
			return true, err
		})
		for err == nil && handled.Load()-from < int64(jobs) {
			select {
			case err = <-w.failed:
			default:
				waiting.For(time.Millisecond, nil)
			}
		}
		figures[4] = float64(jobs) / time.Since(begun).Seconds()
		return figures, err
	}, nil
}

// mostJobs is the most jobs a second that handlers allow: more of them take longer. It is what two processors manage.
const mostJobs = 20_000

// startSlots returns a round of a listener with many slots, whose handlers wait for 10 ms, or longer if their number would
// allow more jobs a second than mostJobs.
func startSlots(o growthOrder) (func() ([]float64, error), error) {
	takes := max(10*time.Millisecond, time.Duration(o.Size)*time.Second/mostJobs)
	most := float64(o.Size) / takes.Seconds()
	return func() (figures []float64, err error) {
		e, err := localqueue.New(nil)
		if err != nil {
			return nil, err
		}
		q := e.Queue(queue.Name{Account: emulator.DevelopmentAccount, Queue: "growth"})
		if err := q.Create(context.Background(), nil); err != nil {
			return nil, err
		}
		if _, err := o.put(q, 16, o.Size); err != nil {
			return nil, err
		}
		var begun, done atomic.Int64
		gate := make(chan struct{})
		w := &listening{failed: make(chan error, 1)}
		options := plainTexts(w, e)
		options.Concurrency = o.Size
		before, goroutines := memory(), runtime.NumGoroutine()
		l := listener.New(q, func(ctx context.Context, _ *listener.Message[[]byte]) error {
			wait := takes
			if n := begun.Add(1); n <= int64(o.Size) { // these begin together, and end evenly
				<-gate
				wait = time.Duration(n) * takes / time.Duration(o.Size)
			}
			waiting.For(wait, ctx.Done())
			done.Add(1)
			return context.Cause(ctx)
		}, options)
		open := sync.OnceFunc(func() { close(gate) })
		defer func() { open(); err = errors.Join(err, w.stop()) }()
		err = w.start(context.Background(), l.Run, func() bool { return begun.Load() >= int64(o.Size) })
		if err != nil {
			return nil, err
		}
		perSlot := func(n float64) float64 { return n / float64(o.Size) }
		goroutinesEach, memoryEach := perSlot(float64(runtime.NumGoroutine()-goroutines)), perSlot(memory()-before)
		window := max(o.Window, takes)
		if _, err := o.put(q, 16, o.Size+2*int(most*window.Seconds())); err != nil {
			return nil, err
		}
		from, at := done.Load(), time.Now()
		open()
		waiting.For(window, nil)
		rate := float64(done.Load()-from) / time.Since(at).Seconds()
		return []float64{rate, rate / most, memoryEach, goroutinesEach}, nil
	}, nil
}
