package wakeup_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
	"github.com/millrace/millrace/wakeup/wakeuptest"
)

// maxPending is how many events may wait for a process.
const maxPending = 64

// hub is a simple transport between processes: an event goes to the next process that has a ready
// subscriber of the queue. Each process has one goroutine that calls its subscribers. The fields
// other than mu, processes and next are defects.
type hub struct {
	everybody  bool // every process hears every event
	unready    bool // events go to processes without room too
	within     bool // one subscriber of a process hears an event
	confused   bool // events of other queues are taken away
	blocking   bool // Publish calls the subscriber
	early      bool // listening(true) comes before it is in force
	stale      bool // listening(true) may be for an earlier Ready
	deafToMore bool // More does nothing
	echo       bool // More may wake the same process
	takes      bool // a subscription that was closed still takes events

	mu        sync.Mutex
	processes []*hubProcess
	next      int // guarded by mu
}

// hubProcess is a process of a hub.
type hubProcess struct {
	hub     *hub
	members []*member   // guarded by hub.mu
	calls   chan func() // of subscribers
}

// member is a subscription.
type member struct {
	process    *hubProcess
	queue      queue.Name
	subscriber subscriber
	ready      bool // guarded by hub.mu
	late       bool // it becomes ready after the next event; guarded by hub.mu
	generation int  // of Ready; guarded by hub.mu

	calling sync.Mutex // held while the subscriber is called
}

// open starts a hub.
func (h *hub) open(t *testing.T, n int) []wakeuptest.Process {
	var all []wakeuptest.Process
	for range n {
		p := &hubProcess{hub: h, calls: make(chan func(), 1<<20)}
		h.processes = append(h.processes, p)
		var running sync.WaitGroup
		running.Go(func() {
			for call := range p.calls {
				call()
			}
		})
		t.Cleanup(func() {
			close(p.calls)
			running.Wait()
		})
		all = append(all, wakeuptest.Process{Source: p, Publisher: p})
	}
	return all
}

func (p *hubProcess) Publish(_ context.Context, q queue.Name, bytes int64, due time.Time) error {
	p.hub.publish(q, bytes, due, nil)
	return nil
}

// publish gives an event to the next process but one.
func (h *hub) publish(q queue.Name, bytes int64, due time.Time, but *hubProcess) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for range h.processes {
		h.next = (h.next + 1) % len(h.processes)
		p := h.processes[h.next]
		if p == but && !h.echo {
			continue
		}
		if p.hears(q, bytes, due) && !h.everybody {
			return
		}
	}
}

// hears calls the subscribers of a process. It reports whether there is one that is ready.
func (p *hubProcess) hears(q queue.Name, bytes int64, due time.Time) (taken bool) {
	for _, m := range p.members {
		if m.late {
			m.ready, m.late = true, false
			continue
		}
		same := m.queue == q
		if p.hub.confused && m.queue.Queue == q.Queue {
			taken = true
		}
		if !same || !m.ready && !p.hub.unready || taken && p.hub.within {
			continue
		}
		taken = true
		generation := m.generation
		if p.hub.blocking {
			p.hub.mu.Unlock()
			m.call(generation, func() { m.subscriber.Event(q, bytes, due) })
			p.hub.mu.Lock()
			continue
		}
		if len(p.calls) < maxPending {
			p.calls <- func() { m.call(generation, func() { m.subscriber.Event(q, bytes, due) }) }
		}
	}
	return taken
}

// call calls a function of the subscriber, unless Ready has been called since.
func (m *member) call(generation int, f func()) {
	m.calling.Lock()
	defer m.calling.Unlock()
	m.process.hub.mu.Lock()
	current := m.generation == generation || m.process.hub.stale
	m.process.hub.mu.Unlock()
	if current {
		f()
	}
}

func (p *hubProcess) Subscribe(q queue.Name, event func(q queue.Name, bytes int64, due time.Time), listening func(bool)) (wakeup.Subscription, error) {
	m := &member{process: p, queue: q, subscriber: subscriber{event, listening}}
	p.hub.mu.Lock()
	p.members = append(p.members, m)
	p.hub.mu.Unlock()
	m.Ready(true)
	return m, nil
}

func (m *member) Ready(ready bool) {
	h := m.process.hub
	if !ready {
		m.calling.Lock() // a call that is under way must end
		defer m.calling.Unlock()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.ready == ready || !slices.Contains(m.process.members, m) {
		return
	}
	m.generation++
	generation := m.generation
	m.ready, m.late = ready && !h.early, ready && h.early
	if ready {
		m.process.calls <- func() { m.call(generation, func() { m.subscriber.Listening(true) }) }
	}
}

func (m *member) More() {
	if !m.process.hub.deafToMore {
		m.process.hub.publish(m.queue, 0, time.Time{}, m.process)
	}
}

func (m *member) Close() error {
	m.Ready(false)
	h := m.process.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.takes {
		m.ready, m.subscriber = true, subscriber{Event: func(queue.Name, int64, time.Time) {}, Listening: func(bool) {}}
		return nil
	}
	m.process.members = slices.DeleteFunc(m.process.members, func(other *member) bool { return other == m })
	return nil
}
