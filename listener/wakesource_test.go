package listener

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// instances is a source as between processes: an event reaches one subscriber that is ready, in turns.
// What is published while none is ready, or while there is no connection, is lost.
type instances struct {
	mu        sync.Mutex
	connected bool        // guarded by mu
	members   []*instance // guarded by mu
	calls     []string    // of all subscriptions; guarded by mu
}

type instance struct {
	all   *instances
	of    subscriber
	one   sync.Mutex // held while the subscriber is called
	ready bool       // guarded by all.mu
	ended bool       // guarded by all.mu
}

func connected() *instances { return &instances{connected: true} }

func (i *instances) Subscribe(_ queue.Name, event func(q queue.Name, bytes int64, due time.Time), listening func(bool)) (wakeup.Subscription, error) {
	m := &instance{all: i, of: subscriber{event, listening}}
	i.mu.Lock()
	i.members = append(i.members, m)
	i.mu.Unlock()
	m.set(true)
	return m, nil
}

func (i *instances) Publish(_ context.Context, q queue.Name, bytes int64, due time.Time) error {
	if m := i.pick(nil); m != nil {
		m.call(func() { m.of.Event(q, bytes, due) })
	}
	return nil
}

// pick returns the member whose turn it is, other than that one.
func (i *instances) pick(other *instance) *instance {
	i.mu.Lock()
	defer i.mu.Unlock()
	for n, m := range i.members {
		if i.connected && m.ready && !m.ended && m != other {
			i.members = append(slices.Delete(i.members, n, n+1), m)
			return m
		}
	}
	return nil
}

// connect sets whether there is a connection, and tells all subscribers that are ready.
func (i *instances) connect(on bool) {
	i.mu.Lock()
	i.connected = on
	i.mu.Unlock()
	for _, m := range i.subscribed() {
		if m.isReady() {
			m.call(func() { m.of.Listening(on) })
		}
	}
}

// subscribed returns the subscriptions.
func (i *instances) subscribed() []*instance {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.members)
}

// isReady reports whether the subscription is ready and has not ended.
func (m *instance) isReady() bool {
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	return m.ready && !m.ended
}

// called returns the calls of all subscriptions so far, and forgets them.
func (i *instances) called() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	calls := i.calls
	i.calls = nil
	return calls
}

func (m *instance) call(f func()) {
	m.one.Lock()
	defer m.one.Unlock()
	f()
}

func (m *instance) note(call string) {
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	m.all.calls = append(m.all.calls, call)
}

func (m *instance) set(ready bool) {
	m.all.mu.Lock()
	m.ready = ready
	listens := ready && m.all.connected
	m.all.mu.Unlock()
	if listens {
		m.call(func() { m.of.Listening(true) })
	}
}

func (m *instance) Ready(ready bool) {
	m.note(fmt.Sprintf("Ready(%v)", ready))
	m.set(ready)
}

func (m *instance) More() {
	m.note("More")
	if next := m.all.pick(m); next != nil {
		next.call(func() { next.of.Event(jobsQueue, 0, time.Time{}) })
	}
}

func (m *instance) Close() error {
	m.note("Close")
	m.all.mu.Lock()
	m.ended = true
	m.all.mu.Unlock()
	return nil
}

// jobsQueue is the name of the bundle's queue.
var jobsQueue = queue.Name{Account: "test", Queue: "jobs"}

// wakeOptions returns the default options with that source.
func wakeOptions(s wakeup.Source) *Options[job] {
	o := options()
	o.Wakeups = s
	return o
}

// publish publishes that a message is in the bundle's queue.
func (b *bundle) publish(p wakeup.Publisher) {
	b.Helper()
	if err := p.Publish(b.Context(), jobsQueue, 0, time.Time{}); err != nil {
		b.Fatal(err)
	}
}

// dequeues returns how many dequeues were sent so far.
func (b *bundle) dequeues() int { return len(b.queue.sent("dequeue")) }

// runAll runs several listeners until the returned function stops them all.
func (b *bundle) runAll(all []*Listener[job]) (finish func()) {
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, len(all))
	for _, l := range all {
		go func() { done <- l.Run(ctx) }()
	}
	return func() {
		b.Helper()
		stop()
		for range all {
			if err := <-done; err != nil {
				b.Errorf("Run: got error %v, want nil", err)
			}
		}
	}
}

// mustBeIdle fails the test unless no loop runs and events reach the listener.
func (b *bundle) mustBeIdle(l *Listener[job]) {
	b.Helper()
	if st := l.State(); st.Loops != 0 || !st.Listening || !st.Ready() || !st.Healthy() {
		b.Errorf("state: got %d loops, listening %v, ready %v, healthy %v; want none, and all true", st.Loops, st.Listening, st.Ready(), st.Healthy())
	}
}

// noSafety is a SafetyPoll that finds nothing by accident.
const noSafety = -1 * time.Second
