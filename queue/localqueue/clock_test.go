package localqueue

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/queue"
)

// wallClock is a wall clock that can be set; the bubble's clock is not affected.
type wallClock struct{ off time.Duration }

func (w *wallClock) read(t time.Time) instant { return wallTime(t.Add(w.off)) }

// steppedEngine returns a queue of an engine in memory whose wall clock can be set.
func steppedEngine(t *testing.T) (*wallClock, *handle) {
	t.Helper()
	e, w := must(New(nil)), &wallClock{}
	e.clock.wall = w.read
	q := e.queue(name("stepped"))
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return w, q
}

func send(t *testing.T, q *handle, text string, o *queue.EnqueueOptions) queue.Message {
	t.Helper()
	m, err := q.Enqueue(t.Context(), text, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// receive dequeues one message and checks its text; "" means that there must be none.
func receive(t *testing.T, q *handle, when, want string) (m queue.Message) {
	t.Helper()
	batch, err := q.Dequeue(t.Context(), 1, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if len(batch) > 0 {
		m = batch[0]
	}
	if m.Text != want {
		t.Fatalf("%s: got %q, want %q", when, m.Text, want)
	}
	return m
}

// TestSettingTheWallClockMovesNoMessage: setting the wall clock hides, reveals and expires
// no message, and times are shown by the new wall clock.
func TestSettingTheWallClockMovesNoMessage(t *testing.T) {
	for what, step := range map[string]time.Duration{"back": -10 * time.Hour, "forward": 10 * time.Hour, "to 1970": -40 * 365 * 24 * time.Hour, "far forward": 150 * 365 * 24 * time.Hour} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wall, q := steppedEngine(t)
				send(t, q, "leased", &queue.EnqueueOptions{TTL: queue.Forever})
				receive(t, q, "at first", "leased")
				send(t, q, "short-lived", &queue.EnqueueOptions{TTL: time.Hour})
				time.Sleep(time.Second)

				wall.off = step
				receive(t, q, "enqueued before", "short-lived")
				receive(t, q, "hidden", "")
				m := send(t, q, "after", &queue.EnqueueOptions{Delay: time.Minute, TTL: queue.Forever})
				if now := time.Now().Add(step).UTC().Truncate(time.Second); !m.Inserted.Equal(now) && step > -100_000*time.Hour {
					t.Errorf("Inserted: got %v, want %v", m.Inserted, now)
				}
				time.Sleep(29 * time.Second)
				receive(t, q, "when the lease has ended", "leased")
				time.Sleep(2 * time.Second)
				receive(t, q, "when the other one has ended", "short-lived")
				time.Sleep(30 * time.Second)
				receive(t, q, "when the lease has ended again", "leased")
				receive(t, q, "when the delay has ended", "after")
				time.Sleep(time.Hour)
				if p, err := q.Properties(t.Context()); err != nil || p.Depth != 2 {
					t.Errorf("depth: got %d, %v; want 2, without the short-lived message", p.Depth, err)
				}
			})
		})
	}
}

// TestClockDisciplineMovesNoShownTime: small corrections of the wall clock do not change
// the times shown.
func TestClockDisciplineMovesNoShownTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wall, q := steppedEngine(t)
		first := send(t, q, "a", nil)
		for range 10 {
			wall.off += 90 * time.Millisecond
			if m, err := q.Peek(t.Context(), 1); err != nil || !m[0].Inserted.Equal(first.Inserted) {
				t.Fatalf("Inserted: got %v, %v; want %v", m[0].Inserted, err, first.Inserted)
			}
		}
	})
}

// savedStore is a store that loads a given state.
type savedStore struct {
	*mapStore
	saved localengine.Saved
}

func (s *savedStore) Load() (localengine.Saved, error) { return s.saved, nil }

// TestAStoreWithoutATimeStartsAtItsNewestMessage: no message is newer than the clock.
func TestAStoreWithoutATimeStartsAtItsNewestMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		later := time.Now().Add(time.Hour).UnixNano()
		store := &savedStore{newMapStore(), localengine.Saved{
			Secret: [32]byte{1}, Ordinal: 1,
			Queues: []localengine.QueueState{{Ordinal: 1, Name: name("stepped")}},
			Messages: func(yield func(localengine.MessageState) bool) {
				_ = yield(localengine.MessageState{MessageKey: localengine.MessageKey{Queue: 1, Sequence: 1}, Inserted: later, Due: later, Expires: int64(never)})
			},
		}}
		store.messages[localengine.MessageKey{Queue: 1, Sequence: 1}] = "from the future"
		e, err := over(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		receive(t, e.queue(name("stepped")), "opened", "from the future")
	})
}

// TestEveryCommitHasATime: every commit has a time, which never goes back.
func TestEveryCommitHasATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &timesStore{mapStore: newMapStore()}
		e, err := over(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		wall := &wallClock{}
		e.clock.wall = wall.read
		q := e.queue(name("stepped"))
		if err := q.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for n := range 5 {
			time.Sleep(time.Minute)
			wall.off -= time.Hour
			send(t, q, "a", nil)
			if want := localengine.CommittedAt(began.Add(time.Duration(n+1) * time.Minute).UnixNano()); store.last != want {
				t.Errorf("time of commit %d: got %d, want %d", n, store.last, want)
			}
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// timesStore keeps the time of the last commit.
type timesStore struct {
	*mapStore
	last localengine.CommittedAt
}

func (s *timesStore) Commit(changes []localengine.Change) (bool, error) {
	for _, c := range changes {
		if at, is := c.(localengine.CommittedAt); is {
			s.last = at
		}
	}
	return s.mapStore.Commit(changes)
}

// TestTheWallClockIsLimited: whatever the wall clock says, an instant can hold the longest
// TTL.
func TestTheWallClockIsLimited(t *testing.T) {
	for year, want := range map[int]int{1: 1970, 1899: 1970, 2026: 2026, 2300: 2190, 3000: 2190, 9999: 2190} {
		at := wallTime(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC))
		if got := time.Unix(0, int64(at)).UTC().Year(); got != want {
			t.Errorf("wall clock in the year %d: got year %d, want %d", year, got, want)
		}
		if at.after(math.MaxInt32) < at {
			t.Errorf("wall clock in the year %d: the longest TTL overflows", year)
		}
	}
}
