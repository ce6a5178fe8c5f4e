package agent_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/agent"
	"github.com/millrace/millrace/wakeup"
)

// toZero is a policy whose last instance goes.
var toZero = scaling.Policy{ToZero: true, DownAfter: time.Minute, Slots: 1, Handling: time.Second, Max: 10}

// source is a bus that knows how many subscriptions there are, as a source between processes matters to workers.
type source struct {
	wakeup.Bus

	mu      sync.Mutex
	now     int   // guarded by mu
	refuses error // guarded by mu
}

func (s *source) Subscribe(q queue.Name, event func(q queue.Name, bytes int64, due time.Time), listening func(bool)) (wakeup.Subscription, error) {
	s.mu.Lock()
	err := s.refuses
	if err == nil {
		s.now++
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	inner, err := s.Bus.Subscribe(q, event, listening)
	return &subscription{inner, s}, err
}

func (s *source) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

type subscription struct {
	wakeup.Subscription
	source *source
}

func (s *subscription) Close() error {
	s.source.mu.Lock()
	s.source.now--
	s.source.mu.Unlock()
	s.Subscription.Close()
	return nil
}

// a pool without instances is started by an event at once, and the agent listens only while there are none: between
// processes it would take events away from the workers.
func TestAnEventStartsAPoolOfNoInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := created(t, must(localqueue.New(nil)), "jobs")
		p := &platform{n: 1}
		bus := &source{}
		a := start(t, agent.Options{Wakeups: bus}, agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: p, Policy: toZero})
		after(2 * time.Second)
		if n := bus.count(); n != 0 {
			t.Errorf("with an instance: got %d subscriptions, want none", n)
		}
		after(5*time.Minute + 2*time.Second) // in the middle between two measurements
		if n := p.get(); n != 0 || bus.count() != 1 {
			t.Fatalf("without work: got %d instances and %d subscriptions, want 0 and 1", n, bus.count())
		}
		tell := func(q queue.Name, bytes int64, due time.Time) {
			if err := bus.Publish(t.Context(), q, bytes, due); err != nil {
				t.Error(err)
			}
		}
		decisions := len(a.of("pool"))
		fill(t, q, 1)
		tell(queue.Name{Account: "test", Queue: "another"}, 0, time.Time{})
		tell(queue.Name{Account: "another", Queue: "jobs"}, 0, time.Time{})
		tell(q.Name(), 0, time.Now().Add(time.Minute))
		after(time.Second)
		if n := p.get(); n != 0 {
			t.Errorf("after events of other queues and times: got %d instances, want none", n)
		}
		for range 100 {
			tell(queue.Name{Queue: "jobs"}, 0, time.Time{})
		}
		synctest.Wait()
		if n := p.get(); n != 1 || bus.count() != 0 {
			t.Errorf("after an event: got %d instances and %d subscriptions, want 1 and none", n, bus.count())
		}
		if n := len(a.of("pool")) - decisions; n != 1 {
			t.Errorf("after a hundred events: got %d decisions, want 1", n)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		if n := bus.count(); n != 0 {
			t.Errorf("after the stop: got %d subscriptions, want none", n)
		}
	})
}

// A flood of events for nothing costs a measurement a second.
func TestAFloodOfEventsCostsAMeasurementASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := created(t, must(localqueue.New(nil)), "jobs")
		bus := &source{}
		a := start(t, agent.Options{Wakeups: bus}, agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: &platform{}, Policy: toZero})
		after(2 * time.Second)
		before := len(a.of("pool"))
		for range 600 {
			if err := bus.Publish(t.Context(), q.Name(), 0, time.Time{}); err != nil {
				t.Error(err)
			}
			after(100 * time.Millisecond)
		}
		if n := len(a.of("pool")) - before; n < 59 || n > 61 {
			t.Errorf("in a minute: got %d decisions, want 60", n)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
	})
}

// without an event, and with a source that refuses, the next measurement finds the work.
func TestTheNextMeasurementFindsWork(t *testing.T) {
	for name, bus := range map[string]wakeup.Source{
		"no source": nil, "a source that refuses": &source{refuses: errBroken}, "a source that panics": panics{}, "a source without a subscription": nothing{},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := created(t, must(localqueue.New(nil)), "jobs")
				p := &platform{}
				a := start(t, agent.Options{Wakeups: bus}, agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: p, Policy: toZero})
				after(time.Second)
				errs := a.errors()
				if bus == nil && len(errs) != 0 || bus != nil && (len(errs) != 1 || !strings.Contains(errs[0].Error(), "subscribe to wake-ups of test/jobs")) {
					t.Errorf("errors: %v", errs)
				}
				fill(t, q, 1)
				after(10 * time.Second)
				if n := p.get(); n != 1 {
					t.Errorf("after one interval: got %d instances, want 1", n)
				}
				if err := a.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

type panics struct{}

func (panics) Subscribe(queue.Name, func(queue.Name, int64, time.Time), func(bool)) (wakeup.Subscription, error) {
	panic(errors.New("no source"))
}

type nothing struct{}

func (nothing) Subscribe(queue.Name, func(queue.Name, int64, time.Time), func(bool)) (wakeup.Subscription, error) {
	return nil, nil
}

// silentSource delivers nothing, and tells when it begins to listen.
type silentSource struct {
	wakeup.Bus
	subscribed chan subscriber
}

func (s *silentSource) Subscribe(_ queue.Name, event func(q queue.Name, bytes int64, due time.Time), listening func(bool)) (wakeup.Subscription, error) {
	waiting.Signal(s.subscribed, subscriber{event, listening})
	return s.Bus.Subscribe(queue.Name{}, func(queue.Name, int64, time.Time) {}, func(bool) {})
}

// What was published before a connection was there is not delivered: when it is, the agent looks at once.
func TestTheAgentLooksWhenItBeginsToListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := created(t, must(localqueue.New(nil)), "jobs")
		bus := &silentSource{subscribed: make(chan subscriber, 1)}
		p := &platform{}
		a := start(t, agent.Options{Wakeups: bus}, agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: p, Policy: toZero})
		after(3 * time.Second)
		fill(t, q, 1)
		to := <-bus.subscribed
		to.Listening(false)
		synctest.Wait()
		if n := p.get(); n != 0 {
			t.Errorf("when it ceases to listen: got %d instances, want none yet", n)
		}
		to.Listening(true)
		synctest.Wait()
		if n := p.get(); n != 1 {
			t.Errorf("when it begins to listen: got %d instances, want 1", n)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
	})
}

// subscriber has the functions that Subscribe was called with.
type subscriber struct {
	Event     func(q queue.Name, bytes int64, due time.Time)
	Listening func(bool)
}
