package wakeuptest

import (
	"sync"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

var closeTests = []test{
	{"NothingIsCalledAfterClose", 1, nothingAfterClose},
	{"CloseTwice", 1, closeTwice},
}

// nothingAfterClose closes subscriptions in the midst of events. The recorder checks the rest.
func nothingAfterClose(e *env) {
	q := e.name("orders")
	stays := e.listener(0, q)
	for i := range 50 {
		r := e.subscribe(0, q)
		if i%2 == 0 {
			r.awaitListening()
		}
		events := e.publishMeanwhile(0, q, 5)
		r.close()
		events()
	}
	stays.awaitEvent(e.publish(0, q))
}

// publishMeanwhile publishes events on a goroutine of its own. What it returns waits for its end.
func (e *env) publishMeanwhile(process int, q queue.Name, n int) (wait func()) {
	var running sync.WaitGroup
	first := e.published + 1
	e.published += int64(n)
	running.Go(func() {
		for i := range n {
			e.send(process, wakeup.Event{Queue: q, Bytes: first + int64(i)})
		}
	})
	return running.Wait
}

func closeTwice(e *env) {
	q := e.name("orders")
	again, r, stays := e.listener(0, q), e.listener(0, q), e.listener(0, q)
	again.close()
	again.close()
	var running sync.WaitGroup
	for range 4 {
		running.Go(r.close)
	}
	running.Wait()
	r.close()
	r.subscription.Ready(false) // nothing of a closed subscription has an effect
	r.subscription.Ready(true)
	r.subscription.More()
	r.close()
	for range 5 {
		stays.awaitEvent(e.publish(0, q))
	}
}
