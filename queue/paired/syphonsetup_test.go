package paired

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// regions are a primary queue in one account and its backlog queues in another.
type regions struct {
	home     queue.Queue
	backlogs []queue.Queue
}

func newRegions(t testing.TB, backlogs int) *regions {
	t.Helper()
	r := &regions{home: open(t, "west", "orders")}
	secondary := open(t, "east", "orders")
	for _, q := range backlogQueues(secondary, backlogs) {
		if err := q.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		r.backlogs = append(r.backlogs, q)
	}
	return r
}

func open(t testing.TB, account, name string) queue.Queue {
	t.Helper()
	q, err := must(localqueue.New(nil)).Account(account).Open(name)
	if err == nil {
		err = q.Create(t.Context(), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// divert puts n messages, "job-0" and so on, into the backlog queues in turn.
func (r *regions) divert(t testing.TB, n int) {
	t.Helper()
	for i := range n {
		r.put(t, i%len(r.backlogs), fmt.Sprintf("job-%d", i), nil)
	}
}

// put puts one message with these options into a backlog queue, as a sender does.
func (r *regions) put(t testing.TB, backlog int, text string, o *queue.EnqueueOptions) {
	t.Helper()
	rec, stored := record{primary: queue.Name{Account: "west", Queue: "orders"}}, &queue.EnqueueOptions{}
	if o != nil {
		rec.delay, stored.TTL = o.Delay, o.TTL
	}
	if _, err := r.backlogs[backlog].Enqueue(t.Context(), rec.seal(text), stored); err != nil {
		t.Fatal(err)
	}
}

// texts counts what the queue has, by text. It takes the messages for an hour.
func texts(t testing.TB, q queue.Queue) map[string]int {
	t.Helper()
	got := make(map[string]int)
	for {
		batch, err := q.Dequeue(context.Background(), queue.MaxBatch, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if len(batch) == 0 {
			return got
		}
		for _, m := range batch {
			got[m.Text]++
		}
	}
}

// jobs is what texts returns for n messages that were diverted and came home once.
func jobs(n int) map[string]int {
	want := make(map[string]int)
	for i := range n {
		want[fmt.Sprintf("job-%d", i)] = 1
	}
	return want
}

func depths(t testing.TB, qs ...queue.Queue) (n int64) {
	t.Helper()
	for _, q := range qs {
		p, err := q.Properties(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		n += p.Depth
	}
	return n
}

// running is a syphon that runs.
type running struct {
	*Syphon
	stop func() error // stops it, and returns what Run returned
	errs *errorList
}

// start runs a syphon until the end of the test.
func start(t *testing.T, home queue.Queue, backlogs []queue.Queue, o *SyphonOptions) *running {
	t.Helper()
	return startAll(t, []queue.Queue{home}, backlogs, o)
}

// startAll is start with several primary queues.
func startAll(t *testing.T, primaries, backlogs []queue.Queue, o *SyphonOptions) *running {
	t.Helper()
	if o == nil {
		o = &SyphonOptions{}
	}
	errs := &errorList{}
	if o.Seed == 0 {
		o.Seed = 1
	}
	o.OnError = errs.add
	r := &running{Syphon: must(newSyphon(primaries, backlogs, o)), errs: errs}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

type errorList struct {
	mu  sync.Mutex
	all []error // guarded by mu
}

func (e *errorList) add(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, err)
}

// matching returns how many errors match.
func (e *errorList) matching(target error) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, err := range e.all {
		if errors.Is(err, target) {
			n++
		}
	}
	return n
}

// containing returns how many errors contain the text.
func (e *errorList) containing(text string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, err := range e.all {
		if strings.Contains(err.Error(), text) {
			n++
		}
	}
	return n
}

// scripted is a queue whose calls a test answers before the queue does.
type scripted struct {
	queue.Queue
	onEnqueue func(context.Context, string) error // called before; an error is the answer
	enqueued  func() error                        // called after; an error replaces the answer
	onDequeue func(n int) error
	onDelete  func(context.Context) error
	deleted   func() error
	onUpdate  func() error

	enqueues, dequeues, deletes, updates atomic.Int64
}

func (s *scripted) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	s.enqueues.Add(1)
	if s.onEnqueue != nil {
		if err := s.onEnqueue(ctx, text); err != nil {
			return queue.Message{}, err
		}
	}
	m, err := s.Queue.Enqueue(ctx, text, o)
	if err == nil && s.enqueued != nil {
		err = s.enqueued()
	}
	return m, err
}

func (s *scripted) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	s.dequeues.Add(1)
	if s.onDequeue != nil {
		if err := s.onDequeue(n); err != nil {
			return nil, err
		}
	}
	return s.Queue.Dequeue(ctx, n, visibility)
}

func (s *scripted) Delete(ctx context.Context, l queue.Lease) error {
	s.deletes.Add(1)
	if s.onDelete != nil {
		if err := s.onDelete(ctx); err != nil {
			return err
		}
	}
	err := s.Queue.Delete(ctx, l)
	if err == nil && s.deleted != nil {
		err = s.deleted()
	}
	return err
}

func (s *scripted) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	s.updates.Add(1)
	if s.onUpdate != nil {
		if err := s.onUpdate(); err != nil {
			return queue.Lease{}, err
		}
	}
	return s.Queue.Update(ctx, l, text, visibility)
}

// scriptAll wraps the queues.
func scriptAll(qs []queue.Queue) (all []*scripted, wrapped []queue.Queue) {
	for _, q := range qs {
		s := &scripted{Queue: q}
		all, wrapped = append(all, s), append(wrapped, s)
	}
	return all, wrapped
}

// outage answers with its error until it ends.
type outage struct{ err atomic.Pointer[error] }

func (o *outage) begin(err error) { o.err.Store(&err) }
func (o *outage) end()            { o.err.Store(nil) }
func (o *outage) answer() error {
	if err := o.err.Load(); err != nil {
		return *err
	}
	return nil
}

func fault(kind error, status int) error {
	return &queue.Error{Op: "enqueue", Kind: kind, Status: status, Detail: "injected"}
}

// bubble runs a test on a fake clock.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

func sameTexts(t testing.TB, got, want map[string]int) {
	t.Helper()
	if maps.Equal(got, want) {
		return
	}
	missing, extra := 0, 0
	for text := range want {
		if got[text] == 0 {
			missing++
		}
	}
	for text, n := range got {
		extra += n - want[text]
	}
	keys := slices.Sorted(maps.Keys(got))
	t.Errorf("got %d texts, %d missing, %d too many, want %d: %.300q", len(got), missing, max(extra, 0), len(want), keys)
}
