package paired

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
)

// x-ms-timetolive. What is left of a life and of a delay counts from the send.
func TestWhatIsLeftOfLifeAndDelayComesHome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 1)
		sent := time.Now()
		r.put(t, 0, "forever", nil)
		r.put(t, 0, "short", &queue.EnqueueOptions{TTL: 5 * time.Minute})
		r.put(t, 0, "lives", &queue.EnqueueOptions{TTL: time.Hour})
		r.put(t, 0, "later", &queue.EnqueueOptions{Delay: 30 * time.Minute, TTL: time.Hour})
		r.put(t, 0, "due", &queue.EnqueueOptions{Delay: time.Minute})
		time.Sleep(10 * time.Minute)
		s := start(t, r.home, r.backlogs, nil)
		synctest.Wait()
		ends := make(map[string]time.Time)
		for _, m := range take(t, r.home) {
			ends[m.Text] = m.Expires
		}
		if len(ends) != 3 || ends["forever"].Year() != 9999 || ends["due"].Year() != 9999 {
			t.Errorf("got %v, want what is visible by now", ends)
		}
		if got := ends["lives"].Sub(sent); got < time.Hour || got > time.Hour+time.Second {
			t.Errorf("it lives %v after it was sent, want 1h", got)
		}
		time.Sleep(20*time.Minute - time.Second)
		if got := take(t, r.home); len(got) != 0 {
			t.Errorf("got %v before its delay was over", got)
		}
		time.Sleep(2 * time.Second)
		later := take(t, r.home)
		if len(later) != 1 || later[0].Text != "later" {
			t.Fatalf("got %v, want the delayed one", later)
		}
		if got := later[0].Expires.Sub(sent); got < time.Hour || got > time.Hour+time.Second {
			t.Errorf("it lives %v after it was sent, want 1h", got)
		}
		if got := s.State(); got.Moved != 4 {
			t.Errorf("got %d moved, want 4, because one life had ended", got.Moved)
		}
	})
}

// take takes everything that is visible, for an hour.
func take(t testing.TB, q queue.Queue) (all []queue.Message) {
	t.Helper()
	for {
		batch, err := q.Dequeue(context.Background(), queue.MaxBatch, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if len(batch) == 0 {
			return all
		}
		all = append(all, batch...)
	}
}

// A message whose life ends in hand is dropped, as the service would have, and not copied for another second.
func TestAMessageThatExpiresInHandIsNotCopied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 1)
		r.put(t, 0, "job-0", &queue.EnqueueOptions{TTL: time.Minute})
		r.put(t, 0, "late", &queue.EnqueueOptions{TTL: 5 * time.Second})
		home := &scripted{Queue: r.home, onEnqueue: func(context.Context, string) error { time.Sleep(8 * time.Second); return nil }}
		s := start(t, home, r.backlogs, &SyphonOptions{Parallel: 1})
		time.Sleep(30 * time.Second)
		sameTexts(t, texts(t, r.home), jobs(1))
		if got := s.State(); home.enqueues.Load() != 1 || got.Expired != 1 || got.Moved != 1 || got.LastError != nil {
			t.Errorf("got %d copies and %+v, want one copy, and one message that expired", home.enqueues.Load(), got)
		}
	})
}

// A message that waits for its primary queue is not taken again and again in its last seconds.
func TestTheEndOfALifeIsNoStorm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 1)
		invoices := &scripted{Queue: open(t, "west", "invoices"), onEnqueue: func(context.Context, string) error { return fault(queue.ErrUnavailable, 500) }}
		r.divertTo(t, "invoices", 3)
		backlogs, wrapped := scriptAll(r.backlogs)
		backlogs[0].onDequeue = func(int) error { time.Sleep(time.Millisecond); return nil }
		s := startAll(t, []queue.Queue{r.home, invoices}, wrapped, &SyphonOptions{MaxPoll: time.Second})
		time.Sleep(5 * time.Minute) // the primary queue rests
		text := record{primary: queue.Name{Account: "west", Queue: "invoices"}}.seal("short")
		for range 20 {
			if _, err := r.backlogs[0].Enqueue(t.Context(), text, &queue.EnqueueOptions{TTL: 5 * time.Second}); err != nil {
				t.Fatal(err)
			}
		}
		before := backlogs[0].dequeues.Load()
		time.Sleep(10 * time.Second)
		if n := backlogs[0].dequeues.Load() - before; n > 30 {
			t.Errorf("got %d dequeues in 10 s, want about two a second at most", n)
		}
		if n := s.errs.containing("update"); n != 0 {
			t.Errorf("got %d errors of updates, want none", n)
		}
	})
}

// A message that was in hand for long is not hidden for longer than it still lives, which the service would refuse.
func TestAMessageInHandForLongIsHiddenForNoLongerThanItLives(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 1)
		r.put(t, 0, "job-0", nil)
		if _, err := r.backlogs[0].Enqueue(t.Context(), "strange", &queue.EnqueueOptions{TTL: 40 * time.Second}); err != nil {
			t.Fatal(err)
		}
		home := &scripted{Queue: r.home, onEnqueue: func(context.Context, string) error { time.Sleep(25 * time.Second); return nil }}
		s := start(t, home, r.backlogs, &SyphonOptions{Parallel: 1})
		time.Sleep(2 * time.Minute)
		if got := s.State(); got.Unreadable != 1 || s.errs.containing("update") != 0 || depths(t, r.backlogs...) != 0 {
			t.Errorf("got %+v, want one that was left and expired", got)
		}
	})
}
