package paired

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
)

// divertTo puts n messages for a primary queue into the backlog queues in turn.
func (r *regions) divertTo(t testing.TB, name string, n int) {
	t.Helper()
	for i := range n {
		text := record{primary: queue.Name{Account: "west", Queue: name}}.seal(fmt.Sprintf("job-%d", i))
		if _, err := r.backlogs[i%len(r.backlogs)].Enqueue(t.Context(), text, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOneSyphonServesQueuesThatShareBacklogQueues(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 4)
		invoices := open(t, "west", "invoices")
		r.divertTo(t, "invoices", 500)
		r.divertTo(t, "orders", 500)
		s := startAll(t, []queue.Queue{r.home, invoices}, r.backlogs, nil)
		time.Sleep(time.Minute)
		sameTexts(t, texts(t, r.home), jobs(500))
		sameTexts(t, texts(t, invoices), jobs(500))
		if got := s.State(); got.Moved != 1000 || got.Unreadable != 0 || got.LastError != nil {
			t.Errorf("got %+v, want 1,000 moved", got)
		}
	})
}

// each primary queue fails apart from the others.
func TestAPrimaryThatFailsDoesNotHoldUpAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 4)
		var down outage
		down.begin(fault(queue.ErrUnavailable, 500))
		invoices := &scripted{Queue: open(t, "west", "invoices"), onEnqueue: func(context.Context, string) error { return down.answer() }}
		r.divertTo(t, "invoices", 500)
		r.divertTo(t, "orders", 500)
		backlogs, wrapped := scriptAll(r.backlogs)
		s := startAll(t, []queue.Queue{r.home, invoices}, wrapped, nil)
		time.Sleep(time.Minute)
		sameTexts(t, texts(t, r.home), jobs(500))
		if got := s.State(); got.Failing.IsZero() || got.Moved != 500 {
			t.Errorf("got %+v, want one that fails", got)
		}
		time.Sleep(4 * time.Hour)
		if n := invoices.enqueues.Load(); n > 60+5*60 {
			t.Errorf("got %d copies in vain in four hours, want about one a minute at most", n)
		}
		// Each message is taken a few times, and then every 10 minutes.
		if n := updates(backlogs); n > 500*(12+4*6) {
			t.Errorf("got %d messages given back, want at most %d", n, 500*(12+4*6))
		}
		down.end()
		time.Sleep(30 * time.Minute)
		sameTexts(t, texts(t, invoices), jobs(500))
		if got := s.State(); !got.Failing.IsZero() || got.Moved != 1000 || depths(t, r.backlogs...) != 0 {
			t.Errorf("got %+v, want all at home", got)
		}
	})
}

// A primary queue that failed, and for which there is nothing any more, causes no storm for the others.
func TestNothingToTryWithIsNoReasonToGoRound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 1)
		var down outage
		down.begin(fault(queue.ErrUnavailable, 500))
		fails := func(context.Context, string) error { return down.answer() }
		orders := &scripted{Queue: r.home, onEnqueue: fails}
		invoices := &scripted{Queue: open(t, "west", "invoices"), onEnqueue: fails}
		r.divertTo(t, "invoices", 3)
		backlogs, wrapped := scriptAll(r.backlogs)
		startAll(t, []queue.Queue{orders, invoices}, wrapped, nil)
		time.Sleep(20 * time.Second)
		if invoices.enqueues.Load() < failuresToRest {
			t.Fatal("it does not rest")
		}
		if m, ok := r.backlogs[0].(queue.Manager); !ok || m.Clear(t.Context()) != nil {
			t.Fatal("the backlog queue cannot be cleared")
		}
		r.divertTo(t, "orders", 2000)
		time.Sleep(20 * time.Minute)
		before := backlogs[0].dequeues.Load()
		time.Sleep(time.Hour)
		if n := backlogs[0].dequeues.Load() - before; n > 200 {
			t.Errorf("got %d dequeues in an hour, want one or two a minute", n)
		}
		down.end()
		time.Sleep(20 * time.Minute)
		sameTexts(t, texts(t, r.home), jobs(2000))
	})
}

func updates(qs []*scripted) (n int64) {
	for _, q := range qs {
		n += q.updates.Load()
	}
	return n
}

// What belongs to a syphon that is not there is left to it.
func TestMessagesOfOtherPrimariesAreLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 2)
		r.divertTo(t, "invoices", 10)
		s := start(t, r.home, r.backlogs, nil)
		time.Sleep(time.Hour)
		if got := s.State(); got.Unreadable != 10 || s.errs.containing("belongs into the queue west/invoices") != 10 {
			t.Errorf("got %+v, want 10 that are left", got)
		}
		invoices := open(t, "west", "invoices")
		other := start(t, invoices, r.backlogs, &SyphonOptions{Seed: 2})
		time.Sleep(3 * time.Hour)
		sameTexts(t, texts(t, invoices), jobs(10))
		if got := other.State(); got.Moved != 10 || got.Doubtful != 0 {
			t.Errorf("got %+v, want 10 moved", got)
		}
	})
}

func TestASyphonNeedsQueuesThatItCanTell(t *testing.T) {
	one, two := open(t, "west", "orders"), open(t, "north", "orders")
	if _, err := newSyphon([]queue.Queue{one, two}, nil, nil); err == nil || !strings.Contains(err.Error(), "same name") {
		t.Errorf("got %v, want that the names are the same", err)
	}
	if _, err := NewSyphon(nil, nil); err == nil || !strings.Contains(err.Error(), "without a queue") {
		t.Errorf("got %v, want that there is no queue", err)
	}
	if _, err := NewSyphon([]*Queue{nil}, nil); err == nil || !strings.Contains(err.Error(), "nil") {
		t.Errorf("got %v, want that the queue is nil", err)
	}
}

// Only a bounded number of messages is remembered.
func TestTheOldestKeysAreForgotten(t *testing.T) {
	k := newKeys()
	at := func(i int) messageKey { return messageKey{id: queue.ID(fmt.Sprint(i))} }
	for i := range maxKeys + 10 {
		if !k.add(at(i)) || k.add(at(i)) {
			t.Fatalf("key %d: got it twice, or not at all", i)
		}
	}
	if k.has(at(9)) || !k.has(at(10)) || len(k.in) != maxKeys || len(k.order) != maxKeys {
		t.Errorf("got %d keys, want the newest %d", len(k.in), maxKeys)
	}
}

// Messages of another account stay, even if the queue has the same name. A record of the last release,
// which names no account, still comes home.
func TestMessagesOfAnotherAccountStay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 1)
		records := map[string]string{"of another account": "backlog/2 north/orders 0\n", "ours": "backlog/2 west/orders 0\n", "of the last release": "backlog/1 orders 0\n"}
		for text, before := range records {
			if _, err := r.backlogs[0].Enqueue(t.Context(), before+text, nil); err != nil {
				t.Fatal(err)
			}
		}
		s := start(t, r.home, r.backlogs, nil)
		time.Sleep(time.Hour)
		sameTexts(t, texts(t, r.home), map[string]int{"ours": 1, "of the last release": 1})
		if got := s.State(); got.Unreadable != 1 || depths(t, r.backlogs...) != 1 || s.errs.containing("belongs into the queue north/orders") != 1 {
			t.Errorf("got %+v, want one that is left", got)
		}
	})
}
