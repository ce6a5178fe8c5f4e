package wakeuptest

import (
	"slices"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
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
	for _, want := range []wakeup.Event{
		{Queue: q, Bytes: 1},
		{Queue: q, Bytes: 40_000},
		{Queue: q, Bytes: 2, Due: now.Add(time.Minute)},
		{Queue: q, Bytes: 3, Due: now.Add(6 * 24 * time.Hour)},
	} {
		if e.h.SeesQueue && !want.Due.IsZero() {
			continue
		}
		e.send(0, want)
		r.awaitEvent(want.Bytes)
		all := r.all()
		got := all[slices.IndexFunc(all, func(g wakeup.Event) bool { return g.Bytes == want.Bytes })]
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
		for _, r := range all {
			r.awaitEvent(event)
		}
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
