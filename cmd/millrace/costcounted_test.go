package main

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/metered"
	"github.com/millrace/millrace/wakeup"
)

// relay is a source of wake-ups between processes as NATS is: an event wakes one of those that are ready, chosen at random, and
// More another.
type relay struct {
	random *rand.Rand // guarded by mu

	mu  sync.Mutex
	all []*relayed // guarded by mu
}

type relayed struct {
	relay      *relay
	subscriber subscriber
	ready      bool // guarded by relay.mu

	calls sync.Mutex // held while the subscriber is called
}

func (r *relay) wake(not *relayed) {
	r.mu.Lock()
	var ready []*relayed
	for _, one := range r.all {
		if one.ready && one != not {
			ready = append(ready, one)
		}
	}
	if len(ready) == 0 {
		r.mu.Unlock()
		return
	}
	one := ready[r.random.IntN(len(ready))]
	r.mu.Unlock()
	one.calls.Lock()
	defer one.calls.Unlock()
	one.subscriber.Event(costJobs, 0, time.Time{})
}

func (r *relay) Subscribe(_ queue.Name, event func(q queue.Name, bytes int64, due time.Time), listening func(bool)) (wakeup.Subscription, error) {
	one := &relayed{relay: r, subscriber: subscriber{event, listening}}
	r.mu.Lock()
	r.all = append(r.all, one)
	r.mu.Unlock()
	one.Ready(true)
	return one, nil
}

func (s *relayed) Ready(ready bool) {
	s.relay.mu.Lock()
	was := s.ready
	s.ready = ready
	s.relay.mu.Unlock()
	if ready && !was {
		go func() { s.calls.Lock(); defer s.calls.Unlock(); s.subscriber.Listening(true) }()
	}
}

func (s *relayed) More() { go s.relay.wake(s) }

func (s *relayed) Close() error {
	s.relay.mu.Lock()
	defer s.relay.mu.Unlock()
	s.ready = false
	return nil
}

var costJobs = queue.Name{Account: "acme", Queue: "jobs"}

// costWorld is a fleet that works on jobs that come for a while.
type costWorld struct {
	processes int
	source    string        // "polling", "push" or "NATS"
	gap       time.Duration // between jobs; 0 if all wait at the start
	jobs      int
}

// count returns the requests of all processes and of the producer for the jobs, by what they are.
func (w costWorld) count(t *testing.T) (total metered.Counts) {
	synctest.Test(t, func(t *testing.T) {
		e := must(localqueue.New(&localqueue.Options{Seed: 1}))
		counted := new(metered.Meter)
		q := e.Queue(costJobs)
		if err := q.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		all := counted.Wrap(q)
		r := &relay{random: rand.New(rand.NewPCG(1, 1))}
		put := func() {
			if _, err := all.Enqueue(t.Context(), "{}", nil); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		begin := func() {
			for n := range w.processes {
				o := &listener.Options[struct{}]{Seed: uint64(n + 1), Logger: slog.New(slog.DiscardHandler)}
				switch w.source {
				case "push":
					o.Wakeups = e
				case "NATS":
					o.Wakeups = r
				}
				l := listener.New(slowQueue{all}, func(context.Context, *listener.Message[struct{}]) error {
					time.Sleep(20 * time.Millisecond)
					return nil
				}, o)
				running.Go(func() {
					if err := l.Run(ctx); err != nil {
						t.Error(err)
					}
				})
			}
		}
		var before metered.Counts
		if w.gap == 0 {
			for range w.jobs {
				put()
			}
			begin()
			for p, err := q.Properties(ctx); err == nil && p.Depth > 0; p, err = q.Properties(ctx) {
				time.Sleep(10 * time.Millisecond)
			}
		} else {
			begin()
			time.Sleep(5 * time.Minute)
			before = counted.Counts()
			for range w.jobs {
				put()
				r.wake(nil)
				time.Sleep(w.gap)
			}
		}
		total = counted.Counts().Minus(before)
		stop()
		running.Wait()
	})
	return total
}

// slowQueue is a queue whose dequeues take 4 ms.
type slowQueue struct{ queue.Queue }

// EmptyAfter is that of Azure. The embedded engine's wake-ups know better.
func (slowQueue) EmptyAfter() int { return 2 }

func (q slowQueue) Dequeue(ctx context.Context, n int, d time.Duration) ([]queue.Message, error) {
	time.Sleep(4 * time.Millisecond)
	return q.Queue.Dequeue(ctx, n, d)
}

// model returns what the model says for it.
func (w costWorld) model() float64 {
	n := defaultNumbers()
	n.instances, n.loops, n.days, n.jobs, n.idleMax = int64(w.processes), 1, 1, int64(w.jobs), time.Second
	n.embedded = w.source == "push"
	n.busy = w.gap * time.Duration(w.jobs)
	l := leverPush
	switch {
	case w.gap == 0:
		l = leverBatch
	case w.source == "polling":
		l = leverBackOff
	}
	requests, _ := n.bill(l).messageRequests.Float64()
	return requests
}

// The model agrees within 5 % with the requests of real listeners, put and delete included, for jobs that come alone, in a trickle,
// and as a backlog. However they come, push costs no more than polling; by the embedded server, whose requests are free, it
// fetches each job when it comes, and costs at most the three requests of a job that is alone.
func TestTheModelAgreesWithListeners(t *testing.T) {
	t.Parallel()
	worlds := []costWorld{
		{gap: time.Minute, jobs: 50}, {gap: time.Second, jobs: 300}, {gap: 100 * time.Millisecond, jobs: 1000}, {gap: 30 * time.Millisecond, jobs: 1000}, {gap: 10 * time.Millisecond, jobs: 2000}, {jobs: 4000},
	}
	if testing.Short() {
		worlds = worlds[1:2]
	}
	polled := map[costWorld]float64{}
	for _, source := range []string{"polling", "push", "NATS"} {
		for _, processes := range []int{1, 4, 16} {
			for _, w := range worlds {
				w.source, w.processes = source, processes
				counted := w.count(t)
				requests, model := float64(counted.Total().Requests), w.model()
				each := float64(w.jobs)
				t.Logf("%s, %d processes, a job every %v: %.2f requests for each, the model says %.2f (%+.1f %%): %v", source, processes, w.gap, requests/each, model/each, 100*(model/requests-1), counted)
				w.source = ""
				if source == "polling" {
					polled[w] = requests
				}
				slack := 1.02 // when loops meet is chance
				if w.gap == 0 {
					slack = 1.04 // and how full the batches of a backlog are
				}
				most := polled[w]
				if source == "push" {
					most = max(most, 3*each)
				}
				if requests > slack*most {
					t.Errorf("%s, %d processes, a job every %v: counted %.2f requests for each, and %.2f by polling", source, processes, w.gap, requests/each, polled[w]/each)
				}
				if math.Abs(model/requests-1) > 0.05 {
					t.Errorf("%s, %d processes, a job every %v: counted %.2f requests for each, the model says %.2f", source, processes, w.gap, requests/each, model/each)
				}
			}
		}
	}
}

// subscriber has the functions that Subscribe was called with.
type subscriber struct {
	Event     func(q queue.Name, bytes int64, due time.Time)
	Listening func(bool)
}
