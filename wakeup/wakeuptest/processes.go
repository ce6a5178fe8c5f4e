package wakeuptest

import (
	"github.com/millrace/millrace/wakeup"
)

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
				if p[0].heard(event) > 0 && p[1].heard(event) > 0 {
					return true
				}
			}
			return false
		})
	}
	for event := range int64(n) {
		a, b, c := all[0][0].heard(event+1), all[1][0].heard(event+1), all[2][0].heard(event+1)
		if a+b+c != 1 {
			e.Errorf("event %d was heard %d, %d and %d times in three processes, want once in one of them", event+1, a, b, c)
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
		e.send(1, wakeup.Event{Queue: q, Bytes: 1 << 40})
	}
	for range 10 {
		sound.awaitEvent(e.publish(0, other))
	}
	release()
	lame.hearsAgain(1, q) // what was dropped is lost
}
