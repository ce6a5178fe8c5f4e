package agent_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling/agent"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// created returns a new queue of an engine.
func created(t testing.TB, e *localqueue.Engine, name string) queue.Manager {
	t.Helper()
	q := e.Queue(queue.Name{Account: "test", Queue: name})
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return q
}

// fill puts n messages into a queue.
func fill(t testing.TB, q queue.Queue, n int) {
	t.Helper()
	for i := range n {
		if _, err := q.Enqueue(t.Context(), fmt.Sprintf(`"job %d"`, i), nil); err != nil {
			t.Fatal(err)
		}
	}
}

// take deletes up to n messages, as workers do that report nothing.
func take(t testing.TB, q queue.Queue, n int) {
	t.Helper()
	for n > 0 {
		batch, err := q.Dequeue(t.Context(), min(n, queue.MaxBatch), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if len(batch) == 0 {
			return
		}
		for _, m := range batch {
			if err := q.Delete(t.Context(), m.Lease); err != nil {
				t.Fatal(err)
			}
		}
		n -= len(batch)
	}
}

// platform is an actuator that has a number and does what its hooks say.
type platform struct {
	mu    sync.Mutex
	n     int   // guarded by mu
	asked []int // guarded by mu: what Scale was called with

	instances func(ctx context.Context, n int) (int, error) // guarded by mu; nil: returns n
	scale     func(ctx context.Context, n int) error        // guarded by mu; nil: sets n
}

func (p *platform) Instances(ctx context.Context) (int, error) {
	p.mu.Lock()
	n, f := p.n, p.instances
	p.mu.Unlock()
	if f != nil {
		return f(ctx, n)
	}
	return n, nil
}

func (p *platform) Scale(ctx context.Context, n int) error {
	p.mu.Lock()
	p.asked = append(p.asked, n)
	f := p.scale
	p.mu.Unlock()
	if f != nil {
		return f(ctx, n)
	}
	p.set(n)
	return nil
}

func (p *platform) set(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n = n
}

// mend makes it work from now on.
func (p *platform) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.instances, p.scale = nil, nil
}

func (p *platform) get() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// calls returns what Scale was called with.
func (p *platform) calls() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

// notes collects decisions and errors of an agent.
type notes struct {
	mu        sync.Mutex
	decisions []agent.Decided // guarded by mu
	errs      []error         // guarded by mu
}

func (n *notes) decided(d agent.Decided) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.decisions = append(n.decisions, d)
}

func (n *notes) failed(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.errs = append(n.errs, err)
}

// errors returns the errors that came since the last call.
func (n *notes) errors() []error {
	n.mu.Lock()
	defer n.mu.Unlock()
	errs := n.errs
	n.errs = nil
	return errs
}

// of returns the decisions about one pool.
func (n *notes) of(pool string) (all []agent.Decided) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range n.decisions {
		if d.Pool == pool {
			all = append(all, d)
		}
	}
	return all
}

// changes returns the decisions about one pool that changed something.
func (n *notes) changes(pool string) (changes []agent.Decided) {
	for _, d := range n.of(pool) {
		if d.Changes() {
			changes = append(changes, d)
		}
	}
	return changes
}

// logText is a log that can be read while it is written.
type logText struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

var silent = slog.New(slog.DiscardHandler)

// running is an agent that runs.
type running struct {
	*notes
	agent *agent.Agent
	kill  context.CancelFunc
	done  chan error
}

// start starts an agent. The options may lack hooks and logger.
func start(t testing.TB, o agent.Options, pools ...agent.Pool) *running {
	t.Helper()
	r := &running{notes: &notes{}, done: make(chan error, 1)}
	o.OnDecision, o.OnError = r.decided, r.failed
	if o.Logger == nil {
		o.Logger = silent
	}
	a, err := agent.New(pools, &o)
	if err != nil {
		t.Fatal(err)
	}
	r.agent = a
	ctx, cancel := context.WithCancel(context.Background())
	r.kill = cancel
	go func() { r.done <- a.Run(ctx) }()
	t.Cleanup(cancel)
	return r
}

// stop stops the agent and returns what Run returned.
func (r *running) stop() error {
	r.kill()
	return <-r.done
}

// after waits.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var errBroken = errors.New("it is broken")

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
