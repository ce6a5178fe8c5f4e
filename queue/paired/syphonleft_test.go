package paired

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
)

func TestMessagesThatAreNoRecordsAreLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 2)
		strange := []string{"hello", "", "backlog/1 orders", "backlog/3 orders 0 more\njob", "backlog/1 invoices 0\njob", "backlog/1 orders x\njob"}
		for _, text := range strange {
			if _, err := r.backlogs[0].Enqueue(t.Context(), text, nil); err != nil {
				t.Fatal(err)
			}
		}
		r.divert(t, 100)
		backlogs, wrapped := scriptAll(r.backlogs)
		s := start(t, r.home, wrapped, nil)
		time.Sleep(time.Hour)
		sameTexts(t, texts(t, r.home), jobs(100))
		if got := s.State(); got.Unreadable != int64(len(strange)) || s.errs.containing("left there") != len(strange) {
			t.Errorf("got %d unreadable and %d reports, want %d each", got.Unreadable, s.errs.containing("left there"), len(strange))
		}
		before := backlogs[0].updates.Load() + backlogs[0].dequeues.Load()
		time.Sleep(24 * time.Hour)
		if spent := backlogs[0].updates.Load() + backlogs[0].dequeues.Load() - before; spent > 24*int64(len(strange))+200 {
			t.Errorf("got %d requests in a day for %d messages, want about one an hour each", spent, len(strange))
		}
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		got := texts(t, r.backlogs[0])
		for _, text := range strange {
			if got[text] != 1 {
				t.Errorf("the text %q is there %d times, want once, unchanged", text, got[text])
			}
		}
	})
}

// A message that expires is not hidden for longer than it lives: the service would refuse that.
func TestAMessageThatIsLeftExpires(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 1)
		if _, err := r.backlogs[0].Enqueue(t.Context(), "strange", &queue.EnqueueOptions{TTL: 90 * time.Second}); err != nil {
			t.Fatal(err)
		}
		s := start(t, r.home, r.backlogs, nil)
		time.Sleep(10 * time.Minute)
		if got := s.State(); got.Unreadable != 1 || s.errs.containing("update") != 0 || depths(t, r.backlogs...) != 0 {
			t.Errorf("got %+v, want one that was left and expired", got)
		}
	})
}

func TestMessagesThatThePrimaryRefusesAreLeft(t *testing.T) {
	for _, kind := range []error{queue.ErrInvalid, queue.ErrTooLarge} {
		bubble(t, func(t *testing.T) {
			r := newRegions(t, 1)
			r.divert(t, 100)
			home := &scripted{Queue: r.home, onEnqueue: func(_ context.Context, text string) error {
				if text == "job-7" {
					return fault(kind, 400)
				}
				return nil
			}}
			s := start(t, home, r.backlogs, nil)
			time.Sleep(time.Hour)
			want := jobs(100)
			delete(want, "job-7")
			sameTexts(t, texts(t, r.home), want)
			if got := s.State(); got.Refused != 1 || s.errs.matching(kind) != 1 || depths(t, r.backlogs...) != 1 {
				t.Errorf("got %+v and %d errors, want one refused message, which is left", got, s.errs.matching(kind))
			}
		})
	}
}

// A message that the primary queue refuses is no answer to whether it accepts again.
func TestARefusedMessageDoesNotEndTheTries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 1)
		r.divert(t, 10)
		var down outage
		down.begin(fault(queue.ErrUnavailable, 500))
		var refuse atomic.Bool
		home := &scripted{Queue: r.home, onEnqueue: func(_ context.Context, text string) error {
			if refuse.Load() && text < "job-5" {
				return fault(queue.ErrInvalid, 400)
			}
			return down.answer()
		}}
		s := start(t, home, r.backlogs, nil)
		time.Sleep(10 * time.Minute)
		refuse.Store(true)
		down.end()
		time.Sleep(10 * time.Minute)
		if got := s.State(); got.Moved != 5 || got.Refused != 5 || !got.Failing.IsZero() {
			t.Errorf("got %+v, want five at home and five that are refused", got)
		}
	})
}

// Messages that are left do not hold up those behind them, however many there are.
func TestMessagesThatAreLeftDoNotHoldUpOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 1)
		for i := range 2000 {
			if _, err := r.backlogs[0].Enqueue(t.Context(), fmt.Sprintf("strange-%d", i), nil); err != nil {
				t.Fatal(err)
			}
		}
		r.divert(t, 10)
		backlogs, wrapped := scriptAll(r.backlogs)
		s := start(t, r.home, wrapped, nil)
		time.Sleep(5 * time.Minute)
		sameTexts(t, texts(t, r.home), jobs(10))
		if n := backlogs[0].dequeues.Load(); n > 310 || s.State().Unreadable != 2000 {
			t.Errorf("got %d dequeues in five minutes and %d that are left, want one a second at most, and 2,000", n, s.State().Unreadable)
		}
	})
}
