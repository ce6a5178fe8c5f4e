package wakeuptest

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// Process is the transport as one process has it.
type Process struct {
	Source    wakeup.Source
	Publisher wakeup.Publisher
}

// Harness connects the suite to a transport. Open is required; the zero values of the other fields
// describe one within a process.
type Harness struct {
	// Open returns the transport as each of n processes has it, with no subscribers yet. n is 1
	// unless Between is set. Use t.Cleanup to clean up.
	Open func(t *testing.T, n int) []Process

	// Between means that the transport connects processes: an event is heard in one of those that
	// have a ready subscriber, by all subscribers that are ready there. Defaults to false: every
	// subscriber hears every event.
	Between bool

	// OneHears means that one ready subscriber hears an event, even if others are ready in its process.
	// It needs Between. Defaults to false: all that are ready in that process hear it.
	OneHears bool

	// Settle waits until all processes know which of them have ready subscribers. Defaults to
	// nothing, for a transport on which this is known at once, or that hands on what reaches a
	// process that has no ready subscriber any more.
	Settle func(t *testing.T)

	// Account is the only account whose queues have events. Defaults to any account.
	Account string

	// DueWithin is how far the Due of an event may be off. Defaults to 0.
	DueWithin time.Duration

	// SeesQueue means that the transport sees the messages themselves, as the server of a queue does:
	// Publish puts a message of that many bytes, its event comes when it is visible and has no Due, and
	// More has no effect, because a dequeue that leaves messages wakes another subscriber anyway.
	// Defaults to false.
	SeesQueue bool

	// Bubble runs each test in a testing/synctest bubble with simulated time. The transport must
	// then be in this process. Defaults to false: real time, parallel tests.
	Bubble bool
}

// test is one part of the suite.
type test struct {
	name      string
	processes int // that the test needs; more than one only with Between
	run       func(e *env)
}

// Run runs the suite against a transport, opened anew for each test.
func Run(t *testing.T, h Harness) {
	for _, part := range [][]test{deliveryTests, listeningTests, closeTests, concurrencyTests, processTests} {
		for _, c := range part {
			if c.processes > 1 && !h.Between || c.name == "MoreWakesAnotherProcess" && h.SeesQueue {
				continue
			}
			suitetest.Run(t, c.name, h.Bubble, func(t *testing.T) { c.run(newEnv(t, h, c.processes)) })
		}
	}
}

// env is what a test works with.
type env struct {
	*testing.T
	h         Harness
	processes []Process
	changed   chan struct{} // holds an element after a call of a subscriber
	published int64         // how many events were published with publish
}

func newEnv(t *testing.T, h Harness, processes int) *env {
	e := &env{T: t, h: h, changed: make(chan struct{}, 1)}
	e.processes = h.Open(t, processes)
	if len(e.processes) != processes {
		t.Fatalf("Open returned %d processes, want %d", len(e.processes), processes)
	}
	return e
}

func (e *env) name(q string) queue.Name {
	return queue.Name{Account: cmp.Or(e.h.Account, "acme"), Queue: q}
}

// publish publishes an event that no other has the Bytes of, and returns these.
func (e *env) publish(process int, q queue.Name) int64 {
	e.Helper()
	e.published++
	e.send(process, q, e.published, time.Time{})
	return e.published
}

func (e *env) send(process int, q queue.Name, bytes int64, due time.Time) {
	e.Helper()
	if err := e.processes[process].Publisher.Publish(e.Context(), q, bytes, due); err != nil {
		e.Errorf("publish %+v: %v", event{q, bytes, due}, err)
	}
}

// await waits until the condition holds. It is evaluated after every call of a subscriber.
func (e *env) await(what string, holds func() bool) {
	e.Helper()
	tooLong := time.NewTimer(30 * time.Second)
	defer tooLong.Stop()
	for !holds() {
		select {
		case <-e.changed:
		case <-tooLong.C:
			e.Fatalf("waited in vain: %s", what)
		}
	}
}

// settle waits until what Ready and Close said is known everywhere.
func (e *env) settle() {
	if e.h.Bubble {
		synctest.Wait()
	}
	if e.h.Settle != nil {
		e.h.Settle(e.T)
	}
}

// recorder is a subscriber that records what it hears, with its subscription. It fails the test when
// it is called where it must not be.
type recorder struct {
	e            *env
	name         string
	subscription wakeup.Subscription
	running      atomic.Int64 // calls of it that are under way
	telling      atomic.Int64 // those of listening

	mu        sync.Mutex
	forbidden string          // why it must not be told that it listens, or empty; guarded by mu
	closed    bool            // guarded by mu
	events    []event         // guarded by mu
	listening bool            // what it was told last, or false since it was not ready; guarded by mu
	told      int             // calls of listening(true); guarded by mu
	block     <-chan struct{} // what each Event waits for, if not nil; guarded by mu
	blocked   chan<- struct{} // gets an element when an Event waits; guarded by mu
}

// subscribe returns a recorder that is subscribed, and perhaps not yet listening.
func (e *env) subscribe(process int, q queue.Name) *recorder {
	e.Helper()
	r := &recorder{e: e, name: fmt.Sprintf("subscriber of %v in process %d", q, process)}
	s, err := e.processes[process].Source.Subscribe(q, r.event, r.listen)
	if err != nil {
		e.Fatalf("%s: subscribe: %v", r.name, err)
	}
	r.subscription = s
	e.Cleanup(r.close)
	return r
}

func (e *env) listener(process int, q queue.Name) *recorder {
	e.Helper()
	r := e.subscribe(process, q)
	r.awaitListening()
	return r
}

func (r *recorder) event(q queue.Name, bytes int64, due time.Time) {
	r.call(func() {
		r.events = append(r.events, event{q, bytes, due})
		if block := r.block; block != nil {
			r.mu.Unlock()
			r.blocked <- struct{}{}
			<-block
			r.mu.Lock()
		}
	})
}

func (r *recorder) listen(listening bool) {
	r.telling.Add(1)
	defer r.telling.Add(-1)
	r.call(func() {
		if r.forbidden != "" {
			r.e.Errorf("%s: listening(%t) was called %s", r.name, listening, r.forbidden)
		}
		r.listening = listening
		if listening {
			r.told++
		}
	})
}

// call calls f with the lock held and checks that a call is allowed.
func (r *recorder) call(f func()) {
	if r.running.Add(1) > 1 {
		r.e.Errorf("%s: two of its functions were called at a time", r.name)
	}
	r.mu.Lock()
	if r.closed {
		r.e.Errorf("%s: called after Close had returned", r.name)
	}
	f()
	r.mu.Unlock()
	for range 3 {
		runtime.Gosched() // lets calls that overlap do so
	}
	r.running.Add(-1)
	select {
	case r.e.changed <- struct{}{}:
	default:
	}
}

// ready says whether the subscriber is ready, and checks that no earlier Ready is answered later.
func (r *recorder) ready(ready bool) {
	if ready {
		r.mu.Lock()
		r.forbidden = ""
		r.mu.Unlock()
		r.subscription.Ready(true)
		return
	}
	r.subscription.Ready(false)
	if r.telling.Load() != 0 {
		r.e.Errorf("%s: Ready(false) returned during a call of listening", r.name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forbidden, r.listening, r.told = "after Ready(false) had returned", false, 0
}

// close closes the subscription, and checks that nothing is called afterwards. It can be repeated.
func (r *recorder) close() {
	if err := r.subscription.Close(); err != nil {
		r.e.Errorf("%s: Close: %v", r.name, err)
	}
	if r.running.Load() != 0 {
		r.e.Errorf("%s: Close returned during a call", r.name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// awaitListening waits until the subscriber listens, since it was last made ready.
func (r *recorder) awaitListening() {
	r.e.Helper()
	r.e.await(r.name+" must listen", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.listening
	})
}

// toldTimes returns how often the subscriber was told that it listens, since it was last made ready.
func (r *recorder) toldTimes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told
}

func (r *recorder) all() []event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// heard returns how often the subscriber has heard the event with these bytes.
func (r *recorder) heard(bytes int64) int {
	times := 0
	for _, e := range r.all() {
		if e.Bytes == bytes {
			times++
		}
	}
	return times
}

// count returns how many events the subscriber has heard.
func (r *recorder) count() int { return len(r.all()) }

// awaitEvent waits until the subscriber has heard the event with these bytes.
func (r *recorder) awaitEvent(bytes int64) {
	r.e.Helper()
	r.e.await(fmt.Sprintf("%s must hear event %d", r.name, bytes), func() bool { return r.heard(bytes) > 0 })
}

// hear reports whether the subscribers of one process have heard the event with these bytes, as the
// transport delivers it.
func (e *env) hear(bytes int64, subscribers ...*recorder) bool {
	times := 0
	for _, r := range subscribers {
		times += min(r.heard(bytes), 1)
	}
	return times == len(subscribers) || e.h.OneHears && times > 0
}

// hearsAgain publishes until the subscriber hears, because many events at once may be too many for a
// transport of hints. Each call of the subscriber shows that there may be room again.
func (r *recorder) hearsAgain(publisher int, q queue.Name) {
	r.e.Helper()
	event := r.e.publish(publisher, q)
	r.e.await(r.name+" must hear again", func() bool {
		if r.heard(event) > 0 {
			return true
		}
		r.e.send(publisher, q, event, time.Time{})
		return false
	})
}

// blockNext lets each Event wait until release is called. blocked gets an element when one waits.
func (r *recorder) blockNext() (blocked <-chan struct{}, release func()) {
	block, reached := make(chan struct{}), make(chan struct{}, 1<<16)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.block, r.blocked = block, reached
	return reached, sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.block = nil
		close(block)
	})
}

// event is what was published, or heard.
type event struct {
	Queue queue.Name
	Bytes int64
	Due   time.Time
}
