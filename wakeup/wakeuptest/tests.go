package wakeuptest

import (
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
	"pgregory.net/rapid"
)

var deliveryTests = []test{
	{"AnEventReachesAReadySubscriber", 1, eventsReachASubscriber},
	{"TheFieldsOfAnEventSurvive", 1, fieldsSurvive},
	{"EverySubscriberInAProcessHearsAnEvent", 1, everySubscriberHears},
	{"ASubscriberOfAnotherQueueTakesNothingAway", 1, func(e *env) { othersTakeNothingAway(e, func(int) int { return 0 }) }},
	{"AProcessWithAnotherQueueTakesNothingAway", len(alike), func(e *env) { othersTakeNothingAway(e, func(i int) int { return i }) }},
}

func eventsReachASubscriber(e *env) {
	q := e.name("orders")
	r := e.listener(0, q)
	for range 20 {
		r.awaitEvent(e.publish(0, q))
	}
}

func fieldsSurvive(e *env) {
	q := e.name("orders")
	r := e.listener(0, q)
	now := time.Now().Truncate(time.Second)
	for _, want := range []event{
		{Queue: q, Bytes: 1},
		{Queue: q, Bytes: 40_000},
		{Queue: q, Bytes: 2, Due: now.Add(time.Minute)},
		{Queue: q, Bytes: 3, Due: now.Add(6 * 24 * time.Hour)},
	} {
		if e.h.SeesQueue && !want.Due.IsZero() {
			continue
		}
		e.send(0, want.Queue, want.Bytes, want.Due)
		r.awaitEvent(want.Bytes)
		all := r.all()
		got := all[slices.IndexFunc(all, func(g event) bool { return g.Bytes == want.Bytes })]
		if got.Queue != want.Queue || got.Due.IsZero() != want.Due.IsZero() || got.Due.Sub(want.Due).Abs() > e.h.DueWithin {
			e.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func everySubscriberHears(e *env) {
	q := e.name("orders")
	all := []*recorder{e.listener(0, q), e.listener(0, q), e.listener(0, q)}
	for range 5 {
		event := e.publish(0, q)
		e.await("every subscriber must hear each event", func() bool { return e.hear(event, all...) })
	}
	all[1].close()
	all[0].ready(false)
	e.settle()
	all[2].awaitEvent(e.publish(0, q)) // whatever the others do
}

// alike are names that a careless transport confuses. The last one is of another account.
var alike = []queue.Name{
	{Account: "acme", Queue: "orders"}, {Account: "acme", Queue: "orders-1"}, {Account: "acme", Queue: "orders-1-1"},
	{Account: "acme", Queue: "acme-orders"}, {Account: "acmeorders", Queue: "orders"},
}

// othersTakeNothingAway: each subscriber hears the events of its queue, and perhaps others.
func othersTakeNothingAway(e *env, process func(i int) int) {
	var all []*recorder
	names := slices.Clone(alike)
	if e.h.Account != "" {
		names = names[:len(names)-1]
		for i := range names {
			names[i].Account = e.h.Account
		}
	}
	for i, q := range names {
		all = append(all, e.listener(process(i), q))
	}
	for range 5 {
		for i, q := range names {
			all[i].awaitEvent(e.publish(process(0), q))
		}
	}
	for i, r := range all {
		for _, event := range r.all() {
			if want := names[(event.Bytes-1)%int64(len(names))]; event.Queue != want {
				e.Errorf("subscriber of %v heard %+v, which was published for %v", names[i], event, want)
			}
		}
	}
}

var listeningTests = []test{
	{"ListeningFollowsSubscribe", 1, func(e *env) {
		r := e.listener(0, e.name("orders"))
		r.awaitEvent(e.publish(0, e.name("orders")))
		if told := r.toldTimes(); told != 1 {
			e.Errorf("listening(true) was called %d times, want once", told)
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
		e.await("both must hear each event", func() bool { return e.hear(event, r, other) })
	}
	other.ready(false)
	for range 10 {
		r.ready(false)
		r.ready(true)
		r.awaitListening()
		r.awaitEvent(e.publish(0, q))
	}
}

// noStaleListening: after any flips the first listening(true) that follows the last of them is true.
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
			t.Errorf("listening(true) was called %d times for one Ready(true)", told)
		}
		r.close()
	})
}

// noDeadline hides the Deadline method, which rapid calls and a bubble does not support.
type noDeadline struct{ rapid.TB }

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
			e.send(process, q, first+int64(i), time.Time{})
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
				e.send(0, q, 0, time.Time{})
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
				e.send(process, q, 1<<40, time.Time{})
				r.ready(j%2 == 0)
				r.subscription.More()
				r.ready(true)
				e.send((process+1)%processes, q, 1<<40, time.Time{})
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

// These tests need several processes.
var processTests = []test{
	{"OneProcessHearsEachEvent", 3, oneProcessHears},
	{"AProcessWithoutRoomHearsNothing", 3, withoutRoomHearsNothing},
	{"AProcessThatHasGoneTakesNothingAway", 2, theGoneTakeNothing},
	{"WithoutRoomAnywhereNobodyHears", 2, nobodyHears},
	{"MoreWakesAnotherProcess", 2, moreWakesAnother},
	{"MoreWakesNobodyInItsProcess", 2, moreAlone},
	{"ABlockedSubscriberStopsNoOtherProcess", 2, blockedStopsNoOther},
}

// oneProcessHears: each event is heard in one process, by all subscribers there. They are published
// one after the other, because many at once may be too many for a transport of hints.
func oneProcessHears(e *env) {
	q := e.name("orders")
	var all [3][2]*recorder
	for i := range all {
		all[i] = [2]*recorder{e.listener(i, q), e.listener(i, q)}
	}
	e.settle()
	const n = 60
	for i := range n {
		event := e.publish(i%len(all), q)
		e.await("one process must hear each event", func() bool {
			for _, p := range all {
				if e.hear(event, p[:]...) {
					return true
				}
			}
			return false
		})
	}
	for event := range int64(n) {
		first, second := 0, 0
		for _, p := range all {
			first, second = first+p[0].heard(event+1), second+p[1].heard(event+1)
		}
		if e.h.OneHears && first+second != 1 || !e.h.OneHears && first != 1 {
			e.Errorf("event %d was heard %d and %d times by the two subscribers of three processes, want once in one of them", event+1, first, second)
		}
	}
}

func withoutRoomHearsNothing(e *env) {
	q := e.name("orders")
	full, alsoFull, free := e.listener(0, q), e.listener(1, q), e.listener(2, q)
	for range 5 {
		full.ready(false)
		alsoFull.ready(false)
		before := full.count() + alsoFull.count()
		e.settle()
		for i := range 10 {
			free.awaitEvent(e.publish(i%3, q))
		}
		if got := full.count() + alsoFull.count() - before; got != 0 {
			e.Errorf("subscribers without room heard %d events", got)
		}
		full.ready(true)
		alsoFull.ready(true)
		full.awaitListening()
		alsoFull.awaitListening()
	}
}

func theGoneTakeNothing(e *env) {
	q := e.name("orders")
	stays := e.listener(0, q)
	for range 5 {
		gone := e.listener(1, q)
		gone.close()
		e.settle()
		for range 10 {
			stays.awaitEvent(e.publish(1, q))
		}
	}
}

func nobodyHears(e *env) {
	q, other := e.name("orders"), e.name("letters")
	a, b := e.listener(0, q), e.listener(1, q)
	markA, markB := e.listener(0, other), e.listener(1, other)
	a.ready(false)
	b.ready(false)
	e.settle()
	lost := e.publish(0, q)
	for _, mark := range []struct{ hears, not *recorder }{{markA, markB}, {markB, markA}} {
		mark.not.ready(false)
		e.settle()
		mark.hears.awaitEvent(e.publish(0, other))
		mark.not.ready(true)
		mark.not.awaitListening()
	}
	if a.heard(lost)+b.heard(lost) != 0 {
		e.Error("a subscriber without room heard an event")
	}
	a.ready(true)
	a.awaitListening()
	a.hearsAgain(1, q) // a wake-up for the lost one that comes only now may lead to a dequeue of this
}

func moreWakesAnother(e *env) {
	q := e.name("orders")
	a, b := e.listener(0, q), e.listener(1, q)
	e.settle()
	for range 10 {
		for _, p := range []struct{ one, other *recorder }{{a, b}, {b, a}} {
			before := p.other.count()
			p.one.subscription.More()
			e.await(p.other.name+" must be woken by More", func() bool { return p.other.count() > before })
		}
	}
	for _, r := range []*recorder{a, b} {
		for _, event := range r.all() {
			if event.Queue != q || !event.Due.IsZero() {
				e.Errorf("More woke with %+v", event)
			}
		}
	}
}

// moreAlone: a process that is alone is not woken by itself, because it would dequeue for nothing.
func moreAlone(e *env) {
	q := e.name("orders")
	r, full := e.listener(0, q), e.listener(1, q)
	full.ready(false)
	e.settle()
	for range 10 {
		r.subscription.More()
		r.awaitEvent(e.publish(0, q))
		r.awaitEvent(e.publish(1, q))
	}
	if r.count() != 20 || full.count() != 0 {
		e.Errorf("heard %d and %d events, want 20 and none", r.count(), full.count())
	}
}

// blockedStopsNoOther: a subscriber that waits breaks the rules, but stops neither publishers nor
// other processes.
func blockedStopsNoOther(e *env) {
	const n = 2000
	q, other := e.name("orders"), e.name("letters")
	lame, sound := e.listener(0, q), e.listener(1, other)
	blocked, release := lame.blockNext()
	defer release()
	e.publish(1, q)
	<-blocked
	for range n {
		e.send(1, q, 1<<40, time.Time{})
	}
	for range 10 {
		sound.awaitEvent(e.publish(0, other))
	}
	release()
	lame.hearsAgain(1, q) // what was dropped is lost
}
