package listener

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/metered"
)

// Requests to a poison queue that the policy names are billed like all others.
func TestRequestsToAnOwnPoisonQueueAreCounted(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		o := options()
		o.Poison.Queue = b.queue.Sibling("-bad")
		l := New(b.queue, func(context.Context, *Message[job]) error { return Poison(errors.New("no address")) }, o)
		b.run(l)
		advance(10 * time.Second)
		b.mustFinish()
		if n := len(b.queue.sent("enqueue")); n == 0 {
			t.Error("copies sent: got none, want some")
		}
		if got, want := l.State().Requests, int64(len(b.queue.log)); got != want {
			t.Errorf("Requests: got %d, want %d", got, want)
		}
	})
}

// C-01, V-09: State and its JSON form say what the requests were for.
func TestTheStateSaysWhatRequestsWereFor(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(3)
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			switch m.Body.N {
			case 0:
				return Snooze(time.Hour)
			case 1:
				return Poison(errors.New("no address"))
			}
			return nil
		}, options())
		if l.Counts() != nil {
			t.Errorf("before Run: got %v, want none", l.Counts())
		}
		var deletes atomic.Int64
		b.queue.intercept = func(op string, act func() error) error {
			if op == "delete" && deletes.Add(1) == 1 {
				return &queue.Error{Op: op, Kind: queue.ErrThrottled, Status: 503}
			}
			return act()
		}
		b.run(l)
		advance(10 * time.Second)
		b.mustFinish()
		got := l.State().ByCause
		fetches := int64(len(b.queue.sent("dequeue")))
		want := RequestsByCause{
			Fetches: fetches, EmptyFetches: fetches - 1, GiveBacks: 1, Deletes: got.Deletes, Poison: got.Poison,
			Metadata:  1,              // beside the first fetch
			Throttled: 1, Repeated: 1, // that the poison queue was missing is not a failure
		}
		// The delete that the service refused is that of the job or that of the poison.
		if got != want || got.Deletes+got.Poison != 1+4+1 || got.Deletes < 1 || got.Deletes > 2 {
			t.Errorf("got %+v, want %+v", got, want)
		}
		text, err := json.Marshal(l.State())
		var state struct{ ByCause map[string]int64 }
		if err != nil || json.Unmarshal(text, &state) != nil || state.ByCause["Fetches"] != fetches || state.ByCause["GiveBacks"] != 1 {
			t.Errorf("got %s, %v, want the requests by cause", text, err)
		}
	})
}

// Every cause is in one count of a state; those that a listener does not have are others.
func TestEveryCauseIsInTheState(t *testing.T) {
	seen := map[RequestsByCause]metered.Cause{}
	others := requestsByCause(metered.Counts{{Cause: metered.CauseUnknown, Tally: metered.Tally{Requests: 1}}})
	for _, c := range metered.Causes() {
		r := requestsByCause(metered.Counts{{Cause: c, Tally: metered.Tally{Requests: 1}}})
		if before, known := seen[r]; known && r != others {
			t.Errorf("%v counts as %v", c, before)
		}
		seen[r] = c
	}
	if len(seen) != 12 {
		t.Errorf("got %d counts, want 12", len(seen))
	}
}
