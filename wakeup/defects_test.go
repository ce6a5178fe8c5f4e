package wakeup_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
	"github.com/millrace/millrace/wakeup/wakeuptest"
)

// Each defect is a mistake that a transport could have. The suite must find it.
var defects = []struct {
	name    string
	found   string // the test that must find it
	harness wakeuptest.Harness
}{
	{"every second event is lost", "AnEventReachesAReadySubscriber", changed(defect{events: everySecond})},
	{"the size is lost", "TheFieldsOfAnEventSurvive", changed(defect{event: func(e event) event { e.Bytes %= 1 << 15; return e }})},
	{"the due time is lost", "TheFieldsOfAnEventSurvive", changed(defect{event: func(e event) event { e.Due = time.Time{}; return e }})},
	{"now is a due time", "TheFieldsOfAnEventSurvive", changed(defect{event: func(e event) event {
		if e.Due.IsZero() {
			e.Due = time.Now()
		}
		return e
	}})},
	{"the account is lost", "ASubscriberOfAnotherQueueTakesNothingAway", changed(defect{event: func(e event) event { e.Queue.Account = "acme"; return e }})},
	{"one subscriber hears an event", "EverySubscriberInAProcessHearsAnEvent", between(func(h *hub) { h.within = true })},
	{"nobody listens", "ListeningFollowsSubscribe", changed(defect{listening: func(bool, func(bool)) {}})},
	{"listening is told twice", "ListeningFollowsSubscribe", changed(defect{listening: func(l bool, tell func(bool)) { tell(l); tell(l) }})},
	{"listening comes too early", "WhatIsPublishedOnceItListensArrives", between(func(h *hub) { h.early = true })},
	{"listening comes too early", "WhatAnotherProcessPublishesOnceItListensArrives", between(func(h *hub) { h.early = true })},
	{"ready does not listen again", "ReadyListensAgain", changed(defect{subscription: func(s wakeup.Subscription) wakeup.Subscription { return neverReady{s} }})},
	{"listening may be for an earlier ready", "NoListeningForAnEarlierReady", between(func(h *hub) { h.stale = true })},
	{"close does not end calls", "NothingIsCalledAfterClose", changed(defect{subscription: func(s wakeup.Subscription) wakeup.Subscription { return staysOpen{s} }})},
	{"close does not end calls", "CloseTwice", changed(defect{subscription: func(s wakeup.Subscription) wakeup.Subscription { return staysOpen{s} }})},
	{"calls overlap", "CallsOfASubscriberNeverOverlap", changed(defect{overlap: true})},
	{"every process hears", "OneProcessHearsEachEvent", between(func(h *hub) { h.everybody = true })},
	{"room does not matter", "AProcessWithoutRoomHearsNothing", between(func(h *hub) { h.unready = true })},
	{"room does not matter", "WithoutRoomAnywhereNobodyHears", between(func(h *hub) { h.unready = true })},
	{"the closed take events", "AProcessThatHasGoneTakesNothingAway", between(func(h *hub) { h.takes = true })},
	{"accounts are confused", "AProcessWithAnotherQueueTakesNothingAway", between(func(h *hub) { h.confused = true })},
	{"more does nothing", "MoreWakesAnotherProcess", between(func(h *hub) { h.deafToMore = true })},
	{"more wakes the same process", "MoreWakesNobodyInItsProcess", between(func(h *hub) { h.echo = true })},
	{"publish waits for subscribers", "ABlockedSubscriberStopsNoOtherProcess", between(func(h *hub) { h.blocking = true })},
}

// between returns the harness of a hub with a defect.
func between(change func(*hub)) wakeuptest.Harness {
	return wakeuptest.Harness{Between: true, Bubble: true, Open: func(t *testing.T, n int) []wakeuptest.Process {
		h := new(hub)
		change(h)
		return h.open(t, n)
	}}
}

// defect is a transport around a bus. Its fields are defects.
type defect struct {
	event        func(event) event
	events       func() func() bool // returns which events pass
	listening    func(listening bool, tell func(bool))
	subscription func(wakeup.Subscription) wakeup.Subscription
	overlap      bool // subscribers are called at once
}

func changed(d defect) wakeuptest.Harness {
	return wakeuptest.Harness{Bubble: true, Open: func(*testing.T, int) []wakeuptest.Process {
		w := &defective{defect: d}
		if d.events != nil {
			w.passes = d.events()
		}
		return []wakeuptest.Process{{Source: w, Publisher: w}}
	}}
}

// defective is a transport with a defect.
type defective struct {
	wakeup.Bus
	defect
	passes func() bool

	mu          sync.Mutex
	subscribers []subscriber // guarded by mu; of those whose calls overlap
}

func everySecond() func() bool {
	n := 0
	return func() bool { n++; return n%2 == 1 }
}

func (w *defective) Publish(ctx context.Context, q queue.Name, bytes int64, due time.Time) error {
	if w.event != nil {
		e := w.event(event{q, bytes, due})
		q, bytes, due = e.Queue, e.Bytes, e.Due
	}
	if w.passes != nil && !w.passes() {
		return nil
	}
	if w.overlap {
		w.mu.Lock()
		all := w.subscribers
		w.mu.Unlock()
		for _, s := range all {
			s.Event(q, bytes, due)
		}
		return nil
	}
	return w.Bus.Publish(ctx, q, bytes, due)
}

func (w *defective) Subscribe(q queue.Name, event func(q queue.Name, bytes int64, due time.Time), listening func(bool)) (wakeup.Subscription, error) {
	w.mu.Lock()
	w.subscribers = append(w.subscribers, subscriber{event, listening})
	w.mu.Unlock()
	if w.listening != nil {
		tell := listening
		listening = func(listening bool) { w.listening(listening, tell) }
	}
	subscription, err := w.Bus.Subscribe(q, event, listening)
	if w.subscription != nil {
		subscription = w.subscription(subscription)
	}
	return subscription, err
}

type neverReady struct{ wakeup.Subscription }

func (neverReady) Ready(bool) {}

type staysOpen struct{ wakeup.Subscription }

func (staysOpen) Close() error { return nil }

const chosen = "WAKEUPTEST_DEFECT"

// TestDefective runs the suite against one defect. It fails, and so runs only inside
// TestSuiteFindsDefects.
func TestDefective(t *testing.T) {
	name := os.Getenv(chosen)
	if name == "" {
		t.Skip("run by TestSuiteFindsDefects")
	}
	for _, d := range defects {
		if d.name+d.found == name {
			wakeuptest.Run(t, d.harness)
		}
	}
}

func TestSuiteFindsDefects(t *testing.T) {
	t.Parallel()
	for _, d := range defects {
		t.Run(d.name+" "+d.found, func(t *testing.T) {
			t.Parallel()
			suitetest.Defect{Variable: chosen, Name: d.name, Found: d.found}.MustBeFound(t)
		})
	}
}

// TestSuitePassesWithoutDefects: the suite passes the transports that have the defects, without them,
// on a simulated and on the real clock.
func TestSuitePassesWithoutDefects(t *testing.T) {
	for _, bubble := range []bool{true, false} {
		if testing.Short() && !bubble {
			continue // it waits
		}
		for _, h := range []wakeuptest.Harness{changed(defect{}), between(func(*hub) {})} {
			h.Bubble = bubble
			t.Run("", func(t *testing.T) { wakeuptest.Run(t, h) })
		}
	}
}

// subscriber has the functions that Subscribe was called with.
type subscriber struct {
	Event     func(q queue.Name, bytes int64, due time.Time)
	Listening func(bool)
}

// event is what was published, or heard.
type event struct {
	Queue queue.Name
	Bytes int64
	Due   time.Time
}
