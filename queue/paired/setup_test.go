package paired_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/paired"
)

// bundle is a queue that is paired, and the two accounts.
type bundle struct {
	*testing.T
	west, east *region // the primary and the secondary account
	queue      *paired.Queue
	log        *logLines
	ctx        context.Context
}

// setup pairs "orders" in west with backlog queues in east.
func setup(t *testing.T, o paired.Options) *bundle {
	t.Helper()
	b := unpaired(t, o)
	b.ok(b.queue.Pair(b.ctx))
	return b
}

func unpaired(t *testing.T, o paired.Options) *bundle {
	t.Helper()
	b := &bundle{T: t, west: newRegion("west"), east: newRegion("east"), log: &logLines{}, ctx: t.Context()}
	if o.Logger == nil {
		o.Logger = slog.New(b.log)
	}
	b.ok(b.west.queue("orders").Create(b.ctx, nil))
	b.queue = must(paired.New(b.west.queue("orders"), b.east.queue("orders"), &o))
	t.Cleanup(func() { _ = b.queue.Close() })
	return b
}

func (b *bundle) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// send sends one message and returns the account that has it, or the error.
func (b *bundle) send(text string) string {
	b.Helper()
	m, err := b.queue.Enqueue(b.ctx, text, nil)
	if err != nil {
		return err.Error()
	}
	return m.Queue.Account
}

// sends checks where a message goes.
func (b *bundle) sends(text, account string) {
	b.Helper()
	if got := b.send(text); got != account {
		b.Errorf("%s went to %q, want %q", text, got, account)
	}
}

// fails checks that a send fails as the primary queue said.
func (b *bundle) fails(text string) {
	b.Helper()
	if m, err := b.queue.Enqueue(b.ctx, text, nil); err == nil {
		b.Errorf("%s went to %v, want an error", text, m.Queue)
	}
}

// is checks the status.
func (b *bundle) is(want paired.Status) {
	b.Helper()
	synctest.Wait() // for what happens at this instant
	if got := b.queue.State().Status; got != want {
		b.Errorf("status: got %v, want %v", got, want)
	}
}

// failOver lets the queue fail over, with a primary queue that stays unavailable.
func (b *bundle) failOver() {
	b.Helper()
	b.west.fault("orders", fault{err: unavailable})
	for range 1000 {
		if b.send("outage") == "east" {
			b.is(paired.FailedOver)
			return
		}
		time.Sleep(time.Second)
	}
	b.Fatal("the queue does not fail over")
}

// texts returns the messages of an account that are visible, sorted; those of backlog queues without record.
func (b *bundle) texts(r *region) (all []string) {
	b.Helper()
	for _, name := range r.names() {
		batch, err := r.open(name).Peek(context.Background(), queue.MaxBatch)
		if err != nil {
			b.Fatal(err)
		}
		for _, m := range batch {
			text := m.Text
			if _, after, isRecord := strings.Cut(text, "\n"); isRecord && strings.HasPrefix(text, "backlog/2 ") {
				text = after
			}
			all = append(all, text)
		}
	}
	slices.Sort(all)
	return all
}

// The answers of a region with a fault.
var (
	unavailable  = &queue.Error{Kind: queue.ErrUnavailable, Status: 500}
	unknown      = &queue.Error{Kind: queue.ErrOutcomeUnknown, Detail: "no response"}
	throttled    = &queue.Error{Kind: queue.ErrThrottled, Status: 503}
	unauthorized = &queue.Error{Kind: queue.ErrUnauthorized, Status: 403}
)

// fault is what a region does with sends, and with other requests if all is set.
type fault struct {
	err   error
	acts  bool          // whether the message is there in spite of err
	takes time.Duration // before it answers
	hangs bool          // it answers never, and the client gives up as azurequeue does
	all   bool
	reads error // of the other requests, unless all is set
}

// region is an account whose queues may fail. Create one in the bubble that uses it.
type region struct {
	name   string
	engine *localqueue.Engine

	mu     sync.Mutex
	faults map[string]fault // by queue, "" for all queues; guarded by mu
	calls  map[string]int   // by operation and queue, such as "send orders"; guarded by mu
	opened map[string]bool  // guarded by mu
}

func newRegion(name string) *region {
	return &region{name: name, engine: must(localqueue.New(nil)), faults: map[string]fault{}, calls: map[string]int{}, opened: map[string]bool{}}
}

// open returns the queue without faults.
func (r *region) open(name string) queue.Manager {
	return r.engine.Queue(queue.Name{Account: r.name, Queue: name})
}

// queue returns the queue with faults.
func (r *region) queue(name string) queue.Queue {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened[name] = true
	return &faulty{Manager: r.open(name), region: r, name: name}
}

// names returns the queues that exist.
func (r *region) names() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(r.opened)) {
		if _, err := r.open(name).Properties(context.Background()); err == nil {
			all = append(all, name)
		}
	}
	return all
}

// fault sets the fault of a queue, "" for all of them; the zero fault ends it.
func (r *region) fault(name string, f fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults[name] = f
}

// called returns how often an operation was called, on one queue or on all, and forgets it.
func (r *region) called(op string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for call, times := range r.calls {
		if strings.HasPrefix(call, op) {
			n += times
			delete(r.calls, call)
		}
	}
	return n
}

// meet counts a call and returns its fault.
func (r *region) meet(op, name string) fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[op+" "+name]++
	f := r.faults[""]
	if one := r.faults[name]; one != (fault{}) {
		f = one
	}
	if op != "send" && !f.all {
		return fault{err: f.reads}
	}
	return f
}

// faulty is a queue of a region.
type faulty struct {
	queue.Manager
	region *region
	name   string
}

func (q *faulty) Sibling(suffix string) queue.Queue { return q.region.queue(q.name + suffix) }

func (q *faulty) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	f := q.region.meet("send", q.name)
	if err := q.wait(ctx, f); err != nil {
		if f.acts {
			_, _ = q.Manager.Enqueue(context.WithoutCancel(ctx), text, o)
		}
		return queue.Message{}, err
	}
	m, err := q.Manager.Enqueue(ctx, text, o)
	if f.err != nil {
		return queue.Message{}, err
	}
	return m, err
}

func (q *faulty) Properties(ctx context.Context) (queue.Properties, error) {
	if err := q.wait(ctx, q.region.meet("properties", q.name)); err != nil {
		return queue.Properties{}, err
	}
	return q.Manager.Properties(ctx)
}

func (q *faulty) Create(ctx context.Context, metadata map[string]string) error {
	if err := q.wait(ctx, q.region.meet("create", q.name)); err != nil {
		return err
	}
	return q.Manager.Create(ctx, metadata)
}

func (q *faulty) Delete(ctx context.Context, l queue.Lease) error {
	if err := q.wait(ctx, q.region.meet("delete", q.name)); err != nil {
		return err
	}
	return q.Manager.Delete(ctx, l)
}

func (q *faulty) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	if err := q.wait(ctx, q.region.meet("dequeue", q.name)); err != nil {
		return nil, err
	}
	return q.Manager.Dequeue(ctx, n, visibility)
}

func (q *faulty) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	if err := q.wait(ctx, q.region.meet("update", q.name)); err != nil {
		return queue.Lease{}, err
	}
	return q.Manager.Update(ctx, l, text, visibility)
}

// wait returns the error of the fault when its time is over.
func (q *faulty) wait(ctx context.Context, f fault) error {
	if f.hangs {
		f.err, f.takes = unknown, 10*time.Second<<min(request.Repeats(ctx), 2)
	}
	if f.takes > 0 {
		select {
		case <-time.After(f.takes):
		case <-ctx.Done():
			return &queue.Error{Op: "enqueue", Queue: q.Name(), Kind: queue.ErrOutcomeUnknown, Err: ctx.Err()}
		}
	}
	return f.err
}

// logLines is a [slog.Handler] that keeps level and message of each line.
type logLines struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

func (l *logLines) Enabled(context.Context, slog.Level) bool { return true }
func (l *logLines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logLines) WithGroup(string) slog.Handler            { return l }
func (l *logLines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf("%v %s", r.Level, r.Message))
	return nil
}

func (l *logLines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// bubble runs a test with simulated time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
