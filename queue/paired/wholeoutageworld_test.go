package paired_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/paired"
)

// doubt is why a job may be handled twice.
type doubt int

const (
	sentAgain doubt = 1 << iota
	divertedInDoubt
	copiedInDoubt
	copiedNotDeleted
	handledNotDeleted
	allDoubts
)

func (d doubt) String() string {
	return map[doubt]string{
		sentAgain:         "sent again by the producer, because there was no response",
		divertedInDoubt:   "diverted, although the primary may have accepted them",
		copiedInDoubt:     "copied again by the syphon, because there was no response",
		copiedNotDeleted:  "copied by the syphon, but not deleted from the backlog queue",
		handledNotDeleted: "handled, but not deleted from the primary queue",
	}[d]
}

// job is what became of one job.
type job struct {
	accepted bool
	handled  int
	doubts   doubt
}

// place is a region: a server, and the network to it.
type place struct {
	server  *emulator.Server
	engine  *localqueue.Engine
	refuses atomic.Bool
}

func newPlace() *place {
	engine := must(localqueue.New(nil))
	return &place{server: must(emulator.New(engine, nil)), engine: engine}
}

// Do implements policy.Transporter.
func (p *place) Do(r *http.Request) (*http.Response, error) {
	if !waiting.For(latency/2, r.Context().Done()) {
		return nil, r.Context().Err()
	}
	if p.refuses.Load() {
		return nil, syscall.ECONNREFUSED
	}
	response, err := p.server.RoundTrip(r)
	if !waiting.For(latency/2, r.Context().Done()) {
		return nil, r.Context().Err()
	}
	return response, err
}

// latency is that of the network to either region, so that a kill comes while requests are under way.
const latency = 10 * time.Millisecond

func (p *place) open(t *testing.T, name string) queue.Queue {
	t.Helper()
	q, err := azurequeue.Open(p.server.ConnectionString(), name, &azurequeue.Options{Transport: p})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// depth returns the number of messages in all queues, without a request.
func (p *place) depth(t *testing.T) (n int64) {
	t.Helper()
	a := p.engine.Account(emulator.DevelopmentAccount)
	page, _, err := a.List(context.Background(), "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range page {
		q, err := a.Open(one.Name)
		if err != nil {
			t.Fatal(err)
		}
		properties, err := q.Properties(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		n += properties.Depth
	}
	return n
}

// world is two regions, senders, receivers, and what became of the jobs.
type world struct {
	t          *testing.T
	begun      time.Time
	west, east *place
	pair       *paired.Queue // of the senders

	mu       sync.Mutex
	jobs     map[int]*job // guarded by mu
	done     int          // jobs that were handled; guarded by mu
	diverted int64        // guarded by mu
	moved    int64        // guarded by mu
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, begun: time.Now(), west: newPlace(), east: newPlace(), jobs: make(map[int]*job)}
	w.pair = w.newPair(nil)
	if err := w.pair.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := w.pair.Pair(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

// newPair returns the paired queue of a process. Only that of receivers has a witness.
func (w *world) newPair(p *process) *paired.Queue {
	west, east := w.west.open(w.t, "jobs"), w.east.open(w.t, "jobs")
	if p != nil {
		west, east = &witness{Queue: west, p: p}, &witness{Queue: east, p: p, backlog: true}
	}
	q := must(paired.New(west, east, &paired.Options{Logger: quiet()}))
	w.t.Cleanup(func() { _ = q.Close() })
	return q
}

// of returns the record of a job. Requires mu.
func (w *world) of(n int) *job {
	j := w.jobs[n]
	if j == nil {
		j = &job{}
		w.jobs[n] = j
	}
	return j
}

func (w *world) doubt(n int, d doubt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of(n).doubts |= d
}

func (w *world) handled() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done
}

func (w *world) left(t *testing.T) int64 { return w.west.depth(t) + w.east.depth(t) }

// Job is the body of a job.
type Job struct{ N int }

// senders is how many send at a time. While the primary is slow each of them waits.
const senders = 20

// startSenders sends the jobs evenly over the time. A send that fails is made again until it succeeds.
func (w *world) startSenders(jobs int, over time.Duration) *sync.WaitGroup {
	p := producer.New(w.pair, &producer.Options[Job]{})
	pause := over * senders / time.Duration(jobs)
	var all sync.WaitGroup
	for s := range senders {
		all.Go(func() {
			for n := s; n < jobs; n += senders {
				w.send(p, n)
				time.Sleep(pause)
			}
		})
	}
	return &all
}

func (w *world) send(p *producer.Producer[Job], n int) {
	for {
		sent, err := p.Send(context.Background(), Job{n}, &producer.SendOptions{JobID: jobID(n)})
		if errors.Is(err, queue.ErrOutcomeUnknown) {
			w.doubt(n, sentAgain)
		}
		if err == nil {
			w.accept(n, sent)
			return
		}
		time.Sleep(time.Second)
	}
}

func (w *world) accept(n int, sent producer.Sent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.of(n)
	j.accepted = true
	elsewhere := sent.Queue.Queue != "jobs"
	if elsewhere {
		w.diverted++
	}
	switch {
	case sent.MaybeTwice && elsewhere:
		j.doubts |= divertedInDoubt
	case sent.MaybeTwice:
		j.doubts |= sentAgain
	}
}

// process is a process that can be killed. It knows which job is in which message that it has.
type process struct {
	w    *world
	dead atomic.Bool

	mu      sync.Mutex
	jobs    map[queue.ID]int // by message, of what was dequeued; guarded by mu
	copied  map[int]bool     // copied and not yet deleted; guarded by mu
	running map[queue.ID]int // handled and not yet deleted; guarded by mu
}

var errKilled = &queue.Error{Kind: queue.ErrOutcomeUnknown, Detail: "the process was killed"}

// witness notes what a receiver does to messages, and in what it was interrupted.
type witness struct {
	queue.Queue
	p       *process
	backlog bool
}

func (q *witness) Sibling(suffix string) queue.Queue {
	return &witness{Queue: q.Queue.Sibling(suffix), p: q.p, backlog: q.backlog}
}

// number returns the number of the job in a text.
func number(text string) int {
	for i := range len(text) { // the record of a backlog queue is a line of its own
		if head, body, _, err := envelope.Open(text[i:], codec.Envelope); err == nil && head.ID != "" {
			job, err := codec.JSON[Job]().Decode(body)
			if err != nil {
				panic(err)
			}
			return job.N
		}
	}
	panic("no job: " + text)
}

func (q *witness) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	if q.p.dead.Load() {
		return nil, errKilled
	}
	batch, err := q.Queue.Dequeue(ctx, n, visibility)
	if q.p.dead.Load() {
		return nil, errKilled
	}
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	for _, m := range batch {
		q.p.jobs[m.ID] = number(m.Text)
	}
	return batch, err
}

// Enqueue is that of the syphon, since receivers send nothing else.
func (q *witness) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if q.p.dead.Load() {
		return queue.Message{}, errKilled
	}
	m, err := q.Queue.Enqueue(ctx, text, o)
	n := number(text)
	if q.p.dead.Load() {
		err = errKilled
	}
	if errors.Is(err, queue.ErrOutcomeUnknown) {
		q.p.w.doubt(n, copiedInDoubt)
	}
	if err == nil {
		q.p.mu.Lock()
		defer q.p.mu.Unlock()
		q.p.copied[n] = true
	}
	return m, err
}

func (q *witness) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	if q.p.dead.Load() {
		return queue.Lease{}, errKilled
	}
	return q.Queue.Update(ctx, l, text, visibility)
}

func (q *witness) Delete(ctx context.Context, l queue.Lease) error {
	if q.p.dead.Load() {
		return errKilled
	}
	err := q.Queue.Delete(ctx, l)
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	n := q.p.jobs[l.ID]
	switch {
	case err != nil && q.backlog:
		q.p.w.doubt(n, copiedNotDeleted)
	case err != nil:
		q.p.w.doubt(n, handledNotDeleted)
	case q.backlog:
		delete(q.p.copied, n)
	default:
		delete(q.p.running, l.ID)
	}
	return err
}

// receivers are a listener and a syphon in one process.
type receivers struct {
	world   *world
	process *process
	syphon  *paired.Syphon
	halt    []func()
	cancel  func()
	ended   chan error
}

func (w *world) startReceivers() *receivers {
	p := &process{w: w, jobs: make(map[queue.ID]int), copied: make(map[int]bool), running: make(map[queue.ID]int)}
	q := w.newPair(p)
	l := listener.New(q, p.handle, &listener.Options[Job]{Concurrency: 64, Logger: quiet()})
	r := &receivers{world: w, process: p, syphon: must(paired.NewSyphon([]*paired.Queue{q}, nil)), ended: make(chan error, 1)}
	r.halt = []func(){l.Halt, r.syphon.Halt}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.ended <- millrace.Together(l, r.syphon).Run(ctx) }()
	return r
}

func (p *process) handle(_ context.Context, m *listener.Message[Job]) error {
	p.mu.Lock()
	p.running[m.ID] = m.Body.N
	p.mu.Unlock()
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	j := p.w.of(m.Body.N)
	if j.handled++; j.handled == 1 {
		p.w.done++
	}
	return nil
}

// kill ends the process in the middle of what it does: no request of it is sent any more, and of those that
// were sent it hears nothing.
func (r *receivers) kill() {
	r.process.dead.Store(true)
	for _, halt := range r.halt {
		halt()
	}
	r.cancel()
	<-r.ended // what a dead process says does not matter
	r.end()
}

// stop ends it as a platform does.
func (r *receivers) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	if err := <-r.ended; err != nil {
		t.Errorf("the receivers: %v", err)
	}
	r.end()
}

// end settles what was under way: it is in doubt.
func (r *receivers) end() {
	p := r.process
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := range p.copied {
		p.w.doubt(n, copiedNotDeleted)
	}
	for _, n := range p.running {
		p.w.doubt(n, handledNotDeleted)
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.moved += r.syphon.State().Moved
}
