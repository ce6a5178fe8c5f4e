package simulation

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
)

// The tests of this file play the worst incidents known in the field, each as its own world: usual
// jobs and workers, with no faults except those of the test. The ledger checks them like every
// world; the tests check counts in addition.

// newScenario returns a plan without faults.
func newScenario(horizon time.Duration) *plan {
	return &plan{
		dice: 7, ordinary: true, horizon: horizon, manyLoops: true, policy: policyPlan{maxAttempts: 5, maxLost: 5},
		sending: faultqueue.Options{UsualLatency: usual},
	}
}

// send adds n jobs like that one, sent one after the other from its instant on.
func (p *plan) send(n int, like jobPlan) {
	if like.form == "" {
		like.form = enveloped
	}
	for range n {
		like.n = len(p.jobs)
		p.jobs = append(p.jobs, like)
	}
}

// brief returns a job that succeeds at once.
func brief(at time.Duration) jobPlan {
	return jobPlan{at: at, behaviour: succeeds, shortest: time.Millisecond, longest: 20 * time.Millisecond}
}

// lasting returns a job that takes long.
func lasting(at, shortest, longest time.Duration) jobPlan {
	return jobPlan{at: at, behaviour: succeeds, shortest: shortest, longest: longest}
}

// addWorker adds a worker with the usual settings, changed by change.
func (p *plan) addWorker(name string, change func(*workerPlan)) {
	w := workerPlan{
		name: name, survives: true, ending: stopped, policy: p.policy,
		faults:      faultqueue.Options{Seed: uint64(len(p.workers)), UsualLatency: usual, Record: true},
		concurrency: 64, batch: queue.MaxBatch, idleMin: 100 * time.Millisecond, idleMax: time.Second, grace: 30 * time.Second,
	}
	w.loops.Min = 1
	if change != nil {
		change(&w)
	}
	p.workers = append(p.workers, w)
}

// live plays a scenario and audits it.
func (p *plan) live(t *testing.T, b breakage) *ledger {
	t.Helper()
	var w *world
	synctest.Test(t, func(*testing.T) { w = play(p, b) })
	kept := audit(w)
	for _, violation := range kept.violations[:min(len(kept.violations), 5)] {
		t.Error(violation)
	}
	return kept
}

// summary counts what happened to the messages of a scenario.
type summary struct {
	messages  int
	succeeded int // messages handled to success
	poisoned  int // messages with a copy
	runs      int
	most      int           // runs of one message
	last      time.Duration // when the last run ended after which a message was taken away
}

// sent returns the messages of the plan, without those of checkCapacity.
func (b *ledger) sent() (all []*message) {
	for _, a := range b.order {
		if a.job.n < len(b.world.plan.jobs) {
			all = append(all, a)
		}
	}
	return all
}

func (b *ledger) summary() (sum summary) {
	for _, a := range b.sent() {
		sum.messages++
		runs := a.runs()
		sum.runs, sum.most = sum.runs+runs, max(sum.most, runs)
		if a.successes > 0 {
			sum.succeeded++
		}
		if a.copies > 0 {
			sum.poisoned++
		}
		if a.removed != nil {
			sum.last = max(sum.last, a.removed.over())
		}
	}
	return sum
}

// A database is unavailable for three minutes. The jobs that run when the outage begins fail, and
// each later one hangs for an hour and is given up. After the outage the work goes on.
func TestOutageOfADatabaseInWhichHandlersHang(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a long scenario")
	}
	for name, change := range map[string]func(*workerPlan){
		"one at a time": func(*workerPlan) {},
		"in batches":    func(w *workerPlan) { w.together, w.company = 10, time.Minute },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newScenario(6 * time.Minute)
			p.ordinary = false // what fails is recorded as a failure
			p.outage = outagePlan{from: 10 * time.Second, long: 3 * time.Minute, hangs: 1, hangsAfter: 2 * time.Second, hanging: time.Hour}
			p.send(200, brief(9*time.Second))
			p.addWorker("worker", func(w *workerPlan) {
				w.concurrency = 32
				w.timeout, w.stuckAfter, w.giveUp = 20*time.Second, 20*time.Second, true
				change(w)
			})
			b := p.live(t, breakage{})
			hung, done := 0, 0
			for _, a := range b.sent() {
				if b.world.hangs[a.id] > 0 {
					hung++
				}
				if a.removed != nil && a.removed.over() < 5*time.Minute {
					done++
				}
			}
			waiting := max(p.workers[0].together-1, 0) // for the company of a last batch
			if hung == 0 || done < 200-waiting {
				t.Errorf("of 200 jobs: got %d that hang and %d done two minutes after the outage, want some that hang and all done", hung, done)
			}
		})
	}
}

// For four minutes the responses to dequeues are lost: all messages are delivered repeatedly
// without reaching a handler. This must not make them poison.
func TestLostDequeueResponsesPoisonNothing(t *testing.T) {
	t.Parallel()
	for name, workers := range map[string]int{"one worker": 1, "three workers": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newScenario(6 * time.Minute)
			p.incidents = []incident{{from: 10 * time.Second, long: 4 * time.Minute, faults: map[faultqueue.Op]faultqueue.Rates{faultqueue.Dequeue: {LostResponse: 1}}}}
			p.send(100, brief(20*time.Second))
			for i := range workers {
				p.addWorker("worker "+str(i), nil)
			}
			b := p.live(t, breakage{})
			if sum := b.summary(); sum.succeeded != 100 || sum.poisoned != 0 || sum.runs != 100 || sum.last > 6*time.Minute {
				t.Errorf("summary: got %+v", sum)
			}
		})
	}
}

// Visibility has followed brief jobs to its minimum of 10 s when dequeues begin to take 9.2 s: their
// responses arrive when the lease has nearly ended. The visibility must grow, or nothing is ever
// handled.
func TestDequeuesAsSlowAsTheLease(t *testing.T) {
	t.Parallel()
	p := newScenario(15 * time.Minute)
	p.incidents = []incident{{from: 2 * time.Minute, long: 10 * time.Minute, faults: map[faultqueue.Op]faultqueue.Rates{faultqueue.Dequeue: {Slow: 1}}}}
	p.send(200, brief(5*time.Second))
	p.send(300, brief(130*time.Second))
	p.addWorker("worker", func(w *workerPlan) {
		w.faults.SlowLatency = faultqueue.Range{Min: 9200 * time.Millisecond, Max: 9300 * time.Millisecond}
	})
	b := p.live(t, breakage{})
	if sum := b.summary(); sum.succeeded != 500 || sum.poisoned != 0 || sum.runs != 500 || sum.last > 7*time.Minute {
		t.Errorf("summary: got %+v", sum)
	}
}

// The poison queue is unavailable for longer than the TTL of messages that always fail. They run at
// most MaxAttempts times, and those that never expire are copied when it is back.
func TestPoisonQueueOutageAndExpiringMessages(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a long scenario")
	}
	for _, rates := range []faultqueue.Rates{{Unavailable: 1}, {Throttled: 1}, {LostRequest: 1}} {
		p := newScenario(40 * time.Minute)
		p.incidents = []incident{{from: 0, long: 35 * time.Minute, queue: "jobs-poison", faults: everything(rates)}}
		failing := jobPlan{at: time.Second, behaviour: never, shortest: time.Millisecond, longest: 2 * time.Second}
		p.send(20, failing) // and others, but too few to look like an outage
		for ttl := time.Minute; ttl <= 30*time.Minute; ttl += time.Minute {
			failing.ttl = ttl
			p.send(1, failing)
		}
		p.addWorker("worker", nil)
		b := p.live(t, breakage{})
		for _, a := range b.sent() {
			if a.failures > 5 || a.job.ttl == 0 && (a.failures != 5 || a.copies != 1) {
				t.Errorf("%+v: job %d with TTL %v: got %d runs and %d copies; want at most 5 runs, and 5 and 1 without a TTL", rates, a.job.n, a.job.ttl, a.failures, a.copies)
			}
		}
	}
}

// Every hook of a worker panics at each call. The work is done nevertheless.
func TestHooksThatAlwaysPanic(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*workerPlan){
		"curve":      nil,
		"queueEmpty": func(w *workerPlan) { w.hook = true },
		"batches":    func(w *workerPlan) { w.together, w.company = 8, 100*time.Millisecond },
		"throttled":  func(w *workerPlan) { w.faults.Every.Throttled = 0.5 },
	} {
		if testing.Short() && name != "throttled" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newScenario(5 * time.Minute)
			p.ordinary = false // a job may fail because of its batch
			for i, m := range []behaviour{succeeds, fails, never, poisons, discards, retries, snoozes, panics, exits, typedNil} {
				p.send(10, jobPlan{at: time.Duration(i) * 10 * time.Second, behaviour: m, times: 2, shortest: time.Millisecond, longest: 40 * time.Second, saves: 1})
			}
			p.send(6, jobPlan{at: time.Minute, behaviour: succeeds, undecoded: true})
			p.addWorker("worker", func(w *workerPlan) {
				w.hookPanic, w.maxRetryDelay = 1, time.Second
				if change != nil {
					change(w)
				}
			})
			p.live(t, breakage{})
		})
	}
}

// The service's clock is set every minute, by up to an hour, and calls take up to 12 s, in turns.
// Nothing depends on the clock, and leases survive the slow calls.
func TestSwingingClocksAndLatencies(t *testing.T) {
	t.Parallel()
	p := newScenario(30 * time.Minute)
	for i, by := range []time.Duration{time.Hour, -time.Hour, 10 * time.Minute, -time.Second, 45 * time.Minute, 0, -20 * time.Minute, time.Hour} {
		p.incidents = append(p.incidents, incident{from: time.Duration(i) * time.Minute, long: time.Minute, skew: by, faults: everything(faultqueue.Rates{Slow: float64(i%3) / 2})})
	}
	for i := range 50 {
		at := time.Duration(i) * 10 * time.Second
		p.send(1, brief(at))
		p.send(1, lasting(at, 30*time.Second, 5*time.Minute))
		mortal := brief(at)
		mortal.ttl = 20 * time.Minute
		p.send(1, mortal)
	}
	for i := range 2 {
		p.addWorker("worker "+str(i), func(w *workerPlan) {
			w.faults.SlowLatency = faultqueue.Range{Min: 10 * time.Millisecond, Max: 12 * time.Second}
		})
	}
	b := p.live(t, breakage{})
	if sum := b.summary(); sum.succeeded != 150 || sum.poisoned != 0 {
		t.Errorf("summary: got %+v", sum)
	}
}

// Four of five workers are frozen for 45 s, as by SIGSTOP, in the middle of jobs. To the engine's wake-ups they are subscribers
// that hang: the fifth worker still handles each new job within two seconds. The jobs of the four are handled by the fifth when their
// leases end; when the four go on, they have lost these, and change nothing.
func TestFrozenWorkersDelayNoOthers(t *testing.T) {
	t.Parallel()
	p := newScenario(5 * time.Minute)
	p.wakes = wakesPlan{on: true, engine: true, safety: 20 * time.Minute}
	freeze := span{time.Minute, 45 * time.Second}
	p.send(50, lasting(50*time.Second, 15*time.Second, 25*time.Second)) // those of the four are cut off
	for at := freeze.from + 2*time.Second; at < freeze.end(); at += 3 * time.Second {
		p.send(1, brief(at))
	}
	for i := range 5 {
		p.addWorker("worker "+str(i), func(w *workerPlan) {
			w.wakes, w.loops.Min = true, 0
			if i < 4 {
				w.frozen = freeze
			}
		})
	}
	b := p.live(t, breakage{})
	lost, worst := 0, time.Duration(0)
	for _, a := range b.sent() {
		if len(a.deliveries) > 1 {
			lost++
		}
		if a.job.at > freeze.from && a.removed != nil {
			worst = max(worst, a.removed.over()-a.job.at)
		}
	}
	sum := b.summary()
	t.Logf("%d jobs of frozen workers were delivered again; a new job took %v at most; %+v", lost, worst, sum)
	if lost < 10 || worst > 2*time.Second || sum.succeeded != sum.messages || sum.poisoned > 0 || sum.last > 3*time.Minute {
		t.Errorf("%d jobs of frozen workers were delivered again, a new job took %v at most: want at least 10, and 2 s; %+v", lost, worst, sum)
	}
}
