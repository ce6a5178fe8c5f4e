package agent_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
)

// workers are an actuator whose instances are listeners in this process.
type workers struct {
	t       testing.TB
	jobs    queue.Queue
	beacon  listener.BeaconOptions
	slots   int           // of one instance
	takes   time.Duration // one job
	startup time.Duration // from being asked for to the first job

	mu      sync.Mutex
	running []context.CancelFunc // guarded by mu
	started int                  // guarded by mu
	asked   []int                // guarded by mu
	ended   map[string]int       // guarded by mu: jobs by how often they were handled
	slowest time.Duration        // guarded by mu: from arrival to end
	all     sync.WaitGroup
}

// Instances implements [agent.Actuator].
func (w *workers) Instances(context.Context) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.running), nil
}

// Scale implements [agent.Actuator].
func (w *workers) Scale(_ context.Context, n int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, n)
	for len(w.running) < n {
		ctx, stop := context.WithCancel(context.Background())
		w.running = append(w.running, stop)
		w.started++
		name := fmt.Sprint("instance ", w.started)
		w.all.Go(func() { w.instance(ctx, name) })
	}
	for len(w.running) > n {
		last := len(w.running) - 1
		w.running[last]()
		w.running = w.running[:last]
	}
	return nil
}

// instance is one instance until it is told to end.
func (w *workers) instance(ctx context.Context, name string) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(w.startup):
	}
	reports := w.beacon
	if reports.Queue != nil {
		reports.Instance = name
	}
	l := listener.New(w.jobs, w.handle, &listener.Options[string]{
		Concurrency: w.slots, Beacon: reports, Logger: silent,
	})
	if err := l.Run(ctx); err != nil {
		w.t.Errorf("%s: %v", name, err)
	}
}

// handle handles a job, whose body is when it came.
func (w *workers) handle(ctx context.Context, m *listener.Message[string]) error {
	select {
	case <-time.After(w.takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	came, err := strconv.ParseInt(m.Body[:19], 10, 64)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended[m.Body]++
	w.slowest = max(w.slowest, time.Since(time.Unix(0, came)))
	return nil
}

// send sends n jobs.
func (w *workers) send(n int) {
	w.t.Helper()
	for i := range n {
		text := fmt.Sprintf(`"%019d %d"`, time.Now().UnixNano(), i)
		if _, err := w.jobs.Enqueue(context.Background(), text, nil); err != nil {
			w.t.Fatal(err)
		}
	}
}

// count returns how many instances there are.
func (w *workers) count() int {
	n, _ := w.Instances(context.Background())
	return n
}

// calls returns what Scale was called with.
func (w *workers) calls() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]int(nil), w.asked...)
}

// done returns how many jobs have ended, how many more than once, and how long the slowest took since the last call.
func (w *workers) done() (jobs, twice int, slowest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.ended {
		jobs++
		if n > 1 {
			twice++
		}
	}
	slowest, w.slowest = w.slowest, 0
	return jobs, twice, slowest
}

// end ends all instances.
func (w *workers) end() {
	_ = w.Scale(context.Background(), 0)
	w.all.Wait()
}
