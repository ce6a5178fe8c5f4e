package wakeuptest

import (
	"testing"
	"testing/synctest"
	"time"

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
			t.Run(c.name, func(t *testing.T) {
				if h.Bubble {
					synctest.Test(t, func(t *testing.T) { c.run(newEnv(t, h, c.processes)) })
					return
				}
				t.Parallel()
				c.run(newEnv(t, h, c.processes))
			})
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
	if e.h.Account != "" {
		return queue.Name{Account: e.h.Account, Queue: q}
	}
	return queue.Name{Account: "acme", Queue: q}
}

// publish publishes an event that no other has the Bytes of, and returns these.
func (e *env) publish(process int, q queue.Name) int64 {
	e.Helper()
	e.published++
	e.send(process, wakeup.Event{Queue: q, Bytes: e.published})
	return e.published
}

func (e *env) send(process int, event wakeup.Event) {
	e.Helper()
	if err := e.processes[process].Publisher.Publish(e.Context(), event); err != nil {
		e.Errorf("publish %+v: %v", event, err)
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
