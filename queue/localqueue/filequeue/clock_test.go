package filequeue

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
)

// daysLater runs a program whose clock starts that many days after 2000.
func daysLater(t *testing.T, dir string, days int, crash bool, run func(t *testing.T, q queue.Manager)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Duration(days) * 24 * time.Hour)
		s, err := openStore(dir)
		if err != nil {
			t.Fatal(err)
		}
		if f := s.Found(); f.Damaged > 0 || f.Torn {
			t.Errorf("Found: got %+v, want no damage", f)
		}
		e, err := engineOver(crashing{s, t, &crash}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer closed(t, e)
		q := e.Queue(queue.Name{Account: account, Queue: "clock"})
		if err := q.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		run(t, q)
	})
}

func enqueued(t *testing.T, q queue.Manager, text string, delay, ttl time.Duration) queue.Message {
	t.Helper()
	m, err := q.Enqueue(t.Context(), text, &queue.EnqueueOptions{Delay: delay, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func visible(t *testing.T, q queue.Manager, when string, want ...string) {
	t.Helper()
	batch, err := q.Peek(t.Context(), queue.MaxBatch)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, m := range batch {
		texts = append(texts, m.Text)
	}
	slices.Sort(texts)
	if !slices.Equal(texts, want) {
		t.Errorf("visible messages %s: got %q, want %q", when, texts, want)
	}
}

// TestAClockSetBackOverARestart: however far the clock is set back, also after it was set forward,
// visible messages stay visible, hidden ones are not hidden for longer than requested, and no TTL
// grows.
func TestAClockSetBackOverARestart(t *testing.T) {
	for _, c := range []struct {
		step      string
		far, back int // days since the beginning
	}{
		{"a day", 2, 1},
		{"fifty years", 50 * 365, 1},
	} {
		for _, crash := range []bool{false, true} {
			t.Run(c.step, func(t *testing.T) {
				dir := memoryDirectory(t)
				daysLater(t, dir, 1, false, func(t *testing.T, q queue.Manager) { enqueued(t, q, "old", 0, queue.Forever) })
				daysLater(t, dir, c.far, crash, func(t *testing.T, q queue.Manager) {
					if batch, err := q.Dequeue(t.Context(), 1, 30*time.Second); err != nil || len(batch) != 1 {
						t.Fatalf("got %v, %v; want one message", batch, err)
					}
					enqueued(t, q, "at once", 0, queue.Forever)
					enqueued(t, q, "delayed", time.Minute, queue.Forever)
					enqueued(t, q, "short-lived", 0, time.Hour)
				})
				daysLater(t, dir, c.back, crash, func(t *testing.T, q queue.Manager) {
					visible(t, q, "at once", "at once", "short-lived")
					m := enqueued(t, q, "new", 0, time.Hour)
					if now := time.Now().UTC(); !m.Inserted.Equal(now) || !m.Expires.Equal(now.Add(time.Hour)) {
						t.Errorf("got inserted %v and expires %v, want %v and an hour later", m.Inserted, m.Expires, now)
					}
					time.Sleep(30 * time.Second)
					visible(t, q, "after the lease", "at once", "new", "old", "short-lived")
					time.Sleep(30 * time.Second)
					visible(t, q, "after the delay", "at once", "delayed", "new", "old", "short-lived")
					time.Sleep(time.Hour - time.Minute)
					visible(t, q, "after an hour", "at once", "delayed", "old")
				})
				daysLater(t, dir, c.back, crash, func(t *testing.T, q queue.Manager) {
					visible(t, q, "once more", "at once", "delayed", "old")
					if batch, err := q.Dequeue(t.Context(), 3, 30*time.Second); err != nil || len(batch) != 3 {
						t.Fatalf("got %v, %v; want three messages", batch, err)
					}
					time.Sleep(30 * time.Second)
					visible(t, q, "after the lease", "at once", "delayed", "old")
				})
			})
		}
	}
}
