package wakeuptest

import (
	"sync"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

var concurrencyTests = []test{
	{"CallsOfASubscriberNeverOverlap", 1, callsNeverOverlap},
	{"ConcurrentUse", 1, func(e *env) { concurrentUse(e, 1) }},
	{"ConcurrentUseInSeveralProcesses", 3, func(e *env) { concurrentUse(e, 3) }},
}

func callsNeverOverlap(e *env) {
	q := e.name("orders")
	r := e.listener(0, q)
	var publishers sync.WaitGroup
	for range 4 {
		publishers.Go(func() {
			for range 50 {
				e.send(0, wakeup.Event{Queue: q})
			}
		})
	}
	for range 50 {
		r.ready(false)
		r.ready(true)
	}
	publishers.Wait()
	r.awaitListening()
	r.hearsAgain(0, q)
}

// concurrentUse does everything at once. Afterwards everything works as before.
func concurrentUse(e *env, processes int) {
	queues := []queue.Name{e.name("orders"), e.name("letters")}
	var running sync.WaitGroup
	for i := range 4 * processes {
		process, q := i%processes, queues[i%len(queues)]
		running.Go(func() {
			for j := range 10 {
				r := e.subscribe(process, q)
				e.send(process, wakeup.Event{Queue: q, Bytes: 1 << 40})
				r.ready(j%2 == 0)
				r.subscription.More()
				r.ready(true)
				e.send((process+1)%processes, wakeup.Event{Queue: q, Bytes: 1 << 40})
				r.close()
			}
		})
	}
	running.Wait()
	e.settle()
	for _, q := range queues {
		r := e.listener(processes-1, q)
		for range 5 {
			r.awaitEvent(e.publish(0, q))
		}
	}
}
