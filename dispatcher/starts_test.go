package dispatcher

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/queue"
)

// Starts that a process recorded and knows to be harmless do not count, whatever others have
// recorded since; all others do.
func TestOnlyStartsThatAreKnownToBeHarmlessAreLeftOut(t *testing.T) {
	items := envelope.NewItemSet(2, func(int) bool { return true })
	for name, c := range map[string]struct {
		known recordedStart
		head  envelope.Head
		want  int
		lost  int64 // deliveries since of which nothing is recorded
	}{
		"its own, which took effect":               {known: recordedStart{delivery: 3, read: 1, written: 1, excluded: 1}, head: envelope.Head{Starts: 1}, want: 0},
		"its own, which may have taken effect":     {known: recordedStart{delivery: 3, read: 0, written: 1, excluded: 1}, head: envelope.Head{Starts: 1}, want: 0},
		"its own, which did not take effect":       {known: recordedStart{delivery: 3, read: 2, written: 3, excluded: 1}, head: envelope.Head{Starts: 2}, want: 2},
		"others before it":                         {known: recordedStart{delivery: 3, read: 3, written: 3, excluded: 1}, head: envelope.Head{Starts: 3}, want: 2},
		"others after it":                          {known: recordedStart{delivery: 3, read: 1, written: 1, excluded: 1}, head: envelope.Head{Starts: 3}, want: 2},
		"its own still runs":                       {known: recordedStart{delivery: 3, read: 2, written: 2}, head: envelope.Head{Starts: 2}, want: 2},
		"less was written than there was, and not": {known: recordedStart{delivery: 5, read: 3, written: 1, excluded: 1}, head: envelope.Head{Starts: 3}, want: 0},
		"the same, and others after it":            {known: recordedStart{delivery: 5, read: 3, written: 1, excluded: 1}, head: envelope.Head{Starts: 4}, want: 1},
		"less was written, and others after it":    {known: recordedStart{delivery: 5, read: 3, written: 1, excluded: 1}, head: envelope.Head{Starts: 2}, want: 1},
		"settled since, and started by others":     {known: recordedStart{delivery: 3, read: 2, written: 2, excluded: 2}, head: envelope.Head{Settled: 3, Starts: 2}, want: 2},
		"saved with progress by it":                {known: recordedStart{delivery: 3, read: 1, written: 1, excluded: 1}, head: envelope.Head{Settled: 2, Starts: 1}, want: 1},
		"not settled since":                        {known: recordedStart{delivery: 3, read: 2, written: 2, excluded: 2}, head: envelope.Head{Settled: 1, Starts: 2}, want: 0},
		"given back unstarted by another": {known: recordedStart{delivery: 3, settled: 1, read: 1, written: 1, excluded: 1},
			head: envelope.Head{Settled: 2, Starts: 1}, want: 0, lost: 2},
		"failed since, and started by others": {known: recordedStart{delivery: 3, settled: 1, read: 1, written: 1, excluded: 1},
			head: envelope.Head{Settled: 2, Starts: 1, Attempts: 1}, want: 1, lost: 2},
		"progress of its group, which has returned": {known: recordedStart{delivery: 3, read: 1, written: 1, excluded: 1, over: true},
			head: envelope.Head{Settled: 2, Starts: 1, Started: items}, want: 0},
		"the same, given back since": {known: recordedStart{delivery: 3, read: 1, written: 1, excluded: 1, over: true},
			head: envelope.Head{Settled: 3, Starts: 1, Started: items}, want: 0, lost: 1},
		"the same, and a start of another since": {known: recordedStart{delivery: 3, read: 1, written: 1, excluded: 1, over: true},
			head: envelope.Head{Settled: 2, Starts: 2, Started: items}, want: 1},
		"progress of its group, which still runs": {known: recordedStart{delivery: 3, read: 1, written: 1},
			head: envelope.Head{Settled: 2, Starts: 1, Started: items}, want: 1},
		"corrected by another that knows more": {known: recordedStart{delivery: 3, read: 4, written: 4, excluded: 1}, head: envelope.Head{Starts: 1}, want: 1},
	} {
		before := max(c.known.delivery, c.head.Settled+int64(c.head.Starts)) + c.lost
		if got := c.known.countedStarts(c.head, before); got != c.want {
			t.Errorf("%s: counted starts: got %d of %d, want %d", name, got, c.head.Starts, c.want)
		}
	}
}

// A worker that does not know of items leaves their starts in a head that it has settled.
func TestItemsStartedBeforeTheLastSettlementDoNotCount(t *testing.T) {
	started := envelope.NewItemSet(2, func(int) bool { return true })
	for recorded, want := range []envelope.ItemSet{"", started} {
		o := opened{queued: queue.Message{DequeueCount: 4}, head: envelope.Head{Settled: 2, Starts: recorded, Started: started}}
		if new(starts).count(&o); o.head.Started != want {
			t.Errorf("%d starts: got the items %q, want %q", recorded, o.head.Started, want)
		}
	}
}

// A start is excluded only while it counts, and starts whose handlers returned only a limited
// number of times.
func TestStartsAreExcludedWithinBounds(t *testing.T) {
	var s starts
	excluded := func() int {
		start, _ := s.recall("m")
		return start.excluded
	}
	s.exclude("m", 1, true)
	if _, known := s.recall("m"); known {
		t.Error("got a start that was never recorded, want none")
	}
	s.remember("m", recordedStart{delivery: 5, settled: 2, read: 3, written: 3}, recordedStart{})
	for delivery, want := range map[int64]int{2: 0, 3: 1, 5: 1, 6: 0} {
		before := excluded()
		if s.exclude("m", delivery, false); excluded()-before != want {
			t.Errorf("start of delivery %d: got excluded %d times, want %d", delivery, excluded()-before, want)
		}
	}
	for n := int64(10); n < 10+2*maxExcluded; n++ {
		s.remember("m", recordedStart{delivery: n, read: 1, written: 1}, recordedStart{})
		s.exclude("m", n, true)
		if want := min(max(maxExcluded-int(n-10), 0), 1); excluded() != want {
			t.Errorf("after %d: got %d excluded, want %d", n-10, excluded(), want)
		}
		s.exclude("m", n, false)
		if excluded() == 0 {
			t.Error("a start that never happened: got 0 excluded, want it excluded")
		}
	}
	s.remember("m", recordedStart{delivery: 101, settled: 100, read: 1, written: 1}, recordedStart{})
	if s.exclude("m", 101, true); excluded() != 1 {
		t.Errorf("after a settlement: got %d excluded, want 1: earlier exclusions must not count", excluded())
	}
	if s.forget("m", 1); excluded() == 0 {
		t.Error("forget of an earlier delivery: the later one is forgotten")
	}
	if s.forget("m", 1000); len(s.byID) != 0 {
		t.Errorf("after forget: got %d messages remembered, want 0", len(s.byID))
	}
	for n := range 2 * maxRemembered {
		s.remember(queue.ID(strconv.Itoa(n)), recordedStart{delivery: 1}, recordedStart{})
	}
	if _, newest := s.recall(queue.ID(strconv.Itoa(2*maxRemembered - 1))); len(s.byID) != maxRemembered || !newest {
		t.Errorf("got %d messages remembered, the newest %v; want %d and true", len(s.byID), newest, maxRemembered)
	}
}

// A handler that has saved progress continues to run after its lease was lost. Its start is no
// longer in the message: when it returns, the start of the next delivery, which may have killed
// another worker, is not excluded in its place.
func TestAStartRemovedByProgressExcludesNoOther(t *testing.T) {
	var s starts
	s.remember("m", recordedStart{delivery: 11, settled: 9, read: 0, written: 1}, recordedStart{})
	s.remember("m", recordedStart{delivery: 12, settled: 10, read: 0, written: 1}, recordedStart{})
	s.exclude("m", 11, true)
	head := envelope.Head{Settled: 10, Starts: 1}
	if one, _ := s.recall("m"); one.countedStarts(head, 12) != 1 {
		t.Errorf("got %d counted starts, want 1", one.countedStarts(head, 12))
	}
	s.exclude("m", 12, true)
	if one, _ := s.recall("m"); one.countedStarts(head, 12) != 0 {
		t.Errorf("when both have returned: got %d counted starts, want 0", one.countedStarts(head, 12))
	}
}

// The rounds of a group in one delivery have each a start in the message, and none counts when the group
// has returned. Only a delivery that ends with the process leaves them there.
func TestTheRoundsOfAGroupThatReturnsDoNotCount(t *testing.T) {
	var s starts
	v := &delivery{}
	v.queued.ID, v.queued.DequeueCount = "m", 4
	counted := func(inMessage int) int {
		one, _ := s.recall("m")
		return one.countedStarts(envelope.Head{Settled: 1, Starts: inMessage}, 4)
	}
	s.remember("m", recordedStart{delivery: 4, settled: 1, read: 2, written: 2}, recordedStart{}) // one of another before it
	s.nextRound(v, 3)
	s.nextRound(v, 3)
	if got := counted(3); got != 2 {
		t.Errorf("in the second round: got %d counted starts, want 2", got)
	}
	s.exclude("m", 4, true)
	for inMessage := 2; inMessage <= 3; inMessage++ { // the record may have been refused
		if got := counted(inMessage); got != 1 {
			t.Errorf("after it, with %d in the message: got %d counted starts, want the one before", inMessage, got)
		}
	}
	v.queued.DequeueCount = 5
	if s.nextRound(v, 9); counted(2) != 1 {
		t.Errorf("after the round of a delivery without a record: got %d counted starts, want 1", counted(2))
	}
}

// A handler returns while the start of the next delivery is being recorded with its own start
// counted.
func TestAStartIsExcludedWhileTheNextIsRecorded(t *testing.T) {
	var s starts
	s.remember("m", recordedStart{delivery: 11, settled: 9, read: 1, written: 1}, recordedStart{})
	before, _ := s.recall("m")
	s.exclude("m", 11, true)
	s.remember("m", recordedStart{delivery: 12, settled: 9, read: 2, written: 2}, before)
	if one, _ := s.recall("m"); one.countedStarts(envelope.Head{Settled: 9, Starts: 2}, 12) != 1 {
		t.Errorf("got %d counted starts, want 1, that of delivery 12", one.countedStarts(envelope.Head{Settled: 9, Starts: 2}, 12))
	}
}

// textQueue is a queue that keeps the text of the last update.
type textQueue struct {
	queue.Queue
	mu   sync.Mutex
	text string // guarded by mu
}

func (*textQueue) Name() queue.Name             { return queue.Name{Account: "a", Queue: "jobs-poison"} }
func (q *textQueue) Sibling(string) queue.Queue { return q }

func (q *textQueue) Update(_ context.Context, l queue.Lease, text string, _ time.Duration) (queue.Lease, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.text = text
	return l, nil
}

// A delivery that is given back before its handler started accounts only for itself. One that
// was handled accounts for all before it.
func TestAGiveBackWithoutARunKeepsTheCountOfLostStarts(t *testing.T) {
	for before, c := range map[string]struct {
		count       int64
		unhandled   string
		interrupted string
	}{
		"":            {1, "&s=1", "&s=1"},
		"&s=4":        {5, "&s=5", "&s=5"},
		"&s=1":        {5, "&s=2", "&s=5"},
		"&s=1&st=3":   {6, "&s=2&st=3", "&s=6"},
		"&s=9&st=3":   {6, "&s=1", "&s=6"}, // impossible counts are taken as 0
		"&n=2&s=1":    {9, "&n=2&s=2", "&n=2&s=9"},
		"&st=4":       {5, "&s=1&st=4", "&s=5"},
		"&s=1&st=4":   {5, "&s=1", "&s=5"}, // likewise
		"&n=1&s=7&zz": {8, "&n=1&s=8&zz", "&n=1&s=8&zz"},
	} {
		for _, handled := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				q := &textQueue{}
				handler := func(ctx context.Context, _ *Message[[]byte]) error { <-ctx.Done(); return ctx.Err() }
				d, err := New(q, Jobs[[]byte]{Handler: handler, Codec: codec.Bytes()}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := d.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				want := c.unhandled
				if handled {
					want = c.interrupted
				} else {
					d.Stop()
				}
				m := queue.Message{Lease: queue.Lease{ID: "m", Receipt: "r"}, Text: "millrace/1?id=7" + before + "\nx", DequeueCount: c.count}
				d.Dispatch([]queue.Message{m}, d.Reserve(t.Context()), time.Now(), time.Minute)
				synctest.Wait()
				grace, endGrace := context.WithCancel(t.Context())
				endGrace()
				if err := d.Drain(grace); err != nil {
					t.Error(err)
				}
				if q.text != "millrace/1?id=7"+want+"\nx" {
					t.Errorf("%q, handled %v: got the text %q, want the head %q", before, handled, q.text, want)
				}
			})
		}
	}
}

// A job that is postponed leaves the count of lost starts as it was, because no handler was called. If one was, and has saved
// its progress, that has accounted for them: starts beside it would be more than possible, and nothing would count as
// accounted for.
func TestAPostponedJobKeepsTheCountOfLostStartsUnlessItSaved(t *testing.T) {
	for before, c := range map[string]struct {
		count           int64
		unsaved, saving string
	}{
		"":          {1, "&s=1", "&s=1"},
		"&s=4":      {5, "&s=5", "&s=5"},
		"&s=1":      {5, "&s=2", "&s=5"},
		"&s=1&st=3": {6, "&s=2&st=3", "&s=6"},
		"&n=2&s=1":  {9, "&n=2&s=2", "&n=2&s=9"},
	} {
		for _, saves := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				q, want := &textQueue{}, c.unsaved+"\nx"
				if saves {
					want = c.saving + "\ny"
				}
				handler := func(ctx context.Context, m *Message[[]byte]) error {
					if saves {
						if err := m.Save(ctx, []byte("y")); err != nil {
							t.Error(err)
						}
					}
					return NotRun(time.Second, errors.New("the dependency is exhausted"))
				}
				d, err := New(q, Jobs[[]byte]{Handler: handler, Codec: codec.Bytes()}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := d.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				m := queue.Message{Lease: queue.Lease{ID: "m", Receipt: "r"}, Text: "millrace/1?id=7" + before + "\nx", DequeueCount: c.count}
				d.Dispatch([]queue.Message{m}, d.Reserve(t.Context()), time.Now(), time.Minute)
				synctest.Wait()
				d.Stop()
				if err := d.Drain(t.Context()); err != nil {
					t.Error(err)
				}
				if q.text != "millrace/1?id=7"+want {
					t.Errorf("%q, saves %v: got the text %q, want %q with its head and body", before, saves, q.text, want)
				}
			})
		}
	}
}

func TestStartsAreForgottenWithTheirDelivery(t *testing.T) {
	var s starts
	s.remember("m", recordedStart{delivery: 3}, recordedStart{})
	s.forget("m", 2)
	if _, known := s.recall("m"); !known {
		t.Error("forgotten by an earlier delivery: got unknown, want known")
	}
	s.forget("m", 3)
	if _, known := s.recall("m"); known {
		t.Error("forgotten by its delivery: got known, want unknown")
	}
}
