package roles

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/millrace/millrace/table"
)

// flaky is a table behind a network that loses requests and answers, and delivers some late, as its seed says.
type flaky struct {
	table.Store
	network *network
}

// network is what several tables are behind.
type network struct {
	rate float64 // of requests that have a fault
	late sync.WaitGroup

	mu     sync.Mutex
	random *rand.Rand // guarded by mu
	calm   bool       // no more faults; guarded by mu
	seen   map[string]int
}

func newNetwork(seed uint64, rate float64) *network {
	return &network{rate: rate, random: rand.New(rand.NewPCG(seed, 1)), seen: map[string]int{}}
}

func (n *network) becomeCalm() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calm = true
}

// lateBy is how late a request arrives at most. With it, a post arrives before the second deletion.
const lateBy = 20 * time.Second

// draw returns what becomes of a request, and a time for it to take.
func (n *network) draw(op string) (fault string, delay time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delay = time.Duration(n.random.Int64N(int64(200 * time.Millisecond)))
	if n.calm || n.random.Float64() >= n.rate {
		return "", delay
	}
	fault = []string{"lost request", "lost answer", "slow", "late"}[n.random.IntN(4)]
	n.seen[fault+" "+op]++
	switch fault {
	case "slow":
		delay = time.Duration(n.random.Int64N(int64(40 * time.Second)))
	case "late":
		delay = time.Duration(n.random.Int64N(int64(lateBy)))
	}
	return fault, delay
}

var errLost = &table.Error{Kind: table.ErrUnavailable, Detail: "the network lost it"}

// call sends a request over the network.
func call[T any](ctx context.Context, f flaky, op string, act func(context.Context) (T, error)) (result T, _ error) {
	n := f.network
	fault, delay := n.draw(op)
	if fault == "late" {
		n.late.Go(func() {
			time.Sleep(delay)
			_, _ = act(context.WithoutCancel(ctx)) // nobody waits for it
		})
		return result, errLost
	}
	wait := time.NewTimer(delay)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return result, context.Cause(ctx)
	}
	switch fault {
	case "lost request":
		return result, errLost
	case "lost answer":
		_, _ = act(ctx)
		return result, errLost
	}
	return act(ctx)
}

func (f flaky) Get(ctx context.Context, k table.Key) (table.Entity, error) {
	return call(ctx, f, "get", func(ctx context.Context) (table.Entity, error) { return f.Store.Get(ctx, k) })
}

func (f flaky) Query(ctx context.Context, q table.Query) (table.Page, error) {
	return call(ctx, f, "query", func(ctx context.Context) (table.Page, error) { return f.Store.Query(ctx, q) })
}

func (f flaky) Insert(ctx context.Context, e table.Entity) (table.ETag, error) {
	return call(ctx, f, "insert", func(ctx context.Context) (table.ETag, error) { return f.Store.Insert(ctx, e) })
}

func (f flaky) Update(ctx context.Context, e table.Entity) (table.ETag, error) {
	return call(ctx, f, "update", func(ctx context.Context) (table.ETag, error) { return f.Store.Update(ctx, e) })
}

func (f flaky) Delete(ctx context.Context, k table.Key, etag table.ETag) error {
	_, err := call(ctx, f, "delete", func(ctx context.Context) (struct{}, error) { return struct{}{}, f.Store.Delete(ctx, k, etag) })
	return err
}

func (f flaky) Apply(ctx context.Context, changes []table.Change) ([]table.ETag, error) {
	return call(ctx, f, "apply", func(ctx context.Context) ([]table.ETag, error) { return f.Store.Apply(ctx, changes) })
}
