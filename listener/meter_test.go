package listener

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
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
		if st := l.State(); len(st.ByCause) > 0 {
			t.Errorf("before Run: got %v, want none", st.ByCause)
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
		st := l.State()
		got, fetches := st.ByCause, int64(len(b.queue.sent("dequeue")))
		want := map[string]int64{
			"fetch": fetches, "giveback": 1, "delete": got["delete"], "poison": got["poison"],
			"metadata": 1, // beside the first fetch
		}
		// The delete that the service refused is that of the job or that of the poison.
		if !maps.Equal(got, want) || got["delete"]+got["poison"] != 1+4+1 || got["delete"] < 1 || got["delete"] > 2 || st.EmptyPolls != fetches-1 {
			t.Errorf("got %+v, want %+v", got, want)
		}
		// That the poison queue was missing is not a failure.
		if failed := map[string]int64{"throttled": 1, "repeated": 1}; !maps.Equal(st.ByFailure, failed) {
			t.Errorf("got the failures %+v, want %+v", st.ByFailure, failed)
		}
		text, err := json.Marshal(st)
		var state struct {
			ByCause map[string]int64 `json:"by_cause"`
		}
		if err != nil || json.Unmarshal(text, &state) != nil || !maps.Equal(state.ByCause, want) {
			t.Errorf("got %s, %v, want the requests by cause", text, err)
		}
	})
}

// countsOf returns the requests of a listener.
func countsOf(l *Listener[job]) metered.Counts { return l.current().meter.Counts() }
