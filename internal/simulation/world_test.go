package simulation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/localqueue"
)

// world is one run of a plan: one engine and everybody who uses it.
type world struct {
	plan      *plan
	breakage  breakage
	history   *history
	engine    *localqueue.Engine
	network   *network
	processes []*process
	running   sync.WaitGroup // handlers, abandoned ones too
	funerals  sync.WaitGroup // of processes that died

	seen int // entries that quiet has read; owned by heal
	left map[queue.ID]leftover

	mu         sync.Mutex
	runs       map[queue.ID]int // begun so far; guarded by mu
	texts      map[string]int   // what was sent, and of which job; guarded by mu
	complaints []string         // guarded by mu
}

var jobs = queue.Name{Account: "world", Queue: "jobs"}

// patience is how long the healthy worker may take. No delay is longer than a minute, and
// what fails is poison after a few of them.
const patience = 2 * time.Hour

// rest is how often it is looked whether all is quiet.
const rest = 10*time.Second + 1

// healthy is the worker that clears up when all is over.
const healthy = "healthy"

// play runs a plan to its end. It must be called in a bubble of its own.
func play(p *plan, b breakage) *world {
	w := &world{
		plan: p, breakage: b.withDefaults(), history: &history{birth: time.Now()},
		engine: localqueue.New(&localqueue.Options{Seed: uint64(p.dice) + 1, DeletingFor: max(p.deletingFor, 1)}),
		runs:   make(map[queue.ID]int), texts: make(map[string]int),
		left: make(map[queue.ID]leftover),
	}
	w.network = newNetwork(p.way, w.engine)
	if err := w.engine.Queue(jobs).Create(context.Background(), nil); err != nil {
		panic(err)
	}
	var all sync.WaitGroup
	all.Go(w.produce)
	if p.drop > 0 {
		all.Go(w.recreate)
	}
	for _, one := range p.workers {
		all.Go(w.employ(one).live)
	}
	all.Wait()
	w.heal()
	w.funerals.Wait()
	w.running.Wait() // heedless handlers may be on their way yet
	w.network.close()
	synctest.Wait()
	w.count()
	return w
}

func (w *world) now() time.Duration { return time.Since(w.history.birth) }

func (w *world) complain(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.complaints = append(w.complaints, fmt.Sprintf(format, args...))
}

// run counts the runs of a message.
func (w *world) run(id queue.ID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.runs[id]
	w.runs[id]++
	return n
}

// server is the queue as a process reaches it when nothing goes wrong.
func (w *world) server(who string) queue.Queue {
	return &server{w.network.queue, false, who, w.history}
}

func (w *world) employ(one workerPlan) *process {
	p := &process{world: w, plan: one, abandoned: make(map[queue.ID]int64)}
	w.processes = append(w.processes, p)
	return p
}

// produce sends every job, again and again until the service has said that it is
// accepted, or for ten minutes.
func (w *world) produce() {
	wire, onceWire := faultqueue.New(w.server("producer"), &w.plan.sending), faultqueue.New(w.server("producer"), undoubled(w.plan.sending))
	defer wire.Wait()
	defer onceWire.Wait()
	q, once := w.breakage.sending(wire), w.breakage.sending(onceWire)
	sorted := slices.Clone(w.plan.jobs)
	slices.SortFunc(sorted, func(a, b jobPlan) int { return int(a.at - b.at) })
	for _, j := range sorted {
		time.Sleep(j.at - w.now())
		o := &queue.EnqueueOptions{Delay: j.delay, TTL: j.ttl}
		for try, begin := 0, w.now(); w.now() < begin+10*time.Minute; try++ {
			text := j.text(time.Now(), try)
			w.mu.Lock()
			w.texts[text] = j.n
			w.mu.Unlock()
			way := q
			if j.form == junk {
				way = once
			}
			m, err := way.Enqueue(context.Background(), text, o)
			if err == nil {
				w.history.note(entry{kind: acked, who: "producer", id: m.ID, n: j.n})
				break
			}
			time.Sleep(w.plan.dice.within(100*time.Millisecond, 3*time.Second, "send again", str(j.n), str(try)))
		}
	}
}

// undoubled is the faults without duplicates: two messages that no codec can read and
// that are the same would free their slots at the same instant.
func undoubled(o faultqueue.Options) *faultqueue.Options {
	o.Faults = maps.Clone(o.Faults)
	if r, ok := o.Faults[faultqueue.Enqueue]; ok {
		r.Duplicate = 0
		o.Faults[faultqueue.Enqueue] = r
	}
	return &o
}

// recreate deletes the queue and makes it again as soon as the service lets it.
func (w *world) recreate() {
	time.Sleep(w.plan.drop)
	q := w.server("janitor").(queue.Manager)
	if err := q.Drop(context.Background()); err != nil {
		w.complain("drop the queue: %v", err)
	}
	for q.Create(context.Background(), nil) != nil {
		time.Sleep(time.Second)
	}
}

// heal runs a worker without faults until there is nothing left to do.
func (w *world) heal() {
	plan := workerPlan{
		name: healthy, ending: stopped, end: 1 << 62,
		faults:      faultqueue.Options{Seed: uint64(w.plan.dice), UsualLatency: usual, Record: true},
		concurrency: 16, batch: 16, idleMin: 500 * time.Millisecond, idleMax: 10 * time.Second,
		loops: listener.Loops{Min: 1, Max: 1}, visibility: dispatcher.Fixed(30 * time.Second),
		grace: 10 * time.Minute, settle: 15 * time.Second, mostRetryDelay: 5 * time.Second,
	}
	p := w.employ(plan)
	var life sync.WaitGroup
	p.quiet = make(chan struct{})
	life.Go(p.live)
	begin := w.now()
	for time.Sleep(rest); !w.quiet() && w.now() < begin+patience; {
		time.Sleep(rest)
	}
	if !w.quiet() {
		w.complain("the healthy worker has not come to rest in %v", patience)
	}
	if w.plan.keep {
		time.Sleep(150 * time.Minute) // what is kept comes up every hour
	}
	close(p.quiet)
	life.Wait()
}

// quiet tells that nothing is left but what nobody can do anything about: messages of
// a newer release, and poison that is kept hidden for an hour.
func (w *world) quiet() bool {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	for ; w.seen < len(w.history.entries); w.seen++ {
		e := w.history.entries[w.seen]
		was, there := w.left[e.id]
		switch {
		case e.kind == accepted:
			w.left[e.id] = leftover{expires: e.until, newer: strings.HasPrefix(e.text, "millrace/2")}
		case e.kind == deleted && e.said == "":
			delete(w.left, e.id)
		case e.kind == dropped:
			clear(w.left)
		case there && e.said == "" && (e.kind == updated || e.kind == delivered):
			was.hidden = e.until
			w.left[e.id] = was
		}
	}
	for _, l := range w.left {
		gone := l.expires != 0 && l.expires <= w.now()
		kept := w.plan.keep && l.hidden > w.now()+5*time.Minute
		if !gone && !kept && !l.newer {
			return false
		}
	}
	return true
}

// leftover is a message that is in the queue yet, as far as quiet must know it.
type leftover struct {
	hidden, expires time.Duration
	newer           bool
}

// count takes what remains out of both queues, when everything in them is visible.
func (w *world) count() {
	time.Sleep(8 * 24 * time.Hour)
	for poisoned, q := range map[bool]queue.Queue{false: w.engine.Queue(jobs), true: w.engine.Queue(jobs).Sibling("-poison")} {
		for {
			batch, err := q.Dequeue(context.Background(), queue.MaxBatch, queue.MaxVisibility)
			if err != nil && !errors.Is(err, queue.ErrQueueMissing) {
				w.complain("count what remains: %v", err)
			}
			if len(batch) == 0 {
				break
			}
			for _, m := range batch {
				e := entry{kind: remains, who: "janitor", id: m.ID, count: m.DequeueCount, text: m.Text}
				if poisoned {
					e.kind = copyStays
				}
				w.history.note(e)
			}
		}
	}
}
