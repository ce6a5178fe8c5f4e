package simulation

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// yield lets all other events of this instant happen before the caller goes on. A loop calls it,
// through its hooks, after it has started a batch and changed the number of loops: which slots are
// then free does not depend on the scheduler.
func yield() { time.Sleep(time.Nanosecond) }

// steps is a logger that holds up the loops of a listener. A new one is held up for longer than the steps of others
// are apart, so that those that go on at the same instant come first.
type steps struct{ slog.Handler }

func (steps) Enabled(_ context.Context, l slog.Level) bool { return l == slog.LevelDebug }

func (steps) Handle(_ context.Context, r slog.Record) error {
	switch r.Message {
	case "loop started":
		time.Sleep(3 * time.Nanosecond)
	case "batch received":
		yield()
	}
	return nil
}

// tardy makes calls whose context has ended return at different instants. The messages of one dequeue
// have one lease, so the waits for their settlements end together, and their slots would be free at
// one instant: how many of them a waiting loop gets would be a race.
type tardy struct {
	queue.Queue
	process *process
}

func (q tardy) Sibling(suffix string) queue.Queue { return tardy{q.Queue.Sibling(suffix), q.process} }

// EmptyAfter has the workers end their loops at short batches, as on a queue without wrappers.
func (q tardy) EmptyAfter() int { return driver.EmptyAfter(q.Queue) }

func (q tardy) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	// The messages of one dequeue that no handler can run for are copied at one instant. The poison
	// queue would number the copies, and be created, in any order.
	time.Sleep(q.process.world.plan.dice.within(1, time.Millisecond, "copy", withoutPlace(text), q.process.plan.name))
	defer q.linger(ctx, "enqueue", text)
	return q.Queue.Enqueue(ctx, text, o)
}

func (q tardy) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	defer q.linger(ctx, "update", string(l.ID))
	return q.Queue.Update(ctx, l, text, visibility)
}

func (q tardy) Delete(ctx context.Context, l queue.Lease) error {
	defer q.linger(ctx, "delete", string(l.ID))
	return q.Queue.Delete(ctx, l)
}

func (q tardy) linger(ctx context.Context, about ...string) {
	if ctx.Err() != nil {
		time.Sleep(q.process.world.plan.dice.within(1, time.Millisecond, append(about, q.process.plan.name)...))
	}
}

// thaw waits while the process is frozen. Its calls are sent and answered afterwards, and its handlers go on, when its leases may
// be lost. Its timers do not wait.
func (p *process) thaw() {
	if now, s := p.world.now(), p.plan.frozen; now >= s.from && now < s.end() {
		time.Sleep(s.end() - now)
	}
}

// freezing is the queue of a process that may be frozen.
type freezing struct {
	queue.Queue
	process *process
}

func (q freezing) EmptyAfter() int { return driver.EmptyAfter(q.Queue) }

func (q freezing) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	q.process.thaw()
	defer q.process.thaw()
	return q.Queue.Dequeue(ctx, n, visibility)
}

func (q freezing) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	q.process.thaw()
	defer q.process.thaw()
	return q.Queue.Update(ctx, l, text, visibility)
}

func (q freezing) Delete(ctx context.Context, l queue.Lease) error {
	q.process.thaw()
	defer q.process.thaw()
	return q.Queue.Delete(ctx, l)
}

// staggered makes every dequeue happen at a different instant. When slots become free for two loops
// at once, they would poll at the same instant, and the scheduler would decide which of them gets
// which response. Other calls are about a message, or one at a time, so that the fault queue can
// distinguish them.
type staggered struct {
	queue.Queue
	process *process

	mu    sync.Mutex
	loops map[string]*loopCalls // by goroutine; guarded by mu
	fresh map[string]int        // loops by their names, those of the same instant apart; guarded by mu
}

// loopCalls counts the dequeues of a loop.
type loopCalls struct {
	name     string
	dequeues int
}

func (q *staggered) EmptyAfter() int { return driver.EmptyAfter(q.Queue) }

func (q *staggered) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	t := q.turn(n)
	time.Sleep(q.process.world.plan.dice.within(1, time.Millisecond, q.process.plan.name, "stagger", t.name, str(t.dequeues)))
	return q.Queue.Dequeue(ctx, n, visibility)
}

// turn returns which loop calls, and how often it did. Loops are named after their first call. If
// several first ask for the same number at the same instant, any may be the first, because nothing
// else distinguishes them.
func (q *staggered) turn(n int) loopCalls {
	id := ""
	if q.process.plan.severalLoops() {
		var stack [64]byte
		id, _, _ = strings.Cut(string(stack[:runtime.Stack(stack[:], false)]), "[")
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.loops[id]
	if t == nil {
		name := q.process.world.now().String() + " for " + str(n)
		t = &loopCalls{name: name + ", " + str(q.fresh[name])}
		q.loops[id] = t
		q.fresh[name]++
	}
	t.dequeues++
	return *t
}
