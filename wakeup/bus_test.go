package wakeup_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// L-34: every subscriber of a Bus hears every event, whatever its queue, until its subscription is closed.
func TestEverySubscriberOfABusHearsEveryEvent(t *testing.T) {
	var bus wakeup.Bus
	one, other := queue.Name{Account: "a", Queue: "one"}, queue.Name{Account: "a", Queue: "other"}
	heard := make([][]string, 3)
	var subscriptions []wakeup.Subscription
	for i, q := range []queue.Name{one, one, other} {
		s, err := bus.Subscribe(q, func(q queue.Name, _ int64, _ time.Time) { heard[i] = append(heard[i], q.Queue) }, func(on bool) { heard[i] = append(heard[i], map[bool]string{true: "listening", false: "lost"}[on]) })
		if err != nil {
			t.Fatal(err)
		}
		subscriptions = append(subscriptions, s)
	}
	publish := func(q queue.Name) {
		if err := bus.Publish(t.Context(), q, 0, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	publish(one)
	publish(other)
	subscriptions[0].Close()
	subscriptions[0].Close()
	publish(one)
	subscriptions[0].Ready(true) // closed: nobody hears
	subscriptions[1].Ready(false)
	subscriptions[1].More()
	publish(other)
	subscriptions[1].Ready(true)
	for i, want := range [][]string{
		{"listening", "one", "other"},
		{"listening", "one", "other", "one", "other", "listening"},
		{"listening", "one", "other", "one", "other"},
	} {
		if !slices.Equal(heard[i], want) {
			t.Errorf("subscriber %d: got %v, want %v", i, heard[i], want)
		}
	}
}

// Subscribers come and go while others publish: one function of a subscriber is called at a time, and none
// after Close.
func TestABusIsSafeForConcurrentUse(t *testing.T) {
	var bus wakeup.Bus
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				closed, n := false, 0 // unguarded: calls must not be concurrent
				s, _ := bus.Subscribe(queue.Name{}, func(queue.Name, int64, time.Time) {
					n++
					if closed {
						t.Error("an event came after Close")
					}
				}, func(bool) { n++ })
				_ = bus.Publish(t.Context(), queue.Name{}, 0, time.Time{})
				s.Ready(true)
				s.Close()
				closed = true
			}
		})
	}
	all.Wait()
}
