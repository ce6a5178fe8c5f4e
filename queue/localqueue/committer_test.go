package localqueue

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/queue"
)

var errNoSpace = errors.New("no space left")

// mapStore is a store in memory that fails on request.
type mapStore struct {
	mu       sync.Mutex
	messages map[localengine.MessageKey]string // guarded by mu
	fail     error                             // guarded by mu; of every commit while set
	hold     chan struct{}                     // guarded by mu; while set, commits wait until it is closed
	commits  int                               // guarded by mu
}

func newMapStore() *mapStore { return &mapStore{messages: map[localengine.MessageKey]string{}} }

func (s *mapStore) Load() (localengine.Saved, error) { return localengine.Saved{}, nil }

func (s *mapStore) Commit(changes []localengine.Change) (bool, error) {
	s.mu.Lock()
	hold := s.hold
	s.mu.Unlock()
	if hold != nil {
		<-hold
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits++
	if s.fail != nil {
		return false, s.fail
	}
	s.messages = maps.Clone(s.messages) // the views keep the old ones
	for _, c := range changes {
		switch c := c.(type) {
		case localengine.MessageAdded:
			s.messages[c.MessageKey] = c.Text
		case localengine.MessageRewritten:
			s.messages[c.MessageKey] = c.Text
		case localengine.MessageRemoved:
			delete(s.messages, localengine.MessageKey(c))
		}
	}
	return false, nil
}

func (s *mapStore) set(fail error, hold chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail, s.hold = fail, hold
}

func (s *mapStore) View() (localengine.View, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return mapView(s.messages), nil
}

func (s *mapStore) Close() error { return nil }

type mapView map[localengine.MessageKey]string

func (v mapView) Text(k localengine.MessageKey) (string, error) {
	text, ok := v[k]
	if !ok {
		return "", localengine.ErrDamaged
	}
	return text, nil
}

func (v mapView) Close() error { return nil }

// shadow is an engine over a failing store, and one in memory that repeats only the calls that the
// store did not fail.
type shadow struct {
	store        *mapStore
	over, memory *handle
	leases       [][2]queue.Lease
}

// act is one call, as a function of the queue and of which of the two it is.
type act func(q *handle, which int) ([]queue.Message, error)

// apply makes a call on the engine over the store and, unless the store failed it, on the
// one in memory, and compares the results.
func (w *shadow) apply(t *rapid.T, one act) {
	got, err := one(w.over, 0)
	if errors.Is(err, queue.ErrUnavailable) {
		return
	}
	want, wanted := one(w.memory, 1)
	if (err == nil) != (wanted == nil) || len(got) != len(want) {
		t.Fatalf("messages: got %d, %v; want %d, %v", len(got), err, len(want), wanted)
	}
	for i := range got {
		if got[i].Receipt != "" {
			w.leases = append(w.leases, [2]queue.Lease{got[i].Lease, want[i].Lease})
		}
		w.same(t, got[i], want[i])
	}
}

func (w *shadow) same(t *rapid.T, got, want queue.Message) {
	got.ID, got.Receipt, want.ID, want.Receipt = "", "", "", ""
	if got != want {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

// draw draws one call.
func (w *shadow) draw(t *rapid.T) act {
	ctx := context.Background()
	text := rapid.StringMatching(`[a-z]{1,3}`).Draw(t, "text")
	visibility := time.Duration(rapid.IntRange(1, 5).Draw(t, "visibility")) * time.Second
	kind := rapid.SampledFrom([]string{"enqueue", "enqueue", "dequeue", "update", "extend", "delete", "clear"}).Draw(t, "kind")
	var lease [2]queue.Lease
	if len(w.leases) > 0 {
		lease = rapid.SampledFrom(w.leases).Draw(t, "lease")
	} else if kind != "clear" && kind != "dequeue" {
		kind = "enqueue"
	}
	one := func(m queue.Message, err error) ([]queue.Message, error) {
		if err != nil {
			return nil, err
		}
		return []queue.Message{m}, nil
	}
	return func(q *handle, which int) ([]queue.Message, error) {
		switch kind {
		case "enqueue":
			return one(q.Enqueue(ctx, text, &queue.EnqueueOptions{TTL: queue.Forever}))
		case "dequeue":
			return q.Dequeue(ctx, 2, visibility)
		case "update":
			l, err := q.Update(ctx, lease[which], text, visibility)
			return one(queue.Message{Lease: l}, err)
		case "extend":
			l, err := q.Extend(ctx, lease[which], visibility)
			return one(queue.Message{Lease: l}, err)
		case "delete":
			return nil, q.Delete(ctx, lease[which])
		default:
			return nil, q.Clear(ctx)
		}
	}
}

// check compares all messages that are visible now or later.
func (w *shadow) check(t *rapid.T) {
	for range 2 {
		got, err := w.over.Peek(context.Background(), queue.MaxBatch)
		want, wanted := w.memory.Peek(context.Background(), queue.MaxBatch)
		if err != nil || wanted != nil || len(got) != len(want) {
			t.Fatalf("messages: got %d, %v; want %d, %v", len(got), err, len(want), wanted)
		}
		slices.SortFunc(got, byText) // an undone change may have changed the order
		slices.SortFunc(want, byText)
		for i := range got {
			w.same(t, got[i], want[i])
		}
		time.Sleep(10 * time.Second)
	}
}

func byText(a, b queue.Message) int {
	return cmp.Or(cmp.Compare(a.Text, b.Text), a.Inserted.Compare(b.Inserted), cmp.Compare(a.DequeueCount, b.DequeueCount))
}

// TestAFailedCommitChangesNothing: a call whose commit fails changes nothing, and neither do
// the calls that wait behind it.
func TestAFailedCommitChangesNothing(t *testing.T) {
	checkInBubbles(t, func(t *rapid.T) {
		w := &shadow{store: newMapStore()}
		durable, err := over(w.store, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = durable.Close() }()
		name := queue.Name{Account: "a", Queue: "shadow"}
		w.over, w.memory = durable.queue(name), must(New(nil)).queue(name)
		for _, q := range []*handle{w.over, w.memory} {
			if err := q.Create(context.Background(), nil); err != nil {
				t.Fatal(err)
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				w.store.set(errNoSpace, nil)
				w.apply(t, w.draw(t))
				w.store.set(nil, nil)
			case 1:
				w.together(t)
			case 2:
				time.Sleep(time.Second)
			default:
				w.apply(t, w.draw(t))
			}
		}
		w.check(t)
	})
}

// together makes several calls during a commit that then fails.
func (w *shadow) together(t *rapid.T) {
	hold := make(chan struct{})
	w.store.set(errNoSpace, hold)
	calls := make([]act, rapid.IntRange(2, 6).Draw(t, "calls"))
	for i := range calls {
		calls[i] = w.draw(t)
	}
	var all sync.WaitGroup
	for _, call := range calls {
		all.Go(func() { _, _ = call(w.over, 0) }) // it failed, or had nothing to change
		synctest.Wait()
	}
	close(hold)
	all.Wait()
	w.store.set(nil, nil)
}

// overMap returns a queue of an engine over a store, which the test's end closes.
func overMap(t *testing.T) (*mapStore, *handle) {
	t.Helper()
	store := newMapStore()
	e, err := over(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() }) // a mapStore closes
	q := e.queue(queue.Name{Account: "a", Queue: "over-map"})
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return store, q
}

// enqueueAtOnce enqueues from n callers at once, and returns how long they took together.
func enqueueAtOnce(t *testing.T, q *handle, callers int) time.Duration {
	t.Helper()
	begin := time.Now()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			if _, err := q.Enqueue(t.Context(), "a", nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	return time.Since(begin)
}

// TestACommitWaitsAMomentForOthers: a single caller never waits; after a commit that many
// shared, a caller waits for them once, at most for maxGather.
func TestACommitWaitsAMomentForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := overMap(t)
		for range 10 {
			if took := enqueueAtOnce(t, q, 1); took != 0 {
				t.Errorf("single caller: got a wait of %v, want none", took)
			}
		}
		hold := make(chan struct{})
		store.set(nil, hold)
		var all sync.WaitGroup
		all.Go(func() { enqueueAtOnce(t, q, 1) })
		synctest.Wait() // its commit is in progress
		all.Go(func() { enqueueAtOnce(t, q, 20) })
		synctest.Wait() // so that they all share the next one
		close(hold)
		all.Wait()
		store.set(nil, nil)
		if took := enqueueAtOnce(t, q, 1); took != maxGather {
			t.Errorf("single caller after many: got a wait of %v, want %v", took, maxGather)
		}
		if took := enqueueAtOnce(t, q, 1); took != 0 {
			t.Errorf("next single caller: got a wait of %v, want none", took)
		}
	})
}

// TestAnUncertainCommitIsAnUnknownOutcome: if the store does not know whether it committed, the
// outcome is unknown, and later calls fail without having changed anything.
func TestAnUncertainCommitIsAnUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := overMap(t)
		store.set(localengine.ErrUncertain, nil)
		if _, err := q.Enqueue(t.Context(), "a", nil); !errors.Is(err, queue.ErrOutcomeUnknown) || !errors.Is(err, localengine.ErrUncertain) {
			t.Errorf("got %v, want ErrOutcomeUnknown", err)
		}
		if _, err := q.Enqueue(t.Context(), "b", nil); !errors.Is(err, queue.ErrUnavailable) || errors.Is(err, queue.ErrOutcomeUnknown) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
	})
}

// TestCommitsAreShared: all calls that wait for a commit in progress share the next one.
func TestCommitsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, q := overMap(t)
		synctest.Wait()
		before := store.commits // no commit is in progress
		hold := make(chan struct{})
		store.set(nil, hold)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if _, err := q.Enqueue(t.Context(), "a", nil); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		close(hold)
		all.Wait()
		if got := store.commits - before; got != 2 {
			t.Errorf("commits for 100 enqueues: got %d, want the one in progress and one more", got)
		}
	})
}
