package queue_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
)

// peeks returns when within a minute a peek a second failed.
func peeks(t *testing.T, q queue.Queue) (failed []int) {
	t.Helper()
	for second := range 60 {
		if _, err := q.Peek(t.Context(), 1); err != nil {
			failed = append(failed, second)
		}
		time.Sleep(time.Second)
	}
	return failed
}

// allOf is the numbers from…to, both included.
func allOf(from, to int) (all []int) {
	for ; from <= to; from++ {
		all = append(all, from)
	}
	return all
}

func TestRatesOfAPhaseHoldWhileItLasts(t *testing.T) {
	busy := map[faultqueue.Op]faultqueue.Rates{faultqueue.Peek: {Throttled: 1}}
	calm := map[faultqueue.Op]faultqueue.Rates{faultqueue.Peek: {}}
	for name, c := range map[string]struct {
		phases []faultqueue.Phase
		usual  faultqueue.Rates
		want   []int
	}{
		"none":          {},
		"in the middle": {phases: []faultqueue.Phase{{From: 10 * time.Second, For: 5 * time.Second, Faults: busy}}, want: allOf(10, 14)},
		"begun before":  {phases: []faultqueue.Phase{{From: -time.Hour, For: time.Hour + 3*time.Second, Faults: busy}}, want: allOf(0, 2)},
		"two": {phases: []faultqueue.Phase{
			{From: time.Second, For: time.Second, Faults: busy},
			{From: 58 * time.Second, For: time.Hour, Faults: busy},
		}, want: []int{1, 58, 59}},
		"of another operation": {phases: []faultqueue.Phase{
			{For: time.Hour, Faults: map[faultqueue.Op]faultqueue.Rates{faultqueue.Dequeue: {Throttled: 1}}},
		}},
		"of another queue": {phases: []faultqueue.Phase{{For: time.Hour, Queue: "orders-poison", Faults: busy}}},
		"of this queue":    {phases: []faultqueue.Phase{{For: time.Second, Queue: "orders", Faults: busy}}, want: []int{0}},
		"calm in the middle": {
			phases: []faultqueue.Phase{{From: 10 * time.Second, For: time.Hour, Faults: calm}},
			usual:  faultqueue.Rates{Throttled: 1},
			want:   allOf(0, 9),
		},
		"the first that says so wins": {phases: []faultqueue.Phase{
			{For: time.Hour},
			{For: 2 * time.Second, Faults: calm},
			{For: 4 * time.Second, Faults: busy},
		}, want: []int{2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, _ := open(t, faultqueue.Options{Phases: c.phases, Every: c.usual, Latency: faultqueue.Range{Min: 1}})
				if failed := peeks(t, q); !slices.Equal(failed, c.want) {
					t.Errorf("failed in the seconds %v, want %v", failed, c.want)
				}
			})
		})
	}
}

func TestPhaseOfASibling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := open(t, faultqueue.Options{Phases: []faultqueue.Phase{{
			For: time.Minute, Queue: "orders-poison", Faults: map[faultqueue.Op]faultqueue.Rates{faultqueue.Create: {Unavailable: 1}},
		}}})
		if err := q.Create(t.Context(), nil); err != nil {
			t.Errorf("the queue itself: %v", err)
		}
		if err := q.Sibling("-poison").Create(t.Context(), nil); !errors.Is(err, queue.ErrUnavailable) {
			t.Errorf("its sibling: %v, want unavailable", err)
		}
	})
}

func TestClockThatIsSetInAPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := open(t, faultqueue.Options{Skew: time.Minute, Phases: []faultqueue.Phase{{From: time.Second, For: time.Second, Skew: -time.Hour}}})
		for _, want := range []time.Duration{time.Minute, time.Minute - time.Hour, time.Minute} {
			m, err := q.Enqueue(t.Context(), "x", nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := time.Until(m.Inserted).Round(time.Minute); got != want {
				t.Errorf("the server's clock is %v ahead, want %v", got, want)
			}
			time.Sleep(time.Second)
		}
	})
}
