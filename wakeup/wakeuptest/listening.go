package wakeuptest

import (
	"pgregory.net/rapid"
)

var listeningTests = []test{
	{"ListeningFollowsSubscribe", 1, func(e *env) {
		r := e.listener(0, e.name("orders"))
		r.awaitEvent(e.publish(0, e.name("orders")))
		if told := r.toldTimes(); told != 1 {
			e.Errorf("Listening(true) was called %d times, want once", told)
		}
	}},
	{"WhatIsPublishedOnceItListensArrives", 1, func(e *env) { arrivesOnceItListens(e, 0) }},
	{"WhatAnotherProcessPublishesOnceItListensArrives", 2, func(e *env) { arrivesOnceItListens(e, 1) }},
	{"ReadyListensAgain", 1, readyListensAgain},
	{"NoListeningForAnEarlierReady", 1, func(e *env) { noStaleListening(e, 0) }},
	{"NoListeningForAnEarlierReadyBetweenProcesses", 2, func(e *env) { noStaleListening(e, 1) }},
}

func arrivesOnceItListens(e *env, publisher int) {
	q := e.name("orders")
	for range 50 {
		r := e.listener(0, q)
		r.awaitEvent(e.publish(publisher, q))
		r.close()
	}
}

func readyListensAgain(e *env) {
	q := e.name("orders")
	other := e.listener(0, q) // it stays ready, and so does the process
	r := e.listener(0, q)
	for range 10 {
		r.ready(false)
		r.ready(true)
		r.awaitListening()
		event := e.publish(0, q)
		r.awaitEvent(event)
		other.awaitEvent(event)
	}
	other.ready(false)
	for range 10 {
		r.ready(false)
		r.ready(true)
		r.awaitListening()
		r.awaitEvent(e.publish(0, q))
	}
}

// noStaleListening: after any flips the first Listening(true) that follows the last of them is true.
// The recorder checks what comes while the subscriber is not ready.
func noStaleListening(e *env, publisher int) {
	q := e.name("orders")
	rapid.Check(noDeadline{e.T}, func(t *rapid.T) {
		r := e.subscribe(0, q)
		if rapid.Bool().Draw(t, "await the first") {
			r.awaitListening()
		}
		for _, ready := range rapid.SliceOfN(rapid.Bool(), 0, 12).Draw(t, "flips") {
			r.ready(ready)
		}
		r.ready(false)
		r.ready(true)
		r.awaitListening()
		r.awaitEvent(e.publish(publisher, q))
		if told := r.toldTimes(); told != 1 {
			t.Errorf("Listening(true) was called %d times for one Ready(true)", told)
		}
		r.close()
	})
}

// noDeadline hides the Deadline method, which rapid calls and a bubble does not support.
type noDeadline struct{ rapid.TB }
