package listener

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/dispatcher/perkey"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// Save of an item replaces it and no other, and says what is done.
func TestAnItemSavesItself(t *testing.T) {
	bothWays(t, func(b *bundle, way func(Handler[job]) Handler[job]) {
		b.putGroup(5)
		var mu sync.Mutex
		saw := map[int][]int{}
		b.run(New(b.queue, way(func(ctx context.Context, m *Message[job]) error {
			mu.Lock()
			saw[m.Item] = append(saw[m.Item], m.Body.N)
			mu.Unlock()
			if m.Attempt == 1 && (m.Item == 1 || m.Item == 3) {
				for n := range 3 {
					if err := m.Save(ctx, job{m.Item*100 + n}); err != nil {
						t.Error(err)
					}
				}
				if m.Body.N != m.Item*100+2 {
					t.Errorf("after the save, the body of item %d is %+v", m.Item, m.Body)
				}
				return errors.New("later")
			}
			return nil
		}), options()))
		advance(time.Minute)
		b.mustFinish()
		if got := fmt.Sprint(saw); got != "map[0:[0] 1:[1 102] 2:[2] 3:[3 302] 4:[4]]" || b.depth(b.queue) != 0 {
			t.Errorf("the items had the bodies %v; %d left", got, b.depth(b.queue))
		}
	})
}

// A save says what is done, so that it is not done again when the worker dies.
func TestASaveRecordsWhatIsDone(t *testing.T) {
	for _, saved := range []int{333, 3} { // 3 is what it was: then only the lease is renewed
		bubble(t, func(b *bundle) { b.saveAndDie(saved) })
	}
}

// saveAndDie handles a group until a worker has saved an item with this body and dies, and then the rest.
func (b *bundle) saveAndDie(saved int) {
	t := b.T
	b.putGroup(5)
	var dead atomic.Bool
	b.queue.intercept = func(op string, act func() error) error {
		if op == "update" && dead.Load() {
			return errors.New("dead")
		}
		return act()
	}
	b.run(New(b.queue, func(ctx context.Context, m *Message[job]) error {
		if m.Item < 3 {
			return nil
		}
		if err := m.Save(ctx, job{saved}); err != nil {
			t.Error(err)
		}
		batch, err := b.queue.Queue.Peek(ctx, 1)
		if err != nil || len(batch) != 0 {
			t.Errorf("the message is visible: %v, %v", batch, err)
		}
		<-ctx.Done()
		return ctx.Err()
	}, options()))
	advance(time.Second)
	dead.Store(true)
	b.stop()
	advance(2 * time.Minute) // its lease ends
	<-b.done
	dead.Store(false)
	var got items
	b.run(New(b.queue, func(ctx context.Context, m *Message[job]) error {
		if want := map[int]int{3: saved, 4: 4}[m.Item]; m.Body.N != want {
			t.Errorf("item %d has the body %+v", m.Item, m.Body)
		}
		got.mu.Lock()
		defer got.mu.Unlock()
		if got.calls == nil {
			got.calls = map[int]int{}
		}
		got.calls[m.Item]++
		return nil
	}, options()))
	advance(time.Minute)
	b.mustFinish()
	got.wantCounts(t, 0, 0, 0, 1, 1)
}

// A handler that ends its goroutine fails its item, and the others are handled.
func TestGoexitFailsOneItem(t *testing.T) {
	bothWays(t, func(b *bundle, way func(Handler[job]) Handler[job]) {
		b.putGroup(9)
		var got items
		b.run(New(b.queue, way(got.handler(t, func(_ context.Context, m *Message[job]) error {
			switch {
			case m.Item%4 != 1 && m.Attempt > 1:
				t.Errorf("item %d has attempt %d, want 1", m.Item, m.Attempt)
			case m.Item%4 == 1 && m.Attempt == 1:
				runtime.Goexit()
			}
			return nil
		})), options()))
		advance(time.Hour)
		b.mustFinish()
		got.wantCounts(t, 1, 2, 1, 1, 1, 2, 1, 1, 1)
		if b.depth(b.queue) != 0 || b.poisonDepth() != 0 {
			t.Error("something is left")
		}
	})
}

// exiting is a codec that ends the goroutine when it first decodes the second item.
type exiting struct {
	codec.Codec[job]
	once sync.Once
}

func (c *exiting) Decode(body []byte) (job, error) {
	j, err := c.Codec.Decode(body)
	if j.N == 1 {
		c.once.Do(runtime.Goexit)
	}
	return j, err
}

// A codec that ends the goroutine does so for its item only, and its place in an EachItem is free again.
func TestGoexitInTheCodecHoldsUpNoItem(t *testing.T) {
	for _, concurrency := range []int{0, 1} {
		bubble(t, func(b *bundle) {
			b.putGroup(9)
			var got items
			o := options()
			o.Codec = &exiting{Codec: codec.JSON[job]()}
			h := got.handler(t, func(context.Context, *Message[job]) error { return nil })
			if concurrency > 0 {
				h = EachItem(h, concurrency)
			}
			b.run(New(b.queue, h, o))
			advance(time.Hour)
			b.mustFinish()
			got.wantCounts(t, 1, 1, 1, 1, 1, 1, 1, 1, 1)
		})
	}
}

// poisonDepth returns how many messages the poison queue has.
func (b *bundle) poisonDepth() int64 {
	p, err := b.queue.Queue.Sibling(poison.Suffix).Properties(b.Context())
	if err != nil {
		return 0
	}
	return p.Depth
}

// What one EachItem has done another does not know of: nothing counts as done.
func TestTwoEachForOneMessageLoseNothing(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putGroup(3)
		first := EachItem(func(context.Context, *Message[job]) error { return nil }, 1)
		second := EachItem(func(context.Context, *Message[job]) error { return nil }, 1)
		b.run(New(b.queue, All(first, second), options()))
		advance(time.Hour)
		b.mustFinish()
		records := b.poisoned()
		if len(records) != 1 {
			t.Fatalf("got %d messages in the poison queue, want 1", len(records))
		}
		r, err := poison.ParseRecord(records[0].Text)
		if err != nil || !strings.Contains(r.Error, "inside one EachItem") {
			t.Errorf("got %+v, %v", r, err)
		}
		if head, _, _, err := envelope.Open(r.Text, codec.Envelope, envelope.Groups); err != nil || head.Done != "" {
			t.Errorf("got %+v, %v, want nothing done", head, err)
		}
	})
}

// Batch inside EachItem collects items; All inside of it calls every handler for each.
func TestEachContainsBatchAndAll(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putGroup(20)
		var calls, sizes atomic.Int32
		batch := Batch(func(_ context.Context, ms []*Message[job]) []error {
			calls.Add(1)
			sizes.Add(int32(len(ms)))
			return nil
		}, 5, time.Minute)
		var others atomic.Int32
		other := func(context.Context, *Message[job]) error { others.Add(1); return nil }
		o := options()
		o.Concurrency = 2 // fewer than a batch: an EachItem has more
		o.OnError = func(err error) { t.Error(err) }
		b.run(New(b.queue, EachItem(All(batch, other), 10), o))
		advance(time.Second)
		b.mustFinish()
		if calls.Load() != 4 || sizes.Load() != 20 || others.Load() != 20 {
			t.Errorf("got %d batches of %d in all, and %d other calls", calls.Load(), sizes.Load(), others.Load())
		}
	})
}

// An item that the group does not have cannot be saved.
func TestASaveOfNoItemIsRefused(t *testing.T) {
	bothWays(t, func(b *bundle, way func(Handler[job]) Handler[job]) {
		b.putGroup(2)
		l := New(b.queue, way(func(ctx context.Context, m *Message[job]) error {
			for _, item := range []int{-1, m.Items} {
				other := *m
				other.Item = item
				if err := other.Save(ctx, job{1}); err == nil || !strings.Contains(err.Error(), "has no item") {
					b.Errorf("item %d: got %v, want that there is none", item, err)
				}
			}
			return nil
		}), options())
		b.run(l)
		advance(time.Minute)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != 1 || st.Outcomes[Retried] != 0 { // a panic of Save would be a failed attempt
			b.Errorf("got %d successes and %d retries, want 1 and 0", st.Outcomes[Deleted], st.Outcomes[Retried])
		}
	})
}

// A batch inside of EachItem waits for no item that cannot come: it begins when every item of the group
// that runs waits in it, and no further one can begin. It still waits for items that run, for those
// that wait for the key of another one, and for the places of items that end.
func TestABatchInsideEachWaitsForNoItemThatCannotCome(t *testing.T) {
	const wait = time.Minute
	oneKey := func(h Handler[job]) Handler[job] {
		keys, err := perkey.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		return perkey.MiddlewareBy[job](keys, func(*Message[job]) string { return "a" })(h)
	}
	for _, c := range []struct {
		name               string
		items, places, max int
		around             Middleware[job]
		want               map[int]int // how many batches had which size
		took               time.Duration
	}{
		{"fewer items than a batch", 3, 10, 5, nil, map[int]int{3: 1}, 0},
		{"fewer places than a batch", 7, 2, 5, nil, map[int]int{1: 1, 2: 3}, 0},
		{"a rest", 12, 10, 5, nil, map[int]int{2: 1, 5: 2}, 0},
		{"an item that runs on", 3, 3, 5, slow(0, time.Second), map[int]int{3: 1}, time.Second},
		{"an item that fails before", 3, 3, 5, slow(0, -time.Second), map[int]int{2: 1}, time.Second},
		{"one key, and more items than may wait for it", 1100, 2, 5, oneKey, map[int]int{1: 1100}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bundle) {
				b.putGroup(c.items)
				var mu sync.Mutex
				sizes := map[int]int{}
				last := b.begin
				h := Batch(func(_ context.Context, ms []*Message[job]) []error {
					mu.Lock()
					defer mu.Unlock()
					sizes[len(ms)]++
					last = time.Now()
					return nil
				}, c.max, wait)
				if c.around != nil {
					h = c.around(h)
				}
				o := options()
				o.RetryDelay = func(int, error) time.Duration { return time.Hour }
				b.run(New(b.queue, EachItem(h, c.places), o))
				advance(10 * wait)
				b.mustFinish()
				if took := last.Sub(b.begin); !maps.Equal(sizes, c.want) || took != c.took {
					t.Errorf("got batches of %v, the last after %v; want %v, after %v", sizes, took, c.want, c.took)
				}
			})
		})
	}
}

// After two lost starts the items of a group run one at a time, and so do their batches.
func TestABatchInsideEachDoesNotWaitWhenItemsRunAlone(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putGroup(3)
		batch, err := b.queue.Queue.Dequeue(b.Context(), 1, time.Minute)
		if err != nil || len(batch) != 1 {
			t.Fatalf("got %d messages and error %v, want 1", len(batch), err)
		}
		head, body, _, err := envelope.Open(batch[0].Text, codec.Envelope, envelope.Groups)
		if err != nil {
			t.Fatal(err)
		}
		head.Starts, head.Started = 1, envelope.NewItemSet(3, func(i int) bool { return i == 0 })
		text, err := envelope.Seal(head, body, codec.Envelope)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.queue.Queue.Update(b.Context(), batch[0].Lease, text, 0); err != nil {
			t.Fatal(err)
		}
		var sizes []int
		b.run(New(b.queue, EachItem(Batch(func(_ context.Context, ms []*Message[job]) []error {
			sizes = append(sizes, len(ms))
			return nil
		}, 3, time.Hour), 3), options()))
		advance(time.Minute)
		if fmt.Sprint(sizes) != "[1 1 1]" {
			t.Errorf("after a minute, got batches of %v, want [1 1 1]", sizes)
		}
		b.mustFinish()
	})
}

// slow is middleware in which an item takes that long before its handler is called, or, if the time
// is negative, before it fails.
func slow(item int, d time.Duration) Middleware[job] {
	return func(h Handler[job]) Handler[job] {
		return func(ctx context.Context, m *Message[job]) error {
			if m.Item == item {
				time.Sleep(d.Abs())
				if d < 0 {
					return errors.New("no")
				}
			}
			return h(ctx, m)
		}
	}
}

// Middleware and interceptors see every item, or outside of EachItem the message. What they return
// instead of the result is the result.
func TestMiddlewareDecidesForItems(t *testing.T) {
	var seen atomic.Int32
	swallow := func(h Handler[job]) Handler[job] {
		return func(ctx context.Context, m *Message[job]) error {
			seen.Add(1)
			_ = h(ctx, m)
			return nil
		}
	}
	intercept := func(ctx context.Context, d Delivery, next func(context.Context) error) error {
		seen.Add(1)
		if d.Items != 4 {
			t.Errorf("the interceptor sees %+v", d)
		}
		return next(ctx)
	}
	fails := func(context.Context, *Message[job]) error { return errors.New("no") }
	for name, c := range map[string]struct {
		handler Handler[job]
		seen    int32
	}{
		"items":               {swallow(fails), 8},
		"inside of EachItem":  {EachItem(swallow(fails), 2), 5},
		"outside of EachItem": {swallow(EachItem(fails, 2)), 2},
	} {
		bubble(t, func(b *bundle) {
			seen.Store(0)
			b.putGroup(4)
			o := options()
			o.Interceptors = []Interceptor{intercept}
			l := New(b.queue, c.handler, o)
			b.run(l)
			advance(time.Minute)
			b.mustFinish()
			if s := l.State(); s.Outcomes[Deleted] != 1 || seen.Load() != c.seen {
				t.Errorf("%s: got %d calls and %+v, want %d and a success", name, seen.Load(), s, c.seen)
			}
		})
	}
}

// Middleware that tries again gets the items that are not done.
func TestMiddlewareTriesItemsAgain(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putGroup(6)
		var got items
		each := EachItem(got.handler(t, func(_ context.Context, m *Message[job]) error {
			if m.Item == 2 && got.counts(6)[2] < 3 {
				return errors.New("not yet")
			}
			return nil
		}), 2)
		l := New(b.queue, func(ctx context.Context, m *Message[job]) (err error) {
			for range 3 {
				if err = each(ctx, m); err == nil {
					return nil
				}
			}
			return err
		}, options())
		b.run(l)
		advance(time.Second)
		b.mustFinish()
		got.wantCounts(t, 1, 1, 3, 1, 1, 1)
		if s := l.State(); s.Outcomes[Deleted] != 1 {
			t.Errorf("got %+v, want a success at once", s)
		}
	})
}

// Middleware that ends the context of an EachItem leaves no item without a result, or the message would
// come again at once and without end.
func TestItemsThatMiddlewareCancelsHaveFailed(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putGroup(6)
		each := EachItem(func(context.Context, *Message[job]) error { t.Error("handled"); return nil }, 2)
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return each(ctx, m)
		}, options())
		b.run(l)
		advance(time.Hour)
		b.mustFinish()
		if s := l.State(); s.Outcomes[Retried] != 4 || s.Outcomes[Poisoned] != 1 || s.Outcomes[Returned] != 0 {
			t.Errorf("got %+v, want 4 retries and then poison", s)
		}
	})
}

// A handler of an item that does not heed its time-out is reported as stuck, and one that returns in
// the end is not.
func TestAnItemThatIsStuckIsReported(t *testing.T) {
	for _, late := range []time.Duration{30 * time.Second, 90 * time.Second} {
		bothWays(t, func(b *bundle, way func(Handler[job]) Handler[job]) {
			b.putGroup(30)
			var stuck atomic.Int32
			o := options()
			o.Timeout = 10 * time.Second
			o.OnError = func(err error) {
				if s := new(StuckError); errors.As(err, &s) {
					stuck.Add(1)
					if !errors.Is(err, ErrTimeout) {
						t.Errorf("got %v", err)
					}
				}
			}
			b.run(New(b.queue, way(func(_ context.Context, m *Message[job]) error {
				if m.Item == 1 && m.DequeueCount == 1 { // its lease may end, because it is not renewed any more
					time.Sleep(10*time.Second + late)
				} else {
					time.Sleep(9 * time.Second) // so that others run when it would be reported
				}
				return nil
			}), o))
			advance(time.Hour)
			b.mustFinish()
			if want := int32(late / (60 * time.Second)); stuck.Load() != want {
				t.Errorf("late by %v: reported %d times, want %d", late, stuck.Load(), want)
			}
			if b.depth(b.queue) != 0 {
				t.Error("something is left")
			}
		})
	}
}

// Groups in which something succeeds are no outage of the handlers.
func TestAGroupThatSucceedsInPartIsNoOutage(t *testing.T) {
	for _, all := range []bool{false, true} {
		bubble(t, func(b *bundle) {
			for range 40 {
				b.putGroup(3)
			}
			o := options()
			o.Concurrency = 1
			o.RetryDelay = func(int, error) time.Duration { return time.Hour }
			l := New(b.queue, func(_ context.Context, m *Message[job]) error {
				if all || m.Item == 1 {
					return errors.New("no")
				}
				return nil
			}, o)
			b.run(l)
			advance(2 * time.Minute)
			if s := l.State(); len(s.Failing) > 0 != all {
				t.Errorf("with failures of all items %v: got %+v", all, s)
			}
			b.mustFinish()
		})
	}
}

// An item that a newer program can decode is left to it.
func TestAnItemForANewerWorkerIsLeftToIt(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putGroup(4)
		o := options()
		o.Codec = newerCodec{codec.JSON[job]()}
		o.Fetch.Idle = Idle{Min: time.Hour, Max: time.Hour}
		var got items
		l := New(b.queue, EachItem(got.handler(t, func(context.Context, *Message[job]) error { return nil }), 2), o)
		b.run(l)
		advance(10 * time.Minute)
		b.mustFinish()
		got.wantCounts(t, 1, 1, 0, 1)
		if s := l.State(); s.Outcomes[Snoozed] != 1 || s.Outcomes[Poisoned] != 0 {
			t.Errorf("got %+v, want one snooze, because its release is no reason to poll", s)
		}
		b.run(New(b.queue, EachItem(got.handler(t, func(context.Context, *Message[job]) error { return nil }), 2), options()))
		advance(10 * time.Minute)
		b.mustFinish()
		got.wantCounts(t, 0, 0, 1, 0)
	})
}

// newerCodec cannot decode job 2.
type newerCodec struct{ codec.Codec[job] }

func (c newerCodec) Decode(body []byte) (job, error) {
	j, err := c.Codec.Decode(body)
	if err == nil && j.N == 2 {
		err = fmt.Errorf("a job of next year: %w", codec.ErrNewer)
	}
	return j, err
}

// A message without room for the record, which another program has sent, is handled nevertheless.
func TestAGroupWithoutRoomForItsRecord(t *testing.T) {
	if testing.Short() {
		t.Skip("writes large messages")
	}
	bubble(t, func(b *bundle) {
		g := envelope.Group{[]byte(`{"N":0}`), []byte(`{"N":1}`), nil}
		overhead := len("millrace/2?id=group&gr=3\n") + len(g[:2].Encode()) + len("65000:\n")
		g[2] = []byte(`{"N":2}` + strings.Repeat(" ", 65536-overhead-len(`{"N":2}`)))
		text, _ := envelope.Seal(envelope.Head{ID: "group", Items: 3}, g.Encode(), codec.Envelope)
		if len(text) != 65536 {
			t.Fatalf("the text has %d bytes", len(text))
		}
		b.putText(text)
		var got items
		l := New(b.queue, got.handler(t, func(_ context.Context, m *Message[job]) error {
			time.Sleep(time.Minute)
			if m.Item == 1 && got.counts(3)[1] < 3 {
				return errors.New("not yet")
			}
			return nil
		}), options())
		b.run(l)
		advance(24 * time.Hour)
		b.mustFinish()
		if got.counts(3)[1] != 3 || b.depth(b.queue) != 0 || b.poisonDepth() != 0 {
			t.Errorf("the items were handled %v times, %+v", got.counts(3), l.State())
		}
	})
}

// What is recorded of a group is progress: workers that die again and again, each after some items,
// do not make it poison.
func TestAGroupThatMakesProgressIsNotLost(t *testing.T) {
	bothWays(t, func(b *bundle, way func(Handler[job]) Handler[job]) {
		b.putGroup(60)
		o := fixed(10 * time.Second)
		o.Poison.MaxLost = 2
		h := way(func(ctx context.Context, _ *Message[job]) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		for deaths := 0; b.depth(b.queue.Queue) > 0 && deaths < 20; deaths++ {
			var dead atomic.Bool
			b.queue.intercept = func(_ string, act func() error) error {
				if dead.Load() {
					return &queue.Error{Kind: queue.ErrUnavailable}
				}
				return act()
			}
			l := New(b.queue, h, o)
			b.run(l)
			advance(8 * time.Second)
			dead.Store(true)
			l.Halt()
			b.mustFinish()
			advance(time.Minute)
		}
		if b.depth(b.queue.Queue) != 0 || b.poisonDepth() != 0 {
			t.Errorf("%d messages and %d poisoned are left", b.depth(b.queue.Queue), b.poisonDepth())
		}
	})
}

// A GroupError lists the items, and its parts can be found.
func TestAGroupErrorHasTheErrorsOfTheItems(t *testing.T) {
	e := &dispatcher.GroupError{Items: 9, Errors: map[int]error{}, Failed: 1, Before: "item 0: no", Left: 2}
	for i := range 5 {
		e.Errors[i+1] = fmt.Errorf("error %d", i)
	}
	e.Errors[5] = ErrTimeout
	want := "of 9 items 5 ended with errors, 1 failed for good at earlier deliveries (item 0: no), 2 were not handled; " +
		"item 1: error 0; item 2: error 1; item 3: error 2; and 2 more"
	if got := e.Error(); got != want || !errors.Is(e, ErrTimeout) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	delete(e.Errors, 4)
	if delete(e.Errors, 5); strings.Contains(e.Error(), " more") {
		t.Errorf("three errors, which are all shown: %q", e.Error())
	}
}

// What an item has done while the last renewal was in flight is recorded, when middleware has left its
// EachItem behind.
func TestAnItemThatEndsDuringTheLastRenewalIsRecorded(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putGroup(2)
		var slow atomic.Bool
		slow.Store(true)
		q := customUpdate{b.queue, func(_ context.Context, _ queue.Lease, act func() (queue.Lease, error)) (queue.Lease, error) {
			fresh, err := act()
			if slow.Swap(false) {
				time.Sleep(10 * time.Second)
			}
			return fresh, err
		}}
		var got items
		each := EachItem(got.handler(t, func(_ context.Context, m *Message[job]) error {
			if m.Attempt == 1 {
				time.Sleep([]time.Duration{22 * time.Second, time.Minute}[m.Item])
			}
			return nil
		}), 2)
		o := options()
		o.Lease.Visibility = FixedVisibility(30 * time.Second) // renewed between 15 and 19 s
		l := New(q, func(ctx context.Context, m *Message[job]) error {
			if m.Attempt > 1 {
				return each(ctx, m)
			}
			go func() { _ = each(ctx, m) }()
			time.Sleep(20 * time.Second)
			return errors.New("too slow")
		}, o)
		b.run(l)
		advance(5 * time.Minute)
		b.mustFinish()
		got.wantCounts(t, 1, 2)
		if st := l.State(); st.Outcomes[Retried] != 1 || st.Outcomes[Deleted] != 1 {
			t.Errorf("got %d retried and %d succeeded, want 1 and 1", st.Outcomes[Retried], st.Outcomes[Deleted])
		}
	})
}
