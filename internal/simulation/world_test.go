package simulation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/dispatcher/perkey"
	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// world is one run of a plan: an engine and all processes that use it.
type world struct {
	plan      *plan
	breakage  breakage
	history   *history
	engine    *localqueue.Engine
	network   *network
	broker    *wakeBroker
	pairing   *pairing
	beacons   *beacons      // or nil
	pool      *slots.Shared // of the workers; or nil
	keys      *perkey.Keys  // of workers that share a pool; or nil
	produced  chan struct{} // closed when everything is sent
	processes []*process
	surviving sync.WaitGroup // processes that continue after the horizon
	running   sync.WaitGroup // handlers, abandoned ones too
	ended     sync.WaitGroup // of processes that died

	blobs      blob.Store        // the bodies of messages that only refer to them
	contents   map[string]string // of all bodies that were ever stored; used by the ledger only
	sending    processClaims     // of the producer
	bodiesLeft map[string]bool   // at the end, without tombstones

	limited atomic.Bool // a message has waited because its source fails

	seen int // entries that updateLeft has read; used by calm only
	left map[queue.ID]leftover

	mu         sync.Mutex
	jobs       []jobPlan                  // guarded by mu
	runs       map[queue.ID]int           // begun so far; guarded by mu
	texts      map[string]int             // job by text sent; guarded by mu
	hangs      map[queue.ID]time.Duration // until when runs of the message hang; guarded by mu
	violations []string                   // guarded by mu
}

var jobs = queue.Name{Account: "world", Queue: "jobs"}

// play runs a plan to its end. It must be called in its own bubble.
func play(p *plan, b breakage) *world {
	w := &world{
		plan: p, breakage: b.withDefaults(), history: &history{birth: time.Now()},
		engine: must(localqueue.New(&localqueue.Options{Seed: uint64(p.dice) + 1, DeletingFor: max(p.deletingFor, time.Millisecond)})),
		jobs:   p.jobs, runs: make(map[queue.ID]int), texts: make(map[string]int),
		hangs: make(map[queue.ID]time.Duration), left: make(map[queue.ID]leftover),
		produced: make(chan struct{}),
		blobs:    blob.Memory(), contents: make(map[string]string), bodiesLeft: make(map[string]bool),
	}
	if p.claims.on {
		s := w.bodyStore("producer")
		s.dead, s.kill = func() bool { return false }, func() {}
		w.sending = w.newClaims(s)
	}
	w.pairing, w.pool, w.keys, w.beacons = &pairing{world: w}, p.newPool(b.slots), p.newKeys(), p.newBeacons()
	w.network, w.broker = newNetwork(p.way, w.engine), &wakeBroker{world: w}
	for _, q := range w.mains() {
		if err := q.Create(context.Background(), nil); err != nil {
			panic(err)
		}
	}
	w.faultyTime()
	w.calm()
	w.ended.Wait()
	w.running.Wait() // handlers that ignore their context may still run
	w.network.close()
	synctest.Wait()
	w.checkAdaptive()
	w.count()
	return w
}

func (w *world) now() time.Duration { return time.Since(w.history.birth) }

func (w *world) addViolation(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

// run counts the runs of a message.
func (w *world) run(id queue.ID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.runs[id]
	w.runs[id]++
	return n
}

// begun returns how often the message was run.
func (w *world) begun(id queue.ID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs[id]
}

// job returns the plan of a job.
func (w *world) job(n int) jobPlan {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.jobs[n]
}

// add adds a job.
func (w *world) add(j jobPlan) jobPlan {
	w.mu.Lock()
	defer w.mu.Unlock()
	j.n = len(w.jobs)
	w.jobs = append(w.jobs[:j.n:j.n], j)
	return j
}

// hang notes that a run of the message, and its slot, hang for that long.
func (w *world) hang(p *process, id queue.ID, long time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	until := w.now() + long
	w.hangs[id] = max(w.hangs[id], until)
	p.hangs = append(p.hangs, until)
}

// hanging returns how many runs of the process hang now, and until when at most.
func (w *world) hanging(p *process) (n int, until time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, end := range p.hangs {
		if end > w.now() {
			n, until = n+1, max(until, end)
		}
	}
	return n, until
}

// server returns the queue of a process, below all faults.
func (w *world) server(who string) queue.Queue {
	return &server{w.network.queue, false, who, w.history}
}

func (w *world) addProcess(one workerPlan) *process {
	p := &process{world: w, plan: one, born: make(chan struct{}), abandoned: make(map[queue.ID]int64)}
	if one.survives {
		p.calm = make(chan struct{})
	}
	w.processes = append(w.processes, p)
	return p
}

// faultyTime plays the time with faults: until the horizon, and until the processes that do not
// survive it have ended.
func (w *world) faultyTime() {
	var all sync.WaitGroup
	all.Go(w.produce)
	if w.plan.drop > 0 {
		all.Go(w.recreate)
	}
	if w.plan.claims.on {
		all.Go(w.sweep)
	}
	all.Go(w.pauseFleet)
	for _, one := range w.plan.workers {
		if p := w.addProcess(one); one.survives {
			w.surviving.Go(p.live)
		} else {
			all.Go(p.live)
		}
	}
	all.Wait()
	time.Sleep(w.plan.horizon - w.now())
	for _, p := range w.processes {
		<-p.born
		p.wire.Wait() // for late calls
	}
	w.pairing.ended.Wait()
}

// count removes the remaining messages from all queues, after all have become visible.
func (w *world) count() {
	time.Sleep(8 * 24 * time.Hour)
	w.keepBodies()
	for _, main := range w.mains() {
		w.countIn(main, remains)
		w.countIn(main.Sibling("-poison"), copyStays)
	}
}

// countIn removes the remaining messages from one queue.
func (w *world) countIn(q queue.Queue, as kind) {
	for {
		batch, err := q.Dequeue(context.Background(), queue.MaxBatch, queue.MaxVisibility)
		if err != nil && !errors.Is(err, queue.ErrQueueMissing) {
			w.addViolation("count what remains: %v", err)
		}
		if len(batch) == 0 {
			return
		}
		for _, m := range batch {
			w.history.note(entry{kind: as, who: "janitor", id: m.ID, count: m.DequeueCount, text: m.Text})
		}
	}
}
