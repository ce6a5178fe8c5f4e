package dedupe_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/internal/killtest"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// faults are those of one process: each call is lost, or takes effect and its response is lost, or
// comes late, each with a probability. A process that is killed makes no further call.
type faults struct {
	seed string
	rate float64

	mu    sync.Mutex
	life  int            // calls until it is killed; math.MaxInt for never; guarded by mu
	calls map[string]int // by what is called on what, so that a seed repeats; guarded by mu
}

var errNoResponse error = &queue.Error{Kind: queue.ErrOutcomeUnknown}

// call makes a call with its fault. What takes effect may do so after a while.
func (f *faults) call(ctx context.Context, what string, act func(context.Context) error) error {
	f.mu.Lock()
	if f.calls == nil {
		f.calls = make(map[string]int)
	}
	f.calls[what]++
	n := f.calls[what]
	f.life--
	dead := f.life < 0
	f.mu.Unlock()
	draw := waiting.Jitter(f.seed+what, n)
	switch {
	case dead:
		return killtest.ErrKilled
	case draw < f.rate: // it never arrived
		return errNoResponse
	case draw < 2*f.rate: // its response is lost
		if err := act(ctx); err != nil {
			return err
		}
		return errNoResponse
	case draw < 3*f.rate && !strings.HasPrefix(what, "release "): // slow, until the context ends
		select {
		case <-time.After(time.Duration(15 * waiting.Jitter(f.seed+"wait"+what, n) * float64(time.Second))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return act(ctx)
}

// faultyQueue is the queue of a process with faults.
type faultyQueue struct {
	queue.Queue
	faults  *faults
	deleted func(queue.ID)
}

func (q *faultyQueue) Dequeue(ctx context.Context, n int, visibility time.Duration) (batch []queue.Message, err error) {
	err = q.faults.call(ctx, "dequeue", func(ctx context.Context) error { batch, err = q.Queue.Dequeue(ctx, n, visibility); return err })
	if err != nil {
		return nil, err
	}
	return batch, nil
}

func (q *faultyQueue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (fresh queue.Lease, err error) {
	err = q.faults.call(ctx, "update "+string(l.ID), func(ctx context.Context) error { fresh, err = q.Queue.Update(ctx, l, text, visibility); return err })
	return fresh, err
}

func (q *faultyQueue) Delete(ctx context.Context, l queue.Lease) error {
	return q.faults.call(ctx, "delete "+string(l.ID), func(ctx context.Context) error {
		q.deleted(l.ID)
		return q.Queue.Delete(ctx, l)
	})
}

// faultyStore is the store of a process with faults.
type faultyStore struct {
	blob.Store
	faults   *faults
	recorded func(key string) // called when a record has taken effect
}

func (s *faultyStore) Stat(ctx context.Context, ref blob.Ref) (info blob.Info, err error) {
	err = s.faults.call(ctx, "stat "+ref.Name, func(ctx context.Context) error { info, err = s.Store.Stat(ctx, ref); return err })
	return info, err
}

func (s *faultyStore) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	return s.faults.call(ctx, "create "+ref.Name, func(ctx context.Context) error { return s.Store.Create(ctx, ref, r, o) })
}

func (s *faultyStore) Delete(ctx context.Context, ref blob.Ref) error {
	// Not slow: a marker is looked at before it is deleted, and a message without one, because the store
	// did not answer it, may put its record in between. Its job is then handled again.
	return s.faults.call(ctx, "release "+ref.Name, func(ctx context.Context) error { return s.Store.Delete(ctx, ref) })
}

func (s *faultyStore) Put(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	return s.faults.call(ctx, "put "+ref.Name, func(ctx context.Context) error {
		key, err := io.ReadAll(r)
		if err == nil {
			err = s.Store.Put(ctx, ref, strings.NewReader(string(key)), o)
		}
		if err == nil && len(o.Metadata) == 0 { // a marker has some
			s.recorded(string(key))
		}
		return err
	})
}

// plan is a random history: jobs with several messages, and processes with faults.
type plan struct {
	copies      []int // messages of each job
	failures    []int // of each job, before it succeeds
	slow        []int // seconds that each job takes
	processes   []int // calls until each is killed; 0 for never
	seed        uint64
	rate        float64
	concurrency int
}

func drawPlan(rt *rapid.T) plan {
	jobs := rapid.IntRange(1, 6).Draw(rt, "jobs")
	each := func(what string, low, high int) []int {
		return rapid.SliceOfN(rapid.IntRange(low, high), jobs, jobs).Draw(rt, what)
	}
	return plan{
		copies: each("copies", 1, 3), failures: each("failures", 0, 2), slow: each("slow", 0, 12),
		processes:   rapid.SliceOfN(rapid.IntRange(0, 60), 1, 3).Draw(rt, "processes"),
		seed:        rapid.Uint64().Draw(rt, "seed"),
		rate:        float64(rapid.IntRange(0, 15).Draw(rt, "faults")) / 100,
		concurrency: rapid.IntRange(1, 3).Draw(rt, "concurrency"),
	}
}

// history is what happened.
type history struct {
	ledger
	recorded map[string]bool // keys whose record took effect; guarded by mu
	failed   map[string]int  // failures so far; guarded by mu
}

// Whatever is refused, lost, late or killed: no message is deleted before its job was handled, every job is
// handled, and one that was recorded is never handled again.
func TestNothingIsDeletedUnhandled(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt)
		var violations []string
		synctest.Test(t, func(t *testing.T) { violations = p.run(setup(t)) })
		if len(violations) > 0 {
			rt.Fatal(strings.Join(violations, "\n"))
		}
	})
}

// run runs the plan, then a process without faults, and then sends every job again.
func (p plan) run(b *bundle) []string {
	h := &history{
		ledger:   ledger{of: map[queue.ID]string{}, done: map[string]int{}},
		recorded: map[string]bool{}, failed: map[string]int{},
	}
	for i, n := range p.copies {
		for range n {
			h.of[b.send(fmt.Sprint(i), producer.SendOptions{JobID: fmt.Sprint(i), DedupeKey: fmt.Sprint(i)}).ID] = fmt.Sprint(i)
		}
	}
	var all sync.WaitGroup
	for i, calls := range p.processes {
		life := calls
		if life == 0 {
			life = math.MaxInt
		}
		f := &faults{seed: fmt.Sprint(p.seed, i), rate: p.rate, life: life}
		all.Go(func() { p.process(b, f, h, 10*time.Minute) })
	}
	all.Wait()
	sound := &faults{life: math.MaxInt}
	p.process(b, sound, h, time.Hour)
	for i := range p.copies {
		if h.done[fmt.Sprint(i)] == 0 {
			h.violations = append(h.violations, fmt.Sprintf("job %d was not handled", i))
		}
	}
	b.wantDepth(0)

	before, recorded := map[string]int{}, maps.Clone(h.recorded)
	for i := range p.copies {
		name := fmt.Sprint(i)
		before[name] = h.done[name]
		h.of[b.send(name, producer.SendOptions{JobID: name, DedupeKey: name}).ID] = name
	}
	p.process(b, sound, h, time.Hour)
	for name, n := range before {
		if again := h.done[name] - n; again > 0 && recorded["test/jobs?dedupe="+name] {
			h.violations = append(h.violations, fmt.Sprintf("job %s was recorded and handled again", name))
		}
	}
	b.wantDepth(0)
	return h.violations
}

// process runs a process with a shared guard for a while.
func (p plan) process(b *bundle, f *faults, h *history, d time.Duration) {
	work := *b
	work.queue = &faultyQueue{b.queue, f, h.deleted}
	work.store = &store{Store: &faultyStore{b.store.Store, f, func(key string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.recorded[key] = true
	}}}
	o, _ := options(work.shared(nil))
	o.Concurrency, o.Seed = p.concurrency, 1
	o.Poison = listener.PoisonPolicy{MaxAttempts: 1000, MaxLost: 1000} // nothing is moved
	work.run(o, func(ctx context.Context, m *listener.Message[job]) error { return p.handle(ctx, h, m.Body.Name) }, d)
}

func (p plan) handle(_ context.Context, h *history, name string) error {
	var i int
	if _, err := fmt.Sscan(name, &i); err != nil {
		return err
	}
	time.Sleep(time.Duration(p.slow[i]) * time.Second)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed[name] < p.failures[i] {
		h.failed[name]++
		return errors.New("broken")
	}
	h.done[name]++
	return nil
}
