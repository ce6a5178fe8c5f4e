package simulation

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
)

// breathe lets all that happens at this instant happen before what its caller does next.
// A loop calls it, through its hooks, after it has handed over a batch and has changed how
// many loops there are: which slots are free then does not depend on who is quicker.
func breathe() { time.Sleep(time.Nanosecond) }

// staggered gives every dequeue an instant of its own. When slots become free for two
// loops at once they would ask at the same instant, and which of them got which answer
// would depend on the scheduler. All other calls are about a message, or are one at a time,
// and the fault queue tells them apart.
type staggered struct {
	queue.Queue
	process *process

	mu    sync.Mutex
	loops map[string]*turns // by goroutine; guarded by mu
	fresh map[string]int    // loops by their names, those of the same instant apart; guarded by mu
}

// turns is a loop as its queue sees it.
type turns struct {
	name     string
	dequeues int
}

func (q *staggered) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	t := q.turn(n)
	time.Sleep(q.process.world.plan.dice.within(1, time.Millisecond, q.process.plan.name, "stagger", t.name, str(t.dequeues)))
	return q.Queue.Dequeue(ctx, n, visibility)
}

// turn tells which loop calls, and how often it did. Loops are named after their first call.
// Of those that first ask for the same at the same instant any may be the first: there is
// nothing else that tells them apart.
func (q *staggered) turn(n int) turns {
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
		t = &turns{name: name + ", " + str(q.fresh[name])}
		q.loops[id] = t
		q.fresh[name]++
	}
	t.dequeues++
	return *t
}
